//! The durable store: one SQLite file in WAL mode, one OS thread that owns the only write connection and commits in groups.
//! A write is answered only after its commit reached the disk; a job's refusal rolls back that job alone.
//! It knows no domain: what a job writes is the caller's business.

mod reader;
mod schema;
mod writer;

use checkfu_shared::problem::{Code, Problem};
use rusqlite::{Connection, OpenFlags, Transaction};
use std::{path::Path, sync::Arc};

pub use writer::Fate;

/// Why a job did not happen. Whatever the reason, nothing of it is stored.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The job itself refused; the caller sees the problem as it is.
    #[error(transparent)]
    Refused(#[from] Problem),
    /// The database refused a statement.
    #[error("a statement failed")]
    Sqlite(#[from] rusqlite::Error),
    /// What is stored does not have the form that this program writes.
    #[error("a stored document is damaged")]
    Damaged(#[from] serde_json::Error),
    /// The job panicked; its changes were rolled back.
    #[error("a job failed unexpectedly")]
    Panicked,
    /// The queue of waiting writes is full.
    #[error("too many writes are waiting")]
    Overloaded,
    /// The disk is full. Nothing of the job is stored, and the store goes on once there is room.
    #[error("the disk is full")]
    Full,
    /// The commit failed; the whole batch is undone and the store takes no more writes.
    #[error("the commit failed")]
    Commit,
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
    /// The database is newer than this program.
    #[error("the database has schema {found}, this program knows {known}; use the newer program")]
    Newer {
        /// What the file says.
        found: u32,
        /// What this program knows.
        known: u32,
    },
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        match error {
            Error::Refused(problem) => problem,
            Error::Overloaded => {
                Self::new(Code::Overloaded, "The server has too many writes waiting. Try again in a second.")
            }
            Error::Full => Self::new(
                Code::Overloaded,
                "The disk of the server is full, so nothing was changed. Make room on it, then try again.",
            ),
            Error::Closed | Error::Commit => {
                Self::new(Code::Stopping, "The server is stopping. Try again later.")
            }
            other => {
                tracing::error!(error = ?other, "a store job failed");
                Self::new(
                    Code::Internal,
                    "The server could not do this because of a defect of its own; nothing was changed. Try again, and report the request id if it stays.",
                )
            }
        }
    }
}

/// A handle on the store; clones share it.
#[derive(Debug, Clone)]
pub struct Store {
    writer: Arc<writer::Writer>,
    readers: Arc<reader::Readers>,
}

impl Store {
    /// Opens or makes the database at `path` and brings its schema up to date.
    ///
    /// # Errors
    /// When the file cannot be opened, is damaged, or was written by a newer program.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let connection = prepared(path)?;
        let readers = (0..reader::COUNT).map(|_| read_only(path)).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            writer: Arc::new(writer::Writer::start(connection)?),
            readers: Arc::new(reader::Readers::new(readers, false)),
        })
    }

    /// Like [`Store::open`] without any thread of its own, for simulations: each job runs on the thread that asks, and is
    /// committed alone.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_here(path: &Path) -> Result<Self, Error> {
        let connection = prepared(path)?;
        let readers = vec![read_only(path)?];
        Ok(Self {
            writer: Arc::new(writer::Writer::here(connection)),
            readers: Arc::new(reader::Readers::new(readers, true)),
        })
    }

    /// Runs `job` in the next group commit and returns its value once that is durable.
    ///
    /// # Errors
    /// The job's own refusal, or why it could not be made durable; nothing of it is stored then.
    pub async fn write<T, F>(&self, job: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Transaction<'_>) -> Result<T, Error> + Send + 'static,
    {
        self.write_then(move |tx| job(tx).map(|value| (value, ())), |()| ()).await
    }

    /// Like [`Store::write`]; `then` runs after the commit on the writer's thread, even when nobody waits for the answer
    /// any more. It must only hint (wake somebody) and return at once.
    ///
    /// # Errors
    /// As [`Store::write`]; `then` does not run then.
    pub async fn write_then<T, H, F, A>(&self, job: F, then: A) -> Result<T, Error>
    where
        T: Send + 'static,
        H: Send + 'static,
        F: FnOnce(&Transaction<'_>) -> Result<(T, H), Error> + Send + 'static,
        A: FnOnce(H) + Send + 'static,
    {
        self.writer.submit(job, then).await
    }

    /// Runs `job` on a read-only connection, in one transaction: it sees one consistent state.
    ///
    /// # Errors
    /// The job's own refusal, or the database's.
    pub async fn read<T, F>(&self, job: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    {
        self.readers.run(job).await
    }

    /// Takes no more writes, finishes those that wait, and ends the writer's thread.
    pub fn close(&self) {
        self.writer.close();
    }

    /// Whether a commit failed: the process should stop, since nothing can be made durable any more.
    #[must_use]
    pub fn failed(&self) -> bool {
        self.writer.failed()
    }

    /// Makes the next commit fail or succeed, for fault tests.
    pub fn set_fate(&self, fate: Fate) {
        self.writer.set_fate(fate);
    }
}

fn prepared(path: &Path) -> Result<Connection, Error> {
    let mut connection = Connection::open(path)?;
    configure(&connection)?;
    schema::migrate(&mut connection)?;
    Ok(connection)
}

fn configure(connection: &Connection) -> Result<(), rusqlite::Error> {
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update(None, "foreign_keys", "on")?;
    connection.pragma_update(None, "wal_autocheckpoint", 4_000)?;
    connection.set_prepared_statement_cache_capacity(128);
    connection.busy_timeout(std::time::Duration::from_secs(5))
}

fn read_only(path: &Path) -> Result<Connection, rusqlite::Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.set_prepared_statement_cache_capacity(128);
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    Ok(connection)
}

#[cfg(test)]
mod tests;
