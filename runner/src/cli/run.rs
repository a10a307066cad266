//! `run`: the daemon in the foreground, logging to the error stream.

use super::exit::{Exit, Failure};
use checkfu_runner::{
    config::Config,
    identity::Identity,
    mask::{LENGTH_MIN, Masker, sources},
    pairing,
    settings::Settings,
    state::State,
    supervisor::{self, Signals, Start},
};
use std::{io::IsTerminal as _, num::NonZeroU32, sync::Arc, time::Duration};
use tracing_subscriber::EnvFilter;

pub(crate) fn main(state: State, settings: &Settings, once: Option<Duration>) -> Result<Exit, Failure> {
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
    let mut config = Config::from(settings);
    config.once = once;
    if once.is_some() {
        config.max_sessions = Some(NonZeroU32::MIN);
    }
    log(config.json_log);
    config.mask = mask(&config, &identity)?;
    let finished = runtime.block_on(async {
        let sandbox = config.sandbox(&state, identity.runner_id);
        let room = supervisor::docker::Room {
            state_dir: state.path().to_owned(),
            free_bytes_min: u64::from(config.min_free_mib) << 20,
        };
        let (executor, watching) =
            supervisor::docker::executor(state.clone(), sandbox, room, supervisor::docker::session);
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

fn mask(config: &Config, identity: &Identity) -> Result<Masker, Failure> {
    let lines = match config.mask_file.as_deref() {
        Some(path) => sources::file(path).map_err(|error| {
            Failure::new(Exit::Usage, format!("the mask file {} cannot be read: {error}", path.display()))
        })?,
        None => String::new(),
    };
    let own = sources::proxies(std::env::vars());
    let secrets = lines.lines().chain(own.iter().map(String::as_str));
    let (mask, short) = Masker::new(secrets.chain([identity.key.document().reveal()]));
    if short > 0 {
        tracing::warn!(
            short,
            "secrets of fewer than {LENGTH_MIN} bytes are not masked: they would hide ordinary text"
        );
    }
    Ok(mask)
}

pub(super) fn log(json: bool) {
    let filter = EnvFilter::try_from_env("CHECKFU_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let terminal = std::io::stderr().is_terminal();
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(terminal);
    if json {
        builder.json().init();
    } else {
        builder.init();
    }
}
