//! What a person says while or after a turn runs: follow-ups, interrupts, and the shell that remembers.

use rig::{
    api::{content, script},
    world::World,
};
use serde_json::json;

#[tokio::test]
async fn a_follow_up_finds_the_same_sandbox_and_the_same_shell() {
    let world = World::start().await;
    let session = world.session(&script(&json!([
        {"tool": "bash", "input": {"command": "export COLOUR=green; cd /tmp; greet() { echo hello $1; }"}}, {"say": "set"}]))).await;
    world.api.idle(&session, 1).await;
    world
        .api
        .say(
            &session,
            &script(&json!([
        {"tool": "bash", "input": {"command": "echo $COLOUR; pwd; greet you"}}, {"say": "seen"}])),
        )
        .await;
    let events = world.api.idle(&session, 2).await;
    let last = events.iter().rfind(|event| event["type"] == "agent.tool_result").unwrap();
    assert_eq!(content(last).trim(), "green\n/tmp\nhello you");
    assert_eq!(events.iter().filter(|event| event["type"] == "sandbox.created").count(), 1);
    world.nothing_malformed_was_asked();
    world.verify().await;
}

#[tokio::test]
async fn an_interrupt_ends_a_long_command_and_the_next_message_starts_a_new_turn() {
    let world = World::start().await;
    let session = world.session(&script(&json!([
        {"tool": "bash", "input": {"command": "echo begun; sleep 600", "timeout_ms": 900_000}}, {"say": "never said"}]))).await;
    world.started(&session).await;
    world.api.input(&session, json!({"type": "user.interrupt"})).await;
    let events = world.api.idle(&session, 1).await;
    assert_eq!(events.last().unwrap()["stop_reason"], json!({"type": "end_turn"}));
    let result = events.iter().find(|event| event["type"] == "agent.tool_result").unwrap();
    assert!(content(result).contains("interrupted") && result["is_error"] == true, "{result}");

    world
        .api
        .say(
            &session,
            &script(
                &json!([{"tool": "bash", "input": {"command": "pgrep -c sleep || true"}}, {"say": "ok"}]),
            ),
        )
        .await;
    let events = world.api.idle(&session, 2).await;
    let result = events.iter().rfind(|event| event["type"] == "agent.tool_result").unwrap();
    assert_eq!(content(result).trim(), "0", "the interrupted command is gone");
    assert!(
        events
            .iter()
            .filter(|event| event["type"] == "user.interrupt")
            .all(|event| event["processed_at"].is_string())
    );
    world.nothing_malformed_was_asked();
    world.verify().await;
}

#[tokio::test]
async fn a_message_during_a_turn_steers_it_and_none_is_lost() {
    let world = World::start().await;
    let session = world.session(&script(&json!([
        {"tool": "bash", "input": {"command": "for i in $(seq 300); do [ -e /tmp/go ] && break; sleep 0.1; done; echo on"}},
        {"say": "first"}]))).await;
    world.started(&session).await;
    world.api.say(&session, &script(&json!([{"say": "steered"}]))).await;
    world.inside(&session, &["touch", "/tmp/go"]);
    let last = world.api.event(&session, "the steered answer", |event| content(event) == "steered").await;
    assert_eq!(last["type"], "agent.message");
    let events = world.api.idle(&session, 1).await;
    assert!(
        events
            .iter()
            .filter(|event| event["type"] == "user.message")
            .all(|event| event["processed_at"].is_string())
    );
    world.nothing_malformed_was_asked();
    world.verify().await;
}

#[tokio::test]
async fn an_interrupt_before_any_runner_takes_the_run_settles_it_at_once() {
    let world = World::without_runner().await;
    let session = world.session(&script(&json!([{"say": "never"}]))).await;
    let runs = world.api.get(&format!("/v1/sessions/{session}/runs")).await;
    assert!(runs["data"][0]["waiting_reason"].is_string(), "{runs}");
    world.api.input(&session, json!({"type": "user.interrupt"})).await;
    let events = world.api.idle(&session, 1).await;
    assert_eq!(events.last().unwrap()["stop_reason"], json!({"type": "end_turn"}));
    world.verify().await;
}
