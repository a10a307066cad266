//! What this runner holds right now, for its status and nothing else.

use super::{
    admission::Quarantine,
    lease::{BootInstant, State},
};
use crate::{
    outbox::{Outbox, Progress, Stall},
    session::Ended,
};
use checkfu_shared::{
    id::{ClaimId, RunId, SessionId},
    protocol::claim::Claim,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
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
    /// What it does, in a few words.
    #[serde(default)]
    pub phase: String,
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
            phase: phase(progress.last).to_owned(),
            lease: lease.to_owned(),
            events: progress.next,
            acked: progress.acked,
            stall,
        }
    }
}

/// What a session does, told from the last event it took.
fn phase(last: Option<&str>) -> &'static str {
    match last {
        None => "starting",
        Some("span.model_request_start") => "asking the model",
        Some("agent.tool_use" | "agent.tool_resumed") => "running tool calls",
        Some("agent.tool_result") => "between tool calls",
        Some("session.output_captured") => "handing over its outputs",
        Some(kind) if kind.starts_with("sandbox.") => "preparing its sandbox",
        Some(_) => "working",
    }
}

/// What happened since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Requests for work that brought some.
    pub polls_work: u64,
    /// Requests for work that brought none.
    pub polls_empty: u64,
    /// Requests for work without an answer.
    pub polls_failed: u64,
    /// Claims that were settled.
    pub claims_settled: u64,
    /// Claims that were settled without their turn having come to its end.
    pub claims_unfinished: u64,
    /// Claims that were given back because this host failed.
    pub claims_given_back: u64,
    /// Claims that were lost.
    pub claims_lost: u64,
    /// Claims that ended without a settlement.
    pub claims_unsettled: u64,
    /// Failures of this host in a row, up to now.
    pub failures_in_row: u64,
}

#[derive(Debug, Default)]
struct Facts {
    counts: Counts,
    polled: Option<BootInstant>,
    quarantine: Quarantine,
}

/// Everything that is held, and what came of what was. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Table {
    held: Arc<Mutex<BTreeMap<ClaimId, Entry>>>,
    facts: Arc<Mutex<Facts>>,
}

/// What a request for work came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Polled {
    Work,
    Empty,
    Failed,
}

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

    /// What happened since the start.
    pub(crate) fn counts(&self) -> Counts {
        let facts = self.facts();
        Counts { failures_in_row: u64::from(facts.quarantine.failures()), ..facts.counts }
    }

    /// When a request for work was last answered.
    pub(crate) fn polled(&self) -> Option<BootInstant> {
        self.facts().polled
    }

    /// Notes the outcome of one request for work.
    pub(crate) fn note_poll(&self, outcome: Polled) {
        let mut facts = self.facts();
        let counter = match outcome {
            Polled::Work => &mut facts.counts.polls_work,
            Polled::Empty => &mut facts.counts.polls_empty,
            Polled::Failed => &mut facts.counts.polls_failed,
        };
        *counter += 1;
        if outcome != Polled::Failed {
            facts.polled = Some(BootInstant::now());
        }
    }

    /// Notes how a claim ended. `blames` says that an end without a settlement is this host's fault.
    pub(crate) fn note_end(&self, ended: Ended, blames: bool) {
        let mut facts = self.facts();
        let counter = match ended {
            Ended::Settled => &mut facts.counts.claims_settled,
            Ended::Unfinished => &mut facts.counts.claims_unfinished,
            Ended::GivenBack => &mut facts.counts.claims_given_back,
            Ended::Lost(_) => &mut facts.counts.claims_lost,
            Ended::Unsettled => &mut facts.counts.claims_unsettled,
        };
        *counter += 1;
        match ended {
            Ended::Settled | Ended::Unfinished => facts.quarantine.note(false, BootInstant::now()),
            Ended::GivenBack | Ended::Unsettled if blames => {
                facts.quarantine.note(true, BootInstant::now());
            }
            // A lost claim says something about the network, not about this host.
            Ended::GivenBack | Ended::Unsettled | Ended::Lost(_) => {}
        }
    }

    /// How much longer this host stands aside because it kept failing, and how often it did.
    pub(crate) fn quarantined(&self) -> Option<(Duration, u32)> {
        let quarantine = self.facts().quarantine;
        Some((quarantine.wait(BootInstant::now())?, quarantine.failures()))
    }

    /// Forgets earlier failures.
    pub(crate) fn forgive(&self) {
        self.facts().quarantine = Quarantine::default();
    }

    fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<ClaimId, Entry>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.table.entries().remove(&self.claim);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::lease::Loss;

    #[test]
    fn failures_of_this_host_add_up_until_something_succeeds_or_is_forgiven() {
        let table = Table::default();
        let fail = || (0..3).for_each(|_| table.note_end(Ended::GivenBack, true));
        fail();
        assert_eq!(table.quarantined().map(|(_, failures)| failures), Some(3));
        table.forgive();
        assert_eq!(table.quarantined(), None);
        fail();
        table.note_end(Ended::Settled, true);
        assert_eq!(table.quarantined(), None);
        for _ in 0..5 {
            table.note_end(Ended::Lost(Loss::Fenced), true);
            table.note_end(Ended::Unsettled, false);
        }
        assert_eq!(table.quarantined(), None, "neither the network nor a stop is this host's fault");
        let counts = table.counts();
        assert_eq!((counts.claims_settled, counts.claims_given_back), (1, 6));
        assert_eq!((counts.claims_lost, counts.claims_unsettled, counts.failures_in_row), (5, 5, 0));
    }
}
