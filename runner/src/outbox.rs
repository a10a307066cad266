//! Durable numbered events of one claim: on this disk before anything acts on them, then at the control plane, once and in order.
//! It never drops a catalogue event and never sends anything after its claim is lost.

use checkfu_shared::{
    id::EventId,
    problem::Problem,
    protocol::append::{Appended, Decision},
};

/// Why events cannot be taken or delivered.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The claim is over for this runner.
    #[error("the claim is lost")]
    Lost(#[source] crate::claim::lease::Loss),
    /// One event is larger than the protocol allows; nothing of the call was taken.
    #[error("an event of {bytes} bytes is larger than the {max} allowed")]
    TooLarge {
        /// Its size as JSON.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// A runner may not append events of this kind.
    #[error("a runner may not append {kind}")]
    Forbidden {
        /// The event's type.
        kind: &'static str,
    },
    /// The control plane refuses the events for good.
    #[error("the control plane refuses the events")]
    Refused(#[source] Problem),
    /// The control plane has other events under these numbers, or lost some that it had acknowledged.
    #[error("the control plane's log and the spool disagree: {0}")]
    Diverged(String),
    /// The spool cannot be written or read.
    #[error("the spool failed: {0}")]
    Spool(String),
    /// Everything is acknowledged and still no decision came for this call.
    #[error("the control plane acknowledged {0} without a decision")]
    Undecided(EventId),
}

/// The outbox of one claim. Clones share it.
#[derive(Debug, Clone)]
pub struct Outbox {}

impl Outbox {
    /// Takes events in order; they are on this disk when it returns. Waits while the lease is frozen or the spool is full.
    ///
    /// Returns the index after the last of them.
    ///
    /// # Errors
    /// [`Error`]; then none of the events was taken.
    pub async fn append(&self, events: Vec<Appended>) -> Result<u64, Error> {
        drop(events);
        std::future::pending().await
    }

    /// The decisions on these calls, once the batches that hold them are acknowledged. Each is handed out once.
    ///
    /// # Errors
    /// [`Error`] when they will never come.
    pub async fn decisions(&self, calls: &[EventId]) -> Result<Vec<Decision>, Error> {
        let _ = calls;
        std::future::pending().await
    }

    /// Waits until everything taken so far is acknowledged.
    ///
    /// # Errors
    /// [`Error`] when it never will be.
    pub async fn flush(&self) -> Result<(), Error> {
        std::future::pending().await
    }

    /// How many events of the claim the control plane has made durable.
    #[must_use]
    pub fn acked(&self) -> u64 {
        0
    }

    /// The index after the last event taken: what `settle` calls `events` after [`Self::flush`].
    #[must_use]
    pub fn next_index(&self) -> u64 {
        0
    }

    /// Live text of a message that is still being made; best effort, never waits.
    pub fn deltas(&self, event_id: EventId, offset: u64, text: String) {
        let _ = (event_id, offset, text);
    }
}
