//! A followed session as text for a person. Pure: frames in, text out; all foreign text leaves it escaped.
//! Text that was shown as it was written (previews) is not shown again when the whole message arrives.

use super::terminal;
use checkfu::sse::Frame;
use checkfu_shared::{
    content::Block,
    event::{Body, CaptureStatus, Confirmation, EvaluatedPermission, Event, RetryStatus, StopReason, Usage},
    id::EventId,
};
use serde::Deserialize;
use serde_json::Value;
use std::{
    collections::{HashMap, HashSet},
    fmt::Write,
};

/// A result shows at most this many lines.
const RESULT_LINES: usize = 12;
/// A line of a call or of a result shows at most this many characters.
const LINE_CHARS: usize = 200;

/// Where a session comes to rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Rest {
    /// It waits for input.
    Idle(StopReason),
    /// It is over.
    Over,
}

/// What was shown so far.
#[derive(Debug, Default)]
pub(crate) struct Transcript {
    /// The messages being written, as far as they were shown.
    previews: HashMap<EventId, Preview>,
    /// The message whose text ends the output now.
    open: Option<EventId>,
    /// Inputs come again once processed.
    inputs: HashSet<EventId>,
    /// Calls that ask, as one line each.
    asking: HashMap<EventId, String>,
    /// The attempt of the last claim that was seen.
    attempt: Option<u32>,
}

#[derive(Debug, Default)]
struct Preview {
    shown: String,
    block: u64,
}

/// The two frames that are no events.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum PreviewFrame {
    EventStart { event: Started },
    EventDelta { event_id: EventId, delta: Delta },
}

#[derive(Deserialize)]
struct Started {
    #[serde(rename = "type")]
    kind: String,
    id: EventId,
}

#[derive(Deserialize)]
struct Delta {
    #[serde(default)]
    index: u64,
    content: Block,
}

impl Transcript {
    /// Takes the next frame: what to show of it, and whether the session rests with it.
    pub(crate) fn take(&mut self, frame: &Frame) -> (String, Option<Rest>) {
        if let Ok(preview) = serde_json::from_str::<PreviewFrame>(&frame.data) {
            return (self.preview(preview), None);
        }
        // Kinds of later versions are skipped, as the API asks of its clients.
        let Ok(event) = serde_json::from_str::<Event>(&frame.data) else { return (String::new(), None) };
        let rest = match &event.body {
            Body::SessionStatusIdle { stop_reason } => Some(Rest::Idle(stop_reason.clone())),
            Body::SessionStatusTerminated {} | Body::SessionDeleted {} => Some(Rest::Over),
            _ => None,
        };
        (self.event(&event), rest)
    }

    /// The call that asks under this id, as one escaped line.
    pub(crate) fn asking(&self, id: EventId) -> Option<&str> {
        self.asking.get(&id).map(String::as_str)
    }

    fn preview(&mut self, frame: PreviewFrame) -> String {
        match frame {
            PreviewFrame::EventStart { event } if event.kind == "agent.message" => {
                self.previews.entry(event.id).or_default();
                String::new()
            }
            PreviewFrame::EventStart { .. } => String::new(),
            PreviewFrame::EventDelta { event_id, delta } => {
                let Block::Text { text } = delta.content else { return String::new() };
                let mut out = if self.open == Some(event_id) { String::new() } else { self.end_open() };
                let preview = self.previews.entry(event_id).or_default();
                if std::mem::replace(&mut preview.block, delta.index) != delta.index {
                    preview.shown.push('\n');
                    out.push('\n');
                }
                preview.shown.push_str(&text);
                out.push_str(&terminal::block(&text));
                self.open = Some(event_id);
                out
            }
        }
    }

    fn end_open(&mut self) -> String {
        self.open.take().map_or_else(String::new, |_| "\n".to_owned())
    }

