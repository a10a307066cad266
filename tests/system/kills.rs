//! Both programs killed again and again in the middle of work; at the end nothing is missing and nothing ran twice.

use rig::{
    api::{content, script},
    world::World,
};
use serde_json::{Value, json};

/// Every call leaves its own number in a file that the last one counts: a number that stands twice ran twice.
fn numbered() -> String {
    let mut steps: Vec<Value> = (1..=6)
        .map(|n| json!({"tool": "bash", "input": {"command": format!("echo {n} >> /tmp/ran; sleep 0.4; echo ran {n}")}}))
        .collect();
    steps.push(json!({"tool": "bash", "input": {"command": "sort /tmp/ran | uniq -d | wc -l"}}));
    steps.push(json!({"say": "done"}));
    script(&json!(steps))
}

async fn killed_and_checked(kill: impl AsyncFn(&mut World, usize)) {
    let mut world = World::with_tempo(json!({"error_backoff_min_ms": 50, "error_backoff_max_ms": 500})).await;
    let session = world.session(&numbered()).await;
    for round in 0..3 {
        let calls = 1 + 2 * round;
        world
            .api
            .event(&session, "another call", |event| {
                event["type"] == "agent.tool_use" && {
                    let command = event["input"]["command"].as_str().unwrap_or_default();
                    command.starts_with(&format!("echo {calls} "))
                }
            })
            .await;
        kill(&mut world, round).await;
    }
    let events = world.api.idle(&session, 1).await;
    for (event, seq) in events.iter().zip(1u64..) {
        assert_eq!(event["seq"], seq);
    }
    let of = |kind: &str| events.iter().filter(|event| event["type"] == kind).collect::<Vec<_>>();
    assert_eq!(of("agent.tool_use").len(), of("agent.tool_result").len());
    assert_eq!(of("run.settled").len(), 1);
    assert_eq!(events.last().unwrap()["stop_reason"], json!({"type": "end_turn"}));
    let results: Vec<_> = of("agent.tool_result").iter().map(|event| content(event)).collect();
    for (n, result) in results.iter().take(6).enumerate() {
        assert!(result.contains(&format!("ran {}", n + 1)) || result.contains("interrupted"), "{results:#?}");
    }
    assert!(
        results[6].trim() == "0" || results[6].contains("interrupted"),
        "something ran twice: {results:#?}"
    );
    assert_eq!(world.sandboxes(&session), 1);
    world.nothing_malformed_was_asked();
    world.verify().await;
}

#[tokio::test]
async fn a_runner_killed_three_times_in_a_turn_loses_nothing_and_repeats_nothing() {
    killed_and_checked(async |world, _| {
        world.kill_runner();
        world.start_runner().await;
    })
    .await;
}

#[tokio::test]
async fn a_control_plane_killed_three_times_in_a_turn_loses_nothing_and_repeats_nothing() {
    killed_and_checked(async |world, _| world.restart_plane().await).await;
}

#[tokio::test]
async fn both_killed_in_turn_lose_nothing_and_do_nothing_twice() {
    killed_and_checked(async |world, round| {
        if round != 1 {
            world.kill_runner();
        }
        if round != 0 {
            world.restart_plane().await;
        }
        if round != 1 {
            world.start_runner().await;
        }
    })
    .await;
}
