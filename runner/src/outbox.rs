//! Durable numbered events of one claim: on this disk before anything acts on them, then at the control plane, once and in order.
//! It never drops a catalogue event and never sends anything after its claim is lost. Live text may be dropped; then the log
//! says how much.

mod deltas;
mod frame;
mod live;
mod quota;
mod sender;
mod spool;
mod window;

pub use quota::Quota;
pub(crate) use sender::{Route, run};
pub(crate) use spool::Spool;

use crate::{
    claim::lease::{BootInstant, Loss, State},
    machine,
    mask::Masker,
};
use checkfu_shared::{
    event::Body,
    id::EventId,
    problem::Problem,
    protocol::append::{Appended, Decision, EVENT_BYTES_MAX, is_urgent, runner_may_append},
};
use std::{
    collections::HashMap,
    io,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};

const DISK_RETRY: Duration = Duration::from_secs(1);
/// A machine may sleep while we wait, so the boot clock is asked again this often.
const LEASE_CHECK: Duration = Duration::from_secs(1);
const DELTAS_QUEUED: usize = 256;

/// Why events cannot be taken or delivered.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The claim is over for this runner.
    #[error("the claim is lost")]
    Lost(#[source] Loss),
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
    #[error("the control plane refuses the events: {0}")]
    Refused(Problem),
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

/// Why nothing is taken at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stall {
    /// The lease is frozen.
    Frozen,
    /// The cap of the session or of the host is reached.
    SpoolFull,
    /// The disk takes nothing more.
    DiskFull,
}

/// How far events have come.
#[derive(Debug, Clone)]
pub struct Progress {
    /// Durable at the control plane.
    pub acked: u64,
    /// Durable on this disk.
    pub next: u64,
    /// The kind of the last event taken.
    pub last: Option<&'static str>,
    /// Why nothing is taken at the moment.
    pub stall: Option<Stall>,
    /// Nothing is taken or sent any more.
    pub sealed: Option<Error>,
    /// Everything below this index is waited for.
    urgent: u64,
    unacked_bytes: u64,
    since: Option<(Instant, Instant)>,
}

#[derive(Debug)]
struct Shared {
    spool: Mutex<Spool>,
    quota: Arc<Quota>,
    progress: watch::Sender<Progress>,
    decisions: Mutex<HashMap<EventId, Decision>>,
    lease: watch::Receiver<State>,
    deltas: mpsc::Sender<deltas::Delta>,
    /// Bytes of live text that were dropped and that no `stream.gap` tells of yet.
    unseen: AtomicU64,
    mask: OnceLock<Arc<Masker>>,
    live: Mutex<live::Live>,
}

/// The outbox of one claim. Clones share it.
#[derive(Debug, Clone)]
pub struct Outbox {
    shared: Arc<Shared>,
}

/// The receiving ends that the sender's tasks work from.
#[derive(Debug)]
pub(crate) struct Backlog {
    pub(crate) outbox: Outbox,
    deltas: mpsc::Receiver<deltas::Delta>,
}

impl Outbox {
    /// Opens the outbox in `dir`; with `acked` from a recovery it goes on where log and disk together ended.
    pub(crate) async fn open(
        dir: &Path,
        acked: u64,
        quota: Arc<Quota>,
        lease: watch::Receiver<State>,
    ) -> io::Result<(Self, Backlog)> {
        let dir = dir.to_owned();
        let spool = machine::blocking(move || Spool::open(&dir, acked)).await??;
        let (next, acked, unacked_bytes) = (spool.next(), spool.acked(), spool.unacked_bytes());
        quota.count(unacked_bytes);
        let now = Instant::now();
        let since = (next > acked).then_some((now, now));
        let progress = Progress {
            acked,
            next,
            last: None,
            stall: None,
            sealed: None,
            urgent: next,
            unacked_bytes,
            since,
        };
        let (sender, receiver) = mpsc::channel(DELTAS_QUEUED);
        let shared = Arc::new(Shared {
            spool: Mutex::new(spool),
            quota,
            progress: watch::Sender::new(progress),
            decisions: Mutex::default(),
            lease,
            deltas: sender,
            unseen: AtomicU64::new(0),
            mask: OnceLock::new(),
            live: Mutex::default(),
        });
        let outbox = Self { shared };
        Ok((outbox.clone(), Backlog { outbox, deltas: receiver }))
    }

    /// Keeps these secrets out of events, on this disk and behind it. The first call counts.
    pub(crate) fn mask_with(&self, mask: Arc<Masker>) {
        let _ = self.shared.mask.set(mask);
    }

