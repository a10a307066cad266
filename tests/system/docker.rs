//! Docker as it fails: not there at the start, away for a while in the middle of a call, hanging while the runner stops.
//! The daemon itself is shared, so that all of it happens in a relay before its socket.

use rig::{
    api::{content, script},
    link::{Condition, FaultyLink},
    process::Program,
    world::World,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::path::PathBuf;

const DOCKER: &str = "/var/run/docker.sock";

/// A call that says how often it ran, and waits to be let go.
fn counted() -> String {
    script(&json!([
        {"tool": "bash", "input": {"command": "echo ran >> /tmp/ran; until [ -e /tmp/go ]; do sleep 0.1; done; wc -l < /tmp/ran", "timeout_ms": 600_000}},
        {"say": "done"}]))
}

fn socket(world: &World) -> PathBuf {
    world.path("docker.sock")
}

fn relayed(program: Program, world: &World) -> Program {
    let socket = socket(world);
    program.env("DOCKER_HOST", format!("unix://{}", socket.display()))
}

async fn world() -> World {
    let mut world =
        World::without_runner_at(json!({"error_backoff_min_ms": 50, "error_backoff_max_ms": 500})).await;
    world.pair("runner").await;
    world
}

fn start(world: &mut World) {
    let program = relayed(world.run_program("runner"), world);
    world.start_runner_as(|_| program);
}

fn results(events: &[Value]) -> Vec<String> {
    events.iter().filter(|event| event["type"] == "agent.tool_result").map(content).collect()
}

#[tokio::test]
async fn docker_that_comes_late_and_goes_away_in_a_call_costs_only_time() {
    let mut world = world().await;
    start(&mut world);
    let reason = world.runner_is("unready").await;
    assert!(reason.contains("docker.sock"), "{reason}");
    let session = world.session(&counted()).await;
    let runs = world.api.get(&format!("/v1/sessions/{session}/runs")).await;
    assert_eq!(runs["data"][0]["waiting_reason"], "no_runner_ready", "{runs}");

    let link = FaultyLink::on_socket(socket(&world), DOCKER.into()).unwrap();
    world.started(&session).await;
    let sandbox = world.sandbox(&session);
    link.set(Condition::Refusing);
    link.cut();
    world.inside(&session, &["touch", "/tmp/go"]);
    rig::wait::until("the call to end in the sandbox", async || {
        let listing = rig::world::docker(&["top", &sandbox]);
        (!listing.contains("sleep 0.1")).then_some(())
    })
    .await;
    assert!(results(&world.api.events(&session).await).is_empty(), "nobody can have heard of the result");
    link.set(Condition::Clear);
    let events = world.api.idle(&session, 1).await;
    assert_eq!(results(&events).iter().map(|text| text.trim()).collect::<Vec<_>>(), ["1"]);
    assert_eq!(events.last().unwrap()["stop_reason"], json!({"type": "end_turn"}));
    assert_eq!(world.sandbox(&session), sandbox);
    world.nothing_malformed_was_asked();
    world.verify().await;
}

#[tokio::test]
async fn a_docker_that_hangs_holds_up_no_stop_and_the_next_start_goes_on() {
    let mut world = world().await;
    let link = FaultyLink::on_socket(socket(&world), DOCKER.into()).unwrap();
    start(&mut world);
    let session = world.session(&counted()).await;
    world.started(&session).await;
    let sandbox = world.sandbox(&session);
    link.set(Condition::Blackhole);
    world.signal_runner(Signal::TERM);
    world.runner_is("draining").await;
    world.signal_runner(Signal::TERM);
    assert_eq!(world.runner_exit().await, 10, "cancelled, with whatever could be cleared up in its time");

    link.cut();
    link.set(Condition::Clear);
    start(&mut world);
    world.inside(&session, &["touch", "/tmp/go"]);
    let events = world.api.idle(&session, 1).await;
    let results = results(&events);
    assert_eq!(results.len(), 1, "{results:#?}");
    // What the runner said while Docker hung may still arrive and end the call.
    let ended = ["interrupted", "cancelled"].iter().any(|word| results[0].contains(word));
    assert!(results[0].trim() == "1" || ended, "{results:#?}");
    assert_eq!(world.sandbox(&session), sandbox);
    world.nothing_malformed_was_asked();
    world.verify().await;
}

#[tokio::test]
async fn a_third_signal_ends_the_runner_at_once_and_the_next_start_clears_up() {
    let mut world = world().await;
    let link = FaultyLink::on_socket(socket(&world), DOCKER.into()).unwrap();
    start(&mut world);
    let session = world.session(&counted()).await;
    world.started(&session).await;
    link.set(Condition::Blackhole);
    for words in ["stopping:", "second signal"] {
        world.signal_runner(Signal::TERM);
        // Two signals sent at once would arrive as one.
        let runner = world.runner();
        rig::wait::until_true(words, || runner.errors().contains(words)).await;
    }
    world.signal_runner(Signal::TERM);
    assert_eq!(world.runner_exit().await, 11);
    link.cut();
    link.set(Condition::Clear);
    start(&mut world);
    world.inside(&session, &["touch", "/tmp/go"]);
    let events = world.api.idle(&session, 1).await;
    assert_eq!(results(&events).len(), 1);
    assert_eq!(world.sandboxes(&session), 1);
    world.verify().await;
}

#[tokio::test]
async fn a_runner_that_crashes_while_it_drains_finishes_what_it_has_and_takes_nothing_new() {
    let mut world = World::start().await;
    let session = world.session(&counted()).await;
    world.started(&session).await;
    world.signal_runner(Signal::TERM);
    world.runner_is("draining").await;
    world.kill_runner();
    let late = world.session(&script(&json!([{"say": "later"}]))).await;
    world.start_runner().await;
    world.inside(&session, &["touch", "/tmp/go"]);
    assert_eq!(world.runner_exit().await, 0, "it ends by itself once the drain is complete");
    let events = world.api.events(&session).await;
    assert_eq!(results(&events).iter().map(|text| text.trim()).collect::<Vec<_>>(), ["1"]);
    assert!(!world.api.events(&late).await.iter().any(|event| event["type"] == "run.claimed"));
    world.start_runner().await;
    world.api.idle(&session, 1).await;
    world.api.idle(&late, 1).await;
    world.nothing_malformed_was_asked();
    world.verify().await;
}
