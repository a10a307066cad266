//! The one writer: a thread that takes whatever jobs wait, runs each in a savepoint, commits once, then answers. A simulation
//! has no thread: each job is committed where it is given, alone.
//! After a failed commit it refuses everything: what is on disk is not known any more until the process starts again. A full
//! disk is no such failure: the database undid the batch, and the next one may find room.

use super::Error;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU8, Ordering},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread::JoinHandle,
};
use tokio::sync::oneshot;

/// How many jobs may wait.
const QUEUE: usize = 4_096;
/// How many jobs one commit may hold.
const BATCH: usize = 512;

/// What becomes of commits; anything but `Real` exists for fault tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Fate {
    /// The database decides.
    Real,
    /// The next commit fails.
    Fail,
}

type Wake = Box<dyn FnOnce() + Send>;
/// Sends the answer, now that it is known what became of the batch, and gives back what is to be woken.
type Answer = Box<dyn FnOnce(Batched) -> Option<Wake> + Send>;
type Job = Box<dyn FnOnce(&Transaction<'_>) -> (Verdict, Answer) + Send>;

/// What one job came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Keep,
    Undo,
    /// The database found no room; it may have undone the whole transaction by itself.
    Full,
}

/// What became of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Batched {
    Durable,
    Full,
    Failed,
}

#[derive(Debug)]
struct Shared {
    failed: AtomicBool,
    fate: AtomicU8,
}

pub(super) struct Writer {
    way: Way,
    shared: Arc<Shared>,
}

enum Way {
    Thread { queue: Mutex<Option<SyncSender<Job>>>, thread: Mutex<Option<JoinHandle<()>>> },
    Here(Mutex<Option<Connection>>),
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("shared", &self.shared).finish_non_exhaustive()
    }
}

impl Writer {
    pub(super) fn start(connection: Connection) -> Result<Self, Error> {
        let (sender, receiver) = sync_channel(QUEUE);
        let shared =
            Arc::new(Shared { failed: AtomicBool::new(false), fate: AtomicU8::new(Fate::Real as u8) });
        let held = shared.clone();
        let thread = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || serve(connection, &receiver, &held))
            .map_err(|_| Error::Closed)?;
        let way = Way::Thread { queue: Mutex::new(Some(sender)), thread: Mutex::new(Some(thread)) };
        Ok(Self { way, shared })
    }

    /// A writer without a thread.
    pub(super) fn here(connection: Connection) -> Self {
        let shared =
            Arc::new(Shared { failed: AtomicBool::new(false), fate: AtomicU8::new(Fate::Real as u8) });
        Self { way: Way::Here(Mutex::new(Some(connection))), shared }
    }

    pub(super) async fn submit<T, H, F, A>(&self, job: F, then: A) -> Result<T, Error>
    where
        T: Send + 'static,
        H: Send + 'static,
        F: FnOnce(&Transaction<'_>) -> Result<(T, H), Error> + Send + 'static,
        A: FnOnce(H) + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        match &self.way {
            Way::Thread { queue, .. } => self.enqueue(queue, boxed(job, then, reply))?,
            Way::Here(connection) => {
                // A crash may come right before the commit, or between the commit and its answer.
                tokio::task::yield_now().await;
                self.commit_here(connection, boxed(job, then, reply))?;
                tokio::task::yield_now().await;
            }
        }
        answer.await.unwrap_or(Err(Error::Closed))
    }

    fn enqueue(&self, queue: &Mutex<Option<SyncSender<Job>>>, job: Job) -> Result<(), Error> {
        if self.failed() {
            return Err(Error::Commit);
        }
        let queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
        match queue.as_ref().map(|queue| queue.try_send(job)) {
            Some(Ok(())) => Ok(()),
            Some(Err(TrySendError::Full(_))) => Err(Error::Overloaded),
            Some(Err(TrySendError::Disconnected(_))) | None => Err(Error::Closed),
        }
    }

    fn commit_here(&self, connection: &Mutex<Option<Connection>>, job: Job) -> Result<(), Error> {
        if self.failed() {
            return Err(Error::Commit);
        }
        let wakes = {
            let mut connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
            run(connection.as_mut().ok_or(Error::Closed)?, VecDeque::from([job]), &self.shared)
        };
        for wake in wakes {
            wake();
        }
        Ok(())
    }

    pub(super) fn close(&self) {
        let (queue, thread) = match &self.way {
            Way::Thread { queue, thread } => (queue, thread),
            Way::Here(connection) => {
                if let Some(connection) = connection.lock().unwrap_or_else(PoisonError::into_inner).take() {
                    fold_in(&connection);
                }
                return;
            }
        };
        drop(queue.lock().unwrap_or_else(PoisonError::into_inner).take());
        let thread = thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the store's writer thread panicked");
        }
    }

    pub(super) fn failed(&self) -> bool {
        self.shared.failed.load(Ordering::Acquire)
    }

    pub(super) fn set_fate(&self, fate: Fate) {
        self.shared.fate.store(fate as u8, Ordering::Release);
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.close();
    }
}