    /// Takes events in order; they are on this disk when it returns. Waits while the lease is frozen or the spool is full.
    /// Before them goes a `stream.gap` when live text was dropped since the last append.
    ///
    /// Returns the index after the last of them.
    ///
    /// # Errors
    /// [`Error`]; then none of the events was taken.
    pub async fn append(&self, events: Vec<Appended>) -> Result<u64, Error> {
        let mask = self.shared.mask.get().map(Arc::as_ref);
        let mut lines = Vec::with_capacity(events.len() + 1);
        for event in self.gap().iter().chain(&events) {
            lines.push(encode(event, mask)?);
        }
        let last = events.last().map(|event| event.body.kind());
        let urgent = events.iter().any(|event| is_urgent(&event.body));
        let lines = Arc::new(lines);
        loop {
            self.permitted().await?;
            let (outbox, lines) = (self.clone(), Arc::clone(&lines));
            // Not cancelled half way: the write ends even when the caller is gone.
            let taken = machine::blocking(move || outbox.take(&lines, urgent, last)).await;
            match taken.map_err(|error| Error::Spool(error.to_string()))? {
                Taken::Upto(next) => {
                    self.stalled(None);
                    return Ok(next);
                }
                Taken::Stalled(stall) => {
                    self.stalled(Some(stall));
                    self.room().await?;
                }
                Taken::Failed(error) => return Err(error),
            }
        }
    }

    /// The decisions on these calls, once the batches that hold them are acknowledged. Each is handed out once.
    ///
    /// # Errors
    /// [`Error`] when they will never come.
    pub async fn decisions(&self, calls: &[EventId]) -> Result<Vec<Decision>, Error> {
        let mut progress = self.hurry();
        let end = progress.borrow().next;
        loop {
            // Read first: decisions are stored before the acknowledgement is published.
            let (acked, sealed) = {
                let now = progress.borrow_and_update();
                (now.acked, now.sealed.clone())
            };
            let missing = {
                let mut known = lock(&self.shared.decisions);
                let missing = calls.iter().find(|call| !known.contains_key(call)).copied();
                if missing.is_none() {
                    return Ok(calls.iter().filter_map(|call| known.remove(call)).collect());
                }
                missing
            };
            if let Some(error) = sealed {
                return Err(error);
            }
            if let Some(missing) = missing.filter(|_| acked >= end) {
                return Err(Error::Undecided(missing));
            }
            self.next_change(&mut progress).await?;
        }
    }

    /// Waits until everything taken so far is acknowledged.
    ///
    /// # Errors
    /// [`Error`] when it never will be.
    pub async fn flush(&self) -> Result<(), Error> {
        let mut progress = self.hurry();
        let end = progress.borrow().next;
        loop {
            {
                let now = progress.borrow_and_update();
                if now.acked >= end {
                    return Ok(());
                }
                if let Some(error) = &now.sealed {
                    return Err(error.clone());
                }
            }
            self.next_change(&mut progress).await?;
        }
    }

    /// How many events of the claim the control plane has made durable.
    #[must_use]
    pub fn acked(&self) -> u64 {
        self.shared.progress.borrow().acked
    }

    /// The index after the last event taken: what `settle` calls `events` after [`Self::flush`].
    #[must_use]
    pub fn next_index(&self) -> u64 {
        self.shared.progress.borrow().next
    }

    /// Live text of a message that is still being made; best effort, never waits.
    pub fn deltas(&self, event_id: EventId, offset: u64, text: String) {
        let (offset, text) = match self.shared.mask.get().filter(|mask| !mask.is_empty()) {
            Some(mask) => lock(&self.shared.live).pass(mask, event_id, offset, &text),
            None => (offset, text),
        };
        if text.is_empty() {
            return;
        }
        let bytes = text.len();
        let delta = deltas::Delta { event_id, offset, text, after: self.next_index() };
        // A full queue leaves a gap, behind which nothing more of this message is forwarded.
        if self.shared.deltas.try_send(delta).is_err() {
            self.dropped(bytes);
        }
    }

    /// Notes that live text was dropped that somebody watches.
    fn dropped(&self, bytes: usize) {
        self.shared.unseen.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// What is told of dropped live text with the next events.
    fn gap(&self) -> Option<Appended> {
        let bytes = self.shared.unseen.swap(0, Ordering::Relaxed);
        let body = Body::StreamGap { bytes };
        (bytes > 0).then(|| Appended { id: EventId::mint(), thread_id: None, model_request_id: None, body })
    }

    /// How far events have come, for whoever shows it.
    #[must_use]
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.shared.progress.subscribe()
    }

