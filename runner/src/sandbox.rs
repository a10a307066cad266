//! The container of a session: made, found again, spoken with, frozen, emptied of its outputs and removed.
//! Everything here touches only containers that carry our own instance label. EOF alone never counts as success,
//! and a call never runs twice.

mod calls;
mod container;
pub mod egress;
mod elf;
mod engine;
mod error;
mod hold;
mod image;
mod layout;
mod link;
mod opening;
mod packages;
pub mod preflight;
pub mod reaper;
pub mod spec;

pub use container::{Known, Request, Sandbox};
pub use error::Error;
pub use reaper::{Listed, Reaped};

use checkfu_shared::{environment, id::SessionId, time::Clock};
pub(crate) use engine::Engine;
use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, Weak, atomic::AtomicBool},
};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

/// The image used when an environment names none.
pub const DEFAULT_IMAGE: &str = "checkfu/sandbox:default";

/// What the sandbox side needs to know about this runner.
#[derive(Debug, Clone)]
pub struct Config {
    /// Docker's unix socket; `None` is `DOCKER_HOST`, else `/var/run/docker.sock`.
    pub socket: Option<PathBuf>,
    /// Whose containers these are. It must survive restarts of the runner: its identity, not its start.
    pub instance: String,
    /// The static toolbox on this host, as the Docker daemon sees it. The path must stay valid while sandboxes live.
    pub toolbox: PathBuf,
    /// A private directory for proxy sockets, as the Docker daemon sees it.
    pub state_dir: PathBuf,
    /// The image used when an environment names none.
    pub default_image: String,
    /// Another OCI runtime, such as `runsc`.
    pub runtime: Option<String>,
    /// Accept a host that ignores memory or process limits.
    pub accept_missing_limits: bool,
    /// What the egress proxy may reach beyond public addresses.
    pub reach: egress::Reach,
    /// Where creation instants come from.
    pub clock: Arc<dyn Clock>,
}

/// A request for a session's sandbox.
#[derive(Debug, Clone)]
pub struct Open {
    /// The session.
    pub session_id: SessionId,
    /// The claim's epoch; the toolbox refuses older ones than it has seen.
    pub epoch: u64,
    /// What the sandbox is made of.
    pub spec: environment::Spec,
    /// Milliseconds until the toolbox stops everything unless the lease is renewed.
    pub lease_ms: u64,
    /// Milliseconds after that until it kills everything.
    pub keep_ms: u64,
}

/// A sandbox that answers.
#[derive(Debug)]
pub struct Opened {
    /// The sandbox.
    pub sandbox: Arc<Sandbox>,
    /// How it came to be.
    pub how: How,
}

/// How a sandbox came to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum How {
    /// A new container.
    Created {
        /// The id of the image it started from.
        image: String,
    },
    /// It was running: processes and files are as they were.
    Adopted,
    /// It had exited and was started again: files are as they were, processes are gone.
    Restarted,
    /// It could not be used again; nothing of it is left.
    Replaced {
        /// Why, in words.
        reason: String,
    },
}

/// The Docker daemon, as far as it concerns our own sandboxes. Clones share everything.
#[derive(Debug, Clone)]
pub struct Docker {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    engine: Engine,
    config: Config,
    slots: Mutex<HashMap<SessionId, Slot>>,
    tasks: TaskTracker,
    /// One installation of packages at a time.
    installs: tokio::sync::Mutex<()>,
    /// Sandboxes of our own making that belong to no session.
    unlisted: Mutex<HashSet<SessionId>>,
    since: Instant,
    /// Set once the daemon has refused to give a sandbox more open files than it has itself.
    few_files: AtomicBool,
}

/// What this process knows of one session's container.
#[derive(Debug)]
struct Slot {
    gate: Arc<tokio::sync::Mutex<()>>,
    live: Weak<Sandbox>,
    used: Instant,
}

