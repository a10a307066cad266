//! What callers may say to a session, read and proven. Two forms: the SDK's flat events in a batch, and one event with
//! `payload` and its attribution.

use super::content;
use crate::{
    domain::grant::{Kind, Permission},
    engine::Input,
    http::{
        auth::{Caller, Dialect},
        fields::{Fields, unsupported, wrong},
    },
};
use checkfu_shared::{
    event::{Body, Cause, CauseKind, Confirmation, ToolConfirmation},
    id::PrincipalId,
    problem::Problem,
};
#[cfg(test)]
use serde_json::Value;

/// How many events one request may send.
pub(crate) const BATCH_MAX: usize = 100;
/// How many events a session may be made with.
pub(crate) const INITIAL_MAX: usize = 50;
const EVENT_BYTES_MAX: usize = 10 << 20;
const DENY_MESSAGE_CHARS_MAX: usize = 10_000;
const KNOWN: &str = "user.message, user.interrupt, user.tool_confirmation, user.custom_tool_result";

/// Where an event is sent, which decides what it may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Beside the creation of its session.
    Initial,
    /// In a batch: attribution may be left out.
    Batch,
    /// Alone: our own callers say who and why.
    Alone,
}

/// Reads the body of a send.
///
/// # Errors
/// A refusal naming the first member that breaks a rule.
pub(crate) fn sent(mut fields: Fields, caller: &Caller) -> Result<Vec<Input>, Problem> {
    if !fields.has("events") {
        return Ok(vec![one(fields, Place::Alone, caller)?]);
    }
    let inputs = listed(&mut fields, "events", BATCH_MAX, Place::Batch, caller)?;
    fields.end()?;
    if inputs.is_empty() {
        return Err(wrong("events", "must have at least one event"));
    }
    Ok(inputs)
}

/// Takes a list of events; none when it is absent.
///
/// # Errors
/// A refusal naming the first member that breaks a rule.
pub(crate) fn listed(
    fields: &mut Fields,
    name: &str,
    max: usize,
    place: Place,
    caller: &Caller,
) -> Result<Vec<Input>, Problem> {
    let path = fields.path(name);
    let dialect = fields.dialect();
    let entries = fields.list(name, max)?.unwrap_or_default().into_iter().enumerate();
    entries
        .map(|(at, value)| one(Fields::of(value, &format!("{path}[{at}]"), dialect)?, place, caller))
        .collect()
}

fn one(mut fields: Fields, place: Place, caller: &Caller) -> Result<Input, Problem> {
    let kind_path = fields.path("type");
    let kind = fields.required_text("type", 1, 128)?;
    let required = place == Place::Alone && fields.dialect() == Dialect::Checkfu;
    let authored_by = author(&mut fields, required, caller)?;
    let caused_by = cause(&mut fields, required, caller)?;
    let body = if let Some(mut payload) = fields.object("payload")? {
        let body = body(&kind, &kind_path, &mut payload, place)?;
        payload.end()?;
        body
    } else {
        body(&kind, &kind_path, &mut fields, place)?
    };
    fields.end()?;
    bounded(&body, &kind_path)?;
    Ok(Input { body, authored_by, caused_by })
}

fn body(kind: &str, kind_path: &str, fields: &mut Fields, place: Place) -> Result<Body, Problem> {
    if place == Place::Initial && !["user.message", "user.define_outcome"].contains(&kind) {
        return Err(wrong(
            kind_path,
            "must be user.message; a session that does not exist yet takes nothing else",
        ));
    }
    match kind {
        "user.message" => {
            let path = fields.path("content");
            Ok(Body::UserMessage { content: content::some(content::take(fields)?, &path)? })
        }
        "user.interrupt" => Ok(Body::UserInterrupt { session_thread_id: fields.id("session_thread_id")? }),
        "user.tool_confirmation" => confirmation(fields).map(Body::UserToolConfirmation),
        "user.custom_tool_result" => {
            let path = fields.path("custom_tool_use_id");
            Ok(Body::UserCustomToolResult {
                custom_tool_use_id: fields
                    .id("custom_tool_use_id")?
                    .ok_or_else(|| wrong(&path, "is required"))?,
                content: content::take(fields)?.unwrap_or_default(),
                is_error: fields.flag("is_error")?.unwrap_or(false),
            })
        }
        "user.tool_result" | "user.define_outcome" | "system.message" => {
            Err(unsupported(kind_path, &format!("`{kind}` is not accepted here yet. Send one of {KNOWN}.")))
        }
        _ => Err(wrong(kind_path, &format!("must be one of {KNOWN}"))),
    }
}

