//! Sandboxes that do too much of everything: output without end, processes that will not die, more memory than there is, names
//! that nobody should use, every processor at once. The runner stays small and the session goes on.

use rig::{
    api::{self, content, script},
    world::World,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn results(events: &[Value]) -> Vec<String> {
    events.iter().filter(|event| event["type"] == "agent.tool_result").map(content).collect()
}

/// The largest memory that the runner had so far, in KiB.
fn peak_kib(world: &mut World) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", world.runner().id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn output_without_lines_or_of_nothing_but_redrawn_lines_keeps_the_runner_small_and_the_last_lines_visible()
 {
    let mut world = World::start().await;
    let first = world
        .session(&script(&json!([{"tool": "bash", "input": {"command": "true"}}, {"say": "warm"}])))
        .await;
    world.api.idle(&first, 1).await;
    let before = peak_kib(&mut world);
    let mut steps = vec![
        json!({"tool": "bash", "input": {"command": "head -c 52428800 /dev/zero | tr '\\0' x; echo; echo after-the-line", "timeout_ms": 120_000}}),
        json!({"tool": "bash", "input": {"command": "seq -f 'progress %.0f' 1 200000 | tr '\\n' '\\r'; echo; echo after-the-bar", "timeout_ms": 120_000}}),
    ];
    for _ in 0..10 {
        steps.push(json!({"tool": "bash", "input": {"command": "seq 1 2000"}}));
    }
    steps.push(json!({"say": "done"}));
    let session = world.session(&script(&json!(steps))).await;
    let events = world.api.idle(&session, 1).await;
    let results = results(&events);
    assert!(results[0].contains("after-the-line"), "{:.300}", results[0]);
    assert!(results[1].contains("after-the-bar"), "{:.300}", results[1]);
    for result in &results[2..] {
        assert!(result.contains("2000"), "the last line of a burst is there: {:.300}", result);
    }
    assert_eq!(results.len(), 12);
    let grown = peak_kib(&mut world).saturating_sub(before);
    assert!(grown < 64 << 10, "the runner grew by {grown} KiB");
    world.nothing_malformed_was_asked();
    world.verify().await;
}

#[tokio::test]
async fn what_ignores_signals_and_what_hides_in_a_session_of_its_own_is_gone_after_an_interrupt() {
    let world = World::start().await;
    let stubborn = "trap '' TERM INT HUP; (setsid bash -c 'trap \"\" TERM; (sleep 4001 &); sleep 4002' &); sleep 4003; sleep 4004";
    let session = world
        .session(&script(&json!([
            {"tool": "bash", "input": {"command": stubborn, "timeout_ms": 900_000}}, {"say": "never"}])))
        .await;
    world.started(&session).await;
    let listing = || rig::world::docker(&["top", &world.sandbox(&session)]);
    rig::wait::until_true("all of them to run", || {
        ["4001", "4002", "4003"].iter().all(|n| listing().contains(n))
    })
    .await;
    world.api.input(&session, json!({"type": "user.interrupt"})).await;
    let events = world.api.idle(&session, 1).await;
    assert_eq!(events.last().unwrap()["stop_reason"], json!({"type": "end_turn"}));
    rig::wait::until_true("all of them to be gone", || !listing().contains("sleep 400")).await;
    world.nothing_malformed_was_asked();
    world.verify().await;
}

#[tokio::test]
async fn a_call_that_takes_too_much_memory_says_so_and_the_sandbox_lives_on() {
    let world = World::start().await;
    let config = json!({"type": "self_hosted", "resources": {"memory_bytes": 134_217_728}});
    let environment = world.api.environment_with(config).await;
    let steps = script(&json!([
        {"tool": "bash", "input": {"command": "echo kept > /tmp/note; tail /dev/zero; echo status $?"}},
        {"tool": "bash", "input": {"command": "(tail /dev/zero & wait $!); echo status $?"}},
        {"tool": "bash", "input": {"command": "cat /tmp/note"}},
        {"say": "done"}]));
    let session = world.api.session(&world.agent, &environment, &steps).await;
    let events = world.api.idle(&session, 1).await;
    let results = results(&events);
    for result in &results[..2] {
        assert!(result.contains("memory") || result.contains("137"), "{result}");
    }
    assert_eq!(results[2].trim(), "kept", "{results:#?}");
    world.verify().await;
}

#[tokio::test]
async fn files_with_names_of_any_bytes_come_back_as_they_are_or_are_refused_by_name() {
    let world = World::start().await;
    let command = r#"cd /mnt/session/outputs
        printf 1 > $'n\xc3\xa9'; printf 2 > $'ne\xcc\x81'; printf 3 > CASE; printf 4 > case
        printf 5 > $'bad\xff\xfe'; printf 6 > 'back\slash'; printf 7 > 'per%cent'; printf 8 > ' space '
        printf 9 > "$(printf 'x%.0s' $(seq 255))"; printf 10 > '...'; printf 11 > $'tab\t'
        mkdir locked; printf 12 > locked/in; chmod 0 locked
        mkdir -p a/b/c; printf 13 > 'a/b/c/d:e'; ls | wc -l"#;
    let session = world
        .session(&script(&json!([{"tool": "bash", "input": {"command": command}}, {"say": "ok"}])))
        .await;
    let events = world.api.idle(&session, 1).await;
    let captured: BTreeMap<String, String> = events
        .iter()
        .filter(|event| event["type"] == "session.output_captured")
        .map(|event| (api::text(&event["path"]), api::text(&event["status"])))
        .collect();
    let read = async |key: &str| {
        let path = format!("/v1/sessions/{session}/files/content");
        let request = world.api.request(reqwest::Method::GET, &path).query(&[("path", key)]);
        let response = request.send().await.unwrap();
        (response.status().as_u16(), String::from_utf8(api::body(response).await).unwrap())
    };
    let mut contents = Vec::new();
    for (key, status) in &captured {
        if status == "captured" {
            let (code, content) = read(key).await;
            assert!(code < 300, "{key}: {code}");
            contents.push(content.parse::<u32>().unwrap());
        } else {
            assert!(key.starts_with("locked"), "only what may not be read is refused: {key} {status}");
        }
    }
    contents.sort_unstable();
    contents.retain(|number| *number != 12);
    assert_eq!(contents, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13], "{captured:#?}");
    world.api.post(&format!("/v1/sessions/{session}/archive"), json!({})).await;
    let (status, _) = world.api.send(reqwest::Method::DELETE, &format!("/v1/sessions/{session}"), None).await;
    assert_eq!(status, 200);
    rig::wait::until_true("the sandbox to be cleared away", || world.sandboxes(&session) == 0).await;
}

#[tokio::test]
async fn a_session_on_every_processor_keeps_its_lease() {
    let tempo = json!({"renew_ms": 2_000, "lease_ms": 30_000, "freeze_margin_ms": 5_000});
    let world = World::with_tempo(tempo).await;
    let command = "for i in $(seq 8); do (timeout 8 sh -c 'while :; do :; done' &) done; sleep 8; echo burnt";
    let session = world
        .session(&script(&json!([
            {"tool": "bash", "input": {"command": command, "timeout_ms": 120_000}}, {"say": "done"}])))
        .await;
    let events = world.api.idle(&session, 1).await;
    assert!(results(&events)[0].contains("burnt"));
    assert_eq!(events.iter().filter(|event| event["type"] == "run.claimed").count(), 1);
    let log = world.logs().into_iter().map(|(_, text)| text).collect::<String>();
    assert!(!log.contains("its session stands still"), "no renewal was starved");
    world.verify().await;
}
