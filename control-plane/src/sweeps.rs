//! The loop that runs the engine's reconcilers. A failure is logged and tried again next turn; it ends with `stop`.

use crate::engine::Engine;
use checkfu_shared::problem::Problem;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How many short turns make a long one.
const LONG: u32 = 60;

/// Runs every reconciler in turn until `stop`.
pub async fn run(engine: Engine, stop: CancellationToken) {
    let tempo = engine.tempo();
    let period = Duration::from_millis((tempo.offer_ms.min(tempo.lease_ms) / 4).clamp(20, 1_000));
    let (mut turn, mut seen) = (0u32, (engine.now(), Instant::now()));
    loop {
        let (now, passed) = (engine.now(), seen.1.elapsed());
        let ahead =
            now.since_ms(seen.0).saturating_sub(i64::try_from(passed.as_millis()).unwrap_or(i64::MAX));
        seen = (now, Instant::now());
        note("follow the clock", engine.follow_clock(ahead).await);
        note("expire offers", engine.expire_offers().await);
        note("lapse leases", engine.lapse_leases().await);
        note("expire approvals", engine.expire_approvals().await);
        note("nudge polls", engine.nudge_polls().await);
        if turn == 0 {
            note("expire permissions", engine.expire_permissions().await);
            note("forget old rows", engine.forget_old_rows().await);
            note("remove garbage", engine.remove_garbage().await);
        }
        turn = (turn + 1) % LONG;
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(period) => {}
        }
    }
}

fn note(what: &'static str, outcome: Result<(), Problem>) {
    if let Err(problem) = outcome {
        tracing::warn!(what, %problem, "a sweep failed and is tried again");
    }
}
