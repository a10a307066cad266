//! The table of tasks, what each one's end means, and the order of stopping. First signal: drain; second: cancel with a
//! bounded clean-up; third: out at once. Whatever is left, the next start finds.

mod chores;
mod disk;
pub mod docker;
pub mod executor;
mod signals;

pub use executor::Executor;
pub use signals::Signals;

use crate::{
    claim::{
        Stop,
        hold::Host,
        lease::thread::{LeaseHandle, LeaseThread},
        poll::{Idle, Poll},
        recovery,
        table::Table,
    },
    config::Config,
    identity::Identity,
    plane::{self, Plane, Standing, token::Keeper},
    spools::Spools,
    state::{self, State},
    status,
};
use checkfu_shared::{id::InstanceId, protocol::pairing};
use std::{io, sync::Arc, time::Duration};
use tokio::{
    sync::{Semaphore, watch},
    task::{JoinError, JoinHandle, JoinSet},
};

/// How long sessions have for their clean-up after they were cancelled.
const CANCEL_GRACE: Duration = Duration::from_secs(30);

/// Why the daemon does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The client of the control plane cannot be set up.
    #[error(transparent)]
    Plane(#[from] plane::SetupError),
    /// The state directory cannot be used.
    #[error(transparent)]
    State(#[from] state::Error),
    /// The system gives no thread, event queue or signal handler.
    #[error("the system refuses what the runner needs: {0}")]
    System(#[from] io::Error),
}

/// How the daemon ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finished {
    /// Every session was finished or handed back.
    Drained,
    /// Sessions were cancelled.
    Cancelled,
    /// The third signal: nothing was waited for.
    Abandoned,
    /// Another machine runs under this identity.
    IdentityInUse,
    /// The task that takes work ended by a defect.
    Failed,
}

/// Everything a start needs.
#[derive(Debug)]
pub struct Start {
    /// The locked state directory.
    pub state: State,
    /// Who this is.
    pub identity: Arc<Identity>,
    /// What it was told.
    pub config: Config,
    /// The machine.
    pub machine: pairing::Host,
    /// Listened to from the first moment on, so that an early signal is not a crash.
    pub signals: Signals,
}

/// Runs the daemon until it is told to stop.
///
/// # Errors
/// [`Error`] when it cannot start; never later.
pub async fn run(start: Start, executor: Executor) -> Result<Finished, Error> {
    let (identity, machine) = (Arc::clone(&start.identity), start.machine.clone());
    let reach = Plane::new(identity, InstanceId::mint(), machine, start.config.ca.as_deref())?;
    let leases = LeaseThread::start()?;
    let finished = run_over(start, reach, leases.handle(), executor).await;
    tokio::task::spawn_blocking(move || leases.stop()).await.map_err(io::Error::from)?;
    finished
}

/// Like [`run`], over a client that is there already and with renewals where `leases` says.
///
/// # Errors
/// As [`run`].
pub async fn run_over(
    start: Start,
    reach: (Arc<Plane>, Keeper),
    leases: LeaseHandle,
    executor: Executor,
) -> Result<Finished, Error> {
    let Start { state, identity, config, signals, .. } = start;
    let (plane, keeper) = reach;
    let instance = plane.instance();
    let keeping = leases.spawn(keeper.run());
    let resumed_drain = signals::interrupted_drain(&state)?;
    if resumed_drain {
        tracing::warn!("the last start ended while it drained: sessions are finished, no work is taken");
    }
    let (stop, stopping) = watch::channel(Stop::Go);
    let host = Arc::new(Host {
        plane: Arc::clone(&plane),
        executor,
        leases,
        spools: Spools::open(&state)?,
        quota: Arc::default(),
        table: Table::default(),
        stop: stopping,
    });
    let sessions = config.sessions(identity.max_sessions);
    let idle = watch::Sender::new(Idle::Away("not connected yet".to_owned()));
    let shown = status::Status {
        written_at: chores::now(),
        pid: std::process::id(),
        instance_id: instance,
        runner_id: identity.runner_id,
        name: identity.name.clone(),
        plane: identity.plane.to_string(),
        state: "starting".to_owned(),
        reason: None,
        max_sessions: sessions.get(),
        last_contact_s: None,
        sessions: Vec::new(),
    };
    tracing::info!(runner = %identity.runner_id, %instance, plane = %identity.plane, %sessions, "the runner starts");
    let chores = [
        tokio::spawn(chores::inventory(Arc::clone(&host))),
        tokio::spawn(chores::revocation(Arc::clone(&host))),
        tokio::spawn(chores::report(state.clone(), Arc::clone(&host), idle.subscribe(), shown)),
    ];
    let labels = config.labels(&identity.labels);
    let slots = usize::try_from(sessions.get()).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
    let work = tokio::spawn(work(Arc::clone(&host), slots, labels, idle, resumed_drain));
    let finished = until_finished(&state, &config, signals, &stop, plane.standing(), work).await;
    for chore in chores {
        chore.abort();
        let _ = chore.await;
    }
    keeping.abort();
    let _ = keeping.await;
    if !matches!(finished, Finished::Abandoned | Finished::Failed) {
        signals::drained(&state)?;
    }
    tracing::info!(?finished, "the runner stops");
    Ok(finished)
}

/// Takes up what the start before left, then takes new work. Ends when it is told to stop and everything it holds has ended.
async fn work(
    host: Arc<Host>,
    slots: usize,
    labels: Vec<String>,
    idle: watch::Sender<Idle>,
    only_finish: bool,
) {
    let slots = Arc::new(Semaphore::new(slots));
    let mut holds = JoinSet::new();
    let mut stop = host.stop.clone();
    tokio::select! {
        biased;
        // What was not asked about stays on the disk for the next start.
        _ = stop.wait_for(|stop| *stop > Stop::Go) => {}
        _ = recovery::recover(&host, &slots, &mut holds) => {
            idle.send_replace(Idle::Asking);
        }
    }
    if only_finish {
        idle.send_replace(Idle::Stopping);
        while holds.join_next().await.is_some() {}
        return;
    }
    Poll { host, slots, labels, idle }.run(holds).await;
}

fn ended(worked: Result<(), JoinError>) -> Finished {
    match worked {
        Ok(()) => Finished::Drained,
        Err(error) => {
            tracing::error!(%error, "the task that takes work has failed; this is a defect of the runner");
            Finished::Failed
        }
    }
}

/// The order of stopping, in one place.
async fn until_finished(
    state: &State,
    config: &Config,
    mut signals: Signals,
    stop: &watch::Sender<Stop>,
    mut standing: watch::Receiver<Standing>,
    mut work: JoinHandle<()>,
) -> Finished {
    let in_use =
        async { standing.wait_for(|standing| matches!(standing, Standing::InUse { .. })).await.is_ok() };
    tokio::select! {
        worked = &mut work => return ended(worked),
        true = in_use => {
            // Whatever ran here belongs to the other machine now.
            stop.send_replace(Stop::Cancel);
            let _ = tokio::time::timeout(CANCEL_GRACE, &mut work).await;
            return Finished::IdentityInUse;
        }
        () = signals.next() => {}
    }
    tracing::info!(
        seconds = config.drain.as_secs(),
        "stopping: running turns are finished, no work is taken"
    );
    if let Err(error) = signals::draining(state) {
        tracing::warn!(%error, "a crash from here on would not be known as one during a drain");
    }
    stop.send_replace(Stop::Drain);
    tokio::select! {
        worked = &mut work => return ended(worked),
        () = tokio::time::sleep(config.drain) => tracing::warn!("the time to drain is over: sessions are cancelled"),
        () = signals.next() => tracing::warn!("second signal: sessions are cancelled"),
    }
    stop.send_replace(Stop::Cancel);
    tokio::select! {
        _ = &mut work => {}
        () = tokio::time::sleep(CANCEL_GRACE) => tracing::error!("the clean-up took too long and is left to the next start"),
        () = signals.next() => {
            tracing::error!("third signal: out at once, the next start clears up");
            return Finished::Abandoned;
        }
    }
    Finished::Cancelled
}
