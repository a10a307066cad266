//! Why a sandbox could not do what it was asked. The daemon's own words stay out of what is displayed: they may name
//! paths of the host; they are kept for the log in `detail`.

use std::path::PathBuf;

/// Why a sandbox could not do what it was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// Docker's socket does not exist.
    #[error("there is no Docker socket at {path}; start Docker or set DOCKER_HOST to where it listens")]
    NoSocket {
        /// Where it was looked for.
        path: String,
    },
    /// Docker's socket may not be opened by this user.
    #[error(
        "the Docker socket {path} may not be opened by this user; add the user to the group that owns it"
    )]
    SocketDenied {
        /// The socket.
        path: String,
    },
    /// `DOCKER_HOST` names something other than a unix socket.
    #[error(
        "DOCKER_HOST is {value:?}; only unix:// sockets are supported, because sandboxes mount files of this host"
    )]
    NotLocal {
        /// The value.
        value: String,
    },
    /// The daemon does not answer.
    #[error("the Docker daemon does not answer; check that it runs, then try again")]
    Unavailable {
        /// For the log.
        detail: String,
    },
    /// The daemon refused or failed.
    #[error("Docker could not {action}")]
    Engine {
        /// What was asked of it.
        action: &'static str,
        /// Its HTTP status, when there was an answer.
        status: Option<u16>,
        /// For the log.
        detail: String,
    },
    /// The host ignores limits that a sandbox depends on.
    #[error(
        "this Docker host ignores {missing}; use a host that enforces it, or accept missing limits by name"
    )]
    Unsafe {
        /// What it ignores.
        missing: String,
    },
    /// What lies in the toolbox's place cannot be it.
    #[error(
        "{path}, given as the toolbox, {defect}; give --toolbox the static checkfu-toolbox of this machine that \
         packaging/toolbox.sh builds"
    )]
    BadToolbox {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        defect: &'static str,
    },
    /// Docker does not have the runtime that sandboxes are to run under.
    #[error(
        "Docker has no runtime {name:?}, it has {known}; set it up in Docker or choose another --runtime"
    )]
    NoRuntime {
        /// The wanted one.
        name: String,
        /// Those it has.
        known: String,
    },
    /// The toolbox is not where it should be.
    #[error("the toolbox is missing at {path}; build it with packaging/toolbox.sh or reinstall the runner")]
    NoToolbox {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The image is neither here nor in its registry.
    #[error(
        "the image {image:?} was not found; build or pull it on this machine, or correct the environment's image"
    )]
    ImageNotFound {
        /// The reference.
        image: String,
    },
    /// The image could not be fetched.
    #[error(
        "the image {image:?} could not be pulled; check the registry and its credentials on this machine"
    )]
    ImagePull {
        /// The reference.
        image: String,
        /// For the log.
        detail: String,
    },
    /// The pull made no progress.
    #[error(
        "pulling the image {image:?} made no progress for {seconds} s; check the network, or pull it by hand"
    )]
    ImageStalled {
        /// The reference.
        image: String,
        /// How long was waited.
        seconds: u64,
    },
    /// An environment's packages could not be installed.
    #[error(
        "{installer} could not install the environment's packages; correct their names, or let the environment reach \
             where they come from. It ended with: {said}"
    )]
    Packages {
        /// Which installer.
        installer: &'static str,
        /// Its last words.
        said: String,
    },
    /// A container that is not ours has our name.
    #[error("a container named {name} exists and is not this session's; rename or remove it")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// The container is gone, or its first process ended.
    #[error("the sandbox is gone; what ran in it and was not captured is lost")]
    Lost,
    /// The toolbox ended as soon as it was started.
    #[error(
        "the toolbox ended as soon as it was started; check that the image is for this machine's processor, and that the \
             toolbox is of this runner's version: build it again with packaging/toolbox.sh or reinstall the runner"
    )]
    ToolboxEnded,
    /// The sandbox does not answer although its container runs.
    #[error("the sandbox does not answer; it is stopped at the end of its lease")]
    Unresponsive,
    /// The sandbox sent something that is no message; the connection was reset.
    #[error("the sandbox sent {what}; the connection was reset")]
    Hostile {
        /// What was wrong, without its content.
        what: String,
    },
    /// The session is frozen; no call starts until it is thawed.
    #[error("the sandbox is frozen until the lease is renewed")]
    Frozen,
    /// The toolbox holds no lease.
    #[error("the sandbox holds no lease")]
    LeaseEnded,
    /// A newer epoch has spoken to this sandbox.
    #[error("a newer claim holds the sandbox")]
    StaleEpoch,
    /// Too many calls run or wait.
    #[error("too many calls run in the sandbox; wait for one to end")]
    Busy,
    /// The call ran before and its result was acknowledged.
    #[error("the call ran before and its result was handed over")]
    AlreadyAcknowledged,
    /// The call's id, thread or input is not acceptable.
    #[error("the call has an empty or too long id, thread or input")]
    BadCall,
    /// This handle was closed, for example because a newer claim opened the sandbox.
    #[error("the sandbox was closed by its holder")]
    Closed,
    /// Files of the runner could not be used.
    #[error("the runner could not {action}")]
    Host {
        /// What it tried.
        action: &'static str,
        /// For the log.
        detail: String,
    },
}

impl Error {
    pub(crate) fn host(action: &'static str, error: &dyn std::fmt::Display) -> Self {
        Self::Host { action, detail: error.to_string() }
    }

    /// What the daemon or the system said, for the log only.
    #[must_use]
    pub fn detail(&self) -> Option<&str> {
        match self {
            Self::Unavailable { detail }
            | Self::Engine { detail, .. }
            | Self::ImagePull { detail, .. }
            | Self::Host { detail, .. } => Some(detail),
            _ => None,
        }
    }
}
