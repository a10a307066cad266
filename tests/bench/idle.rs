//! What an installation without work costs: memory and processor of a runner, and of the control plane for each runner.

use rig::world::World;
use std::time::Duration;

/// What an installation without work costs, each figure against what it may.
pub(crate) struct Idle {
    pub(crate) name: &'static str,
    pub(crate) what: String,
    pub(crate) value: f64,
    pub(crate) goal: f64,
}

/// The resident memory of a process in KiB and the processor seconds it has used.
fn cost(pid: u32) -> (f64, f64) {
    let read =
        |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).expect("a running process");
    let status = read("status");
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("resident memory");
    let kib = resident.split_whitespace().next().and_then(|kib| kib.parse().ok()).expect("a number");
    let stat = read("stat");
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: f64 = fields[11..13].iter().filter_map(|ticks| ticks.parse::<f64>().ok()).sum();
    (kib, ticks / 100.0)
}

/// A runner without work over half a minute, and what each further one costs the control plane.
pub(crate) async fn rows() -> Vec<Idle> {
    /// How many more runners the control plane gets.
    const MORE: u32 = 8;
    const WATCHED: Duration = Duration::from_secs(30);
    let mut world = World::start().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let runner = world.runner().id();
    let plane = world.plane().id();
    let ((before_kib, _), (_, used)) = (cost(plane), cost(runner));
    tokio::time::sleep(WATCHED).await;
    let (resident_kib, used_after) = cost(runner);
    let per_hour = (used_after - used) * 3_600.0 / WATCHED.as_secs_f64();
    let mut more = Vec::new();
    for number in 0..MORE {
        let state = format!("idle-{number}");
        let code = world.code().await;
        world.redeem(&state, &code).await;
        more.push(world.start_other_runner(&state));
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    let each_kib = (cost(plane).0 - before_kib).max(0.0) / f64::from(MORE);
    vec![
        Idle {
            name: "idle-rss",
            what: format!("idle runner, {:.1} MiB resident / 20 MiB", resident_kib / 1_024.0),
            value: resident_kib / 1_024.0 / 20.0,
            goal: 1.0,
        },
        Idle {
            name: "idle-cpu",
            what: format!("idle runner, {per_hour:.2} processor s an hour / 0.5 s"),
            value: per_hour / 0.5,
            goal: 1.0,
        },
        Idle {
            name: "idle-each",
            what: format!("control plane, {each_kib:.0} KiB for each idle runner / 64 KiB"),
            value: each_kib / 64.0,
            goal: 1.0,
        },
    ]
}
