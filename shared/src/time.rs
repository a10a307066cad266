//! Instants on the wire: UTC with exactly three decimals and `Z`. Durations travel as integers with their unit in the name.
//! The only reader of the machine's clock is [`SystemClock`]; decisions take a [`Timestamp`] as an argument.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{fmt, str::FromStr, sync::Mutex};

/// Milliseconds since the Unix epoch, UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// A text that is no instant of the wire's form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a time: write UTC as 2026-01-31T23:59:59.000Z")]
pub struct Error;

impl Timestamp {
    /// The instant this many milliseconds after the Unix epoch.
    #[must_use]
    pub const fn from_ms(ms: i64) -> Self {
        Self(ms)
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub const fn as_ms(self) -> i64 {
        self.0
    }

    /// This instant moved by `ms` milliseconds, saturating.
    #[must_use]
    pub const fn plus_ms(self, ms: i64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to this instant; negative when `earlier` is later.
    #[must_use]
    pub const fn since_ms(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let instant = jiff::Timestamp::from_millisecond(self.0).map_err(|_| fmt::Error)?;
        write!(f, "{instant:.3}")
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for Timestamp {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        text.parse::<jiff::Timestamp>().map(|instant| Self(instant.as_millisecond())).map_err(|_| Error)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Where instants come from.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The present instant.
    fn now(&self) -> Timestamp;
}

/// The machine's own clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp(jiff::Timestamp::now().as_millisecond())
    }
}

/// A clock that stands still until it is moved, for tests and simulation.
#[derive(Debug)]
pub struct ManualClock(Mutex<Timestamp>);

impl ManualClock {
    /// A clock that shows `start`.
    #[must_use]
    pub const fn new(start: Timestamp) -> Self {
        Self(Mutex::new(start))
    }

    /// Moves the clock by `ms` milliseconds; negative values move it back, as administrators do.
    pub fn advance_ms(&self, ms: i64) {
        let mut now = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *now = now.plus_ms(ms);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_wire_form_has_three_decimals_and_a_z() {
        assert_eq!(Timestamp::from_ms(0).to_string(), "1970-01-01T00:00:00.000Z");
        assert_eq!(Timestamp::from_ms(1_796_083_200_120).to_string().len(), 24);
        assert_eq!(
            "2026-01-31T00:00:00+01:00".parse::<Timestamp>().unwrap().to_string(),
            "2026-01-30T23:00:00.000Z"
        );
        assert_eq!("yesterday".parse::<Timestamp>(), Err(Error));
    }

    proptest! {
        #[test]
        fn printing_and_parsing_keep_the_millisecond(ms in 0i64..4_000_000_000_000) {
            let instant = Timestamp::from_ms(ms);
            prop_assert_eq!(instant.to_string().parse::<Timestamp>(), Ok(instant));
        }
    }
}
