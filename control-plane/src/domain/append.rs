//! What a runner reports: which of it is admissible, what the server stamps on it, and what it decides of tool calls.

use super::{
    approval,
    draft::Draft,
    permission::{self, Evaluated},
    policy::ResourceKind,
    session::{Call, Stage},
};
use checkfu_shared::{
    event::{Bill, Body, EvaluatedPermission, ModelUsage},
    id::EventId,
    problem::{Code, Problem},
    protocol::append::{Appended, Decision, Disposition, runner_may_append, sha256_hex},
};
use serde_json::Value;

/// Logs one event of a runner and whatever the server adds to it; the decision, when it is a tool call. `proposal` holds the
/// logged arguments of the custom tool call that the event resumes.
///
/// # Errors
/// [`Code::PermissionDenied`] for a kind that a runner may not append, [`Code::InvalidRequest`] for a result without an
/// open call, a repeated call, or other arguments than those logged.
pub fn append(
    draft: &mut Draft<'_>,
    event: Appended,
    metered: Option<(ModelUsage, Bill)>,
    proposal: Option<Value>,
) -> Result<Option<Decision>, Problem> {
    if !runner_may_append(&event.body) {
        return Err(Problem::new(
            Code::PermissionDenied,
            format!("A runner may not append `{}`; only the control plane does.", event.body.kind()),
        ));
    }
    let Appended { id, thread_id, body, .. } = event;
    match body {
        Body::AgentToolUse(mut call) => {
            refuse_known(draft, id)?;
            let digest = arguments_digest(&call.input);
            let evaluated = permission::evaluate(draft.facts, ResourceKind::Tool, &call.name, &digest);
            call.evaluated_permission = Some(evaluated.permission);
            let name = call.name.clone();
            draft.emit_appended(id, thread_id, Body::AgentToolUse(call));
            draft.note_decision(ResourceKind::Tool, &name, &digest, &evaluated);
            let asked = approval::ask(draft, id, ResourceKind::Tool, (&name, &digest), &evaluated);
            Ok(Some(approval::decided(id, evaluated, asked)))
        }
        Body::AgentToolProposed { name, input } => {
            refuse_known(draft, id)?;
            let digest = arguments_digest(&input);
            let evaluated = permission::evaluate(draft.facts, ResourceKind::CustomTool, &name, &digest);
            let body = Body::AgentToolProposed { name: name.clone(), input: input.clone() };
            draft.emit_appended(id, thread_id, body);
            draft.note_decision(ResourceKind::CustomTool, &name, &digest, &evaluated);
            let asked = approval::ask(draft, id, ResourceKind::CustomTool, (&name, &digest), &evaluated);
            if evaluated.permission == EvaluatedPermission::Allow {
                draft.emit(Body::AgentCustomToolUse { name, input, proposed_id: Some(id) });
            }
            Ok(Some(approval::decided(id, evaluated, asked)))
        }
        Body::AgentToolResumed { tool_use_id, arguments_sha256 } => {
            let evaluated = resume(draft, tool_use_id, &arguments_sha256)?;
            let call = find(draft, tool_use_id)?.clone();
            let shows = call.is_custom
                && call.stage == Stage::Approved
                && evaluated.permission == EvaluatedPermission::Allow;
            let frozen = if shows { Some(proposal.ok_or_else(changed)?) } else { None };
            draft.emit_appended(id, thread_id, Body::AgentToolResumed { tool_use_id, arguments_sha256 });
            if let Some(input) = frozen {
                let proposed_id = Some(call.id);
                draft.emit(Body::AgentCustomToolUse { name: call.name, input, proposed_id });
            }
            Ok(Some(ruling(tool_use_id, evaluated)))
        }
        Body::AgentToolResult(result) => {
            find(draft, result.tool_use_id)?;
            draft.emit_appended(id, thread_id, Body::AgentToolResult(result));
            Ok(None)
        }
        Body::SpanModelRequestEnd { model_request_start_id, is_error, .. } => {
            let (model_usage, bill) = metered.unzip();
            let model_usage = model_usage.unwrap_or_default();
            let body = Body::SpanModelRequestEnd { model_request_start_id, model_usage, is_error, bill };
            draft.emit_appended(id, thread_id, body);
            Ok(None)
        }
        other => {
            draft.emit_appended(id, thread_id, other);
            Ok(None)
        }
    }
}

/// Evaluates a call again that a former claim left open. An approval counts once.
fn resume(draft: &Draft<'_>, id: EventId, arguments_sha256: &str) -> Result<Evaluated, Problem> {
    let call = find(draft, id)?;
    if call.arguments_sha256 != arguments_sha256 {
        return Err(changed());
    }
    let kind = if call.is_custom { ResourceKind::CustomTool } else { ResourceKind::Tool };
    let rules = permission::evaluate(draft.facts, kind, &call.name, &call.arguments_sha256);
    let by = rules.by.clone();
    let answered = |permission, reason: &str| Evaluated::plain(permission, reason, by.clone());
    Ok(match &call.stage {
        Stage::Approved | Stage::Started if rules.permission == EvaluatedPermission::Ask => {
            answered(EvaluatedPermission::Allow, "It was approved.")
        }
        Stage::Approved | Stage::Started => rules,
        Stage::Pending if rules.permission == EvaluatedPermission::Deny => rules,
        Stage::Pending => answered(EvaluatedPermission::Ask, "Nobody answered yet."),
        Stage::Denied { message } => answered(
            EvaluatedPermission::Deny,
            message.as_deref().unwrap_or("The call was denied. Do not try it again unless asked to."),
        ),
        Stage::Invalidated => answered(
            EvaluatedPermission::Deny,
            "The turn was interrupted before anybody answered, so the call did not run.",
        ),
        Stage::Awaiting | Stage::Answered { .. } => {
            answered(EvaluatedPermission::Deny, "A custom tool is run by the host application.")
        }
    })
}

fn changed() -> Problem {
    Problem::new(
        Code::InvalidRequest,
        "`arguments_sha256` is not the digest of the logged arguments. Resume the call as it was logged.",
    )
}

fn arguments_digest(input: &Value) -> String {
    sha256_hex(&serde_json::to_vec(input).unwrap_or_default())
}

fn find<'d>(draft: &'d Draft<'_>, id: EventId) -> Result<&'d Call, Problem> {
    draft.state.call(id).ok_or_else(|| {
        Problem::new(
            Code::InvalidRequest,
            format!("{id} names no open tool call: it is unknown or has its one result already."),
        )
    })
}

fn refuse_known(draft: &Draft<'_>, id: EventId) -> Result<(), Problem> {
    if draft.state.call(id).is_some() {
        return Err(Problem::new(
            Code::InvalidRequest,
            format!("{id} names a tool call that is logged already. Mint a new id for a new call."),
        ));
    }
    Ok(())
}

/// The decision that an evaluation amounts to.
pub(super) fn ruling(tool_use_id: EventId, evaluated: Evaluated) -> Decision {
    let disposition = match evaluated.permission {
        EvaluatedPermission::Allow => Disposition::Allow,
        EvaluatedPermission::Ask => Disposition::Ask,
        EvaluatedPermission::Deny => Disposition::Deny,
    };
    Decision { tool_use_id, disposition, approval_id: None, reason: evaluated.reason }
}
