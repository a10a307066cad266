//! Which entries of the archive become files. Limits are exact and greedy in archive order: a file that does not fit
//! is skipped with its reason, later and smaller ones may still fit.

use super::{
    Capture, Error,
    archive::{Damage, Entry, Kind, Reader, Sink},
    spool::{Spool, Stored, Writing},
};
use checkfu_shared::event::CaptureStatus;
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};
use tokio::sync::mpsc;

const MAX_PATH_BYTES: usize = 4_096;
const MAX_DEPTH: usize = 64;
/// Bytes of skipped files that are read past; beyond that the archive is not worth its end.
const MAX_SKIPPED_BYTES: u64 = 1 << 30;

/// How much of the outputs is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one file.
    pub file_bytes: u64,
    /// Bytes of all files.
    pub total_bytes: u64,
    /// Files.
    pub files: usize,
    /// Files that are listed at all, captured or not; more are only counted.
    pub listed: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { file_bytes: 64 << 20, total_bytes: 256 << 20, files: 64, listed: 10_000 }
    }
}

/// One file of the outputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapturedFile {
    /// Its path below the outputs directory, raw bytes.
    pub path: Vec<u8>,
    /// Bytes.
    pub size: u64,
    /// Lowercase hexadecimal, when captured.
    pub sha256: Option<String>,
    /// Captured, or why not.
    pub status: CaptureStatus,
    /// Our copy, when captured.
    pub spool: Option<PathBuf>,
}

/// What to do with a file of some size.
#[derive(Debug, Default)]
struct Budget {
    bytes: u64,
    files: usize,
}

impl Budget {
    fn admit(&mut self, size: u64, limits: &Limits) -> CaptureStatus {
        if size > limits.file_bytes {
            return CaptureStatus::TooLarge;
        }
        if self.files >= limits.files || self.bytes.saturating_add(size) > limits.total_bytes {
            return CaptureStatus::OverCapacity;
        }
        self.files += 1;
        self.bytes += size;
        CaptureStatus::Captured
    }
}

/// What became of a file that links may point to.
#[derive(Debug, Clone)]
struct Seen {
    size: u64,
    status: CaptureStatus,
    stored: Option<Stored>,
}

/// Turns the entries of one archive into a capture.
pub(super) struct Taker {
    limits: Limits,
    spool: Spool,
    budget: Budget,
    skipped_bytes: u64,
    root: Option<Vec<u8>>,
    seen: HashMap<Vec<u8>, Seen>,
    open: Option<(Entry, Option<Writing>)>,
    capture: Capture,
}

impl From<Damage> for Error {
    fn from(damage: Damage) -> Self {
        Self::Damaged(damage.0)
    }
}

/// Reads the pieces of one archive until the queue ends.
pub(super) fn run(
    mut queue: mpsc::Receiver<bytes::Bytes>,
    directory: &Path,
    limits: Limits,
) -> Result<Capture, Error> {
    let mut taker = Taker::prepare(directory, limits)?;
    let mut reader = Reader::new();
    while let Some(piece) = queue.blocking_recv() {
        reader.feed(&piece, &mut taker)?;
    }
    if !reader.is_complete() {
        return Err(Error::Incomplete);
    }
    if taker.root.is_none() {
        return Err(Error::Replaced);
    }
    taker.finish()
}

impl Sink for Taker {
    type Error = Error;

    fn entry(&mut self, entry: Entry) -> Result<(), Error> {
        let Some(root) = &self.root else {
            // The daemon names the archive after the directory; a link or a file in its place comes alone.
            let name = entry.path.strip_suffix(b"/").unwrap_or(&entry.path);
            if entry.kind != Kind::Directory || name.is_empty() || name.contains(&b'/') {
                return Err(Error::Replaced);
            }
            self.root = Some(name.to_vec());
            return Ok(());
        };
        let path = below(root, &entry.path);
        let sound = path.as_ref().is_ok_and(|path| !self.seen.contains_key(path));
        let path = path.unwrap_or_else(|odd| odd);
        match entry.kind {
            Kind::Directory => {}
            Kind::Other => self.list(path, 0, CaptureStatus::Special, None),
            _ if !sound => self.list(path, entry.size, CaptureStatus::Unreadable, None),
            Kind::HardLink => self.link(path, &entry.target)?,
            Kind::File => self.begin(Entry { path, ..entry })?,
        }
        Ok(())
    }

    fn data(&mut self, bytes: &[u8]) -> Result<(), Error> {
        match &mut self.open {
            Some((_, Some(writing))) => writing.write(bytes).map_err(Error::Spool),
            _ => Ok(()),
        }
    }

