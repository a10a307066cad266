//! The seam between claims and what runs them: closures over the session executor and the sandboxes, and whether Docker is there.
//! While it is not, nothing is claimed; it heals by itself.

use crate::{claim::Held, sandbox::Reaped, session::Ended};
use checkfu_shared::id::SessionId;
use futures_util::future::BoxFuture;
use std::sync::Arc;
use tokio::sync::watch;

/// Runs one claim to its end.
pub type Run = dyn Fn(Held) -> BoxFuture<'static, Ended> + Send + Sync;
/// Removes the sandbox of a session; that there is none is success.
pub type Dispose = dyn Fn(SessionId) -> BoxFuture<'static, ()> + Send + Sync;
/// Names the sessions that have a sandbox here; `None` when that cannot be known now.
pub type List = dyn Fn() -> BoxFuture<'static, Option<Vec<SessionId>>> + Send + Sync;

/// Removes sandboxes that no claim on this disk holds; with `true` it only tells. `Err` says why it cannot.
pub type Collect = dyn Fn(bool) -> BoxFuture<'static, Result<Vec<Reaped>, String>> + Send + Sync;

/// Whether sandboxes can be made, or why not.
pub type Readiness = Result<(), String>;

/// What claims are handed to.
#[derive(Clone)]
pub struct Executor {
    /// Runs one claim to its end.
    pub run: Arc<Run>,
    /// Removes the sandbox of a session.
    pub dispose: Arc<Dispose>,
    /// Names the sessions that have a sandbox here.
    pub list: Arc<List>,
    /// Removes sandboxes that nobody holds.
    pub collect: Arc<Collect>,
    /// Whether sandboxes can be made, or why not.
    pub ready: watch::Receiver<Readiness>,
}

impl std::fmt::Debug for Executor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Executor").field("ready", &*self.ready.borrow()).finish_non_exhaustive()
    }
}
