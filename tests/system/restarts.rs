//! Either program stopped and started again, at rest and in the middle of a call.

use rig::{
    api::{content, script},
    world::World,
};
use serde_json::{Value, json};

/// A call that says how often it ran, and waits to be let go.
fn counted() -> String {
    script(&json!([
        {"tool": "bash", "input": {"command": "echo ran >> /tmp/ran; until [ -e /tmp/go ]; do sleep 0.1; done; wc -l < /tmp/ran", "timeout_ms": 600_000}},
        {"say": "done"}]))
}

fn only_result(events: &[Value]) -> String {
    let results: Vec<_> = events.iter().filter(|event| event["type"] == "agent.tool_result").collect();
    assert_eq!(results.len(), 1, "{results:#?}");
    content(results[0])
}

#[tokio::test]
async fn either_program_restarted_at_rest_loses_nothing() {
    let mut world = World::start().await;
    let session = world
        .session(&script(
            &json!([{"tool": "bash", "input": {"command": "echo kept > /workspace/note"}}, {"say": "ok"}]),
        ))
        .await;
    let before = world.api.idle(&session, 1).await;
    world.stop_runner().await;
    world.restart_plane().await;
    world.start_runner().await;
    assert_eq!(world.api.events(&session).await, before);
    world
        .api
        .say(
            &session,
            &script(&json!([{"tool": "bash", "input": {"command": "cat /workspace/note"}}, {"say": "ok"}])),
        )
        .await;
    let events = world.api.idle(&session, 2).await;
    let last = events.iter().rfind(|event| event["type"] == "agent.tool_result").unwrap();
    assert_eq!(content(last).trim(), "kept");
    world.verify().await;
}

#[tokio::test]
async fn a_runner_killed_during_a_call_comes_back_and_delivers_its_one_result() {
    let mut world = World::start().await;
    let session = world.session(&counted()).await;
    world.started(&session).await;
    let sandbox = world.sandbox(&session);
    world.kill_runner();
    world.start_runner().await;
    world.inside(&session, &["touch", "/tmp/go"]);
    let events = world.api.idle(&session, 1).await;
    assert_eq!(only_result(&events).trim(), "1");
    assert_eq!(world.sandbox(&session), sandbox, "the same container was taken up again");
    assert_eq!(events.last().unwrap()["stop_reason"], json!({"type": "end_turn"}));
    world.nothing_malformed_was_asked();
    world.verify().await;
}

#[tokio::test]
async fn a_control_plane_killed_during_a_call_comes_back_and_the_turn_goes_on() {
    let mut world = World::start().await;
    let session = world.session(&counted()).await;
    world.started(&session).await;
    let before = world.api.events(&session).await;
    world.kill_plane();
    world.inside(&session, &["touch", "/tmp/go"]);
    world.start_plane().await;
    let events = world.api.idle(&session, 1).await;
    assert_eq!(
        events[..before.len()].iter().map(|event| &event["id"]).collect::<Vec<_>>(),
        before.iter().map(|event| &event["id"]).collect::<Vec<_>>()
    );
    assert_eq!(only_result(&events).trim(), "1");
    world.nothing_malformed_was_asked();
    world.verify().await;
}

#[tokio::test]
async fn a_first_signal_lets_the_call_end_and_gives_the_run_back_and_no_more_work_is_taken() {
    let mut world = World::start().await;
    let session = world.session(&counted()).await;
    world.started(&session).await;
    world.signal_runner(rustix::process::Signal::TERM);
    let late = world.session(&script(&json!([{"say": "later"}]))).await;
    world.inside(&session, &["touch", "/tmp/go"]);
    assert_eq!(world.runner_exit().await, 0);
    assert_eq!(only_result(&world.api.events(&session).await).trim(), "1");
    assert!(!world.api.events(&late).await.iter().any(|event| event["type"] == "run.claimed"));
    world.start_runner().await;
    let events = world.api.idle(&session, 1).await;
    assert_eq!(only_result(&events).trim(), "1");
    assert_eq!(events.last().unwrap()["stop_reason"], json!({"type": "end_turn"}));
    world.api.idle(&late, 1).await;
    world.nothing_malformed_was_asked();
    world.verify().await;
}

#[tokio::test]
async fn a_second_signal_ends_the_call_with_its_tail_and_gives_the_run_back() {
    let mut world = World::start().await;
    let session = world.session(&counted()).await;
    world.started(&session).await;
    world.signal_runner(rustix::process::Signal::TERM);
    // Two signals sent at once would arrive as one.
    rig::wait::until("the runner to drain", async || {
        let status = world.finish(world.runner_program("runner").args(["status", "--json"])).await;
        status.stdout.contains("draining").then_some(())
    })
    .await;
    world.signal_runner(rustix::process::Signal::TERM);
    assert_ne!(world.runner_exit().await, 0);
    world.start_runner().await;
    let events = world.api.idle(&session, 1).await;
    assert!(only_result(&events).contains("interrupted"), "{}", only_result(&events));
    world.nothing_malformed_was_asked();
    world.verify().await;
}
