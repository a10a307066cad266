//! The session's log as its claim reaches it: appends through the outbox, reads through the control plane.

use crate::{
    claim::Held,
    harness::{Halt, Log},
    outbox::{self, Outbox},
    plane::{self, Plane},
};
use checkfu_shared::{
    event::Event,
    id::{ClaimId, EventId},
    protocol::append::{Appended, Decision},
};
use std::sync::Arc;
use tokio::sync::watch;

/// One claim's way to its session's log.
#[derive(Debug, Clone)]
pub(super) struct Ledger {
    pub(super) plane: Arc<Plane>,
    pub(super) outbox: Outbox,
    pub(super) claim: ClaimId,
    pub(super) epoch: u64,
    watched: watch::Receiver<bool>,
}

impl Ledger {
    pub(super) fn of(held: &Held) -> Self {
        Self {
            plane: Arc::clone(&held.plane),
            outbox: held.outbox.clone(),
            claim: held.claim.id,
            epoch: held.claim.epoch,
            watched: held.watched.clone(),
        }
    }

    /// Waits until the control plane has everything that was appended.
    pub(super) async fn flush(&self) -> Result<(), Halt> {
        self.outbox.flush().await.map_err(|error| of_outbox(&error))
    }
}

impl Log for &Ledger {
    async fn append(&self, events: Vec<Appended>) -> Result<(), Halt> {
        self.outbox.append(events).await.map(drop).map_err(|error| of_outbox(&error))
    }

    async fn decisions(&self, calls: &[EventId]) -> Result<Vec<Decision>, Halt> {
        self.outbox.decisions(calls).await.map_err(|error| of_outbox(&error))
    }

    async fn history(&self, after_seq: u64) -> Result<Vec<Event>, Halt> {
        let (mut events, mut after) = (Vec::new(), after_seq);
        loop {
            let page = self.plane.history(self.claim, self.epoch, after).await;
            let page = page.map_err(|error| of_plane(&error))?;
            let Some(last) = page.events.last() else { return Ok(events) };
            after = last.seq;
            events.extend(page.events);
            if !page.has_more {
                return Ok(events);
            }
        }
    }

    fn preview(&self, message: EventId, offset: u64, text: String) {
        if *self.watched.borrow() {
            self.outbox.deltas(message, offset, text);
        }
    }
}

fn of_outbox(error: &outbox::Error) -> Halt {
    match error {
        outbox::Error::Lost(_) => Halt::Lost,
        other => Halt::Log(other.to_string()),
    }
}

/// What a refused call to the control plane means for the work.
pub(super) fn of_plane(error: &plane::Error) -> Halt {
    match error {
        plane::Error::Fenced | plane::Error::Revoked => Halt::Lost,
        other => Halt::Log(other.to_string()),
    }
}