    fn end_of_entry(&mut self) -> Result<(), Error> {
        let Some((entry, Some(writing))) = self.open.take() else { return Ok(()) };
        let stored = writing.finish().map_err(Error::Spool)?;
        self.record(entry.path, entry.size, CaptureStatus::Captured, Some(stored));
        Ok(())
    }
}

impl Taker {
    /// Starts afresh: what an earlier attempt left in the directory is removed.
    pub(super) fn prepare(directory: &Path, limits: Limits) -> Result<Self, Error> {
        Ok(Self {
            limits,
            spool: Spool::prepare(directory).map_err(Error::Spool)?,
            budget: Budget::default(),
            skipped_bytes: 0,
            root: None,
            seen: HashMap::new(),
            open: None,
            capture: Capture::default(),
        })
    }

    pub(super) fn finish(self) -> Result<Capture, Error> {
        self.spool.sync().map_err(Error::Spool)?;
        Ok(self.capture)
    }

    /// Whether a file of this size may be taken; if so it is charged for.
    pub(super) fn admit(&mut self, size: u64) -> CaptureStatus {
        self.budget.admit(size, &self.limits)
    }

    pub(super) fn write(&mut self) -> Result<Writing, Error> {
        self.spool.write().map_err(Error::Spool)
    }

    fn begin(&mut self, entry: Entry) -> Result<(), Error> {
        match self.admit(entry.size) {
            CaptureStatus::Captured => {
                let writing = self.write()?;
                self.open = Some((entry, Some(writing)));
            }
            status => {
                self.skipped_bytes = self.skipped_bytes.saturating_add(entry.size);
                if self.skipped_bytes > MAX_SKIPPED_BYTES {
                    return Err(Error::TooSlow);
                }
                self.record(entry.path, entry.size, status, None);
            }
        }
        Ok(())
    }

    /// A link to a file of this archive has that file's content and is charged for it again.
    fn link(&mut self, path: Vec<u8>, target: &[u8]) -> Result<(), Error> {
        let root = self.root.as_deref().unwrap_or_default();
        let target = below(root, target).ok().and_then(|target| self.seen.get(&target).cloned());
        let Some(target) = target else {
            self.list(path, 0, CaptureStatus::Unreadable, None);
            return Ok(());
        };
        let Some(first) = target.stored else {
            self.record(path, target.size, target.status, None);
            return Ok(());
        };
        match self.admit(target.size) {
            CaptureStatus::Captured => {
                let stored = self.spool.again(&first).map_err(Error::Spool)?;
                self.record(path, target.size, CaptureStatus::Captured, Some(stored));
            }
            status => self.record(path, target.size, status, None),
        }
        Ok(())
    }

    pub(super) fn record(&mut self, path: Vec<u8>, size: u64, status: CaptureStatus, stored: Option<Stored>) {
        if stored.is_some() || self.seen.len() < self.limits.listed {
            self.seen.insert(path.clone(), Seen { size, status, stored: stored.clone() });
        }
        self.list(path, size, status, stored);
    }

    pub(super) fn list(&mut self, path: Vec<u8>, size: u64, status: CaptureStatus, stored: Option<Stored>) {
        // A captured file is always listed: there are never more of them than the limit.
        if self.capture.files.len() >= self.limits.listed && status != CaptureStatus::Captured {
            self.capture.unlisted += 1;
            return;
        }
        let (sha256, spool) = stored.map(|stored| (stored.sha256, stored.path)).unzip();
        self.capture.files.push(CapturedFile { path, size, sha256, status, spool });
    }
}

/// The path below the root directory, or the whole of an odd one, cut.
fn below(root: &[u8], path: &[u8]) -> Result<Vec<u8>, Vec<u8>> {
    let odd = || path.get(..MAX_PATH_BYTES).unwrap_or(path).to_vec();
    let rest = path.strip_prefix(root).and_then(|rest| rest.strip_prefix(b"/")).ok_or_else(odd)?;
    let rest = rest.strip_suffix(b"/").unwrap_or(rest);
    let mut depth = 0;
    let sound = rest.split(|byte| *byte == b'/').all(|part| {
        depth += 1;
        !part.is_empty() && part != b"." && part != b".." && !part.contains(&0)
    });
    if sound && depth <= MAX_DEPTH && path.len() <= MAX_PATH_BYTES { Ok(rest.to_vec()) } else { Err(odd()) }
}

#[cfg(test)]
mod tests;
