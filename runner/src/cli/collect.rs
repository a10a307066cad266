//! `gc`: the sandboxes of this runner that none of its claims holds. A dry run only tells.

use super::{
    Gc,
    exit::{Exit, Failure},
};
use checkfu_runner::{
    config::Config,
    identity::Identity,
    sandbox::{Docker, reaper::Verdict},
    spools,
    state::State,
};

pub(crate) fn main(state: &State, arguments: &Gc) -> Result<Exit, Failure> {
    // A running daemon knows more than its disk shows; only looking is always allowed.
    let _lock = if arguments.dry_run { None } else { Some(super::lock(state)?) };
    let identity = Identity::load(state)?;
    let config = Config::default().sandbox(state, identity.runner_id);
    let failed = |error: String| Failure::new(Exit::Failure, error);
    let known =
        spools::sessions(state).map_err(|error| failed(format!("the spools cannot be read: {error}")))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| failed(format!("the system gives no event queue: {error}")))?;
    let reaped = runtime
        .block_on(async { Docker::connect(config).await?.gc(&known, arguments.dry_run).await })
        .map_err(|error| failed(error.to_string()))?;
    for one in &reaped {
        let verdict = match (one.verdict, arguments.dry_run) {
            (Verdict::Kept, _) => "kept: a claim holds it",
            (Verdict::Young, _) => "kept: too young to judge",
            (Verdict::Removed, true) => "would be removed",
            (Verdict::Removed, false) => "removed",
        };
        println!("{}  created {}  {verdict}", one.listed.session_id, one.listed.created);
    }
    Ok(Exit::Success)
}
