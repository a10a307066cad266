//! Messages between the runner and PID 1 of a sandbox: JSON carried in frames.
//! A message longer than one frame is split; the receiver joins it under a fixed bound.
//! Nothing here does I/O.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::call::{Outcome, Tool};
use crate::wire::{self, Decoder, Frame, MAX_PAYLOAD_BYTES, WireError};

/// Largest message in bytes; a peer that sends more is at fault.
pub const MAX_MESSAGE_BYTES: usize = 32 * 1024 * 1024;

/// What the runner says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToToolbox {
    /// Opens every attach. Answered by `Ready`, then by every result not yet acknowledged.
    Hello {
        /// Claim epoch; older ones than seen are refused.
        epoch: u64,
        /// Milliseconds until the lease ends and everything is stopped.
        lease_ms: u64,
        /// Milliseconds after the end of the lease until everything is killed.
        keep_ms: u64,
    },
    /// Renews the lease.
    Lease {
        /// Claim epoch.
        epoch: u64,
        /// Milliseconds that remain.
        remaining_ms: u64,
    },
    /// Runs a tool once. A known `call_id` is never run again.
    Call {
        /// Claim epoch.
        epoch: u64,
        /// The tool use id.
        call_id: String,
        /// The thread, whose shell state and reads apply.
        thread: String,
        /// What to run.
        tool: Tool,
    },
    /// Ends a call; its `Done` follows.
    Cancel {
        /// The call to end.
        call_id: String,
    },
    /// The result is durable at the runner: drop it, keep only the id.
    Ack {
        /// The call whose result is safe.
        call_id: String,
    },
    /// Asks for a call: answered by `Started`, `Done` or `Unknown`.
    Query {
        /// The call asked for.
        call_id: String,
    },
}

/// What PID 1 says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromToolbox {
    /// Answer to `Hello`; anything that arrives before it belongs to an earlier attach.
    Ready {
        /// The epoch of the `Hello`.
        epoch: u64,
        /// Version of the toolbox.
        version: String,
        /// Calls that run or whose results wait for an acknowledgement.
        calls: Vec<KnownCall>,
        /// What does not work in this sandbox, in words.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        warnings: Vec<String>,
    },
    /// The call was accepted and runs or waits for its turn.
    Started {
        /// The call.
        call_id: String,
    },
    /// Output so far; may be dropped at any time.
    Progress {
        /// The call.
        call_id: String,
        /// Output since the last progress, decoded lossily, cut to a few KiB.
        text: String,
        /// Bytes of output seen so far.
        bytes_seen: u64,
    },
    /// The call is over. Repeated on every attach until acknowledged.
    Done {
        /// The call.
        call_id: String,
        /// How it ended.
        result: Outcome,
    },
    /// No call of this id was ever accepted here.
    Unknown {
        /// The id asked for.
        call_id: String,
    },
    /// Something was not accepted and has had no effect.
    Refused {
        /// The call, absent for `Hello` and `Lease`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call_id: Option<String>,
        /// Why.
        reason: Refusal,
    },
}

/// A call PID 1 knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownCall {
    /// The call.
    pub call_id: String,
    /// What it is doing.
    pub state: CallState,
}

/// State of a known call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallState {
    /// Runs or waits for its turn.
    Running,
    /// Over; the result waits for an acknowledgement.
    Done,
}

/// Why something was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// No lease is in force.
    LeaseEnded,
    /// Too many calls run, wait, or hold unacknowledged results.
    Busy,
    /// A newer epoch has spoken.
    StaleEpoch,
    /// The call ran before and its result was acknowledged.
    AlreadyAcknowledged,
    /// The call id or thread is empty or too long.
    BadCall,
    /// Another attach message came before `Hello`.
    NoHello,
}

