//! The lease on a sandbox: whether calls may run, and when everything stops and dies.
//! Pure: times are milliseconds of a clock that also counts suspension, given by the caller.

use crate::message::Refusal;

/// What has to happen now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    None,
    /// The lease ended: stop every process.
    Freeze,
    /// The lease is back: let them go on.
    Thaw,
    /// Nobody came back within the keep time: kill everything.
    Kill,
}

/// Longest lease or keep time taken seriously, in milliseconds: one day.
const MAX_MS: u64 = 24 * 60 * 60 * 1000;

/// State of the lease. Starts without one, so nothing runs before the first `Hello`.
#[derive(Debug, Default)]
pub struct Lease {
    epoch: u64,
    greeted: bool,
    ends_at: u64,
    keep_ms: u64,
    frozen: bool,
    killed: bool,
}

impl Lease {
    /// A `Hello` of the given epoch.
    ///
    /// # Errors
    /// [`Refusal::StaleEpoch`] when a newer epoch has spoken.
    pub fn hello(&mut self, now: u64, epoch: u64, lease_ms: u64, keep_ms: u64) -> Result<Step, Refusal> {
        if epoch < self.epoch {
            return Err(Refusal::StaleEpoch);
        }
        self.epoch = epoch;
        self.greeted = true;
        self.keep_ms = keep_ms.min(MAX_MS);
        Ok(self.extend(now, lease_ms))
    }

    /// A renewal.
    ///
    /// # Errors
    /// [`Refusal::StaleEpoch`] for another epoch than the last `Hello`, [`Refusal::NoHello`] before one.
    pub fn renew(&mut self, now: u64, epoch: u64, remaining_ms: u64) -> Result<Step, Refusal> {
        self.check_epoch(epoch)?;
        Ok(self.extend(now, remaining_ms))
    }

    /// Whether a call of this epoch may start now.
    ///
    /// # Errors
    /// The [`Refusal`] to send back.
    pub fn admit(&self, now: u64, epoch: u64) -> Result<(), Refusal> {
        self.check_epoch(epoch)?;
        if self.frozen || now >= self.ends_at { Err(Refusal::LeaseEnded) } else { Ok(()) }
    }

    /// What the passing of time demands.
    pub fn tick(&mut self, now: u64) -> Step {
        if !self.greeted || now < self.ends_at {
            return Step::None;
        }
        if !self.frozen {
            self.frozen = true;
            return Step::Freeze;
        }
        if !self.killed && now >= self.ends_at.saturating_add(self.keep_ms) {
            self.killed = true;
            return Step::Kill;
        }
        Step::None
    }

    /// Milliseconds until [`Lease::tick`] has something to say; `None` when never.
    #[must_use]
    pub fn next_tick_ms(&self, now: u64) -> Option<u64> {
        let at = match (self.greeted, self.frozen, self.killed) {
            (false, ..) | (true, true, true) => return None,
            (true, false, _) => self.ends_at,
            (true, true, false) => self.ends_at.saturating_add(self.keep_ms),
        };
        Some(at.saturating_sub(now))
    }

    /// Whether everything is stopped.
    #[must_use]
    pub const fn frozen(&self) -> bool {
        self.frozen
    }

    fn check_epoch(&self, epoch: u64) -> Result<(), Refusal> {
        match (self.greeted, epoch == self.epoch) {
            (false, _) => Err(Refusal::NoHello),
            (true, false) => Err(Refusal::StaleEpoch),
            (true, true) => Ok(()),
        }
    }

    fn extend(&mut self, now: u64, remaining_ms: u64) -> Step {
        self.ends_at = now.saturating_add(remaining_ms.min(MAX_MS));
        if remaining_ms == 0 {
            return Step::None;
        }
        self.killed = false;
        if std::mem::take(&mut self.frozen) { Step::Thaw } else { Step::None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_runs_before_hello() {
        let mut lease = Lease::default();
        assert_eq!(lease.admit(0, 0), Err(Refusal::NoHello));
        assert_eq!(lease.renew(0, 0, 10), Err(Refusal::NoHello));
        assert_eq!((lease.tick(u64::MAX), lease.next_tick_ms(0)), (Step::None, None));
    }

    #[test]
    fn the_end_freezes_once_and_the_keep_time_kills_once() {
        let mut lease = Lease::default();
        assert_eq!(lease.hello(100, 1, 50, 30), Ok(Step::None));
        assert_eq!((lease.tick(149), lease.next_tick_ms(120)), (Step::None, Some(30)));
        assert_eq!((lease.tick(150), lease.tick(151)), (Step::Freeze, Step::None));
        assert_eq!(lease.admit(151, 1), Err(Refusal::LeaseEnded));
        assert_eq!((lease.tick(180), lease.tick(500)), (Step::Kill, Step::None));
        assert_eq!(lease.next_tick_ms(500), None);
    }

    #[test]
    fn a_renewal_thaws_and_older_epochs_are_refused() {
        let mut lease = Lease::default();
        assert_eq!(lease.hello(0, 5, 10, 100), Ok(Step::None));
        assert_eq!(lease.tick(10), Step::Freeze);
        assert_eq!(lease.renew(20, 4, 10), Err(Refusal::StaleEpoch));
        assert_eq!(lease.renew(20, 6, 10), Err(Refusal::StaleEpoch));
        assert_eq!(lease.hello(20, 4, 10, 1), Err(Refusal::StaleEpoch));
        assert_eq!(lease.renew(20, 5, 10), Ok(Step::Thaw));
        assert_eq!(lease.admit(21, 5), Ok(()));
        assert_eq!(lease.admit(21, 4), Err(Refusal::StaleEpoch));
        assert_eq!(lease.hello(25, 6, 10, 1), Ok(Step::None));
    }

    #[test]
    fn a_lease_of_nothing_does_not_thaw() {
        let mut lease = Lease::default();
        assert_eq!(lease.hello(0, 1, 10, 100), Ok(Step::None));
        assert_eq!(lease.tick(10), Step::Freeze);
        assert_eq!(lease.renew(20, 1, 0), Ok(Step::None));
        assert!(lease.frozen());
    }
}
