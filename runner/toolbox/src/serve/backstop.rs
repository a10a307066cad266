//! A time limit of PID 1's own, in case whoever should keep the real one is stopped or stuck.
//! Time in which this process did not run at all is not charged.

use std::time::{Duration, Instant};

const GAP: Duration = Duration::from_secs(8);

#[derive(Debug)]
pub(super) struct Backstop {
    left: Duration,
    looked: Instant,
}

impl Backstop {
    pub(super) fn new(limit: Duration) -> Self {
        Self { left: limit, looked: Instant::now() }
    }

    /// Leaves at most `limit` from now on.
    pub(super) fn shorten(&mut self, limit: Duration) {
        self.left = self.left.min(limit);
    }

    /// Charges the time since the last look, unless `frozen`; true when nothing is left.
    pub(super) fn spent(&mut self, frozen: bool) -> bool {
        let now = Instant::now();
        let passed = now - std::mem::replace(&mut self.looked, now);
        if !frozen && passed < GAP {
            self.left = self.left.saturating_sub(passed);
        }
        self.left.is_zero()
    }
}
