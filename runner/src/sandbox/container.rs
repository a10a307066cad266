//! The handle of one open sandbox. Dropping the last one detaches; the container goes on until it is stopped.

use super::{
    egress::{Denial, Proxy},
    engine::Engine,
    error::Error,
    hold::{CaptureGuard, Hold},
    link::{Command, State},
};
use checkfu_shared::id::SessionId;
use checkfu_toolbox::call::{Outcome, Tool};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use super::calls::Known;

/// One tool call.
#[derive(Debug, Clone)]
pub struct Request {
    /// The tool use id; the call runs at most once under it.
    pub call_id: String,
    /// The thread whose shell state and reads apply.
    pub thread: String,
    /// What to run.
    pub tool: Tool,
}

/// An open sandbox.
#[derive(Debug)]
pub struct Sandbox {
    pub(super) session: SessionId,
    pub(super) name: String,
    pub(super) engine: Engine,
    pub(super) commands: mpsc::Sender<Command>,
    pub(super) state: watch::Receiver<State>,
    pub(super) closed: CancellationToken,
    pub(super) hold: Hold,
    pub(super) proxy: Option<Proxy>,
    pub(super) tasks: TaskTracker,
}

impl Sandbox {
    /// Whose sandbox it is.
    #[must_use]
    pub fn session_id(&self) -> SessionId {
        self.session
    }

    /// The container's name, for the log and for an operator.
    #[must_use]
    pub fn container(&self) -> &str {
        &self.name
    }

    /// What does not work in this sandbox, in the toolbox's words.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        match &*self.state.borrow() {
            State::Ready { warnings } => warnings.clone(),
            _ => Vec::new(),
        }
    }

    /// Runs a call and waits for its result. A repeated id joins the running call or gets the stored result, never a
    /// second run. Dropping the future leaves the call running; ask again by id. The toolbox keeps the result until
    /// [`Sandbox::acknowledge`].
    ///
    /// # Errors
    /// [`Error::Frozen`] and [`Error::LeaseEnded`] when nothing may start now, [`Error::Lost`] when the container is
    /// gone, [`Error::Hostile`] when the sandbox broke the protocol, [`Error::AlreadyAcknowledged`] for an old id.
    pub async fn call(&self, request: Request) -> Result<Outcome, Error> {
        if self.hold.is_frozen() {
            return Err(Error::Frozen);
        }
        let Request { call_id: id, thread, tool } = request;
        let tool = Box::new(tool);
        self.ask(|answer| Command::Call { id, thread, tool, answer }).await
    }

    /// What is known of a call, here or in the sandbox.
    ///
    /// # Errors
    /// As for [`Sandbox::call`]; a frozen sandbox cannot answer.
    pub async fn known(&self, call_id: &str) -> Result<Known, Error> {
        if self.hold.is_frozen() {
            return Err(Error::Frozen);
        }
        self.ask(|answer| Command::Query { id: call_id.to_owned(), answer }).await
    }

    /// Says that the result of a call is durable, so that the toolbox may forget it. Results that are never
    /// acknowledged are dropped oldest first once more than 64 were handed over.
    pub async fn acknowledge(&self, call_id: &str) {
        self.tell(Command::Acknowledge { id: call_id.to_owned() }).await;
    }

    /// Ends a call; whoever waits for it gets its result.
    pub async fn cancel(&self, call_id: &str) {
        self.tell(Command::Cancel { id: call_id.to_owned() }).await;
    }

    /// Ends every call.
    pub async fn cancel_all(&self) {
        self.tell(Command::CancelAll).await;
    }

    /// Renews the toolbox's lease: milliseconds that remain from now.
    pub async fn lease(&self, remaining_ms: u64) {
        self.tell(Command::Lease { remaining_ms }).await;
    }

    /// Stops everything in the sandbox where it is. Calls are refused from now on. Where the host cannot pause, the
    /// toolbox's lease is ended instead.
    ///
    /// # Errors
    /// [`Error::Lost`] when the container is gone.
    pub async fn freeze(&self) -> Result<(), Error> {
        match self.hold.freeze().await {
            Err(Error::Engine { detail, .. }) => {
                tracing::warn!(
                    container = self.name,
                    detail,
                    "cannot pause; ending the toolbox's lease instead"
                );
                self.lease(0).await;
                Ok(())
            }
            other => other,
        }
    }

    /// Lets a frozen sandbox go on; `remaining_ms` is the lease it gets.
    ///
    /// # Errors
    /// [`Error::Lost`] when the container is gone.
    pub async fn thaw(&self, remaining_ms: u64) -> Result<(), Error> {
        self.hold.thaw().await?;
        self.lease(remaining_ms).await;
        Ok(())
    }

    /// Waits until the egress proxy has refused something, and takes what it refused since the last time. Never
    /// returns for a sandbox without a network.
    pub async fn denials(&self) -> Vec<Denial> {
        match &self.proxy {
            Some(proxy) => proxy.denials().await,
            None => std::future::pending().await,
        }
    }

    /// Detaches and waits until nothing of this handle runs any more. The container goes on.
    pub async fn close(&self) {
        self.closed.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Waits until the line is dead and says why.
    pub async fn ended(&self) -> Error {
        let mut state = self.state.clone();
        loop {
            if let State::Dead(error) = &*state.borrow_and_update() {
                return error.clone();
            }
            if state.changed().await.is_err() {
                return Error::Closed;
            }
        }
    }

    pub(super) async fn ready(&self) -> Result<(), Error> {
        let mut state = self.state.clone();
        loop {
            match &*state.borrow_and_update() {
                State::Opening => {}
                State::Ready { .. } => return Ok(()),
                State::Dead(error) => return Err(error.clone()),
            }
            state.changed().await.map_err(|_| Error::Closed)?;
        }
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(crate) async fn pause_for_capture(&self) -> Result<CaptureGuard, Error> {
        self.hold.capture().await
    }

    async fn tell(&self, command: Command) {
        // A dead line has nobody to tell; whoever waits for a result has been told.
        let _unheard = self.commands.send(command).await;
    }

    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T, Error>>) -> Command,
    ) -> Result<T, Error> {
        let (answer, result) = oneshot::channel();
        if self.commands.send(command(answer)).await.is_err() {
            return Err(self.why_dead());
        }
        result.await.unwrap_or_else(|_| Err(self.why_dead()))
    }

    fn why_dead(&self) -> Error {
        match &*self.state.borrow() {
            State::Dead(error) => error.clone(),
            _ => Error::Closed,
        }
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.closed.cancel();
    }
}
