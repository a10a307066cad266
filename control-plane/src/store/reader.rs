//! A few read-only connections shared by all readers; each job holds one for one short transaction.

use super::Error;
use rusqlite::Connection;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Semaphore;

/// How many read connections there are.
pub(super) const COUNT: usize = 3;

#[derive(Debug)]
pub(super) struct Readers {
    free: Arc<Mutex<Vec<Connection>>>,
    permits: Arc<Semaphore>,
    /// Whether jobs run on the asking thread.
    here: bool,
}

impl Readers {
    pub(super) fn new(connections: Vec<Connection>, here: bool) -> Self {
        let permits = Arc::new(Semaphore::new(connections.len()));
        Self { free: Arc::new(Mutex::new(connections)), permits, here }
    }

    pub(super) async fn run<T, F>(&self, job: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    {
        let permit = self.permits.clone().acquire_owned().await.map_err(|_| Error::Closed)?;
        let free = self.free.clone();
        let work = move || {
            let mut connection = pop(&free)?;
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let tx = connection.transaction()?;
                job(&tx)
            }));
            free.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            drop(permit);
            outcome.unwrap_or(Err(Error::Panicked))
        };
        if self.here {
            let outcome = work();
            tokio::task::yield_now().await;
            return outcome;
        }
        tokio::task::spawn_blocking(work).await.unwrap_or(Err(Error::Closed))
    }
}

fn pop(free: &Mutex<Vec<Connection>>) -> Result<Connection, Error> {
    free.lock().unwrap_or_else(PoisonError::into_inner).pop().ok_or(Error::Closed)
}
