//! One upload of a settlement: its bytes go to staging with a durable offset, and into custody once they are proven.
//! One request at a time writes an upload; whatever it left behind the durable offset is cut off by the next.

use super::{Caller, Engine, settlement};
use crate::files::Files;
use checkfu_shared::{
    id::{SessionId, UploadId},
    problem::{Code, Problem},
};
use rusqlite::{Connection, params};
use std::{
    collections::HashMap,
    io,
    sync::{Arc, Mutex, PoisonError, Weak},
};
use tokio::{
    io::{AsyncSeekExt, AsyncWriteExt},
    sync::{Mutex as AsyncMutex, OwnedMutexGuard},
};

/// Which uploads are being written now.
#[derive(Debug, Default)]
pub(super) struct Open(Mutex<HashMap<UploadId, Weak<AsyncMutex<()>>>>);

impl Open {
    fn of(&self, upload: UploadId) -> Arc<AsyncMutex<()>> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, lock| lock.strong_count() > 0);
        if let Some(lock) = open.get(&upload).and_then(Weak::upgrade) {
            return lock;
        }
        let lock = Arc::new(AsyncMutex::new(()));
        open.insert(upload, Arc::downgrade(&lock));
        lock
    }
}

/// The bytes of one request on their way to staging.
#[derive(Debug)]
pub struct Incoming {
    engine: Engine,
    caller: Caller,
    upload: UploadId,
    epoch: u64,
    session: SessionId,
    size: u64,
    sha256: String,
    written: u64,
    /// `None` when the bytes are in custody already.
    file: Option<tokio::fs::File>,
    _alone: OwnedMutexGuard<()>,
}

impl Engine {
    /// How much of an upload is durable.
    ///
    /// # Errors
    /// [`Code::Fenced`] when its claim is over.
    pub async fn upload_offset(&self, caller: Caller, upload: UploadId, epoch: u64) -> Result<u64, Problem> {
        let read = move |conn: &Connection| settlement::fence_upload(conn, &caller, upload, epoch);
        let (_, size, durable, _, done) = self.store().read(read).await?;
        Ok(if done { size } else { durable })
    }

    /// Begins to take bytes at `offset`.
    ///
    /// # Errors
    /// [`Code::Fenced`], or [`Code::UploadOffset`] when the stored offset is another.
    pub async fn upload(
        &self,
        caller: Caller,
        upload: UploadId,
        epoch: u64,
        offset: u64,
    ) -> Result<Incoming, Problem> {
        let alone = self.0.uploads.of(upload).lock_owned().await;
        let read = move |conn: &Connection| settlement::fence_upload(conn, &caller, upload, epoch);
        let (session, size, durable, sha256, done) = self.store().read(read).await?;
        let stored = Files::name(session, upload);
        // A crash may have come between the move into custody and the row that tells of it.
        let done = done || self.0.files.holds(&stored);
        let at = if done { size } else { durable };
        if offset != at {
            return Err(Problem::new(
                Code::UploadOffset,
                format!("The upload goes on at byte {at}, not {offset}."),
            )
            .with("offset", at));
        }
        let file =
            if done { None } else { Some(self.staged_at(upload, at).await.map_err(|error| broken(&error))?) };
        Ok(Incoming {
            engine: self.clone(),
            caller,
            upload,
            epoch,
            session,
            size,
            sha256,
            written: at,
            file,
            _alone: alone,
        })
    }

    async fn staged_at(&self, upload: UploadId, offset: u64) -> io::Result<tokio::fs::File> {
        let path = self.0.files.staged(upload);
        let mut options = tokio::fs::OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(false).open(path).await?;
        file.set_len(offset).await?;
        file.seek(io::SeekFrom::Start(offset)).await?;
        Ok(file)
    }
}

impl Incoming {
    /// Takes the next bytes.
    ///
    /// # Errors
    /// [`Code::UploadMismatch`] when there are more than announced; [`Code::Internal`] when the disk refuses.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), Problem> {
        let after = self.written.saturating_add(bytes.len() as u64);
        if after > self.size {
            return Err(Problem::new(
                Code::UploadMismatch,
                format!("The file was announced with {} bytes and more came.", self.size),
            ));
        }
        if let Some(file) = &mut self.file {
            file.write_all(bytes).await.map_err(|error| broken(&error))?;
        }
        self.written = after;
        Ok(())
    }

    /// Makes what came durable; when it is all, proves it and moves it into custody. The durable offset.
    ///
    /// # Errors
    /// [`Code::UploadMismatch`] when the bytes are not what was announced: they are dropped, the upload starts again.
    pub async fn finish(mut self) -> Result<u64, Problem> {
        if let Some(mut file) = self.file.take() {
            file.flush().await.map_err(|error| broken(&error))?;
            file.sync_all().await.map_err(|error| broken(&error))?;
            if self.written == self.size && !self.keep().await? {
                self.note(0, false).await?;
                return Err(Problem::new(
                    Code::UploadMismatch,
                    "The bytes do not have the announced SHA-256. Send the file again from its first byte.",
                ));
            }
        }
        let done = self.written == self.size;
        self.note(self.written, done).await?;
        Ok(self.written)
    }

    async fn keep(&self) -> Result<bool, Problem> {
        let (files, upload, sha256) = (self.engine.0.files.clone(), self.upload, self.sha256.clone());
        let stored = Files::name(self.session, upload);
        let kept = tokio::task::spawn_blocking(move || files.keep(upload, &stored, &sha256)).await;
        match kept {
            Ok(kept) => kept.map_err(|error| broken(&error)),
            Err(_) => Err(Problem::new(Code::Stopping, "The server is stopping. Try again later.")),
        }
    }

    async fn note(&self, durable: u64, done: bool) -> Result<(), Problem> {
        let (caller, upload, epoch) = (self.caller, self.upload, self.epoch);
        self.engine
            .change(move |tx, _| {
                settlement::fence_upload(tx, &caller, upload, epoch)?;
                tx.execute(
                    "update uploads set durable = ?2, done = ?3 where id = ?1",
                    params![upload.to_string(), durable.cast_signed(), done],
                )?;
                Ok(())
            })
            .await
    }
}

fn broken(error: &io::Error) -> Problem {
    tracing::error!(%error, "an upload could not be stored");
    Problem::new(Code::Internal, "The server could not store the upload. Try again later.")
}
