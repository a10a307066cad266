//! When a batch goes out. Pure: at once when something waits for it, else after a little company has come.

use std::time::Duration;
use tokio::time::Instant;

const QUIET_WATCHED: Duration = Duration::from_millis(25);
const HOLD_MAX: Duration = Duration::from_millis(250);
const BYTES_AT_ONCE: u64 = 64 << 10;

/// What waits to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// Something in it is waited for.
    pub(crate) urgent: bool,
    /// Bytes on disk.
    pub(crate) bytes: u64,
    /// When the first and the last event of it came.
    pub(crate) oldest: Instant,
    pub(crate) newest: Instant,
}

/// The instant from which on the batch may go.
pub(crate) fn due(waiting: &Waiting, watched: bool) -> Instant {
    if waiting.urgent || waiting.bytes >= BYTES_AT_ONCE {
        waiting.oldest
    } else if watched {
        (waiting.newest + QUIET_WATCHED).min(waiting.oldest + HOLD_MAX)
    } else {
        waiting.oldest + HOLD_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_waits_for_company_only_as_long_as_nobody_waits_for_it() {
        let oldest = Instant::now();
        let at = |ms: u64| oldest + Duration::from_millis(ms);
        // (urgent, bytes, newest, watched) -> due
        for (urgent, bytes, newest_ms, watched, due_ms) in [
            (false, 10, 0, false, 250),
            (false, 10, 200, false, 250),
            (false, 10, 0, true, 25),
            (false, 10, 100, true, 125),
            (false, 10, 240, true, 250),
            (true, 10, 5, false, 0),
            (true, 10, 5, true, 0),
            (false, 64 << 10, 5, false, 0),
        ] {
            let waiting = Waiting { urgent, bytes, oldest, newest: at(newest_ms) };
            assert_eq!(due(&waiting, watched), at(due_ms), "{waiting:?} watched {watched}");
        }
    }
}
