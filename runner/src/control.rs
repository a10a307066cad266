//! The daemon's own door: a private Unix socket in the state directory, through which its own user asks and orders.
//! One line of JSON each way, bounded in size, time and number. Nobody else is answered, and no secret passes through it.

mod door;

pub(crate) use door::Door;

use crate::{
    sandbox::{Reaped, reaper::Verdict},
    state::{self, State},
    status::Status,
};
use checkfu_shared::{id::SessionId, time::Timestamp};
use serde::{Deserialize, Serialize};
use std::{
    fs::File,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    os::{fd::AsRawFd as _, unix::net::UnixStream},
    path::PathBuf,
    time::Duration,
};

/// The socket's name in the state directory.
const SOCKET: &str = "control.sock";
const ANSWER_BYTES_MAX: u64 = 4 << 20;
/// Removing many sandboxes takes a while.
const ANSWER_WAIT: Duration = Duration::from_secs(180);

/// What may be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Ask {
    /// What is going on.
    Status,
    /// Take no more work, also after a restart; what runs goes on.
    Drain,
    /// Take work again, and forget earlier failures of this host.
    Undrain,
    /// Remove sandboxes that no session holds.
    Gc {
        /// Only tell.
        dry_run: bool,
    },
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// To [`Ask::Status`].
    Status {
        /// It.
        status: Box<Status>,
    },
    /// To [`Ask::Drain`] and [`Ask::Undrain`].
    Drained {
        /// Whether no work is taken now.
        drained: bool,
        /// How many sessions are held.
        sessions: usize,
    },
    /// To [`Ask::Gc`].
    Collected {
        /// Every sandbox of this runner.
        sandboxes: Vec<Collected>,
    },
    /// It could not be done.
    Refused {
        /// Why, in a sentence.
        why: String,
    },
}

/// What became of one sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collected {
    /// Whose it is.
    pub session_id: SessionId,
    /// When it was made.
    pub created: Timestamp,
    /// What became of it, in words.
    pub verdict: String,
}

impl Collected {
    /// Tells what happened, or in a dry run would have.
    #[must_use]
    pub fn of(reaped: &Reaped, dry_run: bool) -> Self {
        let verdict = match (reaped.verdict, dry_run) {
            (Verdict::Kept, _) => "kept: a claim holds it",
            (Verdict::Young, _) => "kept: too young to judge",
            (Verdict::Removed, true) => "would be removed",
            (Verdict::Removed, false) => "removed",
        };
        Self {
            session_id: reaped.listed.session_id,
            created: reaped.listed.created,
            verdict: verdict.to_owned(),
        }
    }
}

/// Asks the daemon of this state directory; `None` when nobody listens there.
///
/// # Errors
/// When the daemon does not answer in time, or not in this version's words.
pub fn ask(state: &State, ask: &Ask) -> io::Result<Option<Answer>> {
    let (_directory, path) = short(state)?;
    let stream = match UnixStream::connect(path) {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    stream.set_read_timeout(Some(ANSWER_WAIT))?;
    stream.set_write_timeout(Some(ANSWER_WAIT))?;
    let mut line = serde_json::to_vec(ask)?;
    line.push(b'\n');
    (&stream).write_all(&line)?;
    let mut answer = Vec::new();
    BufReader::new((&stream).take(ANSWER_BYTES_MAX)).read_until(b'\n', &mut answer)?;
    if answer.is_empty() {
        return Err(io::Error::other("it closed the connection without an answer"));
    }
    Ok(Some(serde_json::from_slice(&answer)?))
}

/// Remembers for the next start whether it takes work; for when no daemon runs.
///
/// # Errors
/// [`state::Error`] when it is not durable.
pub fn mark_drained(state: &State, drained: bool) -> Result<(), state::Error> {
    crate::supervisor::signals::mark_drained(state, drained)
}

/// A path of the socket that fits into its address, whatever the length of the directory's own; good while the file is open.
fn short(state: &State) -> io::Result<(File, PathBuf)> {
    let directory = File::open(state.path())?;
    let path = PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd()));
    Ok((directory, path))
}

#[cfg(test)]
mod tests;