fn confirmation(fields: &mut Fields) -> Result<ToolConfirmation, Problem> {
    let id_path = fields.path("tool_use_id");
    let tool_use_id = fields.id("tool_use_id")?.ok_or_else(|| wrong(&id_path, "is required"))?;
    let result = match fields.required_text("result", 1, 64)?.as_str() {
        "allow" => Confirmation::Allow,
        "deny" => Confirmation::Deny,
        _ => return Err(wrong(&fields.path("result"), "must be allow or deny")),
    };
    let deny_message = fields.bounded_text("deny_message", DENY_MESSAGE_CHARS_MAX)?;
    if result == Confirmation::Allow && deny_message.is_some() {
        return Err(wrong(&fields.path("deny_message"), "goes with a denial only"));
    }
    Ok(ToolConfirmation { tool_use_id, result, deny_message })
}

fn author(fields: &mut Fields, required: bool, caller: &Caller) -> Result<PrincipalId, Problem> {
    let path = fields.path("authored_by");
    match fields.id::<PrincipalId>("authored_by")? {
        Some(principal) => {
            if principal != caller.principal_id {
                caller.grants.check(Permission::ActAs, Kind::Principal, &principal.to_string())?;
            }
            Ok(principal)
        }
        None if required => Err(wrong(&path, "is required: the principal that says this")),
        None => Ok(caller.principal_id),
    }
}

fn cause(fields: &mut Fields, required: bool, caller: &Caller) -> Result<Cause, Problem> {
    let path = fields.path("caused_by");
    let Some(mut cause) = fields.object("caused_by")? else {
        if required {
            return Err(wrong(&path, "is required: `{type, id}` of what made this happen"));
        }
        return Ok(Cause { kind: CauseKind::ApiRequest, id: caller.request_id.to_string() });
    };
    let kind = match cause.required_text("type", 1, 64)?.as_str() {
        "api_request" => CauseKind::ApiRequest,
        "event" => CauseKind::Event,
        "automation" => CauseKind::Automation,
        "webhook" => CauseKind::Webhook,
        _ => return Err(wrong(&cause.path("type"), "must be api_request, event, automation or webhook")),
    };
    let id = match cause.bounded_text("id", 256)?.filter(|id| !id.is_empty()) {
        Some(id) => id,
        None if kind == CauseKind::ApiRequest => caller.request_id.to_string(),
        None => return Err(wrong(&cause.path("id"), "is required")),
    };
    cause.end()?;
    Ok(Cause { kind, id })
}

fn bounded(body: &Body, path: &str) -> Result<(), Problem> {
    let bytes = serde_json::to_vec(body).map_or(usize::MAX, |json| json.len());
    if bytes > EVENT_BYTES_MAX {
        let mib = EVENT_BYTES_MAX >> 20;
        return Err(wrong(path, &format!("is of an event that has more than {mib} MiB; send less at once")));
    }
    Ok(())
}

/// The list of a create, with the rules that hold beside it.
///
/// # Errors
/// A refusal naming the first member that breaks a rule.
pub(crate) fn initial(fields: &mut Fields, caller: &Caller) -> Result<Vec<Input>, Problem> {
    let inputs = listed(fields, "initial_events", INITIAL_MAX, Place::Initial, caller)?;
    if inputs.len() > 1 && caller.dialect == Dialect::Checkfu && caller.idempotency_key.is_none() {
        let rule = "has more than one event, so the request needs the header `Idempotency-Key`: then it can be sent again after a lost answer";
        return Err(wrong("initial_events", rule));
    }
    Ok(inputs)
}

/// The value of an event as a test writes it.
#[cfg(test)]
pub(crate) fn read(body: Value, caller: &Caller) -> Result<Vec<Input>, Problem> {
    sent(Fields::body(body, caller.dialect)?, caller)
}

#[cfg(test)]
mod tests;