fn boxed<T, H, F, A>(job: F, then: A, reply: oneshot::Sender<Result<T, Error>>) -> Job
where
    T: Send + 'static,
    H: Send + 'static,
    F: FnOnce(&Transaction<'_>) -> Result<(T, H), Error> + Send + 'static,
    A: FnOnce(H) + Send + 'static,
{
    Box::new(move |tx| {
        let outcome = catch_unwind(AssertUnwindSafe(|| job(tx))).unwrap_or(Err(Error::Panicked));
        let (outcome, verdict) = match outcome {
            Ok(made) => (Ok(made), Verdict::Keep),
            Err(Error::Sqlite(error)) if is_full(&error) => (Err(Error::Full), Verdict::Full),
            Err(error) => (Err(error), Verdict::Undo),
        };
        let answer: Answer = Box::new(move |batched| match outcome {
            Ok((value, hint)) if batched == Batched::Durable => {
                // Nobody may wait for the answer any more; what was committed is still to be told.
                drop(reply.send(Ok(value)));
                Some(Box::new(move || then(hint)) as Wake)
            }
            Ok(_) => {
                let full = batched == Batched::Full;
                drop(reply.send(Err(if full { Error::Full } else { Error::Commit })));
                None
            }
            Err(error) => {
                drop(reply.send(Err(error)));
                None
            }
        });
        (verdict, answer)
    })
}

/// Whether the database only lacks room, for its file, its log or the log's index.
fn is_full(error: &rusqlite::Error) -> bool {
    let found = error.sqlite_error();
    found.is_some_and(|found| {
        found.code == rusqlite::ErrorCode::DiskFull
            || found.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE
    })
}

fn serve(mut connection: Connection, queue: &Receiver<Job>, shared: &Shared) {
    while let Ok(first) = queue.recv() {
        let mut jobs = VecDeque::from([first]);
        while jobs.len() < BATCH
            && let Ok(next) = queue.try_recv()
        {
            jobs.push_back(next);
        }
        for wake in run(&mut connection, jobs, shared) {
            wake();
        }
    }
    if !shared.failed.load(Ordering::Acquire) {
        fold_in(&connection);
    }
}

/// Moves the write-ahead log into the database, so that a stopped server's file is whole by itself: who copies it alone
/// has everything. Failing that costs nothing but size; the next start reads the log.
fn fold_in(connection: &Connection) {
    if let Err(error) = connection.query_row("pragma wal_checkpoint(truncate)", [], |_| Ok(())) {
        tracing::warn!(%error, "the write-ahead log stays beside the database");
    }
}

/// Commits and answers; what is to be woken now.
fn run(connection: &mut Connection, mut jobs: VecDeque<Job>, shared: &Shared) -> Vec<Wake> {
    let mut wakes = Vec::new();
    // More than one turn only when the disk is full. Jobs dropped unanswered hear that the store is closed.
    while !jobs.is_empty() && !shared.failed.load(Ordering::Acquire) {
        let (batched, answers) = commit(connection, &mut jobs, shared);
        match batched {
            Batched::Durable => {}
            Batched::Full => tracing::error!("the disk is full; what was to be written is refused"),
            Batched::Failed => {
                tracing::error!("a commit failed; the store takes no more writes");
                shared.failed.store(true, Ordering::Release);
            }
        }
        wakes.extend(answers.into_iter().filter_map(|answer| answer(batched)));
    }
    wakes
}

/// Runs and commits the jobs in order, up to the one for which there was no room.
fn commit(connection: &mut Connection, jobs: &mut VecDeque<Job>, shared: &Shared) -> (Batched, Vec<Answer>) {
    let mut answers = Vec::with_capacity(jobs.len());
    let Ok(tx) = connection.transaction_with_behavior(TransactionBehavior::Immediate) else {
        // Dropping the jobs unanswered tells their callers that the store is closed.
        jobs.clear();
        return (Batched::Failed, answers);
    };
    let mut whole = true;
    while let Some(job) = jobs.pop_front() {
        whole &= tx.execute_batch("savepoint job").is_ok();
        let (verdict, answer) = job(&tx);
        answers.push(answer);
        if verdict == Verdict::Full {
            let undone = tx.is_autocommit() || tx.rollback().is_ok();
            return (if undone { Batched::Full } else { Batched::Failed }, answers);
        }
        let end = if verdict == Verdict::Keep { "release job" } else { "rollback to job; release job" };
        whole &= tx.execute_batch(end).is_ok();
    }
    let fails = shared.fate.swap(Fate::Real as u8, Ordering::AcqRel) == Fate::Fail as u8;
    if !whole || fails {
        return (Batched::Failed, answers);
    }
    match tx.commit() {
        Ok(()) => (Batched::Durable, answers),
        Err(error) if is_full(&error) => (Batched::Full, answers),
        Err(_) => (Batched::Failed, answers),
    }
}
