//! The line to a sandbox's toolbox: one task owns the attach, everybody else sends it commands.
//! What arrives is hostile until decoded; a fault resets the line. The end of the stream says nothing by itself: only
//! a look at the container tells whether the sandbox is gone.

use super::{
    calls::{Calls, Known},
    engine::Engine,
    error::Error,
};
use bollard::container::{AttachContainerResults, LogOutput};
use bytes::Bytes;
use checkfu_toolbox::{
    call::{Outcome, Tool},
    message::{self, FromToolbox, Inbox, ToToolbox},
};
use futures_util::StreamExt as _;
use std::{collections::VecDeque, time::Duration};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt as _},
    sync::{mpsc, oneshot, watch},
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

/// How long the daemon may be away before the sandbox counts as unreachable.
const ENGINE_PATIENCE: Duration = Duration::from_secs(60);
/// How long a `Ready` may take on a container that is not paused.
const READY_WAIT: Duration = Duration::from_secs(10);
/// How often a silent or hostile line is opened again before it is given up.
const MAX_RESETS: u32 = 5;
/// Commands are not taken while this much waits to be written.
const MAX_UNSENT_BYTES: usize = 8 << 20;
/// How many commands wait for the owner.
pub(super) const QUEUE: usize = 64;

/// What others ask of the owner.
#[derive(Debug)]
pub(super) enum Command {
    Call { id: String, thread: String, tool: Box<Tool>, answer: oneshot::Sender<Result<Outcome, Error>> },
    Query { id: String, answer: oneshot::Sender<Result<Known, Error>> },
    Acknowledge { id: String },
    Cancel { id: String },
    CancelAll,
    Lease { remaining_ms: u64 },
}

/// Whether the line works.
#[derive(Debug, Clone)]
pub(super) enum State {
    /// Waiting for the toolbox to answer.
    Opening,
    /// It has answered; what does not work in the sandbox, in its words.
    Ready { warnings: Vec<String> },
    /// It will never work again.
    Dead(Error),
}

/// What an owner needs.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) engine: Engine,
    pub(super) name: String,
    pub(super) epoch: u64,
    pub(super) lease_until: Instant,
    pub(super) keep_ms: u64,
    pub(super) commands: mpsc::Receiver<Command>,
    pub(super) state: watch::Sender<State>,
    pub(super) closed: CancellationToken,
}

/// Why a connection ended.
enum End {
    Closed,
    Stream,
    Silent,
    Hostile(String),
    Fatal(Error),
}

/// What waits to be written, in order.
#[derive(Debug, Default)]
struct Unsent {
    frames: VecDeque<Bytes>,
    bytes: usize,
    number: u64,
}

impl Unsent {
    fn push(&mut self, message: &ToToolbox) -> Result<(), Error> {
        self.number += 1;
        let frame = message::encode(message, self.number).map_err(|_| Error::BadCall)?;
        self.bytes += frame.len();
        self.frames.push_back(frame.into());
        Ok(())
    }

    fn wrote(&mut self, count: usize) {
        self.bytes = self.bytes.saturating_sub(count);
        if let Some(front) = self.frames.front_mut() {
            let _sent = front.split_to(count.min(front.len()));
            if front.is_empty() {
                self.frames.pop_front();
            }
        }
    }
}

/// Owns the line until it is closed or dead, beginning with an attach made before the container started.
pub(super) async fn own(mut line: Line, first: AttachContainerResults) {
    let mut calls = Calls::new(line.epoch);
    let mut connection = Some(first);
    let mut resets = 0;
    let error = loop {
        let attached = match connection.take() {
            Some(attached) => attached,
            None => match line.attach_again().await {
                Ok(attached) => attached,
                Err(error) => break error,
            },
        };
        match line.serve(&mut calls, attached, &mut resets).await {
            End::Closed => break Error::Closed,
            End::Fatal(error) => break error,
            End::Stream => {}
            End::Silent => resets += 1,
            End::Hostile(what) => {
                resets += 1;
                tracing::warn!(container = line.name, what, "a sandbox sent something that is no message");
                calls.fail(&Error::Hostile { what });
            }
        }
        if resets > MAX_RESETS {
            break Error::Unresponsive;
        }
    };
    calls.fail(&error);
    line.state.send_replace(State::Dead(error.clone()));
    line.commands.close();
    while let Some(command) = line.commands.recv().await {
        refuse(command, &error);
    }
}

