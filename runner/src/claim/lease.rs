//! A claim's lease as the runner sees it. It never outlives what the server granted: it counts from sending, on the boot clock.

pub mod clock;
pub(crate) mod renewal;
pub mod thread;

pub use clock::BootInstant;

/// Whether the holder of a claim may act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It may act before `until`; the lease itself ends at `ends`, a margin later.
    Held {
        /// From here on nothing is dispatched or sent until a renewal succeeds.
        until: BootInstant,
        /// The end of the lease, of which the toolbox is told.
        ends: BootInstant,
    },
    /// Renewal fails: everything stands still until it succeeds or the claim is lost.
    Frozen,
    /// The claim is over for this runner; nothing of it may be reported any more.
    Lost(Loss),
}

/// Why a claim is over for this runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Loss {
    /// A newer epoch owns the session, or the claim ended.
    #[error("a newer epoch owns the session, or the claim ended")]
    Fenced,
    /// This runner was revoked: its sandboxes go.
    #[error("this runner was revoked")]
    Revoked,
    /// The offer was not confirmed in time.
    #[error("the offer was not confirmed in time")]
    Lapsed,
    /// The control plane does not know the claim.
    #[error("the control plane refuses the claim")]
    Refused,
}

impl State {
    /// Whether something may be sent or dispatched at this instant. Ask it directly before acting: a suspended
    /// machine wakes up with an old state and a clock that went on.
    #[must_use]
    pub fn allows(&self, now: BootInstant) -> bool {
        matches!(self, Self::Held { until, .. } if now < *until)
    }

    /// How long the toolbox may go on without hearing from us again, in milliseconds.
    #[must_use]
    pub fn remaining_ms(&self, now: BootInstant) -> u64 {
        match self {
            Self::Held { ends, .. } => ends.since_ms(now),
            Self::Frozen | Self::Lost(_) => 0,
        }
    }
}
