//! Holds one claim: confirms it, starts what belongs to it, hands it to the executor, and clears up after it.
//! Nothing is created before the first successful renewal, and nothing of a lost claim is reported.

use super::{
    Held, Stop, directives,
    lease::{
        Loss, State,
        renewal::{Published, Renewal},
        thread::LeaseHandle,
    },
    table::{Entry, Table},
};
use crate::{
    outbox::{self, Outbox, Quota},
    plane::Plane,
    session::Ended,
    spools::{Meta, Spools},
    supervisor::Executor,
};
use checkfu_shared::protocol::claim::Claim;
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};

/// What every claim of this runner shares.
#[derive(Debug)]
pub struct Host {
    pub(crate) plane: Arc<Plane>,
    pub(crate) executor: Executor,
    pub(crate) leases: LeaseHandle,
    pub(crate) spools: Spools,
    pub(crate) quota: Arc<Quota>,
    pub(crate) table: Table,
    pub(crate) stop: watch::Receiver<Stop>,
}

/// Whether a claim is new or was found on this disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Offered,
    Recovered { acked: u64 },
}

/// Holds the claim to its end.
pub(crate) async fn hold(host: Arc<Host>, claim: Claim, origin: Origin) -> Ended {
    let renewal = Renewal {
        plane: Arc::clone(&host.plane),
        claim: claim.id,
        epoch: claim.epoch,
        lease_ms: claim.lease_ms,
    };
    let published = match confirm(&host, &renewal, origin).await {
        Ok(published) => published,
        Err(loss) => {
            tracing::info!(claim = %claim.id, reason = %loss, "the claim was not confirmed");
            if matches!(origin, Origin::Recovered { .. }) {
                clear(&host, &claim, Ended::Lost(loss)).await;
            }
            return Ended::Lost(loss);
        }
    };
    // Renewal ends when nobody listens, so somebody has to before it begins.
    let _listening = published.lease.subscribe();
    let keeping = host.leases.spawn(renewal.keep(published.clone()));
    let ended = match begin(&host, &claim, origin, &published).await {
        Ok((held, tasks)) => {
            let entry = Entry::new(&claim, &held.outbox, held.lease.clone());
            let _entry = host.table.enter(claim.id, entry);
            let ended = execute(&host, held).await;
            tasks.end().await;
            ended
        }
        Err(error) => {
            tracing::error!(claim = %claim.id, %error, "the spool of a claim cannot be used; the claim is left to lapse");
            Ended::Unsettled
        }
    };
    keeping.abort();
    let _ = keeping.await;
    tracing::info!(claim = %claim.id, session = %claim.session_id, ?ended, "the claim has ended");
    host.table.note_end(ended, *host.stop.borrow() == Stop::Go);
    clear(&host, &claim, ended).await;
    ended
}

async fn confirm(host: &Arc<Host>, renewal: &Renewal, origin: Origin) -> Result<Published, Loss> {
    let give_up = match origin {
        Origin::Offered => Some(Duration::from_millis(host.plane.tempo().offer_ms)),
        Origin::Recovered { .. } => None,
    };
    let mut stop = host.stop.clone();
    let renewal = renewal.clone();
    let mut confirming = host.leases.spawn(async move { renewal.confirm(give_up).await });
    // An unconfirmed offer is worth nothing to a runner that is leaving; one found on disk is left for the next start.
    let leaving =
        stop.wait_for(|stop| *stop >= if origin == Origin::Offered { Stop::Drain } else { Stop::Cancel });
    let confirmed = tokio::select! {
        confirmed = &mut confirming => Some(confirmed.unwrap_or(Err(Loss::Lapsed))),
        _ = leaving => None,
    };
    if let Some(confirmed) = confirmed {
        return confirmed;
    }
    if origin != Origin::Offered {
        confirming.abort();
        return Err(Loss::Lapsed);
    }
    // A renewal may be on its way already: what it confirmed is ours to hand back, anything else lapses.
    let grace = Duration::from_secs(2);
    match tokio::time::timeout(grace, &mut confirming).await {
        Ok(Ok(confirmed)) => confirmed,
        Ok(Err(_)) => Err(Loss::Lapsed),
        Err(_) => {
            confirming.abort();
            Err(Loss::Lapsed)
        }
    }
}

struct Tasks {
    sending: JoinHandle<()>,
    listening: JoinHandle<()>,
}

impl Tasks {
    async fn end(self) {
        for task in [self.sending, self.listening] {
            task.abort();
            let _ = task.await;
        }
    }
}

async fn begin(
    host: &Arc<Host>,
    claim: &Claim,
    origin: Origin,
    published: &Published,
) -> std::io::Result<(Held, Tasks)> {
    let spool_dir = host.spools.begin(&Meta::from(claim)).await?;
    let acked = match origin {
        Origin::Offered => 0,
        Origin::Recovered { acked } => acked,
    };
    let lease = published.lease.subscribe();
    let (outbox, backlog) = Outbox::open(&spool_dir, acked, Arc::clone(&host.quota), lease.clone()).await?;
    outbox.mask_with(host.plane.mask());
    let route = outbox::Route {
        plane: Arc::clone(&host.plane),
        claim: claim.id,
        epoch: claim.epoch,
        watched: published.watched.clone(),
    };
    let sending = tokio::spawn(outbox::run(backlog, route));
    let (told, directives) = mpsc::channel(directives::QUEUED);
    let listening = tokio::spawn(directives::run(Arc::clone(&host.plane), claim.id, claim.epoch, told));
    let held = Held {
        claim: claim.clone(),
        plane: Arc::clone(&host.plane),
        outbox,
        lease,
        gateway: published.gateway.subscribe(),
        watched: published.watched.subscribe(),
        directives,
        stop: host.stop.clone(),
        resumed: matches!(origin, Origin::Recovered { .. }),
        spool_dir,
    };
    Ok((held, Tasks { sending, listening }))
}

/// Runs the executor in a task of its own, so that a defect in one session ends that session only.
async fn execute(host: &Arc<Host>, held: Held) -> Ended {
    let claim = held.claim.id;
    let lease = held.lease.clone();
    match tokio::spawn((host.executor.run)(held)).await {
        // What the executor could not know: the claim was lost while it cleared up.
        Ok(Ended::Unsettled) => match *lease.borrow() {
            State::Lost(loss) => Ended::Lost(loss),
            State::Held { .. } | State::Frozen => Ended::Unsettled,
        },
        Ok(ended) => ended,
        Err(error) => {
            tracing::error!(%claim, %error, "the session's task failed; this is a defect of the runner");
            Ended::Unsettled
        }
    }
}

async fn clear(host: &Arc<Host>, claim: &Claim, ended: Ended) {
    let cleared = match ended {
        Ended::Settled | Ended::Unfinished | Ended::GivenBack => host.spools.remove(claim.id).await,
        Ended::Lost(loss) => {
            if loss == Loss::Revoked {
                (host.executor.dispose)(claim.session_id).await;
            }
            // A claim that lapsed at our own stop may be taken up again by the next start.
            if loss == Loss::Lapsed { Ok(()) } else { host.spools.set_aside(claim.id).await }
        }
        Ended::Unsettled => Ok(()),
    };
    if let Err(error) = cleared {
        tracing::warn!(claim = %claim.id, %error, "the spool of an ended claim stays for the next start");
    }
}
