//! The measured ratios: A and B in one run, round about, medians of all rounds, printed as a table and as lines
//! `ratio NAME VALUE goal <= GOAL`, or `>=` where the ratio is one of throughputs. It asserts no time; it fails only when a piece does not work at all.

#![expect(
    clippy::print_stdout,
    clippy::expect_used,
    reason = "its result is what it prints; it fails by panicking"
)]

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

/// What a ratio should be.
#[derive(Clone, Copy)]
enum Bound {
    /// Of durations: less is better.
    AtMost(f64),
    /// Of throughputs: more is better.
    AtLeast(f64),
}

impl Bound {
    fn ratio(self, a: f64, b: f64) -> f64 {
        match self {
            Self::AtMost(_) => a / b,
            Self::AtLeast(_) => b / a,
        }
    }

    fn shown(self) -> String {
        match self {
            Self::AtMost(goal) => format!("<= {goal}"),
            Self::AtLeast(goal) => format!(">= {goal}"),
        }
    }
}

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let rows = runtime.block_on(async {
        let mut rows = vec![claim().await];
        rows.extend(sandbox::rows().await);
        rows
    });
    println!("{:<13} {:>10} {:>10} {:>7} {:>8}  what", "name", "A p50 ms", "B p50 ms", "A / B", "goal");
    for row in rows {
        let (a, b) = (median_ms(row.a), median_ms(row.b));
        let (ratio, goal) = (row.goal.ratio(a, b), row.goal.shown());
        println!("{:<13} {a:>10.2} {b:>10.2} {ratio:>7.3} {goal:>8}  {}", row.name, row.what);
        println!("ratio {} {ratio:.3} goal {goal}", row.name);
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