    fn event(&mut self, event: &Event) -> String {
        if event.body.is_input() && !self.inputs.insert(event.id) {
            return String::new();
        }
        if let Body::AgentMessage { content } = &event.body {
            return self.message(event.id, content);
        }
        let text = self.other(event);
        if text.is_empty() { text } else { self.end_open() + &text }
    }

    /// The rest of a message whose beginning was shown, or all of it.
    fn message(&mut self, id: EventId, content: &[Block]) -> String {
        let whole = text_of(content);
        let preview = self.previews.remove(&id);
        let rest = preview.as_ref().and_then(|preview| whole.strip_prefix(preview.shown.as_str()));
        match rest {
            Some(rest) if self.open == Some(id) => {
                self.open = None;
                format!("{}\n", terminal::block(rest))
            }
            _ => format!("{}{}\n", self.end_open(), terminal::block(&whole)),
        }
    }

    fn other(&mut self, event: &Event) -> String {
        match &event.body {
            Body::UserMessage { content } => prefixed("> ", &text_of(content)),
            Body::UserInterrupt { .. } => "> [interrupt]\n".to_owned(),
            Body::UserToolConfirmation(answer) => {
                let result = match answer.result {
                    Confirmation::Allow => "allowed",
                    Confirmation::Deny => "denied",
                };
                format!("> [{result}: {}]\n", answer.tool_use_id)
            }
            Body::AgentToolUse(call) => {
                let line = call_line(&call.name, &call.input);
                let asks = call.evaluated_permission == Some(EvaluatedPermission::Ask);
                if asks {
                    self.asking.insert(event.id, line.clone());
                }
                let mark = if asks { format!("  (asks: {})", event.id) } else { String::new() };
                format!("* {line}{mark}\n")
            }
            Body::AgentToolProposed { name, input } => {
                let line = call_line(name, input);
                self.asking.insert(event.id, line.clone());
                format!("* {line}\n")
            }
            Body::AgentCustomToolUse { name, input, .. } => {
                format!("* {}  (for the application: {})\n", call_line(name, input), event.id)
            }
            Body::AgentToolResult(result) => {
                self.asking.remove(&result.tool_use_id);
                result_lines(&text_of(&result.content), result.is_error)
            }
            Body::RunClaimed(claimed) => {
                self.attempt = Some(claimed.attempt);
                format!("[runner {} took it]\n", claimed.runner_id)
            }
            Body::SpanModelRequestEnd { is_error: false, .. } => {
                // A completed request forgives the attempts before it.
                self.attempt = self.attempt.map(|_| 1);
                String::new()
            }
            Body::SessionStatusRescheduled { attempt } => handed_on(self.attempt, *attempt).to_owned(),
            body => note(body),
        }
    }
}

/// What is shown of an event that is neither said nor called.
fn note(body: &Body) -> String {
    match body {
        Body::SessionOutputCaptured(file) => {
            let path = terminal::line(&file.path);
            match file.status {
                CaptureStatus::Captured => format!("+ {path} ({})\n", terminal::size(file.size_bytes)),
                other => format!("- {path} was not kept: {}\n", not_kept(other)),
            }
        }
        Body::SessionUsage { usage, .. } => usage_line(usage),
        Body::SessionStatusIdle { stop_reason } => format!("[{}]\n", stop_words(stop_reason)),
        Body::SessionStatusTerminated {} => "[the session is over]\n".to_owned(),
        Body::SessionDeleted {} => "[the session was deleted]\n".to_owned(),
        Body::SessionError { error } => {
            let next = match error.retry_status {
                RetryStatus::Retrying => "it is tried again",
                RetryStatus::Exhausted => "the turn is over",
                RetryStatus::Terminal => "the session will end",
            };
            format!("! {} ({next})\n", terminal::block(&error.message))
        }
        Body::RunCreated { .. } => "[waits for a runner]\n".to_owned(),
        Body::SandboxCreated { image } => format!("[sandbox of {}]\n", terminal::line(image)),
        Body::SandboxReplaced { reason } => {
            format!("[the sandbox was replaced, its files are gone: {}]\n", terminal::line(reason))
        }
        Body::StreamGap { bytes } => {
            format!("! {} of live text were not shown as they came\n", terminal::size(*bytes))
        }
        Body::SandboxEgressDenied { host, port, .. } => {
            format!("! the sandbox may not reach {}:{port}\n", terminal::line(host))
        }
        _ => String::new(),
    }
}

