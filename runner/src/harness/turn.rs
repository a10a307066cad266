//! The decisions of a turn: what a reply is logged as, what becomes of each open call, which inputs enter where. Pure.

use super::transcript::{Call, InputKind, OUTPUT_TRUNCATED, Transcript};
use crate::model::{Part, Reply, Stop};
use checkfu_shared::{
    content::Block,
    event::{AppendedToolUse, Body, EvaluatedPermission, RetryStatus, SessionError, ToolResult},
    id::EventId,
    protocol::append::{Appended, EVENT_BYTES_MAX},
};
use std::collections::HashMap;

/// Text of one `agent.message` has at most this many bytes, so that it fits an event however it is escaped.
const MESSAGE_BYTES_MAX: usize = 80 << 10;
/// How often in a row a reply without a whole call may reach the output limit.
pub const CUT_REPLIES_MAX: u32 = 5;

/// What a call that no one could finish is told as.
pub const LOST_RUNNER: &str = "interrupted: the runner was lost while this call ran; it was not run again. Check its effects before repeating it.";

/// An event of this runner.
#[must_use]
pub fn appended(id: EventId, body: Body) -> Appended {
    Appended { id, thread_id: None, model_request_id: None, body }
}

/// An event of this runner with a fresh id.
#[must_use]
pub fn fresh(body: Body) -> Appended {
    appended(EventId::mint(), body)
}

/// A visible error.
#[must_use]
pub fn error(kind: &str, message: impl Into<String>, retry_status: RetryStatus) -> Appended {
    let error = SessionError { kind: kind.to_owned(), message: message.into(), retry_status };
    fresh(Body::SessionError { error })
}

/// The one result of a call, when all there is to say is a sentence.
#[must_use]
pub fn failed(call: EventId, sentence: impl Into<String>) -> Appended {
    let content = vec![Block::text(sentence)];
    fresh(Body::AgentToolResult(ToolResult { tool_use_id: call, content, is_error: true }))
}

/// A reply in the log's events.
#[derive(Debug)]
pub struct Logged {
    /// The events, to be appended together.
    pub events: Vec<Appended>,
    /// Its calls, in order.
    pub calls: Vec<EventId>,
    /// What follows.
    pub next: After,
}

/// What follows on a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// The turn goes on, or ends when nothing is owed.
    Go,
    /// The reply was cut without a whole call: only so often in a row.
    Cut,
    /// The model refused.
    Refusal,
    /// The conversation is too long for the model.
    Full,
}

/// What the log gets of a whole reply to the request that began as `start`. Texts get the ids that their previews had.
#[must_use]
pub fn log_reply(
    reply: Reply,
    start: EventId,
    previewed: &HashMap<usize, EventId>,
    is_custom: impl Fn(&str) -> bool,
) -> Logged {
    let (mut events, mut calls, mut broken) = (Vec::new(), Vec::new(), Vec::new());
    let (is_full, takes_calls) = (reply.stop == Stop::ContextLimit, reply.stop != Stop::Refusal);
    // What a full window cut is no reply: the conversation is summed up, and the model is asked again.
    let parts = if is_full { Vec::new() } else { reply.parts };
    for part in parts {
        match part {
            Part::Thinking => events.push(fresh(Body::AgentThinking {})),
            Part::Text { block, text } => {
                let id = previewed.get(&block).copied().unwrap_or_else(EventId::mint);
                events.extend(messages(id, &text));
            }
            Part::Call { name, input } if takes_calls => {
                let body = if is_custom(&name) {
                    Body::AgentToolProposed { name: name.clone(), input }
                } else {
                    Body::AgentToolUse(AppendedToolUse {
                        name: name.clone(),
                        input,
                        evaluated_permission: None,
                    })
                };
                let call = fresh(body);
                if serde_json::to_vec(&call).map_or(usize::MAX, |json| json.len()) > EVENT_BYTES_MAX {
                    broken.push(name);
                } else {
                    calls.push(call.id);
                    events.push(call);
                }
            }
            Part::Broken { name } if takes_calls => broken.push(name),
            Part::Call { .. } | Part::Broken { .. } => {}
        }
    }
    let mut end = fresh(Body::SpanModelRequestEnd {
        model_request_start_id: start,
        model_usage: reply.usage,
        is_error: is_full,
        bill: None,
    });
    end.model_request_id = reply.request_id;
    events.push(end);
    let is_cut = reply.stop == Stop::OutputLimit || !broken.is_empty();
    if is_cut {
        events.push(error(OUTPUT_TRUNCATED, cut_note(&broken), RetryStatus::Retrying));
    }
    let next = match reply.stop {
        Stop::Refusal => After::Refusal,
        Stop::ContextLimit => After::Full,
        Stop::Done | Stop::OutputLimit if is_cut && calls.is_empty() => After::Cut,
        Stop::Done | Stop::OutputLimit => After::Go,
    };
    Logged { events, calls, next }
}

