//! Full disks: of the runner before and during a session, of the control plane under its log. What was acknowledged stays,
//! what cannot be kept is refused with a sentence, and everything goes on once there is room.

use rig::{
    api::{content, script},
    tmpfs::Tmpfs,
    world::World,
};
use serde_json::{Value, json};

fn results(events: &[Value]) -> Vec<String> {
    events.iter().filter(|event| event["type"] == "agent.tool_result").map(content).collect()
}

#[tokio::test]
async fn a_runner_on_a_full_disk_takes_no_work_and_a_session_caught_by_it_goes_on_with_room() {
    let mut world = World::without_runner().await;
    world.pair("runner").await;
    let disk = Tmpfs::over(&world.path("runner"), 32);
    disk.fill(4 << 10);
    world.start_runner_as(|program| program.args(["--min-free-mib", "8"]));
    let reason = world.runner_is("unready").await;
    assert!(reason.contains("MiB left") && reason.contains("8 are needed"), "{reason}");
    let session = world
        .session(&script(&json!([
            {"tool": "bash", "input": {"command": "until [ -e /tmp/go ]; do sleep 0.1; done; echo ran >> /tmp/ran; wc -l < /tmp/ran", "timeout_ms": 600_000}},
            {"tool": "bash", "input": {"command": "head -c 200000 /dev/urandom | base64 -w 0; echo end"}},
            {"say": "done"}])))
        .await;
    disk.free();
    world.started(&session).await;

    disk.fill(0);
    world.inside(&session, &["touch", "/tmp/go"]);
    let runner = world.runner();
    rig::wait::until_true("the full disk to be noticed", || runner.errors().contains("has only 0 MiB left"))
        .await;
    assert!(!world.api.events(&session).await.iter().any(|event| event["type"] == "session.status_idle"));
    disk.free();
    let events = world.api.idle(&session, 1).await;
    let results = results(&events);
    assert_eq!((results.len(), results[0].trim()), (2, "1"), "{results:.200?}");
    assert!(results[1].contains("end"));
    assert_eq!(events.last().unwrap()["stop_reason"], json!({"type": "end_turn"}));
    world.nothing_malformed_was_asked();
    world.verify().await;
    world.kill_runner();
}

#[tokio::test]
async fn a_control_plane_on_a_full_disk_refuses_with_a_sentence_and_loses_nothing_it_took() {
    let mut world = World::start().await;
    world.kill_plane();
    let disk = Tmpfs::over(&world.path("plane"), 24);
    world.start_plane().await;
    let session = world
        .session(&script(&json!([
            {"tool": "bash", "input": {"command": "until [ -e /tmp/go ]; do sleep 0.1; done; echo ran >> /tmp/ran; wc -l < /tmp/ran", "timeout_ms": 600_000}},
            {"say": "done"}])))
        .await;
    world.started(&session).await;
    let before = world.api.events(&session).await;
    disk.fill(0);
    let path = format!("/v1/sessions/{session}/events");
    let long = "x".repeat(400_000);
    let event = json!({"type": "user.message", "content": [{"type": "text", "text": long}]});
    let refused = rig::wait::until("a refusal", async || {
        let body = json!({"events": [event]});
        let (status, reply) = world.api.send(reqwest::Method::POST, &path, Some(body)).await;
        (status != 200).then_some((status, reply))
    })
    .await;
    assert!((500..600).contains(&refused.0), "{refused:?}");
    let message = refused.1["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("disk") || message.contains("space"), "{refused:?}");
    let during = world.api.events(&session).await;
    assert_eq!(during[..before.len()], before, "what was taken can still be read");

    disk.free();
    world.inside(&session, &["touch", "/tmp/go"]);
    let events = world.api.idle(&session, 1).await;
    assert_eq!(results(&events).iter().map(|text| text.trim()).collect::<Vec<_>>(), ["1"]);
    world.nothing_malformed_was_asked();
    world.verify().await;
    world.kill_plane();
}