/// Why a message could not be read.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// The frames are at fault.
    #[error("the stream holds something that is no frame")]
    Wire(#[from] WireError),
    /// More than [`MAX_MESSAGE_BYTES`].
    #[error("a message is longer than {MAX_MESSAGE_BYTES} bytes")]
    TooLong,
    /// A message began while another was incomplete.
    #[error("a message was cut short by another")]
    Interleaved,
    /// The payload is not a message.
    #[error("a message cannot be read")]
    Json(#[source] serde_json::Error),
}

/// Something that travels as one message.
pub trait Message: Serialize + DeserializeOwned {
    /// The kind byte of its frames.
    fn kind(&self) -> u8;
}

/// Kind byte of `Hello`, which makes the receiver drop what it had of an earlier message.
pub const KIND_HELLO: u8 = 1;

impl Message for ToToolbox {
    fn kind(&self) -> u8 {
        match self {
            Self::Hello { .. } => KIND_HELLO,
            _ => 2,
        }
    }
}

impl Message for FromToolbox {
    fn kind(&self) -> u8 {
        3
    }
}

/// Encodes a message as frames.
///
/// # Errors
/// [`MessageError::TooLong`] beyond [`MAX_MESSAGE_BYTES`], [`MessageError::Json`] never in practice.
pub fn encode<M: Message>(message: &M, number: u64) -> Result<Vec<u8>, MessageError> {
    let json = serde_json::to_vec(message).map_err(MessageError::Json)?;
    if json.len() > MAX_MESSAGE_BYTES {
        return Err(MessageError::TooLong);
    }
    let mut out = Vec::with_capacity(json.len() + json.len() / 1024 + wire::HEADER_BYTES * 2);
    let mut rest = json.as_slice();
    while rest.len() > MAX_PAYLOAD_BYTES {
        let (piece, after) = rest.split_at(MAX_PAYLOAD_BYTES);
        wire::encode(message.kind(), true, number, piece, &mut out);
        rest = after;
    }
    wire::encode(message.kind(), false, number, rest, &mut out);
    Ok(out)
}

/// Joins received bytes into messages.
#[derive(Debug, Default)]
pub struct Inbox {
    decoder: Decoder,
    partial: Vec<u8>,
    number: Option<u64>,
}

impl Inbox {
    /// An inbox that reports every fault.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An inbox for a fresh attach, see [`Decoder::joining`].
    #[must_use]
    pub fn joining() -> Self {
        Self { decoder: Decoder::joining(), ..Self::default() }
    }

    /// Adds received bytes; then call [`Inbox::next_message`] until it has nothing more.
    pub fn push(&mut self, bytes: &[u8]) {
        self.decoder.push(bytes);
    }

    /// The next complete message, or `None` when more bytes are needed.
    ///
    /// # Errors
    /// [`MessageError`]; the inbox has moved past the fault and may be used further.
    pub fn next_message<M: Message>(&mut self) -> Result<Option<M>, MessageError> {
        while let Some(frame) = self.decoder.next_frame().inspect_err(|_| {
            self.partial.clear();
            self.number = None;
        })? {
            if let Some(json) = self.join(frame)? {
                return serde_json::from_slice(&json).map(Some).map_err(MessageError::Json);
            }
        }
        Ok(None)
    }

    fn join(&mut self, frame: Frame) -> Result<Option<Vec<u8>>, MessageError> {
        let continues = self.number.is_some();
        if self.number.is_some_and(|number| number != frame.number) {
            self.partial.clear();
            self.number = None;
            if frame.kind != KIND_HELLO {
                self.keep(frame);
                return Err(MessageError::Interleaved);
            }
        } else if !frame.more && !continues {
            return Ok(Some(frame.payload));
        }
        if self.partial.len() + frame.payload.len() > MAX_MESSAGE_BYTES {
            self.partial = Vec::new();
            self.number = None;
            return Err(MessageError::TooLong);
        }
        let more = frame.more;
        self.keep(frame);
        if more {
            return Ok(None);
        }
        self.number = None;
        Ok(Some(std::mem::take(&mut self.partial)))
    }

    fn keep(&mut self, frame: Frame) {
        self.number = Some(frame.number);
        self.partial.extend_from_slice(&frame.payload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{Tool, Write};

    fn big_write(len: usize) -> ToToolbox {
        ToToolbox::Call {
            epoch: 1,
            call_id: "c".into(),
            thread: "t".into(),
            tool: Tool::Write(Write { file_path: "f".into(), content: "ä".repeat(len) }),
        }
    }

    fn read_all(inbox: &mut Inbox, bytes: &[u8]) -> Vec<Result<ToToolbox, MessageError>> {
        let mut got = Vec::new();
        for piece in bytes.chunks(4099) {
            inbox.push(piece);
            loop {
                match inbox.next_message() {
                    Ok(Some(message)) => got.push(Ok(message)),
                    Ok(None) => break,
                    Err(error) => got.push(Err(error)),
                }
            }
        }
        got
    }

    #[test]
    fn long_messages_are_split_and_joined() {
        let message = big_write(200_000);
        let bytes = encode(&message, 9).unwrap();
        let got = read_all(&mut Inbox::new(), &bytes);
        assert_eq!(got.into_iter().map(Result::unwrap).collect::<Vec<_>>(), [message]);
    }

    #[test]
    fn hello_drops_a_message_that_was_cut_short() {
        let hello = ToToolbox::Hello { epoch: 2, lease_ms: 1, keep_ms: 1 };
        for cut in [10, 70_000, 65_536 + 24, 131_000] {
            let mut bytes = encode(&big_write(200_000), 9).unwrap();
            bytes.truncate(cut);
            bytes.extend(encode(&hello, 1).unwrap());
            let got = read_all(&mut Inbox::new(), &bytes);
            assert_eq!(got.last().unwrap().as_ref().unwrap(), &hello, "cut at {cut}");
        }
    }

    #[test]
    fn messages_beyond_the_bound_are_refused_without_keeping_them() {
        let mut inbox = Inbox::new();
        let piece = vec![b' '; MAX_PAYLOAD_BYTES];
        let mut refused = false;
        for _ in 0..=(MAX_MESSAGE_BYTES / MAX_PAYLOAD_BYTES) {
            let mut bytes = Vec::new();
            wire::encode(2, true, 1, &piece, &mut bytes);
            inbox.push(&bytes);
            refused |= matches!(inbox.next_message::<ToToolbox>(), Err(MessageError::TooLong));
        }
        assert!(refused);
        assert!(inbox.partial.len() < MAX_MESSAGE_BYTES);
    }

    #[test]
    fn the_wire_names_are_stable() {
        let refused = FromToolbox::Refused { call_id: Some("c".into()), reason: Refusal::LeaseEnded };
        let json = serde_json::to_string(&refused).unwrap();
        assert_eq!(json, r#"{"type":"refused","call_id":"c","reason":"lease_ended"}"#);
    }
}
