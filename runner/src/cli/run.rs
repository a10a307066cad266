//! `run`: the daemon in the foreground, logging to the error stream.

use super::{
    Run,
    exit::{Exit, Failure},
};
use checkfu_runner::{
    config::Config,
    identity::Identity,
    pairing,
    state::State,
    supervisor::{self, Signals, Start},
};
use std::{io::IsTerminal as _, sync::Arc, time::Duration};
use tracing_subscriber::EnvFilter;

pub(crate) fn main(state: State, arguments: Run) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Failure, format!("the system gives no threads: {error}")))?;
    let signals = {
        let _within = runtime.enter();
        Signals::listen().map_err(supervisor::Error::from)?
    };
    let lock = super::lock(&state)?;
    let identity = Arc::new(Identity::load(&state)?);
    let config = Config {
        max_sessions: arguments.max_sessions,
        toolbox: arguments.toolbox,
        image: arguments.image,
        runtime: arguments.runtime,
        accept_missing_limits: arguments.accept_missing_limits,
        reach: arguments.reach,
        ca: arguments.ca,
        labels: arguments.labels,
        drain: Duration::from_secs(arguments.drain_seconds),
    };
    log();
    let finished = runtime.block_on(async {
        let sandbox = config.sandbox(&state, identity.runner_id);
        let room = supervisor::docker::Room {
            state_dir: state.path().to_owned(),
            free_bytes_min: arguments.min_free_mib.saturating_mul(1 << 20),
        };
        let (executor, watching) = supervisor::docker::executor(sandbox, room, supervisor::docker::session);
        let start = Start { state, identity, config, machine: pairing::this_host(), signals };
        let finished = supervisor::run(start, executor).await;
        watching.abort();
        let _ = watching.await;
        finished
    })?;
    // Tasks that still hang on a dead Docker or disk must not hold the process.
    runtime.shutdown_timeout(Duration::from_secs(1));
    drop(lock);
    if finished == supervisor::Finished::IdentityInUse {
        let message = "another machine runs under this identity; this one stops. If it was copied, pair one of them anew";
        return Err(Failure::new(Exit::IdentityInUse, message));
    }
    Ok(finished.into())
}

pub(super) fn log() {
    let filter = EnvFilter::try_from_env("CHECKFU_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let terminal = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(terminal).init();
}
