//! Pairing when something goes wrong in the middle: killed at any moment, a code past its time.

use rig::world::World;
use rustix::process::Signal;
use serde_json::json;
use std::time::Duration;

#[tokio::test]
async fn a_pairing_killed_at_any_moment_leaves_all_or_nothing_and_its_code_still_pairs_the_same_runner() {
    let world = World::without_runner().await;
    for round in 0..14u64 {
        let (code, state) = (world.code().await, format!("runner-{round}"));
        let program = world.runner_program(&state).args(["pair", "--plane", &world.url()]);
        let mut pairing = program.input(format!("{code}\n")).start(&world.path("logs")).unwrap();
        // The moments differ by where the kill falls between reading the code and the last write.
        tokio::time::sleep(Duration::from_millis(round * 6)).await;
        pairing.signal(Signal::KILL);
        pairing.ended().await;
        let status = world.finish(world.runner_program(&state).args(["status"])).await;
        assert!(matches!(status.code, 3 | 12), "not paired or not running, never half: {status:?}");
        if status.code == 3 {
            let again = world.redeem(&state, &code).await;
            assert_eq!(again.code, 0, "round {round}: {again:?}");
        }
        let status = world.finish(world.runner_program(&state).args(["status"])).await;
        assert_eq!(status.code, 12, "{status:?}");
        let runners = world.api.get("/v1/runners?limit=100").await;
        assert_eq!(runners["data"].as_array().unwrap().len() as u64, round + 1, "one runner a code");
    }
}

#[tokio::test]
async fn a_code_past_its_time_is_refused_as_expired_by_the_servers_clock_alone() {
    let world = World::without_runner().await;
    let principals = world.api.get("/v1/principals").await;
    let short = json!({"principal": principals["data"][0]["id"], "ttl_seconds": 1});
    let minted = world.api.post("/v1/runner-pairings", short).await;
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let refused = world.redeem("late", minted["code"].as_str().unwrap()).await;
    assert_eq!(refused.code, 7, "{refused:?}");
    assert!(refused.stderr.contains("past its time"), "{refused:?}");
    assert!(!world.path("late/identity.json").exists());
}
