//! What follows from something said to a session: echoes, and the runs that they start, resume or end.

use super::{
    approval,
    draft::{Draft, Said},
    session::{InputKind, Stage},
    settlement,
};
use crate::record::{Input, RunStatus, Status};
use checkfu_shared::{
    content::Block,
    event::{Body, Confirmation, StopReason, ToolConfirmation},
    id::EventId,
    problem::{Code, Problem},
};

/// The longest `deny_message`, in characters.
const DENY_MESSAGE_CHARS: usize = 10_000;

/// Logs the inputs and whatever follows from them; all of them or none.
///
/// # Errors
/// [`Code::Archived`], [`Code::UnknownReference`] for a call that does not wait for this answer, or
/// [`Code::InvalidRequest`] for content that the model would refuse.
pub fn send(draft: &mut Draft<'_>, inputs: Vec<Input>) -> Result<(), Problem> {
    if draft.state.status == Status::Terminated {
        return Err(Problem::new(
            Code::Archived,
            "The session is archived and takes no more input. Create a new session.",
        ));
    }
    for input in inputs {
        check(draft, &input.body)?;
        let said = Said { authored_by: input.authored_by, caused_by: input.caused_by };
        match input.body {
            Body::UserToolConfirmation(answer) => approval::confirm(draft, answer, None, said),
            body => drop(draft.emit_input(body, said)),
        }
    }
    follow(draft);
    Ok(())
}

/// Starts, resumes or ends runs so that nothing waits that could go on.
pub fn follow(draft: &mut Draft<'_>) {
    let claimed = draft.state.phase() == Some(RunStatus::Claimed);
    if !claimed && draft.state.waiting_of(InputKind::Interrupt).next().is_some() {
        interrupt(draft);
    }
    let asked = matches!(
        draft.state.run.as_ref().and_then(|run| run.record.stop_reason.as_ref()),
        Some(StopReason::RequiresAction { .. })
    );
    if draft.state.phase() == Some(RunStatus::Suspended) && asked && draft.state.open_asks().is_empty() {
        draft.emit(Body::SessionStatusRunning {});
    }
    if draft.state.run.is_none() && draft.state.waiting_of(InputKind::Message).next().is_some() {
        start(draft);
    }
}

/// Queues a new run and says that the session runs.
pub fn start(draft: &mut Draft<'_>) {
    draft.emit_run();
    draft.emit(Body::SessionStatusRunning {});
}

/// Lets a run go on whose budget was raised.
pub fn resume_after_budget(draft: &mut Draft<'_>) {
    if is_paused(draft) {
        draft.emit(Body::SessionStatusRunning {});
    }
}

/// Without a claim the server applies an interrupt itself.
fn interrupt(draft: &mut Draft<'_>) {
    // What was said before the interrupt belongs to the turn that it ends.
    let last = draft.state.waiting_of(InputKind::Interrupt).map(|input| input.seq).max().unwrap_or(0);
    let suspended = draft.state.phase() == Some(RunStatus::Suspended);
    let ids: Vec<EventId> = draft
        .state
        .waiting
        .iter()
        .filter(|input| {
            input.kind == InputKind::Interrupt
                || (input.kind == InputKind::Message && input.seq < last && !suspended)
        })
        .map(|input| input.id)
        .collect();
    draft.process_inputs(ids);
    if let Some(epoch) = draft.state.run.as_ref().map(|run| run.record.epoch) {
        settlement::conclude(draft, epoch, StopReason::EndTurn);
    }
}

fn check(draft: &Draft<'_>, body: &Body) -> Result<(), Problem> {
    match body {
        Body::UserMessage { content } => check_message(draft, content),
        Body::UserInterrupt { .. } => Ok(()),
        Body::UserToolConfirmation(answer) => check_confirmation(draft, answer),
        Body::UserCustomToolResult { custom_tool_use_id, content, .. } => {
            check_content(content)?;
            check_result(draft, *custom_tool_use_id)
        }
        other => Err(Problem::new(
            Code::InvalidRequest,
            format!(
                "`{}` cannot be sent. Send user.message, user.interrupt, user.tool_confirmation or user.custom_tool_result.",
                other.kind()
            ),
        )),
    }
}

fn check_message(draft: &Draft<'_>, content: &[Block]) -> Result<(), Problem> {
    if let Some(reason) = &draft.facts.barred {
        return Err(Problem::new(Code::PermissionDenied, reason.clone()));
    }
    if is_paused(draft) {
        return Err(Problem::new(
            Code::BudgetReached,
            "The session's budget is spent. Raise the budget, or interrupt the run, before sending a message.",
        ));
    }
    if content.is_empty() {
        return Err(Problem::new(Code::InvalidRequest, "`content` is empty. Send at least one block."));
    }
    check_content(content)
}

fn is_paused(draft: &Draft<'_>) -> bool {
    draft.state.run.as_ref().is_some_and(|run| {
        run.record.status == RunStatus::Suspended && run.record.stop_reason == Some(StopReason::BudgetReached)
    })
}

fn check_content(content: &[Block]) -> Result<(), Problem> {
    if content.iter().any(Block::is_empty_text) {
        return Err(Problem::new(
            Code::InvalidRequest,
            "A text block of `content` is empty, which no model accepts. Leave the block out.",
        ));
    }
    Ok(())
}

fn check_confirmation(draft: &Draft<'_>, answer: &ToolConfirmation) -> Result<(), Problem> {
    if let Some(message) = &answer.deny_message {
        if answer.result == Confirmation::Allow {
            return Err(Problem::new(Code::InvalidRequest, "`deny_message` goes only with `result: deny`."));
        }
        if message.chars().count() > DENY_MESSAGE_CHARS {
            return Err(Problem::new(
                Code::InvalidRequest,
                "`deny_message` is longer than 10,000 characters. Shorten it.",
            ));
        }
    }
    let call = draft.state.calls.iter().find(|call| call.id == answer.tool_use_id);
    if call.is_none_or(|call| call.stage != Stage::Pending) {
        return Err(not_waiting("tool_use_id", answer.tool_use_id, "a confirmation"));
    }
    Ok(())
}

fn check_result(draft: &Draft<'_>, id: EventId) -> Result<(), Problem> {
    let call = draft.state.calls.iter().find(|call| call.id == id);
    if call.is_none_or(|call| call.stage != Stage::Awaiting) {
        return Err(not_waiting("custom_tool_use_id", id, "a result"));
    }
    Ok(())
}

fn not_waiting(field: &str, id: EventId, what: &str) -> Problem {
    Problem::new(
        Code::UnknownReference,
        format!("`{field}` {id} names no call that waits for {what}. See the event_ids of the session's requires_action."),
    )
    .with("field", field)
}
