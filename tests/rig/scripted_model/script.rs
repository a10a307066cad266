//! What the scripted model says. Pure: (script, conversation) -> the reply to play and the faults before it.
//!
//! A user text may carry its own script, so a test needs nothing but the message it sends:
//! `script: [{"say":"I look","tool":"bash","input":{"command":"ls"}}, {"error":529,"times":2}, {"say":"done"}]`.
//! Each reply step answers one model request of that turn: the number of assistant messages since the text is the
//! position. Fault steps do not count; they are met, one a try, before the reply that follows them.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use thiserror::Error;

use super::request::{Block, Message, Role};

/// The word that opens a user text carrying its own script.
pub const MARKER: &str = "script:";

const CLOSING: &str = "The script has ended.";

/// Why a script cannot be read.
#[derive(Debug, Error)]
pub enum Error {
    #[error("the script is not the JSON it should be: {0}")]
    Json(#[from] serde_json::Error),
    #[error("step {0} is both a fault and a reply, or neither")]
    Ambiguous(usize),
    #[error("step {0} gives both `tool` and `tools`, or an `input` without a `tool`")]
    Tools(usize),
}

/// One call the model makes.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    pub tool: String,
    #[serde(default = "empty_input")]
    pub input: Value,
}

fn empty_input() -> Value {
    json!({})
}

/// What goes wrong with one try of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The request is answered by this status and nothing else.
    Status { status: u16, retry_after_seconds: Option<u64> },
    /// The reply starts and the connection breaks after so many deltas.
    Cut { after_deltas: usize },
    /// The reply starts and is replaced by an `error` event of this type after so many deltas.
    StreamError { kind: String, after_deltas: usize },
    /// The reply starts and nothing more comes after so many deltas, until the client leaves.
    Hang { after_deltas: usize },
}

/// One assistant message and how it is played.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Reply {
    pub faults: Vec<Fault>,
    /// Texts the newest user message must hold; otherwise the request is refused. They let a script assert what
    /// the tools really answered.
    pub expects: Vec<String>,
    pub thinking: Option<String>,
    pub say: Option<String>,
    pub calls: Vec<Call>,
    /// Overrides the stop reason that follows from the content.
    pub stop_reason: Option<String>,
    /// The reply waits, before its first byte, until the test releases this name.
    pub hold: Option<String>,
    pub delay_per_delta: Duration,
}

/// A list of replies, played in order within one turn.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Steps(Vec<Reply>);

