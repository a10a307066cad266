//! What a session leaves behind: the regular files below its outputs directory, copied out while nothing runs.
//! The archive is hostile: nothing is unpacked by its own name, nothing but regular files and links among them is
//! taken, and an archive without its end never counts as whole.

mod archive;
mod piecemeal;
mod spool;
mod take;

pub use take::{CapturedFile, Limits};

use crate::sandbox::{Error as SandboxError, Sandbox, spec::OUTPUTS};
use futures_util::{Stream, StreamExt as _};
use std::{path::Path, time::Duration};
use take::Taker;
use tokio::{sync::mpsc, time::Instant};

/// How long one reading of everything may take.
const READ_WAIT: Duration = Duration::from_secs(60);
/// How long the daemon may send nothing.
const PIECE_WAIT: Duration = Duration::from_secs(20);
/// Pieces that wait for the disk.
const QUEUE: usize = 16;

/// Why nothing was captured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The sandbox could not be paused or read.
    #[error("the outputs could not be read from the sandbox")]
    Sandbox(#[from] SandboxError),
    /// There is no outputs directory any more.
    #[error("the directory {OUTPUTS} was removed; create it again before the end of the run")]
    Missing,
    /// Something else has the directory's place.
    #[error("{OUTPUTS} is not a directory any more; nothing was captured")]
    Replaced,
    /// The archive ended early, twice.
    #[error("the outputs could not be read to their end")]
    Incomplete,
    /// Reading took too long, for example because of files that are huge and empty.
    #[error("reading the outputs took too long; remove very large files from {OUTPUTS}")]
    TooSlow,
    /// The archive is damaged.
    #[error("the outputs arrived damaged: {0}")]
    Damaged(&'static str),
    /// The runner could not store them.
    #[error("the runner could not store the outputs")]
    Spool(#[source] std::io::Error),
}

/// What was found.
#[derive(Debug, Default)]
pub struct Capture {
    /// Every file, in byte order of the archive: captured ones with their spool file, others with the reason.
    pub files: Vec<CapturedFile>,
    /// Files beyond those listed, when there were too many to list.
    pub unlisted: u64,
}

impl Sandbox {
    /// Copies the outputs into files of our own below `spool`, while the sandbox is paused. No call should be in
    /// flight. The sandbox goes on afterwards unless it is frozen, even when the future is dropped half way.
    ///
    /// # Errors
    /// [`Error::Replaced`] and [`Error::Missing`] when the directory is gone, [`Error::Incomplete`] when the archive
    /// was cut off twice, [`Error::TooSlow`] when it did not end in time.
    pub async fn capture(&self, spool: &Path, limits: Limits) -> Result<Capture, Error> {
        let guard = match self.pause_for_capture().await {
            Ok(guard) => Some(guard),
            // No call is in flight; what else writes can at worst cut the archive short, and that shows.
            Err(error @ SandboxError::Engine { .. }) => {
                let container = self.container();
                tracing::warn!(container, detail = error.detail(), "cannot pause; reading outputs unpaused");
                None
            }
            Err(error) => return Err(error.into()),
        };
        let captured = self.capture_paused(spool, limits).await;
        if let Some(guard) = guard {
            guard.release().await?;
        }
        captured
    }

    async fn capture_paused(&self, spool: &Path, limits: Limits) -> Result<Capture, Error> {
        let archive = || self.engine().get(self.container(), OUTPUTS);
        let first = match read(archive(), spool, limits).await {
            Err(Error::Incomplete) => read(archive(), spool, limits).await,
            captured => captured,
        };
        match first {
            Err(Error::TooSlow) => {
                let taker = Taker::prepare(spool, limits)?;
                piecemeal::read(self.engine(), self.container(), taker).await?.finish()
            }
            captured => captured,
        }
    }
}

/// Reads one archive to its end. What an earlier attempt left in the spool is removed first.
async fn read(
    archive: impl Stream<Item = Result<bytes::Bytes, SandboxError>> + Send,
    spool: &Path,
    limits: Limits,
) -> Result<Capture, Error> {
    let (pieces, queue) = mpsc::channel(QUEUE);
    let directory = spool.to_owned();
    let writer = tokio::task::spawn_blocking(move || take::run(queue, &directory, limits));
    let sent = feed(archive, pieces, READ_WAIT).await;
    // The writer ends when its queue does; its error explains a queue that was closed early.
    let taken = writer.await.map_err(|error| Error::Spool(std::io::Error::other(error)))?;
    match (sent, taken) {
        (Ok(()), taken) => taken,
        (_, Err(error @ (Error::Replaced | Error::TooSlow | Error::Damaged(_) | Error::Spool(_)))) => {
            Err(error)
        }
        (Err(error), _) => Err(error),
    }
}

async fn feed(
    archive: impl Stream<Item = Result<bytes::Bytes, SandboxError>> + Send,
    pieces: mpsc::Sender<bytes::Bytes>,
    all_wait: Duration,
) -> Result<(), Error> {
    let mut archive = std::pin::pin!(archive);
    let give_up = Instant::now() + all_wait;
    loop {
        let wait = PIECE_WAIT.min(give_up.saturating_duration_since(Instant::now()));
        match tokio::time::timeout(wait, archive.next()).await {
            Err(_) => return Err(Error::TooSlow),
            Ok(None) => return Ok(()),
            Ok(Some(Ok(piece))) => {
                if pieces.send(piece).await.is_err() {
                    return Ok(());
                }
            }
            Ok(Some(Err(SandboxError::Engine { status: Some(404), .. }))) => return Err(Error::Missing),
            Ok(Some(Err(SandboxError::Unavailable { .. }))) => return Err(Error::Incomplete),
            Ok(Some(Err(error))) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests;
