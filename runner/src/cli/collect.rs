//! `gc`: the sandboxes of this runner that none of its claims holds. A running daemon does it itself, since it knows more
//! than its disk shows. A dry run only tells.

use super::{
    Gc,
    exit::{Exit, Failure},
};
use checkfu_runner::{
    config::Config,
    control::{Answer, Ask, Collected},
    identity::Identity,
    sandbox::Docker,
    settings::Settings,
    spools,
    state::State,
};

pub(crate) fn main(state: &State, settings: &Settings, arguments: &Gc) -> Result<Exit, Failure> {
    let sandboxes = match super::asked(state, &Ask::Gc { dry_run: arguments.dry_run })? {
        Some(Answer::Collected { sandboxes }) => sandboxes,
        Some(other) => return Err(super::unexpected(&other)),
        None => alone(state, settings, arguments.dry_run)?,
    };
    for one in &sandboxes {
        println!("{}  created {}  {}", one.session_id, one.created, one.verdict);
    }
    Ok(Exit::Success)
}

fn alone(state: &State, settings: &Settings, dry_run: bool) -> Result<Vec<Collected>, Failure> {
    let _lock = super::lock(state)?;
    let identity = Identity::load(state)?;
    let config = Config::from(settings).sandbox(state, identity.runner_id);
    let failed = |error: String| Failure::new(Exit::Failure, error);
    let known =
        spools::sessions(state).map_err(|error| failed(format!("the spools cannot be read: {error}")))?;
    let reaped = super::runtime()?
        .block_on(async { Docker::connect(config).await?.gc(&known, dry_run).await })
        .map_err(|error| failed(error.to_string()))?;
    Ok(reaped.iter().map(|one| Collected::of(one, dry_run)).collect())
}
