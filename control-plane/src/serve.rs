//! One server from its start to its end, used by the program and by tests alike: what is opened in which order, the key of
//! the first start, and what ends when.

use crate::{
    config::Config,
    dial::Reach,
    engine::{Engine, Settings},
    gateway::{
        Gateway,
        provider::{self, Address, Kind, Provider, Waits},
    },
    http::{self, Plane, listen},
    metrics,
    registry::{self, Registry},
    seal,
    store::{self, Store},
    supervisor::Supervisor,
    sweeps,
};
use checkfu_shared::{problem::Problem, secret::Secret, time::Clock};
use std::{
    fs,
    io::{self, Write},
    net::SocketAddr,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio::{net::TcpListener, sync::oneshot};
use tokio_util::sync::CancellationToken;

/// The name of the file that the first start writes the owner's key to.
pub const KEY_FILE: &str = "admin.key";
/// The name of the file that a running server holds locked.
const LOCK_FILE: &str = "lock";
/// The name of the file in the data directory that holds the log and all that follows from it.
pub const DATABASE_FILE: &str = "checkfu.db";

/// Why a server did not start, or did not go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The data directory or a file in it cannot be used.
    #[error("{} cannot be used", path.display())]
    DataDir {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Another server has the data directory.
    #[error("another server already uses {}", path.display())]
    InUse {
        /// The data directory.
        path: PathBuf,
    },
    /// The database cannot be used.
    #[error("the database cannot be used")]
    Store(#[from] store::Error),
    /// The state in the database cannot be used.
    #[error("the server cannot start")]
    Start(#[from] Problem),
    /// The model provider's address or key cannot be used.
    #[error("the model provider cannot be used")]
    Provider(#[from] provider::Error),
    /// Certificate or key cannot be used.
    #[error("TLS cannot be offered")]
    Tls(#[from] listen::TlsError),
    /// The address of the metrics cannot be listened on.
    #[error("metrics cannot be answered on {address}")]
    Metrics {
        /// Which.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A task that the server needs ended by itself.
    #[error("the task {0} ended by itself")]
    TaskDied(&'static str),
}

/// Serves on `listener` until `stop` is cancelled; returns when everything it started has ended.
///
/// # Errors
/// When the data directory or the database cannot be used, or a task that the server needs died.
pub async fn serve(
    config: Config,
    listener: TcpListener,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
) -> Result<(), Error> {
    serve_and_tell(config, listener, clock, stop, oneshot::channel().0).await
}

/// Like [`serve`]; `ready` hears once everything is open: the key of a first start is in its file by then.
///
/// # Errors
/// As [`serve`]; `ready` is dropped without a word when the start fails.
pub async fn serve_and_tell(
    config: Config,
    listener: TcpListener,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
    ready: oneshot::Sender<()>,
) -> Result<(), Error> {
    let tls = config.tls.as_ref().map(listen::acceptor).transpose()?;
    // Two servers over one log would each wake their own readers only. The lock ends with the process, however it ends.
    let lock = hold(&config.data_dir)?;
    let plane = open(config, clock, stop.clone()).await?;
    if ready.send(()).is_err() {
        tracing::trace!("nobody waits for the server to be ready");
    }
    let (grace, connections_max) = (plane.config.stop_grace, plane.config.connections_max);
    let (store, gateway) = (plane.store.clone(), plane.gateway.clone());
    let mut supervisor = Supervisor::new(stop.clone());
    if let Some(address) = plane.config.metrics {
        let listener =
            metrics::listener(address).await.map_err(|source| Error::Metrics { address, source })?;
        supervisor.start("metrics", metrics::serve(listener, plane.clone(), stop.clone()));
    }
    supervisor.start("store watch", watch_store(plane.clone()));
    supervisor.start("sweeps", sweeps::run(plane.engine.clone(), stop.clone()));
    let router = http::router(plane);
    supervisor.start("http", listen::serve(listener, tls, router, connections_max, stop, grace));
    let died = supervisor.watch().await;
    supervisor.join(grace * 2).await;
    gateway.close().await;
    tokio::task::spawn_blocking(move || store.close()).await.unwrap_or_else(|error| {
        tracing::error!(%error, "closing the database failed");
    });
    drop(lock);
    died.map_or(Ok(()), |task| Err(Error::TaskDied(task)))
}

fn make_dir(dir: &Path) -> Result<(), Error> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|source| Error::DataDir { path: dir.to_owned(), source })
}

/// Admits one server to the data directory, for as long as the file stays open.
fn hold(dir: &Path) -> Result<fs::File, Error> {
    make_dir(dir)?;
    let path = dir.join(LOCK_FILE);
    let opened = fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
    let file = opened.map_err(|source| Error::DataDir { path: path.clone(), source })?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(Error::InUse { path: dir.to_owned() }),
        Err(fs::TryLockError::Error(source)) => Err(Error::DataDir { path, source }),
    }
}

/// Opens everything a server works on.
pub(crate) async fn open(
    config: Config,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
) -> Result<Plane, Error> {
    make_dir(&config.data_dir)?;
    let store = Store::open(&config.data_dir.join(DATABASE_FILE))?;
    assemble(config, store, clock, stop).await
}

/// Everything a server works on, over a store that is open already.
///
/// # Errors
/// As [`serve`].
pub async fn assemble(
    config: Config,
    store: Store,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
) -> Result<Plane, Error> {
    let dir = config.data_dir.clone();
    let Config { tempo, compact_at_percent, .. } = config;
    let settings = Settings { data_dir: dir.clone(), tempo, compact_at_percent };
    let engine = Engine::open(store.clone(), clock.clone(), settings).await?;
    let gateway = Gateway::new(config.model_key.clone().map(|key| provider(&config, key)).transpose()?);
    let registry =
        Registry::open(store.clone(), &dir, &config.master_keys).await.map_err(|error| match error {
            registry::OpenError::Store(problem) => Error::Start(problem),
            registry::OpenError::Key(source) => Error::DataDir { path: dir.join(seal::FILE), source },
        })?;
    first_start(&registry, &dir, clock.as_ref()).await?;
    Ok(Plane { engine, registry, gateway, store, clock, config: Arc::new(config), stop })
}

fn provider(config: &Config, key: Secret) -> Result<Provider, provider::Error> {
    let (base_url, key) = (config.model_base_url.as_str(), Some(key));
    Provider::new(Address { kind: Kind::Anthropic, base_url, key, reach: Reach::Private }, Waits::default())
}

/// Makes the workspace, its owner and the owner's key. The file is written before the key becomes good, so that a crash
/// in between leaves a useless file and no lost key.
async fn first_start(registry: &Registry, dir: &Path, clock: &dyn Clock) -> Result<(), Error> {
    if registry.is_started().await? {
        return Ok(());
    }
    let key = Registry::mint_key()?;
    let path = dir.join(KEY_FILE);
    write_secret(&path, &key).map_err(|source| Error::DataDir { path: path.clone(), source })?;
    registry.first_start(&key, clock.now()).await?;
    tracing::info!(path = %path.display(), "first start: the owner's API key is in this file");
    Ok(())
}

fn write_secret(path: &Path, secret: &Secret) -> io::Result<()> {
    let part = path.with_extension("part");
    match fs::remove_file(&part) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part)?;
    file.write_all(secret.reveal().as_bytes())?;
    file.write_all(b"\n")?;
    file.sync_all()?;
    fs::rename(&part, path)?;
    path.parent().map_or(Ok(()), |dir| fs::File::open(dir)?.sync_all())
}

/// Ends, and so stops the server, when nothing can be made durable any more.
async fn watch_store(plane: Plane) {
    let mut tick = tokio::time::interval(std::time::Duration::from_secs(1));
    loop {
        tokio::select! {
            () = plane.stop.cancelled() => return,
            _ = tick.tick() => {
                if plane.store.failed() {
                    tracing::error!("the database failed; the server stops so that its next start sees what is durable");
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use checkfu_shared::time::SystemClock;

    #[tokio::test]
    async fn one_data_directory_admits_one_server_until_it_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = dir.path().join("data");
        let lock = hold(&data_dir).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stop = CancellationToken::new();
        let second = serve(Config::new(&data_dir), listener, Arc::new(SystemClock), stop).await;
        assert!(matches!(second, Err(Error::InUse { path }) if path == data_dir));
        assert!(!data_dir.join(DATABASE_FILE).exists(), "nothing was touched");
        drop(lock);
        hold(&data_dir).unwrap();
    }
}
