//! Follows a session's stream until it rests, and takes it up again where it broke off: no event is missed or repeated.
//! An idle of the past is no rest: it counts only once the log was followed to where it ended when the following began.

use super::{
    client::Client,
    exit::Exit,
    failure::Failure,
    sessions,
    terminal::{self, Output},
    transcript::{Rest, Transcript, stop_words},
};
use checkfu::sse::{Decoder, Frame};
use checkfu_shared::{
    event::{Body, Confirmation, Event, StopReason, ToolConfirmation},
    id::EventId,
};
use serde_json::Value;
use std::{
    io::{self, IsTerminal},
    time::Duration,
};
use tokio::time::{sleep, timeout};

/// The server sends something at least every 15 s; this much silence is a dead connection.
const SILENCE: Duration = Duration::from_secs(50);
/// How often in a row a lost connection is tried again.
const TRIES: u32 = 30;
const BACKOFF_MIN: Duration = Duration::from_millis(250);
const BACKOFF_MAX: Duration = Duration::from_secs(10);

/// How a session is followed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner {
    /// Show what comes after this place of the log.
    pub(crate) after: u64,
    /// Where the log ended when the following began: before this place no idle is the present one.
    pub(crate) present: u64,
    /// Return when the session is idle, not only when it is over.
    pub(crate) until_idle: bool,
    /// Ask the person at the terminal about tool calls that ask.
    pub(crate) asks: bool,
}

/// A session being followed.
#[derive(Debug)]
pub(crate) struct Follower<'a> {
    client: &'a Client,
    output: &'a Output,
    session: &'a str,
    manner: Manner,
    seq: u64,
    /// The idle that nothing has ended yet.
    idle: Option<StopReason>,
    transcript: Transcript,
}

/// Why one connection of the stream is over.
enum Broke {
    Rested(Rest),
    Lost,
}

impl<'a> Follower<'a> {
    /// Prepares to follow; nothing is dialled here.
    pub(crate) fn new(client: &'a Client, output: &'a Output, session: &'a str, manner: Manner) -> Self {
        let transcript = Transcript::default();
        Self { client, output, session, manner, seq: manner.after, idle: None, transcript }
    }

    /// Follows until the session rests.
    pub(crate) async fn follow(mut self) -> Result<Rest, Failure> {
        let mut tries = 0;
        let mut is_first = true;
        loop {
            let before = self.seq;
            match self.connection().await {
                Ok(Broke::Rested(rest)) => {
                    if !self.goes_on(&rest).await? {
                        return Ok(rest);
                    }
                    tries = 0;
                    continue;
                }
                Ok(Broke::Lost) => {}
                Err(failure) if is_first || !may_pass(failure.exit) || tries >= TRIES => return Err(failure),
                Err(_) => {}
            }
            is_first = false;
            tries = if self.seq > before { 0 } else { tries + 1 };
            if tries >= TRIES {
                return Err(Failure::new(
                    Exit::Unreachable,
                    format!("The stream of {} broke off again and again. Try again later.", self.session),
                ));
            }
            sleep(BACKOFF_MIN.saturating_mul(1 << tries.min(8)).min(BACKOFF_MAX)).await;
        }
    }

    async fn connection(&mut self) -> Result<Broke, Failure> {
        let path = format!("{}/events/stream", sessions::path(self.session)?);
        // Machines get the log only; previews are for people.
        let previews = [("event_deltas[]", "agent.message".to_owned())];
        let query = if self.output.is_json { &[][..] } else { &previews[..] };
        let mut stream = self.client.stream(&path, query, self.seq).await?;
        let mut decoder = Decoder::default();
        let mut frames = Vec::new();
        loop {
            let Ok(Ok(Some(bytes))) = timeout(SILENCE, stream.chunk()).await else { return Ok(Broke::Lost) };
            decoder.feed(&bytes, |frame| frames.push(frame));
            for frame in frames.drain(..) {
                if let Some(rest) = self.take(&frame)? {
                    return Ok(Broke::Rested(rest));
                }
            }
        }
    }

