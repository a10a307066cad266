//! One session from its creation to its files, and what its log must look like.

use rig::{
    api::{self, content, script},
    world::World,
};
use serde_json::{Value, json};

/// Uses every built-in tool once and leaves two files.
fn every_tool() -> String {
    script(&json!([
        {"say": "Let me look around.", "tool": "bash", "input": {"command": "printf 'one\\ntwo\\n' > a.txt; mkdir -p sub; cp a.txt sub/b.txt; pwd"}},
        {"tools": [
            {"tool": "read", "input": {"file_path": "a.txt"}},
            {"tool": "glob", "input": {"pattern": "**/*.txt"}},
            {"tool": "grep", "input": {"pattern": "two"}}]},
        {"tool": "edit", "input": {"file_path": "a.txt", "old_string": "two", "new_string": "three"}},
        {"tool": "write", "input": {"file_path": "/mnt/session/outputs/report.txt", "content": "a report\n"}},
        {"tool": "bash", "input": {"command": "cat a.txt; mkdir -p /mnt/session/outputs/deep; head -c 300000 /dev/urandom > /mnt/session/outputs/deep/blob.bin; sha256sum < /mnt/session/outputs/deep/blob.bin"}},
        {"say": "All done."}
    ]))
}

#[tokio::test]
async fn a_session_uses_every_tool_and_its_files_come_back_byte_for_byte() {
    let world = World::start().await;
    let session = world.session(&every_tool()).await;
    let events = world.api.idle(&session, 1).await;

    let results: Vec<&Value> = events.iter().filter(|event| event["type"] == "agent.tool_result").collect();
    assert_eq!(results.len(), 7, "{results:#?}");
    assert!(results.iter().all(|result| result["is_error"] != true), "{results:#?}");
    assert!(content(results[0]).contains("/workspace"));
    assert!(content(results[2]).contains("a.txt"));
    assert!(content(results[3]).contains("two"));
    let last_bash = content(results[6]);
    assert!(last_bash.contains("one\nthree"), "{last_bash}");

    let idle = events.last().unwrap();
    assert_eq!(idle["stop_reason"], json!({"type": "end_turn"}));
    let files = world.api.get(&format!("/v1/sessions/{session}/files")).await;
    let mut paths: Vec<_> =
        files["data"].as_array().unwrap().iter().map(|file| api::text(&file["path"])).collect();
    paths.sort();
    assert_eq!(paths, ["deep/blob.bin", "report.txt"]);

    let mut bytes = Vec::new();
    for offset in [0, 100_000, 200_000] {
        let path =
            format!("/v1/sessions/{session}/files/content?path=deep/blob.bin&offset={offset}&length=100000");
        bytes.extend(api::body(world.api.request(reqwest::Method::GET, &path).send().await.unwrap()).await);
    }
    assert_eq!(bytes.len(), 300_000);
    assert!(
        last_bash.contains(&rig::sha256_hex(&bytes)),
        "the bytes differ from what the sandbox saw: {last_bash}"
    );
    world.nothing_malformed_was_asked();
    world.verify().await;
}

#[tokio::test]
async fn a_turn_is_logged_in_the_documented_order_and_every_entry_says_who_and_why() {
    let world = World::start().await;
    let session = world.session(&script(&json!([{"tool": "bash", "input": {"command": "echo hi > /mnt/session/outputs/x"}}, {"say": "ok"}]))).await;
    let events = world.api.idle(&session, 1).await;
    let kinds: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    let want = [
        "user.message",
        "run.created",
        "session.status_running",
        "run.claimed",
        "session.input_processed",
        "span.model_request_start",
        "agent.tool_use",
        "span.model_request_end",
        "agent.tool_result",
        "span.model_request_start",
        "agent.message",
        "span.model_request_end",
        "session.output_captured",
        "run.settled",
        "session.usage",
        "session.status_idle",
    ];
    let without_sandbox: Vec<_> =
        kinds.iter().copied().filter(|kind| !kind.starts_with("sandbox.")).collect();
    assert_eq!(without_sandbox, want);
    assert!(kinds.contains(&"sandbox.created"));
    for (event, seq) in events.iter().zip(1..) {
        assert_eq!(event["seq"], seq);
        assert_eq!(event["session_id"], session.as_str());
    }
    assert!(api::text(&events[0]["authored_by"]).starts_with("prin_"));
    assert_eq!(events[0]["caused_by"]["type"], "api_request");
    let usage = &events.iter().find(|event| event["type"] == "session.usage").unwrap()["usage"];
    assert!(
        usage["input_tokens"].as_u64().unwrap() > 0 && usage["output_tokens"].as_u64().unwrap() > 0,
        "{usage}"
    );
}

