//! The session's sandbox as its claim uses it: opened beside the first model request, kept under the lease, replaced once it
//! is lost. It never begins a call without a permit and never outlives its claim's lease.

mod verdict;

use crate::{
    backoff::Backoff,
    claim::lease::{BootInstant, State},
    harness::{Bench, Known, News, Trouble},
    outputs::{self, Capture, Limits},
    sandbox::{self, Docker, How, Open, Opened, Request, Sandbox},
    session::place::Place,
    tools::permit::Permit,
};
use checkfu_shared::{
    environment,
    event::Body,
    id::{EventId, SessionId, ThreadId},
};
use checkfu_toolbox::call::{Outcome, Tool};
use std::{
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

/// How often opening is tried while Docker is away.
const OPEN_ATTEMPTS: u32 = 6;
/// How long a sandbox that no call needed may hold up a settlement.
const UNNEEDED_WAIT: Duration = Duration::from_secs(5);

/// The place where one claim's calls run.
#[derive(Debug)]
pub(super) struct Workbench {
    docker: Docker,
    plan: Plan,
    lease: watch::Receiver<State>,
    thread: ThreadId,
    /// Whether the log tells of a sandbox.
    had_sandbox: AtomicBool,
    slot: tokio::sync::Mutex<Slot>,
    current: watch::Sender<Option<Arc<Sandbox>>>,
    denied: Mutex<Vec<Body>>,
}

/// What the sandbox is made of.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) session_id: SessionId,
    pub(super) epoch: u64,
    pub(super) spec: environment::Spec,
    pub(super) keep_ms: u64,
}

#[derive(Debug, Default)]
struct Slot {
    /// Under way since the claim began or the last sandbox was lost.
    opening: Option<AbortOnDropHandle<Result<Opened, Trouble>>>,
    open: Option<Arc<Sandbox>>,
    /// Whether it is the one in which calls of earlier claims ran.
    is_same: bool,
}

impl Workbench {
    pub(super) fn new(docker: Docker, plan: Plan, lease: watch::Receiver<State>, thread: ThreadId) -> Self {
        Self {
            docker,
            plan,
            lease,
            thread,
            had_sandbox: AtomicBool::new(false),
            slot: tokio::sync::Mutex::default(),
            current: watch::Sender::new(None),
            denied: Mutex::default(),
        }
    }

    fn opening(&self) -> AbortOnDropHandle<Result<Opened, Trouble>> {
        let task = open_patiently(self.docker.clone(), self.plan.clone(), self.lease.clone());
        AbortOnDropHandle::new(tokio::spawn(task))
    }

    /// The sandbox that is open now.
    fn current(&self) -> Option<Arc<Sandbox>> {
        self.current.borrow().clone()
    }

    fn denied(&self) -> std::sync::MutexGuard<'_, Vec<Body>> {
        self.denied.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn sandbox(&self) -> Result<Arc<Sandbox>, Trouble> {
        self.current().ok_or_else(|| Trouble::Lost("it is not open any more".to_owned()))
    }

    async fn request(&self, call: EventId, tool: Tool) -> Result<Outcome, Trouble> {
        let sandbox = self.sandbox().await?;
        let request = Request { call_id: call.to_string(), thread: self.thread.to_string(), tool };
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
        loop {
            allowed(&self.lease).await;
            match sandbox.call(request.clone()).await {
                Ok(outcome) => return Ok(outcome),
                // It did not begin; the same id never runs twice anyway.
                Err(sandbox::Error::Frozen | sandbox::Error::LeaseEnded | sandbox::Error::Busy) => {
                    tokio::time::sleep(backoff.next(None)).await;
                }
                Err(error) => {
                    log(&error, "a call failed");
                    let trouble = verdict::of_call(&error);
                    if matches!(trouble, Trouble::Lost(_)) {
                        self.forget(&sandbox).await;
                    }
                    return Err(trouble);
                }
            }
        }
    }

    /// Makes room for another sandbox, unless that already happened.
    async fn forget(&self, lost: &Arc<Sandbox>) {
        let mut slot = self.slot.lock().await;
        if slot.open.as_ref().is_some_and(|open| Arc::ptr_eq(open, lost)) {
            slot.open = None;
            slot.is_same = false;
            self.expect_files();
            self.current.send_replace(None);
        }
    }
}

impl Bench for Workbench {
    async fn open(&self) -> Result<News, Trouble> {
        let mut slot = self.slot.lock().await;
        if slot.open.is_some() {
            return Ok(News::default());
        }
        let opening = match slot.opening.as_mut() {
            Some(opening) => opening,
            None => slot.opening.insert(self.opening()),
        };
        let opened = opening.await;
        slot.opening = None;
        let opened = opened.map_err(|_| Trouble::Away("opening it was stopped".to_owned()))??;
        slot.is_same = opened.how == How::Adopted;
        slot.open = Some(Arc::clone(&opened.sandbox));
        self.current.send_replace(Some(opened.sandbox));
        let had_sandbox = self.had_sandbox.swap(true, Ordering::Relaxed);
        Ok(verdict::news(opened.how, had_sandbox))
    }

    async fn run(&self, permit: Permit, tool: Tool) -> Result<Outcome, Trouble> {
        self.request(permit.call(), tool).await
    }

    async fn known(&self, call: EventId) -> Result<Known, Trouble> {
        let sandbox = self.sandbox().await?;
        allowed(&self.lease).await;
        match sandbox.known(&call.to_string()).await {
            Ok(sandbox::Known::Running | sandbox::Known::Done) => Ok(Known::Kept),
            Ok(sandbox::Known::Never) if self.slot.lock().await.is_same => Ok(Known::Never),
            Ok(sandbox::Known::Never) => Ok(Known::Unclear),
            Err(error) => Err(verdict::of_call(&error)),
        }
    }

