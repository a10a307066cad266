//! Instants of CLOCK_BOOTTIME, which goes on in suspend, and the pure rules of a lease over them. It grants nothing itself.

use super::State;
use std::time::Duration;

/// An instant of this machine's boot clock, in milliseconds since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootInstant(u64);

impl BootInstant {
    /// The present instant.
    #[must_use]
    pub fn now() -> Self {
        Self(crate::machine::boot_ms())
    }

    /// The instant this many milliseconds after boot.
    #[must_use]
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms)
    }

    /// This instant moved forward.
    #[must_use]
    pub const fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to this instant; 0 when `earlier` is later.
    #[must_use]
    pub const fn since_ms(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// How long until this instant; zero when it is past.
    #[must_use]
    pub const fn after(self, now: Self) -> Duration {
        Duration::from_millis(self.since_ms(now))
    }
}

/// The state that a renewal gives, sent at `sent` and granted for `lease_ms`. The margin never takes more than half the lease.
#[must_use]
pub fn granted(sent: BootInstant, lease_ms: u64, margin_ms: u64) -> State {
    let ends = sent.plus_ms(lease_ms);
    State::Held { until: sent.plus_ms(lease_ms - margin_ms.min(lease_ms / 2)), ends }
}

/// The state at `now` when nothing new was heard.
#[must_use]
pub fn aged(state: State, now: BootInstant) -> State {
    match state {
        State::Held { until, .. } if now >= until => State::Frozen,
        other => other,
    }
}

/// How long to wait before the next renewal: a period after a success, 2 s (or a fifth of the period) after a failure.
#[must_use]
pub fn next_renewal(renew_ms: u64, failed: bool) -> Duration {
    let renew_ms = renew_ms.max(10);
    Duration::from_millis(if failed { (renew_ms / 5).clamp(10, 2_000) } else { renew_ms })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::lease::Loss;

    #[test]
    fn a_lease_counts_from_sending_and_freezes_before_its_end() {
        let sent = BootInstant::from_ms(1_000);
        let state = granted(sent, 60_000, 10_000);
        // (now, may act, remaining for the toolbox, frozen)
        for (now, acts, remaining_ms, frozen) in [
            (1_000, true, 60_000, false),
            (50_999, true, 10_001, false),
            (51_000, false, 10_000, true),
            (60_999, false, 1, true),
            (61_000, false, 0, true),
            (u64::MAX, false, 0, true),
        ] {
            let now = BootInstant::from_ms(now);
            assert_eq!(state.allows(now), acts, "at {now:?}");
            assert_eq!(state.remaining_ms(now), remaining_ms, "at {now:?}");
            assert_eq!(aged(state, now) == State::Frozen, frozen, "at {now:?}");
        }
    }

    #[test]
    fn a_margin_never_eats_more_than_half_a_short_lease() {
        let state = granted(BootInstant::from_ms(0), 100, 10_000);
        assert!(state.allows(BootInstant::from_ms(49)));
        assert!(!state.allows(BootInstant::from_ms(50)));
    }

    #[test]
    fn a_lost_claim_stays_lost_and_a_frozen_one_does_not_thaw_by_age() {
        for state in [State::Frozen, State::Lost(Loss::Fenced)] {
            assert_eq!(aged(state, BootInstant::from_ms(5)), state);
            assert!(!state.allows(BootInstant::from_ms(0)));
        }
    }

    #[test]
    fn a_failed_renewal_is_retried_faster_than_the_period() {
        for (renew_ms, failed, wait_ms) in [
            (10_000, false, 10_000),
            (10_000, true, 2_000),
            (60_000, true, 2_000),
            (100, true, 20),
            (0, false, 10),
        ] {
            assert_eq!(next_renewal(renew_ms, failed), Duration::from_millis(wait_ms));
        }
    }

    #[test]
    fn the_boot_clock_goes_forward() {
        let before = BootInstant::now();
        assert!(BootInstant::now() >= before);
        assert!(before > BootInstant::from_ms(0));
    }
}
