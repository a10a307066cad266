//! The session executor: one task owns one session, from its claim to its settlement. It writes nothing once the claim is
//! lost, and a defect in it ends this one session only.

mod bench;
mod ledger;
mod orders;
pub mod place;
mod settlement;

use crate::{
    claim::{
        Held, Stop,
        lease::{Loss, State},
    },
    harness::{Halt, Harness, Orders},
    model::{Provider, gateway::Gateway},
    sandbox::Docker,
    tools,
};
use bench::{Plan, Workbench};
use checkfu_shared::{event::SettledOutcome, protocol::settlement::Settled};
use futures_util::FutureExt as _;
use ledger::Ledger;
use place::Place;
use settlement::Settlement;
use std::{panic::AssertUnwindSafe, time::Duration};
use tokio::sync::{mpsc, watch};

/// How long giving a run back after a defect may take.
const GIVE_BACK_WAIT: Duration = Duration::from_secs(60);

/// What every session of this runner works with.
#[derive(Debug, Clone)]
pub struct Deps {
    /// Where sandboxes are made.
    pub docker: Docker,
    /// How long a frozen sandbox is kept, in milliseconds.
    pub keep_ms: u64,
}

/// How the executor's hold of a claim ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The settlement is acknowledged; nothing of the claim is needed any more.
    Settled,
    /// The same, but the turn did not come to its end, such as by a spent budget or a model that refuses.
    Unfinished,
    /// The same, but the run was given back because this host failed it.
    GivenBack,
    /// The claim is over for this runner.
    Lost(Loss),
    /// It stopped without a settlement; the spool stays for the next start.
    Unsettled,
}

/// Runs one claim to its end in a sandbox of this Docker.
pub async fn run(held: Held, deps: Deps) -> Ended {
    let plan = Plan {
        session_id: held.claim.session_id,
        epoch: held.claim.epoch,
        spec: held.claim.environment.clone(),
        keep_ms: deps.keep_ms,
    };
    let bench = Workbench::new(deps.docker, plan, held.lease.clone(), held.claim.thread_id);
    let gateway = Gateway { plane: held.plane.clone(), access: held.gateway.clone() };
    conduct(held, &bench, gateway).await
}

/// Runs one claim to its end with these calls and this model.
pub async fn conduct<P: Place, M: Provider>(held: Held, place: &P, model: M) -> Ended {
    let ended = supervise(held, place, model).await;
    if matches!(ended, Hold::Lost(_) | Hold::Cancelled) {
        place.stand_still().await;
    }
    place.close().await;
    match ended {
        Hold::Settled(ended) => ended,
        Hold::Unsettled => Ended::Unsettled,
        Hold::Lost(loss) => Ended::Lost(loss),
        Hold::Cancelled => {
            place.stop().await;
            Ended::Lost(Loss::Fenced)
        }
    }
}

enum Hold {
    Settled(Ended),
    Unsettled,
    Lost(Loss),
    Cancelled,
}

/// The work beside what may end it. Whatever comes first drops the rest.
async fn supervise<P: Place, M: Provider>(mut held: Held, place: &P, model: M) -> Hold {
    // Only the listener takes directives; the rest of the claim is read by everybody.
    let (_, closed) = mpsc::channel(1);
    let mut directives = std::mem::replace(&mut held.directives, closed);
    let mut stop = held.stop.clone();
    let session = held.claim.session_id;
    let ledger = Ledger::of(&held);
    let (orders, ordered) = watch::channel(Orders::default());
    let lease = held.lease.clone();
    let work = Work {
        settlement: Settlement {
            ledger: &ledger,
            place,
            spool_dir: &held.spool_dir,
            limits: held.claim.settlement,
        },
        held: &held,
        orders: ordered,
    };
    // Boxed: the whole conversation loop is one large future.
    let working = Box::pin(AssertUnwindSafe(work.carry_out(model)).catch_unwind());
    let told = orders::listen(&mut directives, &mut stop, held.claim.thread_id, &orders);
    let ended = tokio::select! {
        biased;
        loss = orders::lost(lease.clone()) => return Hold::Lost(loss),
        ended = working => ended,
        reason = told => {
            tracing::info!(%session, reason, "the control plane cancelled the session");
            return Hold::Cancelled;
        }
        () = place.tend() => return Hold::Unsettled,
    };
    match ended {
        Ok(Ok((settled, ended))) => {
            tracing::info!(%session, stop_reason = ?settled.stop_reason, "settled");
            Hold::Settled(ended)
        }
        Ok(Err(halt)) => halted(&halt, &lease),
        Err(_panic) => {
            tracing::error!(%session, "the session's work failed; this is a defect of the runner");
            give_back(&work).await
        }
    }
}

fn halted(halt: &Halt, lease: &watch::Receiver<State>) -> Hold {
    match (halt, *lease.borrow()) {
        (_, State::Lost(loss)) => Hold::Lost(loss),
        (Halt::Lost, _) => Hold::Lost(Loss::Fenced),
        (Halt::Log(reason), _) => {
            tracing::error!(reason, "the session stopped without a settlement");
            Hold::Unsettled
        }
    }
}

/// After a defect: the run goes back to the queue, and counts as an attempt so that it cannot fail for ever.
async fn give_back<P: Place>(work: &Work<'_, P>) -> Hold {
    let outcome = SettledOutcome::Released {
        reason: "the runner failed while it worked on this run".to_owned(),
        counts_as_attempt: true,
    };
    let settled = AssertUnwindSafe(work.settlement.conclude(outcome, false)).catch_unwind();
    match tokio::time::timeout(GIVE_BACK_WAIT, settled).await {
        Ok(Ok(Ok(_))) => Hold::Settled(Ended::GivenBack),
        Ok(Ok(Err(halt))) => halted(&halt, &work.held.lease),
        Ok(Err(_)) | Err(_) => Hold::Unsettled,
    }
}

/// How a settlement with this outcome counts for this host.
const fn told(outcome: &SettledOutcome) -> Ended {
    match outcome {
        SettledOutcome::Released { counts_as_attempt: true, .. } => Ended::GivenBack,
        SettledOutcome::EndTurn | SettledOutcome::RequiresAction => Ended::Settled,
        SettledOutcome::BudgetReached
        | SettledOutcome::RetriesExhausted
        | SettledOutcome::Refusal
        | SettledOutcome::Released { counts_as_attempt: false, .. }
        | SettledOutcome::Failed { .. } => Ended::Unfinished,
    }
}

/// The work of one claim.
struct Work<'a, P> {
    settlement: Settlement<'a, P>,
    held: &'a Held,
    orders: watch::Receiver<Orders>,
}

impl<P: Place> Work<'_, P> {
    async fn carry_out<M: Provider>(&self, model: M) -> Result<(Settled, Ended), Halt> {
        let Settlement { ledger, place, .. } = &self.settlement;
        if tools::needs_sandbox(&self.held.claim.agent) {
            place.begin().await;
        }
        if self.held.resumed {
            // What an earlier start left in the spool belongs to the log before it is read.
            ledger.flush().await?;
        }
        let agent = self.held.claim.agent.clone();
        let mut harness =
            Harness::new(*ledger, *place, model, agent, self.orders.clone(), self.held.lease.clone())
                .with_context(self.held.claim.context);
        harness.rebuild().await?;
        if harness.transcript().had_sandbox() {
            place.expect_files();
        }
        let outcome = harness.drive().await?;
        let hurries = *self.held.stop.borrow() == Stop::Cancel;
        let ended = told(&outcome);
        Ok((self.settlement.conclude(outcome, !hurries).await?, ended))
    }
}