    async fn collect(&self, call: EventId, tool: Tool) -> Result<Outcome, Trouble> {
        // The sandbox said that it knows the id, and a known id never begins again.
        self.request(call, tool).await
    }

    async fn cancel_all(&self) {
        if let Some(sandbox) = self.current() {
            sandbox.cancel_all().await;
        }
    }

    async fn acknowledge(&self, call: EventId) {
        if let Some(sandbox) = self.current() {
            sandbox.acknowledge(&call.to_string()).await;
        }
    }

    fn denials(&self) -> Vec<Body> {
        std::mem::take(&mut *self.denied())
    }
}

impl Place for Workbench {
    async fn begin(&self) {
        let mut slot = self.slot.lock().await;
        if slot.open.is_none() && slot.opening.is_none() {
            slot.opening = Some(self.opening());
        }
    }

    fn expect_files(&self) {
        self.had_sandbox.store(true, Ordering::Relaxed);
    }

    async fn for_capture(&self) -> News {
        // One that was begun and that nobody needed is waited for only briefly.
        {
            let slot = self.slot.lock().await;
            if slot.open.is_none() && slot.opening.is_none() {
                return News::default();
            }
        }
        let opened = if self.had_sandbox.load(Ordering::Relaxed) {
            self.open().await
        } else {
            tokio::time::timeout(UNNEEDED_WAIT, self.open()).await.unwrap_or_else(|_| Ok(News::default()))
        };
        opened.unwrap_or_default()
    }

    fn is_open(&self) -> bool {
        self.current().is_some()
    }

    async fn capture(&self, spool: &Path, limits: Limits) -> Option<Result<Capture, outputs::Error>> {
        let sandbox = self.current()?;
        Some(sandbox.capture(spool, limits).await)
    }

    async fn tend(&self) {
        let (mut current, mut lease) = (self.current.subscribe(), self.lease.clone());
        let mut is_frozen = false;
        loop {
            let sandbox = current.borrow_and_update().clone();
            let state = *lease.borrow_and_update();
            if let Some(sandbox) = &sandbox {
                is_frozen = keep(sandbox, state, is_frozen).await;
            }
            loop {
                tokio::select! {
                    changed = current.changed() => {
                        is_frozen = false;
                        if changed.is_ok() { break }
                    }
                    changed = lease.changed() => {
                        if changed.is_err() { std::future::pending::<()>().await; }
                        break;
                    }
                    denials = denials(sandbox.as_deref()) => self.denied().extend(denials),
                }
            }
        }
    }

    async fn stand_still(&self) {
        if let Some(sandbox) = self.current() {
            let told = sandbox.lease(0);
            if tokio::time::timeout(Duration::from_secs(2), told).await.is_err() {
                tracing::warn!(
                    container = sandbox.container(),
                    "the sandbox could not be told to stand still"
                );
            }
        }
    }

    async fn close(&self) {
        self.slot.lock().await.opening = None;
        if let Some(sandbox) = self.current.send_replace(None) {
            sandbox.close().await;
        }
    }

    async fn stop(&self) {
        let session = self.plan.session_id;
        if let Err(error) = self.docker.stop_session(session).await {
            tracing::warn!(%session, %error, "the sandbox of a cancelled session could not be stopped");
        }
    }
}

async fn denials(sandbox: Option<&Sandbox>) -> Vec<Body> {
    match sandbox {
        Some(sandbox) => sandbox.denials().await.into_iter().map(verdict::denial).collect(),
        None => std::future::pending().await,
    }
}

/// Applies the lease to the sandbox; whether it is frozen then.
async fn keep(sandbox: &Sandbox, state: State, is_frozen: bool) -> bool {
    let now = BootInstant::now();
    let (applied, freezes) = if state.allows(now) {
        let remaining_ms = state.remaining_ms(now);
        if is_frozen {
            (sandbox.thaw(remaining_ms).await, false)
        } else {
            sandbox.lease(remaining_ms).await;
            (Ok(()), false)
        }
    } else if is_frozen {
        (Ok(()), true)
    } else {
        (sandbox.freeze().await, true)
    };
    if let Err(error) = applied {
        log(&error, "the lease could not be applied to the sandbox");
    }
    freezes
}

/// Waits until something may be dispatched. A lost lease never allows anything again.
async fn allowed(lease: &watch::Receiver<State>) {
    let mut lease = lease.clone();
    loop {
        if lease.borrow_and_update().allows(BootInstant::now()) {
            return;
        }
        if lease.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

async fn open_patiently(
    docker: Docker,
    plan: Plan,
    lease: watch::Receiver<State>,
) -> Result<Opened, Trouble> {
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(15));
    let mut attempt = 0;
    loop {
        attempt += 1;
        allowed(&lease).await;
        let lease_ms = lease.borrow().remaining_ms(BootInstant::now());
        let open = Open {
            session_id: plan.session_id,
            epoch: plan.epoch,
            spec: plan.spec.clone(),
            lease_ms,
            keep_ms: plan.keep_ms,
        };
        match docker.open(open).await {
            Ok(opened) => return Ok(opened),
            Err(error) => {
                log(&error, "the sandbox could not be opened");
                let trouble = verdict::of_open(&error);
                if attempt >= OPEN_ATTEMPTS || matches!(trouble, Trouble::Hopeless(_)) {
                    return Err(trouble);
                }
            }
        }
        tokio::time::sleep(backoff.next(None)).await;
    }
}

fn log(error: &sandbox::Error, what: &str) {
    tracing::warn!(%error, detail = error.detail(), "{what}");
}