fn cut_note(broken: &[String]) -> String {
    match broken {
        [] => "The reply reached the output limit and was cut. Go on from where it stopped.".to_owned(),
        names => format!(
            "The reply was cut or malformed: the call of {} arrived incomplete and did not run. Make it again in smaller \
             pieces, such as by writing a long file in parts.",
            names.join(", ")
        ),
    }
}

/// A text as one message, or as several when one event cannot hold it. The first keeps the id.
fn messages(id: EventId, text: &str) -> Vec<Appended> {
    let mut events = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let mut cut = rest.len().min(MESSAGE_BYTES_MAX);
        while !rest.is_char_boundary(cut) {
            cut -= 1;
        }
        let (piece, after) = rest.split_at(cut);
        let id = if events.is_empty() { id } else { EventId::mint() };
        events.push(appended(id, Body::AgentMessage { content: vec![Block::text(piece)] }));
        rest = after;
    }
    events
}

/// How an open call that an earlier claim left is closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Closing {
    /// The host application has it.
    Await,
    /// Ask the control plane again, by `agent.tool_resumed`; it knows approvals that were given, denied or expired.
    Resume,
    /// Ask the sandbox: the call was allowed before and may have run.
    Probe,
    /// This is its result.
    Tell(String),
}

/// How to close `call`, by what the log tells of it.
#[must_use]
pub fn closing(call: &Call) -> Closing {
    if call.is_interrupted {
        return Closing::Tell(interrupted(may_have_run(call)));
    }
    if call.is_custom {
        return match (&call.confirmed, call.taken_up) {
            (_, Some(_)) => Closing::Await,
            (Some(Err(message)), None) => Closing::Tell(denied(message.as_deref())),
            (Some(Ok(())) | None, None) => Closing::Resume,
        };
    }
    match (call.permission, &call.confirmed) {
        (_, Some(Err(message))) => Closing::Tell(denied(message.as_deref())),
        (Some(EvaluatedPermission::Deny), _) => Closing::Tell(denied(None)),
        (Some(EvaluatedPermission::Ask), _) if !call.is_resumed => Closing::Resume,
        _ => Closing::Probe,
    }
}

/// Whether somebody may have begun the call, by what the log tells of it.
#[must_use]
pub fn may_have_run(call: &Call) -> bool {
    call.permission == Some(EvaluatedPermission::Allow) || call.is_resumed || call.taken_up.is_some()
}

/// What the model is told of a call that an interrupt closed.
#[must_use]
pub fn interrupted(may_have_run: bool) -> String {
    let so = if may_have_run {
        "it may have run; check its effects before repeating it."
    } else {
        "it did not run."
    };
    format!("interrupted: the work was stopped before this call had a result; {so}")
}

/// What the model is told of a call that was not allowed.
#[must_use]
pub fn denied(reason: Option<&str>) -> String {
    match reason.filter(|reason| !reason.trim().is_empty()) {
        Some(reason) => format!("denied: this call was not allowed to run: {reason}"),
        None => "denied: this call was not allowed to run. Find another way, or ask the user.".to_owned(),
    }
}

/// The SHA-256 by which a resumed call names its arguments.
#[must_use]
pub fn arguments_sha256(call: &Call) -> String {
    checkfu_shared::protocol::append::sha256_hex(&serde_json::to_vec(&call.input).unwrap_or_default())
}

/// The inputs that an interrupt processes with it: everything up to the last interrupt. Later ones start the next run.
#[must_use]
pub fn until_interrupt(transcript: &Transcript) -> Option<Vec<EventId>> {
    let waiting: Vec<_> = transcript.waiting().collect();
    let last = waiting.iter().rposition(|input| input.kind == InputKind::Interrupt)?;
    Some(waiting[..=last].iter().map(|input| input.id).collect())
}

/// The inputs to fold in now: all when no call is open, else only answers to calls.
#[must_use]
pub fn foldable(transcript: &Transcript) -> Vec<EventId> {
    let has_open = transcript.open_calls().next().is_some();
    let fits = |kind: &InputKind| match kind {
        InputKind::Answer => true,
        InputKind::Message(_) => !has_open,
        InputKind::Interrupt => false,
    };
    transcript.waiting().filter(|input| fits(&input.kind)).map(|input| input.id).collect()
}

#[cfg(test)]
mod tests;
