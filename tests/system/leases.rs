//! Leases under real faults: a stopped runner, a control plane out of reach, a runner that never comes back.
//! Durations are shortened by the control plane's tempo, as an operator could.

use rig::{
    api::{self, content, script},
    world::World,
};
use rustix::process::Signal;
use serde_json::{Value, json};

/// Leases of seconds, so that their ends can be seen.
fn short() -> Value {
    json!({"renew_ms": 500, "lease_ms": 4_000, "freeze_margin_ms": 1_500, "affinity_ms": 2_000, "poll_wait_ms": 2_000,
           "directives_wait_ms": 1_000, "offer_ms": 2_000, "error_backoff_min_ms": 100, "error_backoff_max_ms": 500})
}

fn ticking() -> String {
    script(&json!([
        {"tool": "bash", "input": {"command": "until [ -e /tmp/go ]; do echo tick >> /tmp/ticks; sleep 0.1; done; echo over", "timeout_ms": 600_000}},
        {"say": "done"}]))
}

fn ticks(world: &World, session: &str) -> String {
    rig::world::docker(&["cp", &format!("{}:/tmp/ticks", world.sandbox(session)), "-"])
}

fn results(events: &[Value]) -> Vec<&Value> {
    events.iter().filter(|event| event["type"] == "agent.tool_result").collect()
}

#[tokio::test]
async fn a_control_plane_away_longer_than_the_lease_freezes_the_session_and_nothing_is_lost() {
    let mut world = World::with_tempo(short()).await;
    let session = world.session(&ticking()).await;
    world.started(&session).await;
    let sandbox = world.sandbox(&session);
    world.kill_plane();
    rig::wait::until("the sandbox to be frozen", async || {
        rig::world::docker(&["inspect", "--format", "{{.State.Paused}}", &sandbox])
            .contains("true")
            .then_some(())
    })
    .await;
    let frozen = ticks(&world, &session);
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert_eq!(ticks(&world, &session), frozen, "nothing runs while the lease is not sure");

    world.start_plane().await;
    rig::wait::until("the sandbox to run again", async || {
        rig::world::docker(&["inspect", "--format", "{{.State.Paused}}", &sandbox])
            .contains("false")
            .then_some(())
    })
    .await;
    world.inside(&session, &["touch", "/tmp/go"]);
    let events = world.api.idle(&session, 1).await;
    assert_eq!(results(&events).len(), 1);
    assert!(content(results(&events)[0]).contains("over"));
    assert_eq!(
        events.iter().filter(|event| event["type"] == "run.claimed").count(),
        1,
        "the same claim was revived"
    );
    world.nothing_malformed_was_asked();
    world.verify().await;
}

#[tokio::test]
async fn a_runner_stopped_past_its_lease_stops_its_sandbox_and_writes_nothing_once_another_has_the_run() {
    let mut world = World::with_tempo(short()).await;
    let session = world.session(&ticking()).await;
    world.started(&session).await;
    let first = world.sandbox(&session);
    world.signal_runner(Signal::STOP);
    world.pair("other").await;
    let _other = world.start_other_runner("other");

    let events = world.api.idle(&session, 1).await;
    assert!(events.iter().any(|event| event["type"] == "session.status_rescheduled"));
    assert_eq!(results(&events).len(), 1);
    assert!(content(results(&events)[0]).contains("interrupted"), "{}", results(&events)[0]);
    let before = rig::world::docker(&["cp", &format!("{first}:/tmp/ticks"), "-"]);

    world.signal_runner(Signal::CONT);
    world.api.say(&session, &script(&json!([{"say": "moved"}]))).await;
    let events = world.api.idle(&session, 2).await;
    let holders: std::collections::BTreeSet<_> = events
        .iter()
        .filter(|event| event["type"] == "run.claimed")
        .map(|event| api::text(&event["runner_id"]))
        .collect();
    assert_eq!(holders.len(), 2);
    assert_eq!(results(&events).len(), 1, "the stopped runner wrote nothing after its lease");
    let after = rig::world::docker(&["cp", &format!("{first}:/tmp/ticks"), "-"]);
    assert!(after.is_empty() || after == before, "no side effect outlived the lease");
    world.nothing_malformed_was_asked();
    world.verify().await;
}

#[tokio::test]
async fn an_epoch_that_is_over_is_refused_on_every_write() {
    let world = World::with_tempo(short()).await;
    let session = world.session(&script(&json!([{"say": "ok"}]))).await;
    let events = world.api.idle(&session, 1).await;
    let claim = events.iter().find(|event| event["type"] == "run.claimed").unwrap();
    let (id, epoch) = (api::text(&claim["claim_id"]), claim["epoch"].as_u64().unwrap());
    // A user's key is no runner's token: the protocol does not even hear it.
    let path = format!("/v1/runner/claims/{id}/renew");
    let (status, _) = world.api.send(reqwest::Method::POST, &path, Some(json!({"epoch": epoch}))).await;
    assert_eq!(status, 401);
}

#[tokio::test]
async fn a_revoked_runner_stops_its_session_at_once_and_parks() {
    let world = World::with_tempo(short()).await;
    let session = world.session(&ticking()).await;
    world.started(&session).await;
    let runners = world.api.get("/v1/runners").await;
    let runner = api::text(&runners["data"][0]["id"]);
    world.api.post(&format!("/v1/runners/{runner}/revoke"), json!({"reason": "lost laptop"})).await;
    rig::wait::until("the sandbox to be stopped or gone", async || {
        let filter = format!("label=checkfu.session={session}");
        rig::world::docker(&["ps", "--quiet", "--filter", &filter]).is_empty().then_some(())
    })
    .await;
    let late = world.session(&script(&json!([{"say": "nobody"}]))).await;
    let runs = world.api.get(&format!("/v1/sessions/{late}/runs")).await;
    assert!(runs["data"][0]["waiting_reason"].is_string());
    assert!(!world.api.events(&late).await.iter().any(|event| event["type"] == "run.claimed"));
    world.verify().await;
}
