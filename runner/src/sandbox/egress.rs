//! The only way out of a sandbox: a proxy on a unix socket that the sandbox sees and nobody else does.
//! The socket is the identity. Decisions use the socket and the requested authority alone; names are resolved here,
//! every address is checked, and the checked address is what is dialled.

mod address;
mod authority;
mod denied;
mod dial;
mod hello;
mod policy;
mod serve;

pub use address::is_public;
pub use denied::{Denial, Reason};

use super::error::Error;
use checkfu_shared::environment::Network;
use denied::Denials;
use policy::Policy;
use std::{
    fs, io,
    net::IpAddr,
    os::{fd::AsRawFd as _, unix::fs::PermissionsExt as _},
    path::Path,
    sync::Arc,
};
use tokio::{net::UnixListener, sync::Semaphore};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// The socket's name in its directory.
pub const SOCKET: &str = "proxy.sock";
/// Connections of one sandbox at a time; more wait.
const MAX_CONNECTIONS: usize = 64;

/// What the proxies of this runner may reach beyond public addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reach {
    /// Exact addresses that are exempt from the check against private ranges, such as an internal mirror. An
    /// environment must still list the host.
    pub exempt: Vec<IpAddr>,
}

/// A running proxy. It ends with the token it was started with.
#[derive(Debug)]
pub(super) struct Proxy {
    denials: Arc<Denials>,
}

impl Proxy {
    /// Listens in `directory`, which is made, and serves until `closed`.
    pub(super) async fn start(
        network: &Network,
        reach: &Reach,
        directory: &Path,
        tasks: &TaskTracker,
        closed: &CancellationToken,
    ) -> Result<Self, Error> {
        let directory = directory.to_owned();
        let listener = tokio::task::spawn_blocking(move || listen(&directory)).await;
        let failed = |error: &dyn std::fmt::Display| Error::host("listen for a sandbox's proxy", error);
        let listener = listener.map_err(|error| failed(&error))?.map_err(|error| failed(&error))?;
        let listener = UnixListener::from_std(listener).map_err(|error| failed(&error))?;
        let denials = Arc::new(Denials::default());
        let desk = Arc::new(serve::Desk {
            policy: Policy::of(network),
            reach: reach.clone(),
            denials: denials.clone(),
            tasks: tasks.clone(),
            closed: closed.clone(),
        });
        tasks.spawn(accept(listener, desk));
        Ok(Self { denials })
    }

    /// What was refused since the last time; waits for the first.
    pub(super) async fn denials(&self) -> Vec<Denial> {
        self.denials.take().await
    }
}

async fn accept(listener: UnixListener, desk: Arc<serve::Desk>) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let next = async {
            let slot = slots.clone().acquire_owned().await.ok()?;
            Some((slot, listener.accept().await))
        };
        let next = tokio::select! {
            () = desk.closed.cancelled() => return,
            next = next => next,
        };
        match next {
            Some((slot, Ok((stream, _)))) => {
                let desk = desk.clone();
                desk.tasks.clone().spawn(async move {
                    serve::connection(desk, stream).await;
                    drop(slot);
                });
            }
            Some((_, Err(error))) => {
                tracing::warn!(%error, "a sandbox's proxy could not accept");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
            None => return,
        }
    }
}

/// Binds the socket, replacing one that an earlier runner left. The parent is ours alone; the socket itself must be
/// open to the sandbox's user, whose number on this host may be anything.
fn listen(directory: &Path) -> io::Result<std::os::unix::net::UnixListener> {
    if let Some(parent) = directory.parent() {
        fs::create_dir_all(parent)?;
        fs::set_permissions(parent, fs::Permissions::from_mode(0o700))?;
    }
    fs::create_dir_all(directory)?;
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755))?;
    let socket = directory.join(SOCKET);
    match fs::remove_file(&socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // A socket's path is bounded to some hundred bytes; through the open directory it is always short.
    let opened = fs::File::open(directory)?;
    let listener =
        std::os::unix::net::UnixListener::bind(format!("/proc/self/fd/{}/{SOCKET}", opened.as_raw_fd()))?;
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o666))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

#[cfg(test)]
mod tests;