fn refuse(command: Command, error: &Error) {
    match command {
        Command::Call { answer, .. } => drop(answer.send(Err(error.clone()))),
        Command::Query { answer, .. } => drop(answer.send(Err(error.clone()))),
        _ => {}
    }
}

impl Line {
    /// Attaches to a container that must still run. A daemon that is away is waited for, and so is the end of a
    /// pause: a paused container takes no attach.
    async fn attach_again(&self) -> Result<AttachContainerResults, Error> {
        let mut give_up = Instant::now() + ENGINE_PATIENCE;
        loop {
            let attempt = async {
                match self.engine.inspect(&self.name).await?.and_then(|found| found.state) {
                    Some(state) if state.paused == Some(true) => Err(Error::Frozen),
                    Some(state) if state.running == Some(true) => self.engine.attach(&self.name).await,
                    _ => Err(Error::Lost),
                }
            };
            let attempt = tokio::select! {
                () = self.closed.cancelled() => return Err(Error::Closed),
                attempt = attempt => attempt,
            };
            match attempt {
                Err(Error::Frozen) => {
                    give_up = Instant::now() + ENGINE_PATIENCE;
                    sleep(Duration::from_millis(250)).await;
                }
                Err(Error::Unavailable { .. } | Error::Engine { .. }) if Instant::now() < give_up => {
                    sleep(Duration::from_millis(250)).await;
                }
                other => return other,
            }
        }
    }

    fn remaining_ms(&self) -> u64 {
        let left = self.lease_until.saturating_duration_since(Instant::now());
        u64::try_from(left.as_millis()).unwrap_or(u64::MAX)
    }

    async fn serve(&mut self, calls: &mut Calls, attached: AttachContainerResults, resets: &mut u32) -> End {
        let AttachContainerResults { mut output, mut input } = attached;
        let mut inbox = Inbox::joining();
        let mut unsent = Unsent::default();
        let mut ready = false;
        let hello =
            ToToolbox::Hello { epoch: self.epoch, lease_ms: self.remaining_ms(), keep_ms: self.keep_ms };
        if let Err(error) = unsent.push(&hello) {
            return End::Fatal(error);
        }
        let mut ready_by = Instant::now() + READY_WAIT;
        loop {
            tokio::select! {
                () = self.closed.cancelled() => return End::Closed,
                piece = output.next() => {
                    let bytes = match piece {
                        Some(Ok(LogOutput::StdOut { message })) => message,
                        Some(Ok(_)) => continue,
                        Some(Err(_)) | None => return End::Stream,
                    };
                    let messages = match decode(&mut inbox, &bytes) {
                        Ok(messages) => messages,
                        Err(what) => return End::Hostile(what),
                    };
                    for message in messages {
                        if let Some(warnings) = self.is_ready(&message) {
                            ready = true;
                            *resets = 0;
                            self.state.send_replace(State::Ready { warnings });
                        } else if !ready && !refuses_epoch(&message) {
                            // It belongs to an attach before this one; what matters comes again after `Ready`.
                            continue;
                        }
                        if let Err(end) = heard(calls, message, &mut unsent) {
                            return end;
                        }
                    }
                }
                command = self.commands.recv(), if ready && unsent.bytes < MAX_UNSENT_BYTES => {
                    match command {
                        Some(command) => self.obey(calls, command, &mut unsent),
                        None => return End::Closed,
                    }
                }
                wrote = write_some(&mut input, unsent.frames.front()), if !unsent.frames.is_empty() => {
                    match wrote {
                        Ok(count) if count > 0 => unsent.wrote(count),
                        _ => return End::Stream,
                    }
                }
                () = tokio::time::sleep_until(ready_by), if !ready => {
                    match self.is_paused().await {
                        Ok(true) => ready_by = Instant::now() + READY_WAIT,
                        Ok(false) => return End::Silent,
                        Err(_) => return End::Stream,
                    }
                }
            }
        }
    }