#[tokio::test]
async fn sessions_run_side_by_side_up_to_the_runners_slots() {
    let world = World::start().await;
    let wait_for_both = script(&json!([
        {"tool": "bash", "input": {"command": "touch /mnt/session/outputs/started; sleep 2; echo slept"}}, {"say": "ok"}]));
    let (first, second) = tokio::join!(world.session(&wait_for_both), world.session(&wait_for_both));
    let (one, two) = tokio::join!(world.api.idle(&first, 1), world.api.idle(&second, 1));
    let at = |events: &[Value], kind: &str| {
        let event = events.iter().find(|event| event["type"] == kind).unwrap();
        api::text(&event["created_at"])
    };
    assert!(
        at(&one, "run.claimed") < at(&two, "run.settled")
            && at(&two, "run.claimed") < at(&one, "run.settled")
    );
}

#[tokio::test]
async fn archive_ends_a_session_and_delete_takes_its_record_and_its_sandbox() {
    let world = World::start().await;
    let session = world
        .session(&script(&json!([{"tool": "bash", "input": {"command": "echo hi"}}, {"say": "ok"}])))
        .await;
    world.api.idle(&session, 1).await;
    assert_eq!(world.sandboxes(&session), 1);

    let archived = world.api.post(&format!("/v1/sessions/{session}/archive"), json!({})).await;
    assert_eq!(archived["status"], "terminated");
    let event = json!({"events": [{"type": "user.message", "content": [{"type": "text", "text": "more"}]}]});
    let (status, refusal) =
        world.api.send(reqwest::Method::POST, &format!("/v1/sessions/{session}/events"), Some(event)).await;
    assert!((400..500).contains(&status), "{status} {refusal}");
    assert!(!world.api.events(&session).await.is_empty(), "history stays readable");

    let (status, _) = world.api.send(reqwest::Method::DELETE, &format!("/v1/sessions/{session}"), None).await;
    assert_eq!(status, 200);
    let (status, _) = world.api.send(reqwest::Method::GET, &format!("/v1/sessions/{session}"), None).await;
    assert_eq!(status, 404);
    rig::wait::until("the sandbox to be removed", async || (world.sandboxes(&session) == 0).then_some(()))
        .await;
}

#[tokio::test]
async fn the_session_resource_has_exactly_the_documented_members() {
    let world = World::start().await;
    let session = world.session(&script(&json!([{"say": "ok"}]))).await;
    world.api.idle(&session, 1).await;
    let record = world.api.get(&format!("/v1/sessions/{session}")).await;
    let mut members: Vec<_> = record.as_object().unwrap().keys().map(String::as_str).collect();
    members.sort_unstable();
    let mut want = [
        "id",
        "agent",
        "archived_at",
        "budget",
        "created_at",
        "environment_id",
        "metadata",
        "outcome_evaluations",
        "resources",
        "stats",
        "status",
        "title",
        "type",
        "updated_at",
        "usage",
        "vault_ids",
        "automation_id",
    ];
    want.sort_unstable();
    assert_eq!(members, want);
    assert_eq!(record["status"], "idle");
}

#[tokio::test]
async fn secrets_are_nowhere_but_where_they_belong() {
    let world = World::start().await;
    let session = world.session(&script(&json!([
        {"tool": "bash", "input": {"command": "env; cat /proc/1/environ 2>&1 || true; cat /proc/1/cmdline | tr '\\0' ' '"}}, {"say": "ok"}]))).await;
    let events = world.api.idle(&session, 1).await;
    let log = serde_json::to_string(&events).unwrap();
    let inspect = world.inspect_sandboxes(&session);
    for (name, canary) in world.canaries() {
        assert!(!log.contains(&canary), "{name} is in the event log");
        assert!(!inspect.contains(&canary), "{name} is in the container's configuration");
        for (file, text) in world.logs() {
            assert!(!text.contains(&canary), "{name} is in {file}");
        }
        assert!(!world.command_lines().contains(&canary), "{name} is in a command line");
        assert!(!world.database_holds(&canary), "{name} stands in the database as it is");
    }
}
