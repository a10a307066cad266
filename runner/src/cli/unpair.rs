//! `unpair`: the control plane revokes this runner first, then nothing of it stays on this machine.

use super::{
    Unpair,
    exit::{Exit, Failure},
};
use checkfu_runner::{
    config::Config,
    identity::Identity,
    pairing,
    plane::{self, Plane},
    sandbox::Docker,
    settings::Settings,
    state::State,
};
use checkfu_shared::id::InstanceId;
use std::sync::Arc;

pub(crate) fn main(state: &State, settings: &Settings, arguments: &Unpair) -> Result<Exit, Failure> {
    let lock = super::lock(state).map_err(|_| {
        Failure::new(
            Exit::AlreadyRunning,
            "the daemon runs; stop it first, then run `checkfu-runner unpair` again",
        )
    })?;
    let config = Config::from(settings);
    match Identity::load(state) {
        Ok(identity) => {
            let identity = Arc::new(identity);
            let runtime = super::runtime()?;
            if !arguments.local {
                runtime.block_on(revoke(&identity, &config))?;
            }
            runtime.block_on(dispose(state, &identity, &config))?;
        }
        // What cannot be read cannot be revoked from here either, and is no reason to keep it.
        Err(checkfu_runner::identity::Error::Damaged { .. }) if arguments.local => {}
        Err(error) => return Err(error.into()),
    }
    state.empty()?;
    drop(lock);
    println!(
        "{}",
        if arguments.local {
            "This runner is forgotten here. Revoke it at the control plane too: checkfu runners revoke ID"
        } else {
            "The control plane revoked this runner, and nothing of it is left here."
        }
    );
    Ok(Exit::Success)
}

pub(super) async fn revoke(identity: &Arc<Identity>, config: &Config) -> Result<(), Failure> {
    let made =
        Plane::new(Arc::clone(identity), InstanceId::mint(), pairing::this_host(), config.ca.as_deref());
    let (plane, keeper) = made.map_err(|error| Failure::new(Exit::Usage, error))?;
    let keeping = tokio::spawn(keeper.run());
    let revoked = plane.unpair().await;
    keeping.abort();
    let _ = keeping.await;
    match revoked {
        Ok(()) | Err(plane::Error::Revoked) => Ok(()),
        Err(error) => {
            let message = format!(
                "{error}; nothing was changed. `unpair --local` forgets this runner without the control plane"
            );
            Err(Failure::new(Exit::Unreachable, message))
        }
    }
}

pub(super) async fn dispose(state: &State, identity: &Identity, config: &Config) -> Result<(), Failure> {
    let failed = |error: checkfu_runner::sandbox::Error| {
        let message =
            format!("the sandboxes of this runner cannot be removed, so its identity is kept: {error}");
        Failure::new(Exit::Failure, message)
    };
    let docker = match Docker::connect(config.sandbox(state, identity.runner_id)).await {
        Ok(docker) => docker,
        // Without a daemon on this machine there is no sandbox on it either.
        Err(checkfu_runner::sandbox::Error::NoSocket { .. }) => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    for listed in docker.list().await.map_err(failed)? {
        docker.remove_session(listed.session_id).await.map_err(failed)?;
    }
    Ok(())
}
