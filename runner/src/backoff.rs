//! How long to wait after a failure: exponential with full jitter, endless, never less than the server asks for.
//! The one place that knows the back-off library; it never sleeps itself.

use ::backoff::{ExponentialBackoff, backoff::Backoff as _};
use std::time::Duration;

/// The longest `Retry-After` that is obeyed; a longer one is taken for a mistake.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(600);

/// The waits after failures in a row.
#[derive(Debug, Clone)]
pub struct Backoff {
    inner: ExponentialBackoff,
    floor: Duration,
}

impl Backoff {
    /// Waits are drawn evenly from zero to a ceiling that doubles from `min` to `max`; none is shorter than a fifth of `min`.
    #[must_use]
    pub fn new(min: Duration, max: Duration) -> Self {
        // The library draws from interval ± factor·interval, so half the ceiling with factor 1 is full jitter.
        let (initial, most) = (min / 2, (max / 2).max(min / 2));
        let inner = ExponentialBackoff {
            current_interval: initial,
            initial_interval: initial,
            max_interval: most,
            randomization_factor: 1.0,
            multiplier: 2.0,
            max_elapsed_time: None,
            ..ExponentialBackoff::default()
        };
        Self { inner, floor: min / 5 }
    }

    /// The next wait. With `retry_after`, at least that long and up to a quarter longer, so that a fleet does not come back as one.
    pub fn next(&mut self, retry_after: Option<Duration>) -> Duration {
        let wait = self.inner.next_backoff().unwrap_or(self.inner.max_interval).max(self.floor);
        match retry_after.map(|asked| asked.min(RETRY_AFTER_MAX)) {
            Some(asked) => asked + wait.min(asked / 4 + self.floor),
            None => wait,
        }
    }

    /// Starts over after a success.
    pub fn reset(&mut self) {
        self.inner.reset();
    }
}

impl From<checkfu_shared::protocol::Tempo> for Backoff {
    fn from(tempo: checkfu_shared::protocol::Tempo) -> Self {
        Self::new(
            Duration::from_millis(tempo.error_backoff_min_ms.max(1)),
            Duration::from_millis(tempo.error_backoff_max_ms.max(1)),
        )
    }
}

/// `base` moved up or down by at most `percent` of itself, evenly, so that a fleet does not act as one.
#[must_use]
pub fn spread(base: Duration, percent: u32) -> Duration {
    let mut once = ExponentialBackoff {
        current_interval: base,
        randomization_factor: f64::from(percent.min(100)) / 100.0,
        max_elapsed_time: None,
        ..ExponentialBackoff::default()
    };
    once.next_backoff().unwrap_or(base)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_wait_lies_between_the_floor_and_its_doubling_ceiling(
            min_ms in 1u64..2_000, factor in 1u64..100, steps in 1usize..40
        ) {
            let (min, max) = (Duration::from_millis(min_ms), Duration::from_millis(min_ms * factor));
            let mut backoff = Backoff::new(min, max);
            let mut ceiling = min;
            for _ in 0..steps {
                let wait = backoff.next(None);
                prop_assert!(wait >= min / 5, "{wait:?} is below the floor");
                prop_assert!(wait <= ceiling + Duration::from_micros(1), "{wait:?} above {ceiling:?}");
                ceiling = (ceiling * 2).min(max);
            }
            backoff.reset();
            prop_assert!(backoff.next(None) <= min + Duration::from_micros(1));
        }

        #[test]
        fn the_server_is_never_asked_earlier_than_it_wishes(asked_ms in 0u64..1_000_000) {
            let asked = Duration::from_millis(asked_ms);
            let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
            let wait = backoff.next(Some(asked));
            prop_assert!(wait >= asked.min(RETRY_AFTER_MAX));
            prop_assert!(wait <= asked.min(RETRY_AFTER_MAX) * 5 / 4 + Duration::from_millis(101));
        }
    }

    #[test]
    fn a_spread_stays_within_its_percentage() {
        for _ in 0..1_000 {
            let wait = spread(Duration::from_secs(300), 50);
            assert!((Duration::from_secs(150)..=Duration::from_millis(450_001)).contains(&wait), "{wait:?}");
        }
    }

    #[test]
    fn a_fleet_that_fails_at_once_spreads_out() {
        let waits: std::collections::BTreeSet<Duration> = (0..200)
            .map(|_| Backoff::new(Duration::from_millis(500), Duration::from_secs(30)).next(None))
            .collect();
        assert!(waits.len() > 100, "only {} different waits", waits.len());
    }
}
