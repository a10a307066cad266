//! A thread of its own for what must not wait behind sessions: renewals and the token. Nothing that blocks may run on it.

use std::{future::Future, io, thread::JoinHandle};
use tokio::{runtime, sync::oneshot, task};

/// The thread and its runtime. It ends when this is stopped.
#[derive(Debug)]
pub struct LeaseThread {
    handle: runtime::Handle,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl LeaseThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system gives no thread or no event queue.
    pub fn start() -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("lease".to_owned()).spawn(move || {
            // A dropped sender is a stop, too.
            let _ = runtime.block_on(stopped);
        })?;
        Ok(Self { handle, stop, thread })
    }

    /// What tasks are started with.
    #[must_use]
    pub fn handle(&self) -> LeaseHandle {
        LeaseHandle(self.handle.clone())
    }

    /// Ends the thread and every task on it.
    pub fn stop(self) {
        let _ = self.stop.send(());
        let _ = self.thread.join();
    }
}

/// Starts tasks on the lease thread.
#[derive(Debug, Clone)]
pub struct LeaseHandle(runtime::Handle);

impl LeaseHandle {
    /// Tasks go to the runtime that this is called on, beside everything else; for simulations.
    ///
    /// # Panics
    /// Outside of a runtime.
    #[must_use]
    pub fn beside() -> Self {
        Self(runtime::Handle::current())
    }

    /// Starts a task; whoever calls owns it.
    pub fn spawn<F>(&self, task: F) -> task::JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.0.spawn(task)
    }
}
