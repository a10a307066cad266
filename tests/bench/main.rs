//! The measured ratios: A and B in one run, round about, medians of all rounds, printed as a table and as lines
//! `ratio NAME VALUE goal <= GOAL` (`>=` where it is one of throughputs) or `added NAME VALUE ms goal <= GOAL`. It asserts no
//! time; it fails only when a piece does not work at all.

#![expect(
    clippy::print_stdout,
    clippy::expect_used,
    reason = "its result is what it prints; it fails by panicking"
)]

mod gateway;
mod idle;
mod sandbox;

use rig::{api::script, world::World};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Rounds of A and B in turn; five at least, by the performance page.
const ROUNDS: usize = 5;
/// Samples of each in one round.
const SAMPLES: usize = 20;

/// What one comparison came to.
struct Row {
    name: &'static str,
    what: &'static str,
    a: Vec<Duration>,
    b: Vec<Duration>,
    goal: Bound,
}

/// What a row is measured by.
#[derive(Clone, Copy)]
enum Bound {
    /// A divided by B, of durations: less is better.
    AtMost(f64),
    /// B divided by A, so that it is one of throughputs: more is better.
    AtLeast(f64),
    /// A less B in milliseconds: less is better.
    Added(f64),
}

impl Bound {
    fn value(self, a_ms: f64, b_ms: f64) -> f64 {
        match self {
            Self::AtMost(_) => a_ms / b_ms,
            Self::AtLeast(_) => b_ms / a_ms,
            Self::Added(_) => a_ms - b_ms,
        }
    }

    fn shown(self) -> String {
        match self {
            Self::AtMost(goal) | Self::Added(goal) => format!("<= {goal}"),
            Self::AtLeast(goal) => format!(">= {goal}"),
        }
    }

    fn line(self, name: &str, value: f64) -> String {
        let goal = self.shown();
        match self {
            Self::AtMost(_) | Self::AtLeast(_) => format!("ratio {name} {value:.3} goal {goal}"),
            Self::Added(_) => format!("added {name} {value:.3} ms goal {goal}"),
        }
    }
}

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (rows, idle) = runtime.block_on(async {
        let mut rows = vec![claim().await];
        rows.extend(gateway::rows().await);
        rows.extend(sandbox::rows().await);
        (rows, idle::rows().await)
    });
    println!("{:<13} {:>10} {:>10} {:>7} {:>8}  what", "name", "A p50 ms", "B p50 ms", "value", "goal");
    for row in rows {
        let (a, b) = (median_ms(row.a), median_ms(row.b));
        let (value, goal) = (row.goal.value(a, b), row.goal.shown());
        println!("{:<13} {a:>10.2} {b:>10.2} {value:>7.3} {goal:>8}  {}", row.name, row.what);
        println!("{}", row.goal.line(row.name, value));
    }
    for row in idle {
        let goal = format!("<= {}", row.goal);
        println!("{:<13} {:>10} {:>10} {:>7.3} {goal:>8}  {}", row.name, "", "", row.value, row.what);
        println!("ratio {} {:.3} goal {goal}", row.name, row.value);
    }
}

fn median_ms(mut samples: Vec<Duration>) -> f64 {
    samples.sort_unstable();
    samples[samples.len() / 2].as_secs_f64() * 1_000.0
}

/// From creating a session to the runner holding its claim, against the acknowledgement of one input.
async fn claim() -> Row {
    let (with_runner, without) = (World::start().await, World::without_runner().await);
    let tools: [Value; 0] = [];
    let agent = json!({"name": rig::api::unique("bench"), "model": "scripted-1", "tools": tools});
    let agent = rig::api::text(&with_runner.api.post("/v1/agents", agent).await["id"]);
    let waiting = without.session("waits").await;
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        for _ in 0..SAMPLES {
            let begun = Instant::now();
            let message = script(&json!([{"say": "ok"}]));
            let session = with_runner.api.session(&agent, &with_runner.environment, &message).await;
            let mut stream = with_runner.api.stream(&session, 0).await;
            while stream.next().await.expect("the stream goes on").event != "run.claimed" {}
            a.push(begun.elapsed());
            with_runner.api.idle(&session, 1).await;
        }
        for _ in 0..SAMPLES {
            let begun = Instant::now();
            without.api.say(&waiting, "more").await;
            b.push(begun.elapsed());
        }
    }
    Row {
        name: "claim",
        what: "create -> the runner holds the claim / one input acknowledged",
        a,
        b,
        goal: Bound::AtMost(1.5),
    }
}
