//! What the sandbox, the model and Docker may do to a session, and what must come of it.

use rig::{
    api::{content, script},
    world::World,
};
use serde_json::{Value, json};

fn results(events: &[Value]) -> Vec<String> {
    events.iter().filter(|event| event["type"] == "agent.tool_result").map(content).collect()
}

#[tokio::test]
async fn a_result_too_long_becomes_a_preview_and_the_rest_can_be_read_but_is_no_output() {
    let world = World::start().await;
    let session = world
        .session(&script(&json!([
        {"tool": "bash", "input": {"command": "seq 1 60000; echo needle-at-the-end"}},
        {"tool": "bash", "input": {"command": "grep -c '' /.checkfu/out/*; ls /mnt/session/outputs | wc -l"}},
        {"say": "ok"}])))
        .await;
    let events = world.api.idle(&session, 1).await;
    let results = results(&events);
    let envelope: Value =
        serde_json::from_str(&results[0]).unwrap_or_else(|_| panic!("no envelope: {:.300}", results[0]));
    assert_eq!(envelope["type"], "result_truncated");
    assert!(envelope["preview_tail"].as_str().unwrap().contains("needle-at-the-end"));
    assert!(envelope["alive_only_path"].as_str().unwrap().starts_with("/.checkfu/out/"));
    assert!(results[1].contains("60001") && results[1].trim().ends_with('0'), "{}", results[1]);
    assert!(!events.iter().any(|event| event["type"] == "session.output_captured"));
    world.nothing_malformed_was_asked();
}

#[tokio::test]
async fn the_helper_in_the_sandbox_cannot_be_killed_from_inside() {
    let world = World::start().await;
    let session = world
        .session(&script(&json!([
        {"tool": "bash", "input": {"command": "kill -9 1; kill -TERM 1; kill -INT 1; echo tried"}},
        {"tool": "bash", "input": {"command": "kill -9 -1; echo not reached"}},
        {"tool": "bash", "input": {"command": "echo alive"}},
        {"say": "ok"}])))
        .await;
    let events = world.api.idle(&session, 1).await;
    assert_eq!(results(&events)[2].trim(), "alive");
    assert_eq!(events.iter().filter(|event| event["type"] == "sandbox.created").count(), 1);
    world.nothing_malformed_was_asked();
}

#[tokio::test]
async fn a_container_removed_during_a_call_is_lost_and_never_a_success() {
    let world = World::start().await;
    let session = world
        .session(&script(&json!([
        {"tool": "bash", "input": {"command": "sleep 300", "timeout_ms": 600_000}}, {"say": "ok"}])))
        .await;
    world.started(&session).await;
    rig::world::docker(&["rm", "--force", &world.sandbox(&session)]);
    let events = world.api.idle(&session, 1).await;
    assert!(events.iter().any(|event| event["type"] == "sandbox.lost"), "{events:#?}");
    let result = events.iter().find(|event| event["type"] == "agent.tool_result").unwrap();
    assert_eq!(result["is_error"], true);
    world.nothing_malformed_was_asked();
    world.verify().await;
}

#[tokio::test]
async fn hostile_outputs_are_captured_exactly_or_refused_by_name() {
    let world = World::start().await;
    let session = world.session(&script(&json!([
        {"tool": "bash", "input": {"command": "cd /mnt/session/outputs; echo real > real.txt; ln -s /etc/passwd link; mkfifo pipe; truncate -s 3G sparse; printf x > $'new\\nline'; printf y > 'a:b'; printf z > ./-dash; head -c 70000000 /dev/zero > big; echo ok"}},
        {"say": "ok"}]))).await;
    let events = world.api.idle(&session, 1).await;
    let mut captured: Vec<_> = events
        .iter()
        .filter(|event| event["type"] == "session.output_captured")
        .map(|event| {
            (event["path"].as_str().unwrap().to_owned(), event["status"].as_str().unwrap().to_owned())
        })
        .collect();
    captured.sort();
    let status =
        |name: &str| captured.iter().find(|(path, _)| path == name).map(|(_, status)| status.as_str());
    assert_eq!(status("real.txt"), Some("captured"), "{captured:?}");
    assert_eq!(status("sparse"), Some("too_large"));
    assert_eq!(status("big"), Some("too_large"));
    assert_eq!(status("link"), Some("special"));
    assert_eq!(status("pipe"), Some("special"));
    assert_eq!(status("new%0Aline"), Some("captured"));
    assert_eq!(status("a%3Ab"), Some("captured"));
    assert_eq!(status("-dash"), Some("captured"));
    world.nothing_malformed_was_asked();
}

#[tokio::test]
async fn a_provider_that_fails_for_a_while_is_asked_again_and_says_so_in_the_log() {
    let world = World::start().await;
    let session = world
        .session(&script(&json!([
        {"error": 529, "times": 1}, {"error": 429, "retry_after": 1}, {"cut": true, "after_deltas": 1},
        {"tool": "bash", "input": {"command": "echo once >> /tmp/n; wc -l < /tmp/n"}},
        {"error": 500}, {"say": "through"}])))
        .await;
    let events = world.api.idle(&session, 1).await;
    assert_eq!(events.last().unwrap()["stop_reason"], json!({"type": "end_turn"}));
    let errors: Vec<_> = events.iter().filter(|event| event["type"] == "session.error").collect();
    assert!(
        errors.len() >= 4 && errors.iter().all(|event| event["error"]["retry_status"]["type"] == "retrying"),
        "{errors:#?}"
    );
    assert_eq!(results(&events)[0].trim(), "1");
    world.nothing_malformed_was_asked();
    world.verify().await;
}

#[tokio::test]
async fn an_image_that_does_not_exist_ends_the_turn_with_a_sentence() {
    let world = World::start().await;
    let config =
        json!({"type": "cloud", "networking": {"type": "none"}, "image": "checkfu/does-not-exist:1"});
    let environment = world.api.environment_with(config).await;
    let session = world
        .api
        .session(
            &world.agent,
            &environment,
            &script(&json!([{"tool": "bash", "input": {"command": "true"}}, {"say": "ok"}])),
        )
        .await;
    let events = world.api.idle(&session, 1).await;
    let error = events.iter().find(|event| event["type"] == "session.error").unwrap();
    assert!(error["error"]["message"].as_str().unwrap().contains("checkfu/does-not-exist:1"), "{error}");
    assert_ne!(events.last().unwrap()["stop_reason"], json!({"type": "end_turn"}));
    world.verify().await;
}
