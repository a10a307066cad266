//! Carries the spool to the control plane: one batch in flight, repeated until it is acknowledged or the claim is lost.
//! It asks the lease and the boot clock before every send.

use super::{Backlog, Error, Outbox, deltas, lock, spool::Batch, window};
use crate::{
    backoff::Backoff,
    claim::lease::{BootInstant, Loss, State},
    machine,
    plane::{self, Plane},
};
use bytes::Bytes;
use checkfu_shared::{
    id::ClaimId,
    problem::{Code, Problem},
    protocol::append::{AppendReply, BATCH_BYTES_MAX, BATCH_EVENTS_MAX},
};
use std::{sync::Arc, time::Duration};
use tokio::sync::watch;

/// Room for the batch's own members beside its events.
const ENVELOPE_BYTES: usize = 256;

/// Where the events of a claim go.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    pub(crate) plane: Arc<Plane>,
    pub(crate) claim: ClaimId,
    pub(crate) epoch: u64,
    pub(crate) watched: watch::Sender<bool>,
}

/// Sends until the outbox is sealed; its owner drops the future when the claim has ended.
pub(crate) async fn run(backlog: Backlog, route: Route) {
    let Backlog { outbox, deltas } = backlog;
    let events = async {
        let error = deliver(&outbox, &route).await;
        tracing::warn!(claim = %route.claim, %error, "the outbox is sealed");
        outbox.seal(error);
    };
    // Live text ends with the events: behind a sealed outbox nothing may be shown.
    tokio::select! {
        () = events => {}
        () = deltas::run(deltas, &route, &outbox) => {}
    }
}

async fn deliver(outbox: &Outbox, route: &Route) -> Error {
    let mut backoff = Backoff::from(route.plane.tempo());
    let mut lease = outbox.shared.lease.clone();
    loop {
        let pause = tokio::select! {
            biased;
            loss = lost(&mut lease) => return Error::Lost(loss),
            step = step(outbox, route) => match step {
                Ok(()) => {
                    backoff.reset();
                    continue;
                }
                Err(Trouble::Fatal(error)) => return error,
                Err(Trouble::Again { reason, retry_after }) => {
                    tracing::debug!(claim = %route.claim, %reason, "the batch is repeated");
                    backoff.next(retry_after)
                }
            },
        };
        tokio::select! {
            loss = lost(&mut lease) => return Error::Lost(loss),
            () = tokio::time::sleep(pause) => {}
        }
    }
}

enum Trouble {
    Fatal(Error),
    Again { reason: String, retry_after: Option<Duration> },
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Fatal(error)
    }
}

/// Waits for a batch to be due, sends it once and takes in the answer.
async fn step(outbox: &Outbox, route: &Route) -> Result<(), Trouble> {
    due(outbox, &route.watched).await?;
    outbox.permitted().await?;
    let batch = peek(outbox).await?;
    let (first, sent) = (batch.first, batch.events.len());
    match route.plane.append(route.claim, compose(route.epoch, &batch)).await {
        Ok(reply) => {
            let moved = reply.acked > first;
            accept(outbox, route, reply).await?;
            if moved || sent == 0 { Ok(()) } else { Err(again("nothing of the batch was acknowledged")) }
        }
        Err(plane::Error::Unreachable { reason, retry_after, .. }) => {
            Err(Trouble::Again { reason, retry_after })
        }
        Err(plane::Error::Fenced) => Err(Error::Lost(Loss::Fenced).into()),
        Err(plane::Error::Revoked) => Err(Error::Lost(Loss::Revoked).into()),
        Err(plane::Error::Refused(problem)) => refused(outbox, problem).await,
    }
}

fn again(reason: &str) -> Trouble {
    Trouble::Again { reason: reason.to_owned(), retry_after: None }
}

