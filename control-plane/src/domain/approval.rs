//! An approval's answer: who may give it, when it is too late, and what a second one comes to.

use super::{
    append::ruling,
    draft::{Draft, Said},
    input,
    permission::Evaluated,
    policy::ResourceKind,
};
use checkfu_shared::{
    event::{
        ApprovalPending, ApprovalResolved, ApprovalStatus, Body, Confirmation, EvaluatedPermission,
        ToolConfirmation,
    },
    id::{ApprovalId, EventId, PrincipalId},
    problem::{Code, Problem},
    time::Timestamp,
};

/// How long an approval waits unless a rule says otherwise.
pub const TTL_SECONDS: u32 = 7 * 86_400;
/// The longest that an approval waits.
pub const TTL_SECONDS_MAX: u32 = 30 * 86_400;
/// The longest that an approval stands.
pub const STANDING_SECONDS_MAX: u32 = 30 * 86_400;
/// What the model is told of a call that nobody answered in time.
pub const EXPIRED: &str = "The approval expired before anybody answered, so the call did not run.";

/// An approval's row, as far as an answer must know it.
#[derive(Debug, Clone)]
pub struct Open {
    /// How far it is.
    pub status: ApprovalStatus,
    /// Whose session asks.
    pub principal: PrincipalId,
    /// Whether that principal may not answer.
    pub other_responder: bool,
    /// From then on it counts as denied.
    pub expires_at: Timestamp,
}

/// What an answer comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answered {
    /// It counts.
    First,
    /// The same was answered before: the same result again.
    Again,
    /// It comes too late.
    TooLate,
}

/// Decides one answer by a responder who may answer approvals.
///
/// # Errors
/// [`Code::AlreadyResolved`] when it has another end already, [`Code::PermissionDenied`] for the principal that asked when
/// somebody else has to answer.
pub fn judge(
    open: &Open,
    answer: Confirmation,
    responder: PrincipalId,
    now: Timestamp,
) -> Result<Answered, Problem> {
    let same = match answer {
        Confirmation::Allow => ApprovalStatus::Approved,
        Confirmation::Deny => ApprovalStatus::Denied,
    };
    if open.status == same {
        return Ok(Answered::Again);
    }
    if open.status != ApprovalStatus::Pending {
        let status = open.status.as_str();
        let message =
            format!("This approval is {status} already. An answer is given once; nothing was changed.");
        return Err(Problem::new(Code::AlreadyResolved, message).with("status", status));
    }
    if now >= open.expires_at {
        return Ok(Answered::TooLate);
    }
    if open.other_responder && responder == open.principal {
        let message =
            "The rule that asks wants another responder than the principal that the session acts as.";
        return Err(Problem::new(Code::PermissionDenied, message));
    }
    Ok(Answered::First)
}

/// Makes an approval of a call that asks; its id.
pub(super) fn ask(
    draft: &mut Draft<'_>,
    call: EventId,
    kind: ResourceKind,
    (tool, arguments_sha256): (&str, &str),
    evaluated: &Evaluated,
) -> Option<ApprovalId> {
    if evaluated.permission != EvaluatedPermission::Ask {
        return None;
    }
    let ttl = evaluated.ttl_seconds.unwrap_or(TTL_SECONDS).clamp(1, TTL_SECONDS_MAX);
    let approval_id = draft.mint_approval();
    draft.emit(Body::ActionApprovalPending(ApprovalPending {
        approval_id,
        tool_use_id: call,
        resource_kind: kind.as_str().to_owned(),
        tool: tool.to_owned(),
        arguments_sha256: arguments_sha256.to_owned(),
        reason: evaluated.reason.clone(),
        other_responder: evaluated.other_responder,
        expires_at: draft.now.plus_ms(i64::from(ttl) * 1_000),
    }));
    Some(approval_id)
}

/// Logs an answer that counts, and lets the session go on when nothing asks any more.
pub fn answer(draft: &mut Draft<'_>, answer: ToolConfirmation, note: Option<String>, said: Said) {
    confirm(draft, answer, note, said);
    input::follow(draft);
}

