//! The end of a claim, decided on the state at commit: the run is over, suspended, or goes on with another claim.

use super::{approval, claim, draft::Draft, input, session::InputKind};
use checkfu_shared::{
    event::{
        Bill, Body, ModelUsage, OutputCaptured, RetryStatus, RunSettled, SessionError, SettledOutcome,
        StopReason,
    },
    id::EventId,
};

/// Tells what model requests used whose ends no runner told.
pub fn tell_strays(draft: &mut Draft<'_>, usage: ModelUsage, bill: Bill) {
    if let Some(start) = draft.state.last_request {
        draft.emit(Body::SpanModelRequestEnd {
            model_request_start_id: start,
            model_usage: usage,
            is_error: true,
            bill: Some(bill),
        });
    }
}

/// Ends the claim of `epoch`: files first, then what the outcome comes to.
pub fn settle(draft: &mut Draft<'_>, epoch: u64, outcome: SettledOutcome, files: Vec<OutputCaptured>) {
    for file in files {
        draft.emit(Body::SessionOutputCaptured(file));
    }
    match outcome {
        SettledOutcome::EndTurn => conclude(draft, epoch, StopReason::EndTurn),
        SettledOutcome::RequiresAction => {
            let event_ids = draft.state.open_asks();
            conclude(draft, epoch, StopReason::RequiresAction { event_ids });
        }
        SettledOutcome::BudgetReached => conclude(draft, epoch, StopReason::BudgetReached),
        SettledOutcome::RetriesExhausted => conclude(draft, epoch, StopReason::RetriesExhausted),
        SettledOutcome::Refusal => conclude(draft, epoch, StopReason::Refusal),
        SettledOutcome::Released { reason, counts_as_attempt } => {
            claim::lose(draft, epoch, counts_as_attempt, &reason);
        }
        SettledOutcome::Failed { message } => {
            let error = SessionError {
                kind: "unknown_error".to_owned(),
                message,
                retry_status: RetryStatus::Exhausted,
            };
            draft.emit(Body::SessionError { error });
            conclude(draft, epoch, StopReason::RetriesExhausted);
        }
    }
}

/// Ends or suspends the run with `stop`, or with an interrupt that waits; queues the next run when a message waits.
pub fn conclude(draft: &mut Draft<'_>, epoch: u64, stop: StopReason) {
    let interrupts: Vec<EventId> =
        draft.state.waiting_of(InputKind::Interrupt).map(|input| input.id).collect();
    let stop = if interrupts.is_empty() { stop } else { StopReason::EndTurn };
    draft.process_inputs(interrupts);
    if matches!(&stop, StopReason::RequiresAction { event_ids } if event_ids.is_empty()) {
        draft.emit(Body::RunSuspended(RunSettled { epoch, stop_reason: stop }));
        draft.emit(Body::SessionStatusRunning {});
    } else if stop.suspends() {
        draft.emit(Body::RunSuspended(RunSettled { epoch, stop_reason: stop.clone() }));
        idle(draft, stop);
    } else {
        finish(draft, epoch, stop);
    }
}

fn finish(draft: &mut Draft<'_>, epoch: u64, stop: StopReason) {
    if stop == StopReason::RetriesExhausted {
        give_up_messages(draft);
    }
    let interrupted = draft.state.run.as_ref().is_some_and(|run| run.interrupted);
    approval::invalidate(draft);
    draft.emit(Body::RunSettled(RunSettled { epoch, stop_reason: stop.clone() }));
    let next = draft.state.waiting_of(InputKind::Message).next().is_some();
    if let Some(reason) = draft.facts.barred.clone().filter(|_| next) {
        refuse_messages(draft, reason);
        idle(draft, stop);
    } else if !next {
        idle(draft, stop);
    } else if interrupted {
        // Who interrupts waits for the idle that tells of it, also when more was said.
        idle(draft, stop);
        input::start(draft);
    } else {
        draft.emit_run();
    }
}

/// Ends the run because its acting principal may not have it any more; what waits is given up.
pub fn bar(draft: &mut Draft<'_>, epoch: u64, reason: String) {
    let waiting = draft.state.waiting.iter().map(|input| input.id).collect();
    draft.process_inputs(waiting);
    say_denied(draft, reason);
    approval::invalidate(draft);
    draft.emit(Body::RunSettled(RunSettled { epoch, stop_reason: StopReason::EndTurn }));
    idle(draft, StopReason::EndTurn);
}

/// The messages that wait get no run, since the acting principal may not start one.
fn refuse_messages(draft: &mut Draft<'_>, reason: String) {
    let ids = draft.state.waiting_of(InputKind::Message).map(|input| input.id).collect();
    draft.process_inputs(ids);
    say_denied(draft, reason);
}

fn say_denied(draft: &mut Draft<'_>, message: String) {
    let kind = "permission_denied".to_owned();
    let error = SessionError { kind, message, retry_status: RetryStatus::Exhausted };
    draft.emit(Body::SessionError { error });
}

/// A message that a failed run did not even take up would start the same failure for ever: it is folded in here, and the
/// next message tries again. One that came later gets its own run.
fn give_up_messages(draft: &mut Draft<'_>) {
    let claimed = draft.state.run.as_ref().map_or(0, |run| run.claimed_seq);
    let old = draft.state.waiting_of(InputKind::Message).filter(|input| input.seq < claimed);
    let ids = old.map(|input| input.id).collect();
    draft.process_inputs(ids);
}

fn idle(draft: &mut Draft<'_>, stop_reason: StopReason) {
    let usage = draft.state.usage.clone();
    draft.emit(Body::SessionUsage { usage, budget: draft.facts.budget.clone() });
    draft.emit(Body::SessionStatusIdle { stop_reason });
}