/// The rules for texts without a script of their own; the first whose word the text contains wins.
#[derive(Debug, Clone, Default)]
pub struct Script {
    rules: Vec<(String, Steps)>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WrittenStep {
    say: Option<String>,
    think: Option<String>,
    tool: Option<String>,
    input: Option<Value>,
    tools: Vec<Call>,
    stop_reason: Option<String>,
    hold: Option<String>,
    expect: Expect,
    error: Option<u16>,
    retry_after: Option<u64>,
    stream_error: Option<String>,
    cut: bool,
    hang: bool,
    after_deltas: usize,
    times: Option<usize>,
    delay_ms_per_delta: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(untagged)]
enum Expect {
    #[default]
    Nothing,
    One(String),
    All(Vec<String>),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenScript {
    rules: Vec<WrittenRule>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRule {
    contains: String,
    steps: Vec<Value>,
}

impl Steps {
    /// Reads the JSON list of steps.
    pub fn read(text: &str) -> Result<Self, Error> {
        Self::from_values(serde_json::from_str(text)?)
    }

    /// Reads steps already parsed, as written with `json!`.
    pub fn from_values(values: Vec<Value>) -> Result<Self, Error> {
        let mut replies = Vec::new();
        let mut faults = Vec::new();
        let mut pace = Duration::ZERO;
        for (i, value) in values.into_iter().enumerate() {
            let step: WrittenStep = serde_json::from_value(value)?;
            if let Some(delay_ms) = step.delay_ms_per_delta {
                pace = Duration::from_millis(delay_ms);
            }
            let fault = step.fault();
            match (fault, step.is_reply()) {
                (Some(fault), false) => faults.extend(vec![fault; step.times.unwrap_or(1)]),
                (None, true) => replies.push(step.into_reply(i, std::mem::take(&mut faults), pace)?),
                (None, false) if step.delay_ms_per_delta.is_some() => {}
                _ => return Err(Error::Ambiguous(i)),
            }
        }
        let ends_the_turn = replies.last().is_some_and(|last: &Reply| last.calls.is_empty());
        if !ends_the_turn || !faults.is_empty() {
            let say = Some(CLOSING.to_owned());
            replies.push(Reply { faults, say, delay_per_delta: pace, ..Reply::default() });
        }
        Ok(Self(replies))
    }
}

impl WrittenStep {
    fn fault(&self) -> Option<Fault> {
        let after_deltas = self.after_deltas;
        match (self.error, &self.stream_error) {
            (Some(status), _) => Some(Fault::Status { status, retry_after_seconds: self.retry_after }),
            (None, Some(kind)) => Some(Fault::StreamError { kind: kind.clone(), after_deltas }),
            (None, None) if self.cut => Some(Fault::Cut { after_deltas }),
            (None, None) if self.hang => Some(Fault::Hang { after_deltas }),
            (None, None) => None,
        }
    }

    fn is_reply(&self) -> bool {
        self.say.is_some() || self.think.is_some() || self.tool.is_some() || !self.tools.is_empty()
    }

    fn into_reply(self, index: usize, faults: Vec<Fault>, pace: Duration) -> Result<Reply, Error> {
        let calls = match (self.tool, self.input) {
            (Some(tool), input) if self.tools.is_empty() => {
                vec![Call { tool, input: input.unwrap_or_else(empty_input) }]
            }
            (None, None) => self.tools,
            _ => return Err(Error::Tools(index)),
        };
        let expects = match self.expect {
            Expect::Nothing => Vec::new(),
            Expect::One(text) => vec![text],
            Expect::All(texts) => texts,
        };
        Ok(Reply {
            faults,
            expects,
            thinking: self.think,
            say: self.say,
            calls,
            stop_reason: self.stop_reason,
            hold: self.hold,
            delay_per_delta: pace,
        })
    }
}

impl Script {
    /// Adds the steps to play when the last user text contains `word`.
    #[must_use]
    pub fn when(mut self, word: &str, steps: Steps) -> Self {
        self.rules.push((word.to_owned(), steps));
        self
    }

    /// Reads a script file: `{"rules":[{"contains":"word","steps":[...]}]}`.
    pub fn read(text: &str) -> Result<Self, Error> {
        let written: WrittenScript = serde_json::from_str(text)?;
        written.rules.into_iter().try_fold(Self::default(), |script, rule| {
            Ok(script.when(&rule.contains, Steps::from_values(rule.steps)?))
        })
    }

    /// Chooses the reply to a conversation that passed the rules.
    pub fn reply(&self, messages: &[Message<'_>]) -> Result<Reply, Error> {
        let newest = last_text(messages, |_| true);
        let Some((at, text)) = newest else {
            return Ok(plain("I was told nothing."));
        };
        if let Some(steps) = carried(text)? {
            return Ok(steps.at(messages, at));
        }
        if let Some((_, steps)) = self.rules.iter().find(|(word, _)| text.contains(word.as_str())) {
            return Ok(steps.at(messages, at));
        }
        // A text without a script of its own may steer a scripted turn that still runs.
        if let Some((at, text)) = last_text(messages, |text| text.trim_start().starts_with(MARKER))
            && let Some(steps) = carried(text)?
            && position(messages, at) < steps.0.len()
        {
            return Ok(steps.at(messages, at));
        }
        Ok(plain(&format!("You said: {text}")))
    }
}

impl Steps {
    fn at(&self, messages: &[Message<'_>], since: usize) -> Reply {
        self.0.get(position(messages, since)).cloned().unwrap_or_else(|| plain(CLOSING))
    }
}

fn plain(text: &str) -> Reply {
    Reply { say: Some(text.to_owned()), ..Reply::default() }
}

fn carried(text: &str) -> Result<Option<Steps>, Error> {
    text.trim_start().strip_prefix(MARKER).map(Steps::read).transpose()
}

fn position(messages: &[Message<'_>], since: usize) -> usize {
    messages.iter().skip(since).filter(|message| message.role == Role::Assistant).count()
}

/// The newest wanted text of the user: the index of its message, and the text. Within one message a script wins
/// over plain texts, because a client may add words of its own beside it.
fn last_text<'a>(messages: &[Message<'a>], wanted: impl Fn(&str) -> bool) -> Option<(usize, &'a str)> {
    messages.iter().enumerate().rev().filter(|(_, message)| message.role == Role::User).find_map(
        |(i, message)| {
            let texts = || {
                message.blocks.iter().rev().filter_map(|block| match block {
                    Block::Text(text) if wanted(text) => Some(*text),
                    _ => None,
                })
            };
            let script = texts().find(|text| text.trim_start().starts_with(MARKER));
            script.or_else(|| texts().next()).map(|text| (i, text))
        },
    )
}

#[cfg(test)]
mod tests;
