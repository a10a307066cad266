//! Waiting for a state of the world: look, and look again, until it is so or the patience ends.
//! Level-triggered on purpose: it cannot miss an event, and it never takes longer than it must.

use std::time::Duration;

use tokio::time::Instant;

/// How long `until` is patient. It bounds a failing test; a passing one never waits for it.
pub const PATIENCE: Duration = Duration::from_secs(60);

const SHORTEST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Looks until `look` finds something, and returns it; `what` completes "gave up waiting for".
///
/// # Panics
/// When nothing was found within [`PATIENCE`].
pub async fn until<T>(what: &str, look: impl AsyncFnMut() -> Option<T>) -> T {
    until_within(PATIENCE, what, look).await
}

/// As [`until`], with the caller's patience.
///
/// # Panics
/// When nothing was found in time.
pub async fn until_within<T>(patience: Duration, what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + patience;
    let mut pause = SHORTEST_PAUSE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < end, "gave up waiting for {what} after {patience:?}");
        tokio::time::sleep(pause).await;
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}

/// Waits until the condition holds.
///
/// # Panics
/// When it did not hold within [`PATIENCE`].
pub async fn until_true(what: &str, mut holds: impl FnMut() -> bool) {
    until(what, async || holds().then_some(())).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn looks_until_it_is_so() {
        let mut looks = 0;
        let found = until("the tenth look", async || {
            looks += 1;
            (looks == 10).then_some("here")
        })
        .await;
        assert_eq!((found, looks), ("here", 10));
    }

    #[tokio::test]
    #[should_panic(expected = "gave up waiting for a miracle after 5ms")]
    async fn gives_up_in_the_end() {
        until_within(Duration::from_millis(5), "a miracle", async || None::<()>).await;
    }
}