    fn is_ready(&self, message: &FromToolbox) -> Option<Vec<String>> {
        match message {
            FromToolbox::Ready { epoch, warnings, .. } if *epoch == self.epoch => Some(warnings.clone()),
            _ => None,
        }
    }

    async fn is_paused(&self) -> Result<bool, Error> {
        let found = self.engine.inspect(&self.name).await?.ok_or(Error::Lost)?;
        Ok(found.state.and_then(|state| state.paused) == Some(true))
    }

    fn obey(&mut self, calls: &mut Calls, command: Command, unsent: &mut Unsent) {
        let send = |unsent: &mut Unsent, messages: Vec<ToToolbox>| {
            for message in messages {
                if unsent.push(&message).is_err() {
                    tracing::warn!("a message to a sandbox was too long to send");
                }
            }
        };
        match command {
            Command::Call { id, thread, tool, answer } => {
                // Checked here, where the answer is at hand: later it could only be dropped.
                if serde_json::to_vec(&tool).map_or(usize::MAX, |json| json.len()) > MAX_INPUT_BYTES {
                    drop(answer.send(Err(Error::BadCall)));
                    return;
                }
                let messages = calls.ask(&id, &thread, *tool, answer);
                send(unsent, messages);
            }
            Command::Query { id, answer } => {
                let message = calls.query(&id, answer);
                send(unsent, message.into_iter().collect());
            }
            Command::Acknowledge { id } => {
                let messages = calls.acknowledge(&id);
                send(unsent, messages);
            }
            Command::Cancel { id } => send(unsent, vec![ToToolbox::Cancel { call_id: id }]),
            Command::CancelAll => {
                let all = calls.running().into_iter().map(|call_id| ToToolbox::Cancel { call_id });
                send(unsent, all.collect());
            }
            Command::Lease { remaining_ms } => {
                self.lease_until = Instant::now() + Duration::from_millis(remaining_ms);
                send(unsent, vec![ToToolbox::Lease { epoch: self.epoch, remaining_ms }]);
            }
        }
    }
}

/// Largest input of one call, in bytes of JSON; leaves room for the envelope.
const MAX_INPUT_BYTES: usize = message::MAX_MESSAGE_BYTES - 64 * 1024;

fn heard(calls: &mut Calls, message: FromToolbox, unsent: &mut Unsent) -> Result<(), End> {
    match calls.hear(message) {
        Ok(messages) => {
            for message in messages {
                unsent.push(&message).map_err(End::Fatal)?;
            }
            Ok(())
        }
        Err(Error::Hostile { what }) => Err(End::Hostile(what)),
        Err(error) => Err(End::Fatal(error)),
    }
}

/// The answer to a `Hello` that a newer claim has overtaken; there will be no `Ready`.
fn refuses_epoch(message: &FromToolbox) -> bool {
    matches!(message, FromToolbox::Refused { call_id: None, reason: message::Refusal::StaleEpoch })
}

fn decode(inbox: &mut Inbox, bytes: &[u8]) -> Result<Vec<FromToolbox>, String> {
    inbox.push(bytes);
    let mut messages = Vec::new();
    while let Some(message) = inbox.next_message().map_err(|error| error.to_string())? {
        messages.push(message);
    }
    Ok(messages)
}

async fn write_some<W: AsyncWrite + Unpin>(input: &mut W, front: Option<&Bytes>) -> std::io::Result<usize> {
    let Some(front) = front else { return Ok(0) };
    // Nothing after the write: a branch that is dropped between two steps would forget what went out.
    input.write(front).await
}

#[cfg(test)]
mod tests;
