//! The claim loop: a free slot, then one poll, then the claim in a task of its own. It never polls without a slot,
//! and repeats a request unchanged until its reply has come.

use super::{
    Stop, admission,
    hold::{Host, Origin, hold},
    table::Polled,
};
use crate::{
    backoff::{Backoff, spread},
    machine,
    plane::{Error, Standing},
};
use checkfu_shared::{
    id::ClaimRequestId,
    protocol::claim::{ClaimReply, ClaimRequest, Notice},
};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::JoinSet,
    time::Instant,
};

/// An empty answer this quick comes from a server that does not hang; it is not asked without pause.
const QUICK: Duration = Duration::from_millis(500);
/// How often a host that may begin nothing looks again.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Why the runner takes no work at the moment; shown in its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Idle {
    /// It asks for work.
    Asking,
    /// Every slot is taken.
    Full,
    /// Sandboxes cannot be made.
    Unready(String),
    /// The control plane cannot be reached.
    Away(String),
    /// The control plane drains this runner.
    Drained,
    /// Somebody on this machine drains this runner.
    DrainedHere,
    /// The runner was revoked.
    Revoked,
    /// The runner is stopping.
    Stopping,
}

/// Ends when no work is waited for any longer.
async fn patience(once: Option<Duration>) {
    match once {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}

/// The claim loop of one start.
#[derive(Debug)]
pub(crate) struct Poll {
    pub(crate) host: Arc<Host>,
    pub(crate) slots: Arc<Semaphore>,
    pub(crate) labels: Vec<String>,
    pub(crate) idle: watch::Sender<Idle>,
    pub(crate) drained: watch::Receiver<bool>,
    /// Take exactly one claim, and wait for it no longer than this.
    pub(crate) once: Option<Duration>,
}

impl Poll {
    /// Takes work until the runner stops; then waits until every held claim has ended.
    pub(crate) async fn run(self, mut holds: JoinSet<()>) {
        let mut stop = self.host.stop.clone();
        let mut backoff = Backoff::from(self.host.plane.tempo());
        let mut given_up = std::pin::pin!(patience(self.once));
        while self.once.is_none() || self.host.table.counts().polls_work == 0 {
            let permit = tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop > Stop::Go) => break,
                () = &mut given_up => break,
                Some(_) = holds.join_next() => continue,
                permit = self.permit() => permit,
            };
            let Some(permit) = permit else { break };
            let mut drained = self.drained.clone();
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop > Stop::Go) => break,
                () = &mut given_up => break,
                // What the dropped request might still have been offered is not confirmed and lapses.
                Ok(_) = drained.wait_for(|drained| *drained) => {}
                () = self.one(permit, &mut holds, &mut backoff) => {}
            }
        }
        self.idle.send_replace(Idle::Stopping);
        if self.once.is_some() {
            // Closing takes back what is not confirmed yet, and no poll is open that could bring more.
            while holds.join_next().await.is_some() {}
        }
        self.close().await;
        while holds.join_next().await.is_some() {}
    }

    /// An offer that nobody confirmed goes back at once, and a late poll gets nothing.
    async fn close(&self) {
        if let Err(error) = self.host.plane.close().await {
            tracing::debug!(%error, "the control plane was not told that this runner stops");
        }
    }

    async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        if self.slots.available_permits() == 0 {
            self.idle.send_replace(Idle::Full);
        }
        let permit = Arc::clone(&self.slots).acquire_owned().await.ok()?;
        let mut drained = self.drained.clone();
        if *drained.borrow_and_update() {
            self.idle.send_replace(Idle::DrainedHere);
            let _ = drained.wait_for(|drained| !drained).await;
        }
        while let Some(reason) = self.forbidden() {
            self.idle.send_replace(Idle::Unready(reason));
            tokio::select! {
                () = tokio::time::sleep(LOOK_AGAIN) => {}
                _ = drained.changed() => {}
            }
        }
        let mut ready = self.host.executor.ready.clone();
        loop {
            let reason = match &*ready.borrow_and_update() {
                Ok(()) => return Some(permit),
                Err(reason) => reason.clone(),
            };
            self.idle.send_replace(Idle::Unready(reason));
            ready.changed().await.ok()?;
        }
    }

    /// Why nothing new may begin on this host now, apart from Docker.
    fn forbidden(&self) -> Option<String> {
        if let Some((wait, failures)) = self.host.table.quarantined() {
            return Some(format!(
                "the last {failures} runs failed because of this host; it stands aside for {} s more. `checkfu-runner doctor` may tell why, `checkfu-runner undrain` tries at once",
                wait.as_secs()
            ));
        }
        if machine::is_simulated() {
            return None;
        }
        admission::memory(&std::fs::read_to_string("/proc/meminfo").unwrap_or_default())
    }

    /// Asks once for work with a slot in hand, through lost replies, and starts what comes.
    async fn one(&self, permit: OwnedSemaphorePermit, holds: &mut JoinSet<()>, backoff: &mut Backoff) {
        let plane = &self.host.plane;
        let request_id = ClaimRequestId::mint();
        let mut failed = false;
        loop {
            let free = u32::try_from(self.slots.available_permits()).unwrap_or(u32::MAX).saturating_add(1);
            let request = ClaimRequest {
                instance_id: plane.instance(),
                request_id,
                free_slots: free,
                labels: self.labels.clone(),
                // After a failure a short answer tells at once whether the control plane is back.
                wait_ms: if failed { 0 } else { plane.tempo().poll_wait_ms },
            };
            self.idle.send_if_modified(|idle| {
                let away = matches!(idle, Idle::Away(_) | Idle::Asking | Idle::Drained);
                if !away {
                    *idle = Idle::Asking;
                }
                !away
            });
            let begun = Instant::now();
            match plane.claims(&request).await {
                Ok(reply) => {
                    let polled = if reply.claim.is_some() { Polled::Work } else { Polled::Empty };
                    self.host.table.note_poll(polled);
                    *backoff = Backoff::from(reply.tempo);
                    return self.take(reply, permit, holds, begun.elapsed()).await;
                }
                Err(Error::Revoked) => {
                    self.idle.send_replace(Idle::Revoked);
                    let mut standing = plane.standing();
                    // Parked: the keeper of the token asks now and then.
                    let _ = standing.wait_for(|standing| matches!(standing, Standing::Valid(_))).await;
                    return;
                }
                Err(error) => {
                    let retry_after = match &error {
                        Error::Unreachable { retry_after, .. } => *retry_after,
                        _ => None,
                    };
                    failed = true;
                    self.host.table.note_poll(Polled::Failed);
                    tracing::warn!(%error, "no work could be asked for");
                    self.idle.send_replace(Idle::Away(error.to_string()));
                    tokio::time::sleep(backoff.next(retry_after)).await;
                    if matches!(error, Error::Refused(_) | Error::Fenced) {
                        // The same request would only be refused again.
                        return;
                    }
                }
            }
        }
    }

    async fn take(
        &self,
        reply: ClaimReply,
        permit: OwnedSemaphorePermit,
        holds: &mut JoinSet<()>,
        waited: Duration,
    ) {
        let drained = reply.notices.contains(&Notice::Drain);
        self.idle.send_replace(if drained { Idle::Drained } else { Idle::Asking });
        for notice in reply.notices {
            if let Notice::Dispose { session_id } = notice {
                let dispose = (self.host.executor.dispose)(session_id);
                holds.spawn(dispose);
            }
        }
        if let Some(claim) = reply.claim {
            tracing::info!(claim = %claim.id, session = %claim.session_id, epoch = claim.epoch, "a claim is offered");
            let host = Arc::clone(&self.host);
            holds.spawn(async move {
                hold(host, claim, Origin::Offered).await;
                drop(permit);
            });
        } else if drained {
            tokio::time::sleep(spread(Duration::from_millis(reply.tempo.poll_wait_ms), 20)).await;
        } else if waited < QUICK && !reply.lapsed {
            tokio::time::sleep(
                spread(QUICK, 50).min(Duration::from_millis(reply.tempo.poll_wait_ms.max(50))),
            )
            .await;
        }
    }
}
