//! Watches Docker and the disk: connects, checks that sandboxes can be confined and spools written, stops sandboxes that
//! nobody uses. While something is missing the runner claims nothing and says why; it heals by itself.

use super::{
    disk,
    executor::{Executor, Readiness},
};
use crate::{
    claim::Held,
    sandbox::{self, Docker, Reaped},
    session::{self, Ended},
    spools,
    state::State,
};
use checkfu_shared::id::SessionId;
use futures_util::future::BoxFuture;
use std::{path::PathBuf, sync::Arc, time::Duration};
use tokio::{sync::watch, task::JoinHandle};

const CHECK_READY: Duration = Duration::from_secs(30);
const CHECK_AWAY: Duration = Duration::from_secs(3);

/// Runs one claim in a sandbox of this Docker.
pub type Run = fn(Held, Docker) -> BoxFuture<'static, Ended>;

/// How much has to be free where.
#[derive(Debug, Clone)]
pub struct Room {
    /// Where spools are written.
    pub state_dir: PathBuf,
    /// Bytes that have to be free there before work is taken.
    pub free_bytes_min: u64,
}

/// What runs claims of a real runner: the session executor.
#[must_use]
pub fn session(held: Held, docker: Docker) -> BoxFuture<'static, Ended> {
    let keep_ms = held.plane.tempo().keep_ms;
    Box::pin(session::run(held, session::Deps { docker, keep_ms }))
}

/// The executor over Docker, and the task that watches it and the disk. Call it within a runtime.
#[must_use]
pub fn executor(state: State, config: sandbox::Config, room: Room, run: Run) -> (Executor, JoinHandle<()>) {
    let (found, docker) = watch::channel(None::<Docker>);
    let (readiness, ready) = watch::channel(Err("Docker is being asked".to_owned()));
    let watching = tokio::spawn(watch(config, room, found, readiness));
    let (for_run, for_dispose, for_list, for_collect) =
        (docker.clone(), docker.clone(), docker.clone(), docker);
    let executor = Executor {
        run: Arc::new(move |held| {
            let mut docker = for_run.clone();
            Box::pin(async move {
                // A recovered claim may be earlier than the first connection; its sandbox stands still meanwhile.
                let found = docker.wait_for(Option::is_some).await.map(|found| found.clone());
                match found {
                    Ok(Some(docker)) => run(held, docker).await,
                    Ok(None) | Err(_) => Ended::Unsettled,
                }
            })
        }),
        dispose: Arc::new(move |session| {
            let docker = for_dispose.borrow().clone();
            Box::pin(dispose(docker, session))
        }),
        list: Arc::new(move || {
            let docker = for_list.borrow().clone();
            Box::pin(list(docker))
        }),
        collect: Arc::new(move |dry_run| {
            let docker = for_collect.borrow().clone();
            Box::pin(collect(state.clone(), docker, dry_run))
        }),
        ready,
    };
    (executor, watching)
}

async fn dispose(docker: Option<Docker>, session: SessionId) {
    let Some(docker) = docker else { return };
    if let Err(error) = docker.remove_session(session).await {
        tracing::warn!(%session, %error, "a sandbox cannot be removed now; the inventory asks again");
    }
}

async fn list(docker: Option<Docker>) -> Option<Vec<SessionId>> {
    match docker?.list().await {
        Ok(listed) => Some(listed.into_iter().map(|listed| listed.session_id).collect()),
        Err(error) => {
            tracing::warn!(%error, "the sandboxes cannot be listed");
            None
        }
    }
}

async fn collect(state: State, docker: Option<Docker>, dry_run: bool) -> Result<Vec<Reaped>, String> {
    let docker = docker.ok_or("Docker is away; `checkfu-runner doctor` may tell why")?;
    let known = tokio::task::spawn_blocking(move || spools::sessions(&state)).await;
    let known = known.map_err(|error| error.to_string())?;
    let known = known.map_err(|error| format!("the spools cannot be read: {error}"))?;
    docker.gc(&known, dry_run).await.map_err(|error| error.to_string())
}

async fn watch(
    config: sandbox::Config,
    room: Room,
    found: watch::Sender<Option<Docker>>,
    readiness: watch::Sender<Readiness>,
) {
    loop {
        let checked = match check(&config, &found).await {
            Ok(()) => disk::check(&room.state_dir, room.free_bytes_min),
            missing => missing,
        };
        let wait = if checked.is_ok() { CHECK_READY } else { CHECK_AWAY };
        readiness.send_if_modified(|before| {
            let changed = *before != checked;
            match &checked {
                Ok(()) if changed => tracing::info!("Docker is ready and the disk has room"),
                Err(reason) if changed => {
                    tracing::warn!(%reason, "no sandboxes can be made, so no work is taken")
                }
                _ => {}
            }
            *before = checked;
            changed
        });
        tokio::time::sleep(wait).await;
    }
}

async fn check(config: &sandbox::Config, found: &watch::Sender<Option<Docker>>) -> Readiness {
    let known = found.borrow().clone();
    let docker = match known {
        Some(docker) => docker,
        None => Docker::connect(config.clone()).await.map_err(|error| error.to_string())?,
    };
    let report = docker.preflight().await.map_err(|error| error.to_string())?;
    if !report.missing.is_empty() {
        tracing::debug!(missing = ?report.missing, "Docker ignores limits, which was accepted");
    }
    found.send_if_modified(|found| found.is_none().then(|| *found = Some(docker.clone())).is_some());
    match docker.stop_idle().await {
        Ok(stopped) if !stopped.is_empty() => {
            tracing::info!(?stopped, "unused sandboxes are stopped, their files stay")
        }
        Ok(_) => {}
        Err(error) => tracing::debug!(%error, "unused sandboxes cannot be stopped now"),
    }
    Ok(())
}