/// Why a run waits for a runner again: only a loss or a failure makes the attempts grow.
fn handed_on(before: Option<u32>, next: Option<u32>) -> &'static str {
    match before.zip(next) {
        Some((before, next)) if next > before => {
            "[the runner was lost or could not go on; the next free one tries]\n"
        }
        Some(_) => "[the runner gave the run back; the next free one goes on]\n",
        None => "[the run waits for the next free runner]\n",
    }
}

const fn not_kept(status: CaptureStatus) -> &'static str {
    match status {
        CaptureStatus::Captured => "captured",
        CaptureStatus::TooLarge => "larger than 64 MiB",
        CaptureStatus::OverCapacity => "more files or bytes than one turn may leave",
        CaptureStatus::Unreadable => "it could not be read",
        CaptureStatus::Special => "it is no regular file",
    }
}

/// Why a session stopped, in words.
pub(crate) fn stop_words(reason: &StopReason) -> String {
    match reason {
        StopReason::EndTurn => "done: end_turn".to_owned(),
        StopReason::RequiresAction { event_ids } => {
            format!("waits for an answer to {} tool call(s): requires_action", event_ids.len())
        }
        StopReason::RetriesExhausted => "gave up: retries_exhausted".to_owned(),
        StopReason::BudgetReached => "the budget is spent: budget_reached".to_owned(),
        StopReason::Refusal => "the model refused: refusal".to_owned(),
    }
}

fn usage_line(usage: &Usage) -> String {
    let cached = usage.cache_read_input_tokens;
    let written =
        usage.cache_creation.ephemeral_5m_input_tokens + usage.cache_creation.ephemeral_1h_input_tokens;
    format!(
        "[usage: {} tokens in, {} out, {cached} from the cache, {written} into it; {} s active]\n",
        usage.input_tokens, usage.output_tokens, usage.active_seconds
    )
}

fn text_of(content: &[Block]) -> String {
    let parts: Vec<&str> = content
        .iter()
        .map(|block| match block {
            Block::Text { text } => text.as_str(),
            Block::Image { .. } => "[image]",
            Block::Document { .. } => "[document]",
        })
        .collect();
    parts.join("\n")
}

/// One escaped line for a call: the command of a shell call, otherwise the arguments as JSON.
fn call_line(name: &str, input: &Value) -> String {
    let arguments = match (name, input.get("command").and_then(Value::as_str)) {
        ("bash", Some(command)) => command.to_owned(),
        _ => input.to_string(),
    };
    format!("{} {}", terminal::line(name), shortened(&arguments))
}

fn shortened(text: &str) -> String {
    let mut chars = text.chars();
    let head: String = chars.by_ref().take(LINE_CHARS).collect();
    let more = if chars.next().is_some() { "..." } else { "" };
    format!("{}{more}", terminal::line(&head))
}

fn prefixed(prefix: &str, text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let _ = writeln!(out, "{prefix}{}", terminal::line(line));
    }
    out
}

fn result_lines(text: &str, is_error: bool) -> String {
    let mut out = String::new();
    let mut lines = text.lines();
    for line in lines.by_ref().take(RESULT_LINES) {
        let _ = writeln!(out, "{} {}", if is_error { "  !" } else { "  |" }, shortened(line));
    }
    match lines.count() {
        0 => out,
        more => out + &format!("  | ... {more} more line(s)\n"),
    }
}

#[cfg(test)]
mod tests;
