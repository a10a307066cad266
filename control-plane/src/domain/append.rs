//! What a runner reports: which of it is admissible, what the server stamps on it, and what it decides of tool calls.

use super::{
    draft::Draft,
    permission::{self, Evaluated},
    session::{Call, Stage},
};
use checkfu_shared::{
    event::{Body, EvaluatedPermission, ModelUsage},
    id::EventId,
    problem::{Code, Problem},
    protocol::append::{Appended, Decision, Disposition, runner_may_append},
};

/// Logs one event of a runner and whatever the server adds to it; the decision, when it is a tool call.
///
/// # Errors
/// [`Code::PermissionDenied`] for a kind that a runner may not append, [`Code::InvalidRequest`] for a result without an
/// open call, a repeated call, or other arguments than those logged.
pub fn append(
    draft: &mut Draft<'_>,
    event: Appended,
    metered: Option<ModelUsage>,
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
            let evaluated = permission::built_in(&draft.facts.agent, &call.name);
            call.evaluated_permission = Some(evaluated.permission);
            draft.emit_appended(id, thread_id, Body::AgentToolUse(call));
            Ok(Some(decision(id, evaluated)))
        }
        Body::AgentToolProposed { name, input } => {
            refuse_known(draft, id)?;
            let evaluated = permission::custom(&draft.facts.agent, &name);
            let body = Body::AgentToolProposed { name: name.clone(), input: input.clone() };
            draft.emit_appended(id, thread_id, body);
            if evaluated.permission == EvaluatedPermission::Allow {
                draft.emit(Body::AgentCustomToolUse { name, input, proposed_id: Some(id) });
            }
            Ok(Some(decision(id, evaluated)))
        }
        Body::AgentToolResumed { tool_use_id, arguments_sha256 } => {
            let evaluated = resume(draft, tool_use_id, &arguments_sha256)?;
            draft.emit_appended(id, thread_id, Body::AgentToolResumed { tool_use_id, arguments_sha256 });
            Ok(Some(decision(tool_use_id, evaluated)))
        }
        Body::AgentToolResult(result) => {
            find(draft, result.tool_use_id)?;
            draft.emit_appended(id, thread_id, Body::AgentToolResult(result));
            Ok(None)
        }
        Body::SpanModelRequestEnd { model_request_start_id, is_error, .. } => {
            let model_usage = metered.unwrap_or_default();
            let body = Body::SpanModelRequestEnd { model_request_start_id, model_usage, is_error };
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
        return Err(Problem::new(
            Code::InvalidRequest,
            "`arguments_sha256` is not the digest of the logged arguments. Resume the call as it was logged.",
        ));
    }
    let rules = permission::built_in(&draft.facts.agent, &call.name);
    let answered = |permission, reason: &str| Evaluated { permission, reason: reason.to_owned() };
    Ok(match &call.stage {
        Stage::Approved | Stage::Started if rules.permission == EvaluatedPermission::Ask => {
            answered(EvaluatedPermission::Allow, "It was approved.")
        }
        Stage::Approved | Stage::Started => rules,
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

fn decision(tool_use_id: EventId, evaluated: Evaluated) -> Decision {
    let disposition = match evaluated.permission {
        EvaluatedPermission::Allow => Disposition::Allow,
        EvaluatedPermission::Ask => Disposition::Ask,
        EvaluatedPermission::Deny => Disposition::Deny,
    };
    Decision { tool_use_id, disposition, approval_id: None, reason: evaluated.reason }
}
