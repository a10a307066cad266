//! What a sandbox must not hold, and what the log says of what it could not reach.

use rig::{
    api::script,
    world::{World, docker},
};
use serde_json::{Value, json};
use std::process::Command;

#[tokio::test]
async fn no_secret_of_ours_is_in_a_sandbox_its_processes_or_its_description() {
    let world = World::start().await;
    let environment = world
        .api
        .environment_with(
            json!({"type": "cloud", "networking": {"type": "limited", "allowed_hosts": ["ok.example"]}}),
        )
        .await;
    let message = script(&json!([
        {"tool": "bash", "input": {"command": "(sleep 300 >/dev/null 2>&1 &) ; env > ~/env; echo on"}}, {"say": "ok"}]));
    let session = world.api.session(&world.agent, &environment, &message).await;
    world.api.idle(&session, 1).await;
    let container = world.sandbox(&session);
    let files = Command::new("docker").args(["export", &container]).output().unwrap().stdout;
    assert!(files.len() > 1 << 20, "the file system was not exported");
    let pids = docker(&["top", &container, "-eo", "pid"]);
    let pids: Vec<&str> = pids.lines().skip(1).map(str::trim).collect();
    assert!(pids.len() >= 2, "{pids:?}");
    let read = |pid: &&str, part: &str| std::fs::read(format!("/proc/{pid}/{part}")).unwrap_or_default();
    let processes: Vec<u8> =
        pids.iter().flat_map(|pid| ["environ", "cmdline"].map(|part| read(pid, part))).flatten().collect();
    assert!(!processes.is_empty());
    let places = [
        ("files", String::from_utf8_lossy(&files)),
        ("processes", String::from_utf8_lossy(&processes)),
        ("description", world.inspect_sandboxes(&session).into()),
    ];
    for (name, secret) in world.canaries() {
        for (place, text) in &places {
            assert!(!text.contains(&secret), "{name} is in the {place} of a sandbox");
        }
    }
    // The search does find what is there.
    assert!(places[0].1.contains("checkfu-toolbox") && places[1].1.contains("sleep"));
}

#[tokio::test]
async fn what_a_sandbox_could_not_reach_is_in_the_log_once_with_its_count() {
    let world = World::start().await;
    let environment = world
        .api
        .environment_with(
            json!({"type": "cloud", "networking": {"type": "limited", "allowed_hosts": ["ok.example"]}}),
        )
        .await;
    let message = script(&json!([
        {"tool": "bash", "input": {"command": "for i in 1 2 3; do curl -s http://evil.example/; done; curl -s https://evil.example/; curl -s http://169.254.169.254/latest; true"}},
        {"say": "ok"}]));
    let session = world.api.session(&world.agent, &environment, &message).await;
    let events = world.api.idle(&session, 1).await;
    let denied: Vec<&Value> =
        events.iter().filter(|event| event["type"] == "sandbox.egress_denied").collect();
    let told = |host: &str, port: u64| {
        let count = denied.iter().filter(|event| event["host"] == host && event["port"] == port);
        count.map(|event| event["count"].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!(told("evil.example", 80), 3, "{denied:#?}");
    assert_eq!(told("evil.example", 443), 1, "{denied:#?}");
    assert_eq!(told("169.254.169.254", 80), 1, "{denied:#?}");
    world.verify().await;
}