    fn take(&mut self, frame: &Frame) -> Result<Option<Rest>, Failure> {
        let seq = frame.id.as_ref().and_then(|id| id.parse::<u64>().ok());
        if seq.is_some_and(|seq| seq <= self.seq) {
            return Ok(None);
        }
        let (text, rest) = self.transcript.take(frame);
        if self.output.is_json {
            // Only what stands in the log, or ends it, is for machines.
            if (seq.is_some() || rest.is_some())
                && let Ok(event) = serde_json::from_str::<Value>(&frame.data)
            {
                self.output.json_line(&event)?;
            }
        } else if !text.is_empty() {
            self.output.text(&text)?;
        }
        self.seq = seq.unwrap_or(self.seq);
        if rest == Some(Rest::Over) {
            return Ok(rest);
        }
        match rest {
            Some(Rest::Idle(reason)) => self.idle = Some(reason),
            _ if runs(frame) => self.idle = None,
            _ => {}
        }
        let counts = self.manner.until_idle && self.seq >= self.manner.present;
        let idle = if counts { self.idle.take() } else { None };
        Ok(idle.map(Rest::Idle))
    }

    /// Whether there is more to follow: an answer was given to every call that asks.
    async fn goes_on(&self, rest: &Rest) -> Result<bool, Failure> {
        let Rest::Idle(StopReason::RequiresAction { event_ids }) = rest else { return Ok(false) };
        if !self.manner.asks {
            return Ok(false);
        }
        for &id in event_ids {
            // A call of the application's own tools is nothing that a person can answer here.
            let Some(call) = self.transcript.asking(id) else { return Ok(false) };
            let Some(answer) = ask(call).await? else { return Ok(false) };
            let result = if answer { Confirmation::Allow } else { Confirmation::Deny };
            let answer = ToolConfirmation { tool_use_id: id, result, deny_message: None };
            sessions::confirm(self.client, self.session, answer).await?;
        }
        Ok(true)
    }
}

/// Whether the session is idle no more with this frame.
fn runs(frame: &Frame) -> bool {
    let event = serde_json::from_str::<Event>(&frame.data);
    event.is_ok_and(|event| {
        matches!(event.body, Body::SessionStatusRunning {} | Body::SessionStatusRescheduled { .. })
    })
}

/// Whether this kind of failure may pass by itself.
const fn may_pass(exit: Exit) -> bool {
    matches!(exit, Exit::Unreachable | Exit::Unavailable)
}

/// Asks the person at the terminal; `None` when there is nobody.
async fn ask(call: &str) -> Result<Option<bool>, Failure> {
    eprint_text(&format!("Allow `{call}`? [y/N] "));
    let read = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        io::stdin().read_line(&mut line).map(|bytes| (bytes, line))
    });
    match read.await {
        Ok(Ok((bytes, line))) if bytes > 0 => {
            Ok(Some(matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes")))
        }
        Ok(Ok(_)) => Ok(None),
        Ok(Err(error)) => Err(Failure::local(format!("The answer could not be read: {error}."))),
        Err(_) => Err(Failure::local("The answer could not be read.")),
    }
}

#[expect(clippy::print_stderr, reason = "a prompt is for the person, not for the reader of standard output")]
fn eprint_text(text: &str) {
    eprint!("{text}");
}

/// Refuses to ask where nobody can answer.
pub(crate) fn require_person(asks: bool) -> Result<(), Failure> {
    if asks && !io::stdin().is_terminal() {
        return Err(Failure::usage(
            "--ask needs a terminal to ask at. Leave it out, or run this at a terminal.",
        ));
    }
    Ok(())
}

/// What a session's rest means for the exit code of a command that waited for its turn.
pub(crate) fn verdict(session: &str, rest: &Rest) -> Result<(), Failure> {
    match rest {
        Rest::Idle(StopReason::EndTurn) => Ok(()),
        Rest::Idle(StopReason::RequiresAction { event_ids }) => {
            Err(Failure::new(Exit::Waiting, how_to_answer(session, event_ids)))
        }
        Rest::Idle(reason) => {
            Err(Failure::new(Exit::Unfinished, format!("Session {session} stopped; {}.", stop_words(reason))))
        }
        Rest::Over => Err(Failure::new(Exit::Unfinished, format!("Session {session} is over."))),
    }
}

fn how_to_answer(session: &str, calls: &[EventId]) -> String {
    let session = terminal::line(session);
    let mut text = format!("Session {session} waits for an answer. Give it with one of:");
    for call in calls {
        text.push_str(&format!("\n  checkfu sessions confirm {session} {call} --allow    (or --deny)"));
    }
    text
}

#[cfg(test)]
mod tests;
