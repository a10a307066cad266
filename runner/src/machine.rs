//! What a simulation replaces of the machine: the boot clock and the threads that may block. Everywhere else both are the
//! system's own. It decides nothing.

use std::cell::Cell;
use tokio::{task::JoinError, time::Instant};

thread_local! {
    /// Since when this thread's boot clock counts, where time is simulated.
    static SIMULATED: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Lets everything that this thread polls live in simulated time: the boot clock follows the clock of the runtime, which a
/// test may pause, and work that blocks is done at once on this thread. `None` ends it.
pub fn simulate(since: Option<Instant>) {
    SIMULATED.set(since);
}

/// Milliseconds of the boot clock, which goes on in suspend.
pub(crate) fn boot_ms() -> u64 {
    if let Some(since) = SIMULATED.get() {
        // Not zero: an instant before the first one must be expressible.
        return u64::try_from(since.elapsed().as_millis()).unwrap_or(0).saturating_add(1_000_000);
    }
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let millis = u64::try_from(now.tv_nsec / 1_000_000).unwrap_or(0);
    seconds.saturating_mul(1_000).saturating_add(millis)
}

/// Whether this thread lives in simulated time, where the machine's own state has no say.
pub(crate) fn is_simulated() -> bool {
    SIMULATED.get().is_some()
}

/// Does work that blocks, such as on the disk, beside the runtime. Once polled it is done even when the caller goes away.
///
/// # Errors
/// When it panicked, or the runtime is ending.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    if SIMULATED.get().is_some() {
        let done = work();
        // A crash may come before anybody hears of it.
        tokio::task::yield_now().await;
        return Ok(done);
    }
    tokio::task::spawn_blocking(work).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn a_simulated_thread_follows_its_runtime_and_blocks_nobody_else() {
        simulate(Some(Instant::now()));
        let before = boot_ms();
        tokio::time::sleep(Duration::from_secs(60)).await;
        let after = boot_ms();
        let thread = blocking(|| std::thread::current().id()).await.unwrap();
        simulate(None);
        assert_eq!(after - before, 60_000);
        assert_eq!(thread, std::thread::current().id());
        assert_ne!(blocking(|| std::thread::current().id()).await.unwrap(), thread);
    }
}