    /// Takes and sends nothing any more. The first reason stays.
    pub(crate) fn seal(&self, error: Error) {
        self.shared.progress.send_if_modified(|progress| {
            let first = progress.sealed.is_none();
            progress.sealed.get_or_insert(error);
            first
        });
    }

    /// Lets what waits now go out at once.
    fn hurry(&self) -> watch::Receiver<Progress> {
        self.shared.progress.send_modify(|progress| progress.urgent = progress.next);
        self.shared.progress.subscribe()
    }

    async fn next_change(&self, progress: &mut watch::Receiver<Progress>) -> Result<(), Error> {
        progress.changed().await.map_err(|_| Error::Spool("the sender is gone".to_owned()))
    }

    /// Waits until the lease lets something happen.
    async fn permitted(&self) -> Result<(), Error> {
        let mut lease = self.shared.lease.clone();
        loop {
            if let Some(error) = &self.shared.progress.borrow().sealed {
                return Err(error.clone());
            }
            let state = *lease.borrow_and_update();
            if let State::Lost(loss) = state {
                return Err(Error::Lost(loss));
            }
            if state.allows(BootInstant::now()) {
                return Ok(());
            }
            self.stalled(Some(Stall::Frozen));
            tokio::select! {
                changed = lease.changed() => changed.map_err(|_| Error::Lost(Loss::Fenced))?,
                () = tokio::time::sleep(LEASE_CHECK) => {}
            }
        }
    }

    /// Waits until there may be room again.
    async fn room(&self) -> Result<(), Error> {
        let mut progress = self.shared.progress.subscribe();
        let acked = progress.borrow().acked;
        let moved = progress.wait_for(|now| now.acked > acked || now.sealed.is_some());
        tokio::select! {
            _ = moved => {}
            () = self.shared.quota.freed() => {}
            () = tokio::time::sleep(DISK_RETRY) => {}
        }
        Ok(())
    }

    fn stalled(&self, stall: Option<Stall>) {
        self.shared.progress.send_if_modified(|progress| {
            let changed = progress.stall != stall;
            progress.stall = stall;
            changed
        });
    }

    fn take(&self, lines: &[Vec<u8>], urgent: bool, last: Option<&'static str>) -> Taken {
        let mut spool = self.spool();
        let own = spool.unacked_bytes();
        let bytes: u64 = lines.iter().map(|line| (line.len() + frame::HEADER_BYTES) as u64).sum();
        if !self.shared.quota.take(own, bytes) {
            return Taken::Stalled(Stall::SpoolFull);
        }
        if let Err(error) = spool.append(lines) {
            self.shared.quota.free(bytes);
            if error.kind() == io::ErrorKind::StorageFull && !spool.is_broken() {
                return Taken::Stalled(Stall::DiskFull);
            }
            let error = Error::Spool(error.to_string());
            self.seal(error.clone());
            return Taken::Failed(error);
        }
        let (next, now) = (spool.next(), Instant::now());
        // Published under the spool's lock, so that positions never go back.
        self.shared.progress.send_modify(|progress| {
            progress.next = next;
            progress.last = last.or(progress.last);
            progress.unacked_bytes = spool.unacked_bytes();
            progress.since = Some((progress.since.map_or(now, |(oldest, _)| oldest), now));
            if urgent {
                progress.urgent = next;
            }
        });
        Taken::Upto(next)
    }

    fn spool(&self) -> MutexGuard<'_, Spool> {
        lock(&self.shared.spool)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let unacked = self.spool.get_mut().unwrap_or_else(PoisonError::into_inner).unacked_bytes();
        self.quota.free(unacked);
    }
}

enum Taken {
    Upto(u64),
    Stalled(Stall),
    Failed(Error),
}

fn encode(event: &Appended, mask: Option<&Masker>) -> Result<Vec<u8>, Error> {
    if !runner_may_append(&event.body) {
        return Err(Error::Forbidden { kind: Body::kind(&event.body) });
    }
    let mut line = serde_json::to_vec(event).map_err(|error| Error::Spool(error.to_string()))?;
    if let Some(mask) = mask {
        line = mask.message(line);
    }
    if line.len() > EVENT_BYTES_MAX {
        return Err(Error::TooLarge { bytes: line.len(), max: EVENT_BYTES_MAX });
    }
    Ok(line)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
