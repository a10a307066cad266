//! How much the spools may hold that the control plane has not acknowledged: per session and per host.
//! At the cap a session stands still; nothing is dropped.

use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;

/// The caps and what is used of the host's.
#[derive(Debug)]
pub struct Quota {
    session_bytes: u64,
    host_bytes: u64,
    used: AtomicU64,
    freed: Notify,
}

impl Default for Quota {
    fn default() -> Self {
        Self::new(256 << 20, 2 << 30)
    }
}

impl Quota {
    /// A quota of these many bytes a session and a host.
    #[must_use]
    pub fn new(session_bytes: u64, host_bytes: u64) -> Self {
        Self { session_bytes, host_bytes, used: AtomicU64::new(0), freed: Notify::new() }
    }

    /// Takes `bytes` for a session that has `own` already. One append always fits an empty spool.
    pub(crate) fn take(&self, own: u64, bytes: u64) -> bool {
        if own > 0 && own + bytes > self.session_bytes {
            return false;
        }
        self.used
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| {
                (own == 0 || used + bytes <= self.host_bytes).then_some(used + bytes)
            })
            .is_ok()
    }

    /// How many bytes all sessions hold together.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Acquire)
    }

    /// How many they may.
    pub(crate) const fn most(&self) -> u64 {
        self.host_bytes
    }

    /// Counts what a reopened spool holds already.
    pub(crate) fn count(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::AcqRel);
    }

    /// Gives `bytes` back.
    pub(crate) fn free(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::AcqRel);
        self.freed.notify_waiters();
    }

    /// Waits until something was given back.
    pub(crate) async fn freed(&self) {
        self.freed.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_caps_hold_and_an_empty_spool_always_takes_one() {
        let quota = Quota::new(100, 150);
        assert!(quota.take(0, 90));
        assert!(!quota.take(90, 11), "above the session's cap");
        assert!(quota.take(0, 60), "an empty spool takes one, or nothing would ever move");
        assert!(!quota.take(60, 1), "above the host's cap");
        quota.free(90);
        assert!(quota.take(60, 1));
    }
}
