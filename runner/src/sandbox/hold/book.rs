//! The book of one container's pause: who wants it, and what the daemon last confirmed. Pure; it never asks anybody.

use tokio::time::Instant;

/// Why a container is paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// The session is frozen; once, however often it is asked for.
    Frozen,
    /// One capture reads the outputs; there may be several.
    Capture,
}

/// What makes the container agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Nothing,
    Pause,
    Unpause,
}

/// How far the session is frozen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Freeze {
    #[default]
    No,
    /// No call begins; the container goes on, because it cannot be paused or is about to be thawed.
    CallsOnly,
    Whole,
}

#[derive(Debug, Default)]
pub(super) struct Book {
    freeze: Freeze,
    captures: u32,
    /// As the daemon last confirmed it.
    paused: bool,
    /// Until when a request may be carried out whose end nobody heard of.
    doubt_until: Option<Instant>,
    watched: bool,
}

impl Book {
    pub(super) fn add(&mut self, reason: Reason) {
        match reason {
            Reason::Frozen => self.freeze = Freeze::Whole,
            Reason::Capture => self.captures += 1,
        }
    }

    pub(super) fn strike(&mut self, reason: Reason) {
        match reason {
            Reason::Frozen if self.freeze == Freeze::Whole => self.freeze = Freeze::CallsOnly,
            Reason::Frozen => {}
            Reason::Capture => self.captures = self.captures.saturating_sub(1),
        }
    }

    /// Whether no call may begin. Striking the freeze does not end that.
    pub(super) fn refuses_calls(&self) -> bool {
        self.freeze != Freeze::No
    }

    /// The container goes on after a freeze, unless it was frozen anew.
    pub(super) fn allow_calls(&mut self) {
        if self.freeze == Freeze::CallsOnly {
            self.freeze = Freeze::No;
        }
    }

    /// Whether anybody wants the container paused.
    pub(super) fn wanted(&self) -> bool {
        self.freeze == Freeze::Whole || self.captures > 0
    }

    pub(super) fn next(&self) -> Next {
        match (self.wanted(), self.paused) {
            (true, false) => Next::Pause,
            (false, true) => Next::Unpause,
            _ => Next::Nothing,
        }
    }

    /// The daemon says that it did this.
    pub(super) const fn confirm(&mut self, done: Next) {
        match done {
            Next::Nothing => {}
            Next::Pause => self.paused = true,
            Next::Unpause => self.paused = false,
        }
    }

    /// A request failed, but may be carried out until then.
    pub(super) fn doubt(&mut self, until: Instant) {
        self.doubt_until = self.doubt_until.max(Some(until));
    }

    pub(super) const fn saw(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// Whether somebody must begin to look at the container again and again.
    pub(super) fn begin_watch(&mut self, now: Instant) -> bool {
        let begins = !self.watched && self.doubt_until.is_some_and(|until| now < until);
        self.watched |= begins;
        begins
    }

    /// Whether whoever looks may stop.
    pub(super) fn end_watch(&mut self, now: Instant) -> bool {
        if self.doubt_until.is_some_and(|until| now < until) {
            return false;
        }
        self.doubt_until = None;
        self.watched = false;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    #[test]
    fn a_freeze_outlives_the_captures_inside_it() {
        let mut book = Book::default();
        book.add(Reason::Capture);
        assert_eq!(book.next(), Next::Pause);
        book.confirm(Next::Pause);
        book.add(Reason::Frozen);
        book.add(Reason::Frozen);
        book.strike(Reason::Capture);
        assert_eq!(book.next(), Next::Nothing);
        book.strike(Reason::Frozen);
        assert_eq!(book.next(), Next::Unpause);
        assert!(book.refuses_calls());
        book.allow_calls();
        assert!(!book.refuses_calls());
    }

    #[test]
    fn a_freeze_that_came_during_a_thaw_stays() {
        let mut book = Book::default();
        book.add(Reason::Frozen);
        book.strike(Reason::Frozen);
        book.add(Reason::Frozen);
        book.allow_calls();
        assert!(book.refuses_calls() && book.wanted());
    }

    #[tokio::test(start_paused = true)]
    async fn doubt_is_watched_once_until_it_is_over() {
        let (mut book, now) = (Book::default(), Instant::now());
        assert!(!book.begin_watch(now));
        book.doubt(now + Duration::from_secs(2));
        book.doubt(now + Duration::from_secs(1));
        assert!(book.begin_watch(now));
        assert!(!book.begin_watch(now));
        assert!(!book.end_watch(now + Duration::from_secs(1)));
        assert!(book.end_watch(now + Duration::from_secs(2)));
        assert!(!book.begin_watch(now + Duration::from_secs(2)));
    }

    proptest! {
        /// Whatever is asked and whatever the daemon does of it, following `next` ends in agreement in one step.
        #[test]
        fn what_is_next_always_leads_to_agreement(steps in prop::collection::vec(0..6_u8, 0..40)) {
            let mut book = Book::default();
            for step in steps {
                match step {
                    0 => book.add(Reason::Frozen),
                    1 => book.strike(Reason::Frozen),
                    2 => book.add(Reason::Capture),
                    3 => book.strike(Reason::Capture),
                    4 => book.saw(true),
                    _ => book.saw(false),
                }
                let next = book.next();
                book.confirm(next);
                prop_assert_eq!(book.next(), Next::Nothing);
                prop_assert_eq!(book.paused, book.wanted());
            }
        }
    }
}