async fn due(outbox: &Outbox, watched: &watch::Sender<bool>) -> Result<(), Error> {
    let mut progress = outbox.shared.progress.subscribe();
    loop {
        let due = {
            let now = progress.borrow_and_update();
            if let Some(error) = &now.sealed {
                return Err(error.clone());
            }
            now.since.filter(|_| now.next > now.acked).map(|(oldest, newest)| {
                let urgent = now.urgent > now.acked;
                let waiting = window::Waiting { urgent, bytes: now.unacked_bytes, oldest, newest };
                window::due(&waiting, *watched.borrow())
            })
        };
        let timer = async {
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = timer => return Ok(()),
            changed = progress.changed() => {
                changed.map_err(|_| Error::Spool("the outbox is gone".to_owned()))?;
            }
        }
    }
}

async fn peek(outbox: &Outbox) -> Result<Batch, Error> {
    let outbox = outbox.clone();
    let read = machine::blocking(move || {
        let spool = outbox.spool();
        spool.peek(BATCH_BYTES_MAX - ENVELOPE_BYTES, BATCH_EVENTS_MAX)
    });
    read.await
        .map_err(|error| Error::Spool(error.to_string()))?
        .map_err(|error| Error::Spool(error.to_string()))
}

/// The JSON of an `AppendRequest`, with the events exactly as they lie on the disk.
fn compose(epoch: u64, batch: &Batch) -> Bytes {
    let mut body = format!("{{\"epoch\":{epoch},\"first\":{},\"events\":[", batch.first).into_bytes();
    for (n, event) in batch.events.iter().enumerate() {
        if n > 0 {
            body.push(b',');
        }
        body.extend_from_slice(event);
    }
    body.extend_from_slice(b"]}");
    body.into()
}

async fn accept(outbox: &Outbox, route: &Route, reply: AppendReply) -> Result<(), Error> {
    lock(&outbox.shared.decisions)
        .extend(reply.decisions.into_iter().map(|decision| (decision.tool_use_id, decision)));
    route.watched.send_if_modified(|watched| std::mem::replace(watched, reply.watched) != reply.watched);
    acknowledge(outbox, reply.acked).await
}

/// Publishes that the control plane has everything below `acked`.
async fn acknowledge(outbox: &Outbox, acked: u64) -> Result<(), Error> {
    let outbox = outbox.clone();
    let done = machine::blocking(move || {
        let mut spool = outbox.spool();
        let before = spool.unacked_bytes();
        let reached = spool.acknowledge(acked).map_err(|error| Error::Spool(error.to_string()))?;
        if !reached {
            let next = spool.next();
            return Err(Error::Diverged(format!("it expects event {acked}, this disk has up to {next}")));
        }
        let (acked, after) = (spool.acked(), spool.unacked_bytes());
        if after > before {
            outbox.shared.quota.count(after - before);
        } else {
            outbox.shared.quota.free(before - after);
        }
        let now = tokio::time::Instant::now();
        outbox.shared.progress.send_modify(|progress| {
            progress.acked = acked;
            progress.unacked_bytes = after;
            progress.since = (progress.next > acked).then_some((now, now));
        });
        Ok(())
    });
    done.await.map_err(|error| Error::Spool(error.to_string()))?
}

async fn refused(outbox: &Outbox, problem: Problem) -> Result<(), Trouble> {
    match problem.code {
        Code::EventsGap => {
            let expected = problem.details.get("expected").and_then(serde_json::Value::as_u64);
            let Some(expected) = expected else { return Err(Error::Refused(problem).into()) };
            let before = outbox.acked();
            acknowledge(outbox, expected).await?;
            if expected == before { Err(again("the expected index did not move")) } else { Ok(()) }
        }
        Code::EventsConflict => Err(Error::Diverged(problem.message).into()),
        Code::ClaimLapsed => Err(Error::Lost(Loss::Lapsed).into()),
        _ => Err(Error::Refused(problem).into()),
    }
}

async fn lost(lease: &mut watch::Receiver<State>) -> Loss {
    let state = lease.wait_for(|state| matches!(state, State::Lost(_))).await;
    match state.as_deref() {
        Ok(State::Lost(loss)) => *loss,
        // Nobody renews any more, so nothing may be sent any more.
        _ => Loss::Fenced,
    }
}

/// Whether the lease lets something be sent now.
pub(super) fn allows(lease: &watch::Receiver<State>) -> bool {
    lease.borrow().allows(BootInstant::now())
}
