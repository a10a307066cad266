//! Outputs whose archive is too long to read to its end: the daemon says which files there are, and those that may
//! be taken are fetched one by one. Nothing the sandbox says is used, and it stays paused meanwhile.

use super::{
    Error, PIECE_WAIT,
    archive::{Entry, Kind, Reader, Sink},
    feed,
    spool::{Stored, Writing},
    take::Taker,
};
use crate::sandbox::{Engine, spec::OUTPUTS};
use checkfu_shared::event::CaptureStatus;
use std::time::Duration;
use tokio::{sync::mpsc, time::Instant};

/// How long all of it may take.
const ALL_WAIT: Duration = Duration::from_secs(60);
const QUEUE: usize = 16;

/// The type bits of a Go file mode; a directory is the highest, and none of them is a regular file.
const DIRECTORY: u32 = 1 << 31;
const TYPES: u32 = DIRECTORY | 1 << 27 | 1 << 26 | 1 << 25 | 1 << 24 | 1 << 21 | 1 << 19;

/// Takes what may be taken of the files that the container has below its outputs. Files that came with the image, or
/// that lie on a volume, are not among those the daemon lists; without any it is too slow and not empty.
pub(super) async fn read(engine: &Engine, container: &str, mut taker: Taker) -> Result<Taker, Error> {
    let give_up = Instant::now() + ALL_WAIT;
    let below = format!("{OUTPUTS}/");
    let mut paths: Vec<String> =
        engine.changes(container).await?.into_iter().filter(|path| path.starts_with(&below)).collect();
    if paths.is_empty() {
        return Err(Error::TooSlow);
    }
    paths.sort_unstable();
    for path in paths {
        if Instant::now() >= give_up {
            return Err(Error::TooSlow);
        }
        let name = path.strip_prefix(&below).unwrap_or(&path).as_bytes().to_vec();
        // A name that is no UTF-8 was changed on its way here and leads nowhere.
        match engine.stat(container, &path).await? {
            Some(found) if found.mode & DIRECTORY != 0 => {}
            Some(found) if found.mode & TYPES != 0 => taker.list(name, 0, CaptureStatus::Special, None),
            Some(found) => taker = one(engine, container, &path, name, found.size, taker).await?,
            None => taker.list(name, 0, CaptureStatus::Unreadable, None),
        }
    }
    Ok(taker)
}

async fn one(
    engine: &Engine,
    container: &str,
    path: &str,
    name: Vec<u8>,
    size: u64,
    mut taker: Taker,
) -> Result<Taker, Error> {
    let status = taker.admit(size);
    if status != CaptureStatus::Captured {
        taker.record(name, size, status, None);
        return Ok(taker);
    }
    let (pieces, queue) = mpsc::channel(QUEUE);
    let writer = tokio::task::spawn_blocking(move || {
        let stored = write(&mut taker, size, queue);
        (taker, stored)
    });
    let sent = feed(engine.get(container, path), pieces, PIECE_WAIT).await;
    let (mut taker, stored) = writer.await.map_err(|error| Error::Spool(std::io::Error::other(error)))?;
    sent?;
    taker.record(name, size, CaptureStatus::Captured, Some(stored?));
    Ok(taker)
}

fn write(taker: &mut Taker, size: u64, mut queue: mpsc::Receiver<bytes::Bytes>) -> Result<Stored, Error> {
    let mut reader = Reader::new();
    let mut single = Single { writing: Some(taker.write()?), size, stored: None };
    while let Some(piece) = queue.blocking_recv() {
        reader.feed(&piece, &mut single)?;
    }
    single.stored.filter(|_| reader.is_complete()).ok_or(Error::Incomplete)
}

/// The one file of an archive of one file.
struct Single {
    writing: Option<Writing>,
    size: u64,
    stored: Option<Stored>,
}

impl Sink for Single {
    type Error = Error;

    fn entry(&mut self, entry: Entry) -> Result<(), Error> {
        if self.writing.is_none() || entry.kind != Kind::File || entry.size != self.size {
            return Err(Error::Damaged("a file changed while it was read"));
        }
        Ok(())
    }

    fn data(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.writing.as_mut().map_or(Ok(()), |writing| writing.write(bytes)).map_err(Error::Spool)
    }

    fn end_of_entry(&mut self) -> Result<(), Error> {
        if let Some(writing) = self.writing.take() {
            self.stored = Some(writing.finish().map_err(Error::Spool)?);
        }
        Ok(())
    }
}