impl Docker {
    /// Connects to the daemon and agrees on an API version.
    ///
    /// # Errors
    /// [`Error::NoSocket`], [`Error::SocketDenied`] or [`Error::Unavailable`] when there is no daemon to talk to.
    pub async fn connect(config: Config) -> Result<Self, Error> {
        let engine = Engine::connect(config.socket.as_deref()).await?;
        let slots = Mutex::new(HashMap::new());
        Ok(Self {
            inner: Arc::new(Inner {
                engine,
                config,
                slots,
                tasks: TaskTracker::new(),
                installs: tokio::sync::Mutex::default(),
                unlisted: Mutex::default(),
                since: Instant::now(),
                few_files: AtomicBool::new(false),
            }),
        })
    }

    /// Checks that this host can confine a sandbox under the wanted runtime, and that the toolbox can be one.
    ///
    /// # Errors
    /// [`Error::Unsafe`] names what the host ignores; [`Error::NoRuntime`]; [`Error::NoToolbox`] or [`Error::BadToolbox`] when
    /// the helper is missing or is something else.
    pub async fn preflight(&self) -> Result<preflight::Report, Error> {
        let toolbox = &self.inner.config.toolbox;
        if !tokio::fs::metadata(toolbox).await.is_ok_and(|found| found.is_file()) {
            return Err(Error::NoToolbox { path: toolbox.clone() });
        }
        if let Err(defect) = look_at(toolbox).await {
            return Err(Error::BadToolbox { path: toolbox.clone(), defect });
        }
        let info = self.inner.engine.info().await?;
        preflight::has_runtime(&info, self.inner.config.runtime.as_deref())?;
        preflight::judge(&info, self.inner.config.accept_missing_limits)
    }

    /// What the daemon says of itself, for whoever judges it.
    ///
    /// # Errors
    /// Those of the daemon.
    pub async fn facts(&self) -> Result<preflight::Facts, Error> {
        let engine = &self.inner.engine;
        let (info, api) = (engine.info().await?, engine.api());
        let report = preflight::judge(&info, true)?;
        Ok(preflight::Facts {
            engine: report.engine,
            api,
            cgroups: info.cgroup_version.map(|version| version.to_string()),
            rootless: report.rootless,
            missing: report.missing,
        })
    }

    /// Detaches from every sandbox and waits for the tasks that served them. The containers go on.
    pub async fn close(&self) {
        let live: Vec<_> = self.slots().values().filter_map(|slot| slot.live.upgrade()).collect();
        for sandbox in live {
            sandbox.close().await;
        }
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
    }

    fn slots(&self) -> std::sync::MutexGuard<'_, HashMap<SessionId, Slot>> {
        self.inner.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unlisted(&self) -> std::sync::MutexGuard<'_, HashSet<SessionId>> {
        self.inner.unlisted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a sandbox out of every list until the guard is dropped.
    fn unlist(&self, session: SessionId) -> impl Drop + Send + use<> {
        self.unlisted().insert(session);
        Unlisted { docker: self.clone(), session }
    }

    /// The lock that keeps two changes of one session's container apart.
    fn gate(&self, session: SessionId) -> Arc<tokio::sync::Mutex<()>> {
        let mut slots = self.slots();
        let slot = slots.entry(session).or_insert_with(|| Slot {
            gate: Arc::default(),
            live: Weak::new(),
            used: Instant::now(),
        });
        slot.used = Instant::now();
        slot.gate.clone()
    }

    /// Closes the handle that is open now, if any. To be called behind the gate.
    async fn close_open(&self, session: SessionId) {
        let live = self.slots().get(&session).and_then(|slot| slot.live.upgrade());
        if let Some(live) = live {
            live.close().await;
        }
    }
}

struct Unlisted {
    docker: Docker,
    session: SessionId,
}

impl Drop for Unlisted {
    fn drop(&mut self) {
        self.docker.unlisted().remove(&self.session);
    }
}

/// Whether the file can be a toolbox; otherwise what is wrong with it.
async fn look_at(toolbox: &std::path::Path) -> Result<(), &'static str> {
    use tokio::io::AsyncReadExt as _;
    let unread = "cannot be read";
    let file = tokio::fs::File::open(toolbox).await.map_err(|_| unread)?;
    let mut head = Vec::new();
    file.take(elf::LOOK_BYTES).read_to_end(&mut head).await.map_err(|_| unread)?;
    elf::judge(&head)
}
