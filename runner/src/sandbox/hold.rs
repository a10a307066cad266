//! Who holds a container paused. The container is made to agree with the book of holders until it does, whatever a
//! request was answered: a capture that is dropped half way never leaves one paused, and the end of a capture never
//! thaws a session that was frozen meanwhile. What is done follows from the book alone, never from who asked.

mod book;

use super::{engine::Engine, error::Error};
use book::{Book, Next, Reason};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::time::{Instant, sleep};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// How long to wait before an unpause that failed is tried again, at first and at most.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LAST: Duration = Duration::from_secs(5);
/// How long a request whose end nobody heard of may still be carried out.
const DOUBT: Duration = Duration::from_secs(60);
/// How often the container is looked at while that is so.
const LOOK: Duration = Duration::from_millis(500);
/// The daemon's own book lags behind what it did by the time its events take.
const LAG: Duration = Duration::from_millis(100);
/// How often an answer that contradicts our book is asked for again before it is believed.
const CONTRADICTIONS: u32 = 5;

/// The pause of one container.
#[derive(Debug, Clone)]
pub(crate) struct Hold {
    engine: Engine,
    name: String,
    book: Arc<Mutex<Book>>,
    /// One request to the daemon at a time.
    turn: Arc<tokio::sync::Mutex<()>>,
    tasks: TaskTracker,
    closed: CancellationToken,
}

impl Hold {
    /// The pause of a container that runs now. `closed` ends when nobody is left to whom a pause matters.
    pub(super) fn new(engine: Engine, name: String, tasks: TaskTracker, closed: CancellationToken) -> Self {
        Self { engine, name, book: Arc::default(), turn: Arc::default(), tasks, closed }
    }

    /// What an earlier process asked of the daemon may still be carried out.
    pub(super) fn doubt(&self) {
        self.book().doubt(Instant::now() + DOUBT);
        self.look_after();
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the session is frozen, as far as calls are concerned.
    pub(super) fn is_frozen(&self) -> bool {
        self.book().refuses_calls()
    }

    pub(super) async fn freeze(&self) -> Result<(), Error> {
        // Calls are refused from now on, even when the pause itself fails.
        self.book().add(Reason::Frozen);
        let hold = self.clone();
        self.to_its_end(async move {
            let agreed = hold.agree().await;
            if agreed.is_err() {
                hold.strike(Reason::Frozen);
            }
            agreed
        })
        .await
    }

    pub(super) async fn thaw(&self) -> Result<(), Error> {
        self.book().strike(Reason::Frozen);
        let hold = self.clone();
        self.to_its_end(async move {
            hold.agree().await?;
            hold.book().allow_calls();
            Ok(())
        })
        .await
    }

    /// Pauses until the guard is released or dropped.
    pub(crate) async fn capture(&self) -> Result<CaptureGuard, Error> {
        self.book().add(Reason::Capture);
        let guard = CaptureGuard { hold: Some(self.clone()) };
        let hold = self.clone();
        self.to_its_end(async move {
            hold.agree().await?;
            Ok(guard)
        })
        .await
    }

    /// In a task of its own: the daemon carries out a request whose caller was dropped, so the book must be kept
    /// for it as well. What such a caller would have got is dropped, which strikes its reason.
    async fn to_its_end<T: Send + 'static>(
        &self,
        change: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        self.tasks.spawn(change).await.map_err(|error| Error::host("change a pause", &error))?
    }

    fn strike(&self, reason: Reason) {
        self.book().strike(reason);
        let hold = self.clone();
        self.tasks.spawn(async move {
            if let Err(error) = hold.agree().await {
                tracing::warn!(%error, detail = error.detail(), "a sandbox stayed paused until it is opened again");
            }
        });
    }

    /// Makes the container agree with the book. A pause that fails is an error at once; an unpause is tried until it
    /// works or nobody is left to whom it matters.
    async fn agree(&self) -> Result<(), Error> {
        let agreed = {
            let _one_at_a_time = self.turn.lock().await;
            self.agree_in_turn().await
        };
        self.look_after();
        match agreed {
            // It was removed or killed meanwhile: there is nothing left to let go on.
            Err(Error::Lost) if !self.book().wanted() => Ok(()),
            agreed => agreed,
        }
    }

    async fn agree_in_turn(&self) -> Result<(), Error> {
        let mut retry = RETRY_FIRST;
        let mut contradictions = 0;
        loop {
            let next = self.book().next();
            let answer = match next {
                Next::Nothing => return Ok(()),
                Next::Pause => self.engine.pause(&self.name).await,
                Next::Unpause => self.engine.unpause(&self.name).await,
            };
            match answer {
                Ok(true) => self.book().confirm(next),
                // By our book it is otherwise. The daemon's flag may lag behind what it did itself.
                Ok(false) if contradictions < CONTRADICTIONS => {
                    contradictions += 1;
                    sleep(LAG).await;
                }
                Ok(false) => {
                    let mut book = self.book();
                    book.confirm(next);
                    book.doubt(Instant::now() + DOUBT);
                }
                Err(Error::Lost) => return Err(Error::Lost),
                Err(error) => {
                    if matches!(error, Error::Unavailable { .. }) {
                        self.book().doubt(Instant::now() + DOUBT);
                    }
                    if next == Next::Pause || self.closed.is_cancelled() {
                        return Err(error);
                    }
                    tracing::warn!(
                        container = self.name,
                        detail = error.detail(),
                        "cannot unpause; trying again"
                    );
                    tokio::select! {
                        () = self.closed.cancelled() => {}
                        () = sleep(retry) => {}
                    }
                    retry = RETRY_LAST.min(retry * 2);
                }
            }
        }
    }

    /// While a request may still be carried out that nobody waits for, the container is looked at again and again.
    fn look_after(&self) {
        if !self.book().begin_watch(Instant::now()) {
            return;
        }
        let hold = self.clone();
        self.tasks.spawn(async move {
            loop {
                tokio::select! {
                    () = hold.closed.cancelled() => {}
                    () = sleep(LOOK) => {}
                }
                if hold.closed.is_cancelled() || hold.book().end_watch(Instant::now()) {
                    return;
                }
                let _one_at_a_time = hold.turn.lock().await;
                if let Ok(Some(found)) = hold.engine.inspect(&hold.name).await {
                    let paused = found.state.and_then(|state| state.paused) == Some(true);
                    hold.book().saw(paused);
                    if let Err(error) = hold.agree_in_turn().await {
                        tracing::warn!(%error, detail = error.detail(), "cannot make a pause agree with its book");
                    }
                }
            }
        });
    }
}

/// Keeps a container paused while its outputs are read.
#[derive(Debug)]
pub(crate) struct CaptureGuard {
    hold: Option<Hold>,
}

impl CaptureGuard {
    pub(crate) async fn release(mut self) -> Result<(), Error> {
        let Some(hold) = self.hold.take() else { return Ok(()) };
        hold.book().strike(Reason::Capture);
        hold.clone().to_its_end(async move { hold.agree().await }).await
    }
}

impl Drop for CaptureGuard {
    fn drop(&mut self) {
        if let Some(hold) = self.hold.take() {
            hold.strike(Reason::Capture);
        }
    }
}
