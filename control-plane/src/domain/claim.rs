//! Who may hold a run: confirmation, loss, and which runner is offered what. An epoch only grows.

use super::{draft::Draft, session::InputKind, settlement};
use crate::record::{Status, WaitingReason};
use checkfu_shared::{
    event::{Body, RetryStatus, RunClaimed, SessionError, StopReason},
    id::RunnerId,
    protocol::Tempo,
    time::Timestamp,
};

/// After so many attempts the run is given up.
pub const ATTEMPTS_MAX: u32 = 5;
/// A runner that was not heard for so long is offline.
pub const OFFLINE_MS: i64 = 45_000;
/// A runner that was not heard for so long is lost.
pub const LOST_MS: i64 = 180_000;

/// A runner took the run up.
pub fn confirm(draft: &mut Draft<'_>, claimed: RunClaimed) {
    if draft.state.status == Status::Rescheduling {
        draft.emit(Body::SessionStatusRunning {});
    }
    draft.emit(Body::RunClaimed(claimed));
}

/// The claim of `epoch` ended without an outcome; the run is queued again unless it was tried too often.
pub fn lose(draft: &mut Draft<'_>, epoch: u64, counts: bool, reason: &str) {
    let attempt = draft.state.run.as_ref().map_or(1, |run| run.record.attempt);
    if draft.state.waiting_of(InputKind::Interrupt).next().is_some() {
        return settlement::conclude(draft, epoch, StopReason::EndTurn);
    }
    if counts && attempt >= ATTEMPTS_MAX {
        let message = format!(
            "The run was lost {ATTEMPTS_MAX} times and is given up; the last time: {reason}. Look at the runner's log, then send a message to try again."
        );
        let error =
            SessionError { kind: "runner_lost".to_owned(), message, retry_status: RetryStatus::Exhausted };
        draft.emit(Body::SessionError { error });
        return settlement::conclude(draft, epoch, StopReason::RetriesExhausted);
    }
    draft.emit(Body::SessionStatusRescheduled { attempt: Some(attempt + u32::from(counts)) });
}

/// A queued run, as far as an offer must know it.
#[derive(Debug, Clone)]
pub struct Queued {
    /// Since when.
    pub queued_at: Timestamp,
    /// Labels that a runner must carry.
    pub labels: Vec<String>,
    /// The runner that has the session's sandbox.
    pub sandbox_runner: Option<RunnerId>,
    /// It is offered to somebody now.
    pub offered: bool,
}

/// A runner, as far as an offer must know it.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// Which.
    pub id: RunnerId,
    /// Everything it is called.
    pub labels: Vec<String>,
    /// Its operator took it away for good.
    pub revoked: bool,
    /// It ends what it has and takes no more.
    pub draining: bool,
    /// When it was heard last.
    pub last_seen: Timestamp,
    /// How many claims it holds.
    pub held: u32,
    /// How many it may hold.
    pub max_sessions: Option<u32>,
}

impl Candidate {
    /// Whether it carries all these labels.
    #[must_use]
    pub fn carries(&self, labels: &[String]) -> bool {
        labels.iter().all(|label| self.labels.contains(label))
    }

    /// Whether it may hold one more claim.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.max_sessions.is_none_or(|max| self.held < max)
    }

    /// Whether it may take no more work.
    #[must_use]
    pub const fn is_barred(&self) -> bool {
        self.revoked || self.draining
    }

    /// Whether it was heard lately.
    #[must_use]
    pub fn is_online(&self, now: Timestamp) -> bool {
        now.since_ms(self.last_seen) < OFFLINE_MS
    }
}

/// Whether the run is kept for the runner that has its sandbox, which may still come.
#[must_use]
pub fn kept_for(
    queued: &Queued,
    home: Option<&Candidate>,
    tempo: &Tempo,
    now: Timestamp,
) -> Option<RunnerId> {
    let home = home.filter(|home| queued.sandbox_runner == Some(home.id))?;
    let window = i64::try_from(tempo.affinity_ms).unwrap_or(i64::MAX);
    // A clock that was set back must not keep it for hours.
    let open = (0..window).contains(&now.since_ms(queued.queued_at));
    (open && !home.is_barred() && home.is_online(now) && home.carries(&queued.labels)).then_some(home.id)
}

/// Why a queued run waits.
#[must_use]
pub fn waiting_reason(
    queued: &Queued,
    runners: &[Candidate],
    tempo: &Tempo,
    now: Timestamp,
) -> WaitingReason {
    if queued.offered {
        return WaitingReason::Offered;
    }
    let fitting: Vec<&Candidate> =
        runners.iter().filter(|runner| !runner.revoked && runner.carries(&queued.labels)).collect();
    let open: Vec<&&Candidate> = fitting.iter().filter(|runner| !runner.draining).collect();
    let online: Vec<_> = open.iter().filter(|runner| runner.is_online(now)).collect();
    let home = runners.iter().find(|runner| queued.sandbox_runner == Some(runner.id));
    if fitting.is_empty() {
        WaitingReason::NoRunnerMatchesLabels
    } else if open.is_empty() {
        WaitingReason::AllRunnersDraining
    } else if online.is_empty() {
        WaitingReason::AllRunnersOffline
    } else if kept_for(queued, home, tempo, now).is_some() {
        WaitingReason::Affinity
    } else if online.iter().any(|runner| runner.held == 0) {
        // Every runner has a slot at least, so one without a claim is not busy: it does not ask.
        WaitingReason::NoRunnerReady
    } else {
        WaitingReason::AllSlotsBusy
    }
}