/// Logs an answer with the end of its approval.
pub(super) fn confirm(draft: &mut Draft<'_>, answer: ToolConfirmation, note: Option<String>, said: Said) {
    let (call, responder) = (answer.tool_use_id, said.authored_by);
    let status = match answer.result {
        Confirmation::Allow => ApprovalStatus::Approved,
        Confirmation::Deny => ApprovalStatus::Denied,
    };
    let note = note.or_else(|| answer.deny_message.clone());
    draft.emit_input(Body::UserToolConfirmation(answer), said);
    let approval = draft.state.call(call).and_then(|call| call.approval_id);
    if let Some(approval_id) = approval {
        draft.emit(Body::ActionApprovalResolved(ApprovalResolved {
            approval_id,
            tool_use_id: call,
            status,
            responder: Some(responder),
            note,
        }));
    }
}

/// Ends an approval that nobody answered in time.
pub fn expire(draft: &mut Draft<'_>, approval_id: ApprovalId, call: EventId) {
    end(draft, approval_id, call, ApprovalStatus::Expired);
    input::follow(draft);
}

/// Ends every approval that nobody can answer any more, since their run is over.
pub(super) fn invalidate(draft: &mut Draft<'_>) {
    let open: Vec<(ApprovalId, EventId)> = draft
        .state
        .calls
        .iter()
        .filter(|call| call.stage == super::session::Stage::Pending)
        .filter_map(|call| call.approval_id.map(|approval| (approval, call.id)))
        .collect();
    for (approval, call) in open {
        end(draft, approval, call, ApprovalStatus::Invalidated);
    }
}

fn end(draft: &mut Draft<'_>, approval_id: ApprovalId, tool_use_id: EventId, status: ApprovalStatus) {
    let (responder, note) = (None, None);
    draft.emit(Body::ActionApprovalResolved(ApprovalResolved {
        approval_id,
        tool_use_id,
        status,
        responder,
        note,
    }));
}

/// A decision that names its approval.
pub(super) fn decided(
    call: EventId,
    evaluated: Evaluated,
    approval: Option<ApprovalId>,
) -> checkfu_shared::protocol::append::Decision {
    let mut decision = ruling(call, evaluated);
    decision.approval_id = approval;
    decision
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_once_in_time_and_from_whom_may_give_it() {
        use ApprovalStatus::{Approved, Denied, Expired, Invalidated, Pending};
        let (own, other) = (PrincipalId::from_bytes([1; 16]), PrincipalId::from_bytes([2; 16]));
        let open = |status, other_responder| Open {
            status,
            principal: own,
            other_responder,
            expires_at: Timestamp::from_ms(100),
        };
        let try_it = |open: Open, answer, responder, now| {
            judge(&open, answer, responder, Timestamp::from_ms(now)).map_err(|problem| problem.code)
        };
        use Confirmation::{Allow, Deny};
        for (open, answer, responder, now, want) in [
            (open(Pending, false), Allow, own, 99, Ok(Answered::First)),
            (open(Pending, false), Deny, own, 100, Ok(Answered::TooLate)),
            (open(Pending, true), Allow, own, 99, Err(Code::PermissionDenied)),
            (open(Pending, true), Allow, other, 99, Ok(Answered::First)),
            (open(Approved, false), Allow, other, 999, Ok(Answered::Again)),
            (open(Approved, false), Deny, own, 1, Err(Code::AlreadyResolved)),
            (open(Denied, false), Deny, own, 1, Ok(Answered::Again)),
            (open(Denied, false), Allow, own, 1, Err(Code::AlreadyResolved)),
            (open(Expired, false), Deny, own, 1, Err(Code::AlreadyResolved)),
            (open(Invalidated, false), Allow, own, 1, Err(Code::AlreadyResolved)),
        ] {
            assert_eq!(try_it(open.clone(), answer, responder, now), want, "{open:?} {answer:?} {now}");
        }
    }
}
