//! Who holds a container paused. It goes on only when nobody does, so that the end of a capture never thaws a session
//! that was frozen meanwhile, and a capture that is dropped half way never leaves one paused.

use super::{engine::Engine, error::Error};
use std::sync::{Arc, atomic::AtomicBool, atomic::Ordering};
use tokio::sync::Mutex;
use tokio_util::task::TaskTracker;

/// The reasons for a pause.
#[derive(Debug, Default, Clone, Copy)]
struct Reasons {
    frozen: bool,
    captures: u32,
}

impl Reasons {
    const fn any(self) -> bool {
        self.frozen || self.captures > 0
    }
}

/// The pause of one container.
#[derive(Debug, Clone)]
pub(crate) struct Hold {
    engine: Engine,
    name: String,
    reasons: Arc<Mutex<Reasons>>,
    frozen: Arc<AtomicBool>,
    tasks: TaskTracker,
}

impl Hold {
    pub(super) fn new(engine: Engine, name: String, tasks: TaskTracker) -> Self {
        Self { engine, name, reasons: Arc::default(), frozen: Arc::default(), tasks }
    }

    /// Whether the session is frozen, as far as calls are concerned.
    pub(super) fn is_frozen(&self) -> bool {
        self.frozen.load(Ordering::Acquire)
    }

    pub(super) async fn freeze(&self) -> Result<(), Error> {
        // Calls are refused from now on, even when the pause itself fails.
        self.frozen.store(true, Ordering::Release);
        let hold = self.clone();
        self.to_its_end(async move {
            let mut reasons = hold.reasons.lock().await;
            if !reasons.any() {
                hold.engine.pause(&hold.name).await?;
            }
            reasons.frozen = true;
            Ok(())
        })
        .await
    }

    pub(super) async fn thaw(&self) -> Result<(), Error> {
        let hold = self.clone();
        self.to_its_end(async move {
            let mut reasons = hold.reasons.lock().await;
            let after = Reasons { frozen: false, ..*reasons };
            // Where the freeze could not pause there is nothing to undo.
            if reasons.frozen && !after.any() {
                hold.engine.unpause(&hold.name).await?;
            }
            *reasons = after;
            hold.frozen.store(false, Ordering::Release);
            Ok(())
        })
        .await
    }

    /// Pauses until the guard is released or dropped.
    pub(crate) async fn capture(&self) -> Result<CaptureGuard, Error> {
        let hold = self.clone();
        self.to_its_end(async move {
            let mut reasons = hold.reasons.lock().await;
            if !reasons.any() {
                hold.engine.pause(&hold.name).await?;
            }
            reasons.captures += 1;
            drop(reasons);
            Ok(CaptureGuard { hold: Some(hold) })
        })
        .await
    }

    /// In a task of its own: the daemon carries out a request whose caller was dropped, so the books must be kept
    /// for it as well. What such a caller would have got is dropped, which releases it.
    async fn to_its_end<T: Send + 'static>(
        &self,
        change: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        self.tasks.spawn(change).await.map_err(|error| Error::host("change a pause", &error))?
    }

    async fn release(self) -> Result<(), Error> {
        let mut reasons = self.reasons.lock().await;
        reasons.captures = reasons.captures.saturating_sub(1);
        if reasons.any() {
            return Ok(());
        }
        match self.engine.unpause(&self.name).await {
            // It was removed or killed meanwhile: there is nothing to let go on.
            Err(Error::Lost) => Ok(()),
            released => released,
        }
    }
}

/// Keeps a container paused while its outputs are read.
#[derive(Debug)]
pub(crate) struct CaptureGuard {
    hold: Option<Hold>,
}

impl CaptureGuard {
    pub(crate) async fn release(mut self) -> Result<(), Error> {
        match self.hold.take() {
            Some(hold) => hold.clone().to_its_end(hold.release()).await,
            None => Ok(()),
        }
    }
}

impl Drop for CaptureGuard {
    fn drop(&mut self) {
        if let Some(hold) = self.hold.take() {
            let tasks = hold.tasks.clone();
            tasks.spawn(async move {
                if let Err(error) = hold.release().await {
                    tracing::warn!(%error, detail = error.detail(), "a sandbox stayed paused after a capture");
                }
            });
        }
    }
}
