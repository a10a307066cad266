//! What this runner holds right now, for its status and nothing else.

use super::lease::{BootInstant, State};
use crate::outbox::{Outbox, Progress, Stall};
use checkfu_shared::{
    id::{ClaimId, RunId, SessionId},
    protocol::claim::Claim,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::watch;

/// One held claim.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    session_id: SessionId,
    run_id: RunId,
    epoch: u64,
    since: BootInstant,
    lease: watch::Receiver<State>,
    progress: watch::Receiver<Progress>,
}

/// One held claim as shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// The claim.
    pub claim_id: ClaimId,
    /// Whose run.
    pub session_id: SessionId,
    /// The run.
    pub run_id: RunId,
    /// The claim's fencing token.
    pub epoch: u64,
    /// For how long it is held, seconds.
    pub held_s: u64,
    /// `held`, `frozen` or `lost`.
    pub lease: String,
    /// Events on this disk.
    pub events: u64,
    /// Events the control plane has.
    pub acked: u64,
    /// Why nothing moves, when nothing does.
    pub stall: Option<String>,
}

impl Entry {
    pub(crate) fn new(claim: &Claim, outbox: &Outbox, lease: watch::Receiver<State>) -> Self {
        Self {
            session_id: claim.session_id,
            run_id: claim.run_id,
            epoch: claim.epoch,
            since: BootInstant::now(),
            lease,
            progress: outbox.progress(),
        }
    }

    fn shown(&self, claim_id: ClaimId, now: BootInstant) -> Shown {
        let lease = match *self.lease.borrow() {
            State::Held { .. } => "held",
            State::Frozen => "frozen",
            State::Lost(_) => "lost",
        };
        let progress = self.progress.borrow();
        let stall = progress.sealed.as_ref().map(ToString::to_string).or_else(|| {
            progress.stall.map(|stall| {
                match stall {
                    Stall::Frozen => "the lease is frozen: the control plane cannot be reached",
                    Stall::SpoolFull => "the spool is full until the control plane takes events",
                    Stall::DiskFull => "the disk is full",
                }
                .to_owned()
            })
        });
        Shown {
            claim_id,
            session_id: self.session_id,
            run_id: self.run_id,
            epoch: self.epoch,
            held_s: now.since_ms(self.since) / 1_000,
            lease: lease.to_owned(),
            events: progress.next,
            acked: progress.acked,
            stall,
        }
    }
}

/// Everything that is held. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Table(Arc<Mutex<BTreeMap<ClaimId, Entry>>>);

/// Takes its entry out again when dropped.
#[derive(Debug)]
pub(crate) struct Entered {
    table: Table,
    claim: ClaimId,
}

impl Table {
    pub(crate) fn enter(&self, claim: ClaimId, entry: Entry) -> Entered {
        self.entries().insert(claim, entry);
        Entered { table: self.clone(), claim }
    }

    /// What is held now.
    #[must_use]
    pub fn shown(&self) -> Vec<Shown> {
        let now = BootInstant::now();
        self.entries().iter().map(|(claim, entry)| entry.shown(*claim, now)).collect()
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<ClaimId, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.table.entries().remove(&self.claim);
    }
}
