//! The table of tasks, what each one's end means, and the order of stopping. First signal: drain; second: cancel with a
//! bounded clean-up; third: out at once. Whatever is left, the next start finds.

mod chores;
mod disk;
pub mod docker;
pub mod executor;
mod notify;
pub(crate) mod signals;

pub use executor::Executor;
use notify::{Loop, Pulse};
pub use signals::Signals;

use crate::{
    claim::{
        Stop,
        hold::Host,
        lease::thread::{LeaseHandle, LeaseThread},
        poll::{Idle, Poll},
        recovery,
        table::{Counts, Table},
    },
    config::Config,
    control::Door,
    identity::Identity,
    metrics::Metrics,
    plane::{self, Plane, Standing, token::Keeper},
    spools::Spools,
    state::{self, State},
    status::{Reporter, Status},
};
use checkfu_shared::{
    id::InstanceId,
    protocol::pairing,
    time::{Clock as _, SystemClock},
};
use std::{io, sync::Arc, time::Duration};
use tokio::{
    sync::{Semaphore, watch},
    task::{JoinError, JoinHandle, JoinSet},
};

/// How long sessions have for their clean-up after they were cancelled.
const CANCEL_GRACE: Duration = Duration::from_secs(30);

/// What a stop may take beyond the time to drain; systemd's own patience must be as long.
const STOP_SLACK: Duration = Duration::from_secs(45);

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
    /// It was to take one claim, and no work came in time.
    NoWork,
    /// It was to take one claim, whose turn did not come to its end here.
    Unfinished,
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
    let once = config.once;
    let (plane, keeper) = reach;
    plane.mask_with(config.mask.clone());
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
    let drained = watch::Sender::new(signals::is_drained(&state)?);
    let reporter = Reporter {
        host: Arc::clone(&host),
        idle: idle.subscribe(),
        drained: drained.subscribe(),
        template: template(&identity, instance, sessions.get()),
    };
    let asked = drained.subscribe();
    let metrics = match config.metrics {
        Some(address) => Some(Metrics::open(address, reporter.clone()).await?),
        None => None,
    };
    let door = Door::open(state.clone(), Arc::clone(&host), reporter, drained)?;
    let pulse = Pulse::new();
    tracing::info!(runner = %identity.runner_id, %instance, plane = %identity.plane, %sessions, "the runner starts");
    let chores = [
        tokio::spawn(chores::inventory(Arc::clone(&host))),
        tokio::spawn(chores::revocation(Arc::clone(&host))),
        tokio::spawn(door.serve()),
        tokio::spawn(notify::watchdog(pulse.clone(), Arc::clone(&host))),
        tokio::spawn(async move {
            match metrics {
                Some(metrics) => metrics.serve().await,
                None => std::future::pending().await,
            }
        }),
    ];
    let labels = config.labels(&identity.labels);
    let slots = usize::try_from(sessions.get()).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
    let work = work(Arc::clone(&host), slots, labels, (idle, asked), (resumed_drain, once));
    let work = tokio::spawn(pulse.beating(Loop::Work, work));
    notify::ready();
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
    let finished = if once.is_some() { of_one(finished, host.table.counts()) } else { finished };
    tracing::info!(?finished, "the runner stops");
    Ok(finished)
}

/// What a status says from the first moment on.
fn template(identity: &Identity, instance: InstanceId, sessions: u32) -> Status {
    Status {
        written_at: SystemClock.now(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        instance_id: instance,
        runner_id: identity.runner_id,
        name: identity.name.clone(),
        plane: identity.plane.to_string(),
        state: "starting".to_owned(),
        reason: None,
        max_sessions: sessions,
        last_contact_s: None,
        last_poll_s: None,
        drained: false,
        spool_bytes: 0,
        spool_bytes_max: 0,
        counts: Default::default(),
        sessions: Vec::new(),
    }
}

/// What came of the one claim that was to be taken.
const fn of_one(finished: Finished, counts: Counts) -> Finished {
    match finished {
        Finished::Drained if counts.polls_work == 0 => Finished::NoWork,
        Finished::Drained if counts.claims_settled == 0 => Finished::Unfinished,
        other => other,
    }
}

/// Takes up what the start before left, then takes new work. Ends when it is told to stop and everything it holds has ended.
async fn work(
    host: Arc<Host>,
    slots: usize,
    labels: Vec<String>,
    (idle, drained): (watch::Sender<Idle>, watch::Receiver<bool>),
    (only_finish, once): (bool, Option<Duration>),
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
    Poll { host, slots, labels, idle, drained, once }.run(holds).await;
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
    notify::stopping(config.drain + STOP_SLACK);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    #[test]
    fn one_claim_is_judged_by_what_came_of_it() {
        let counts = |polls_work, claims_settled| Counts { polls_work, claims_settled, ..Counts::default() };
        for (finished, counts, expected) in [
            (Finished::Drained, counts(1, 1), Finished::Drained),
            (Finished::Drained, counts(1, 0), Finished::Unfinished),
            (Finished::Drained, counts(0, 0), Finished::NoWork),
            (Finished::Cancelled, counts(1, 0), Finished::Cancelled),
        ] {
            assert_eq!(of_one(finished, counts), expected);
        }
    }

    #[test]
    fn the_unit_waits_as_long_as_a_stop_may_take() {
        let unit = include_str!("../../systemd/checkfu-runner.service");
        let most = Config::from(&Settings::default()).drain + STOP_SLACK;
        assert!(STOP_SLACK > CANCEL_GRACE);
        assert!(unit.contains(&format!("\nTimeoutStopSec={}\n", most.as_secs())), "{most:?}");
    }
}
