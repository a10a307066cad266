//! `run --once`, for hosts that live as long as one job: pair by a code, run exactly one session, leave nothing behind.

use super::{
    exit::{Exit, Failure},
    pair, run, unpair,
};
use checkfu_runner::{
    config::Config,
    identity::{self, Identity},
    pairing,
    plane::Address,
    settings::Settings,
    state::State,
};
use checkfu_shared::id::InstanceId;
use std::{path::PathBuf, sync::Arc, time::Duration};

/// Where the code of a pairing may be, besides a file.
const CODE: &str = "CHECKFU_RUNNER_PAIRING_CODE";

/// What `run` is told when it is to run one session only.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Once {
    /// Run exactly one session, then stop; pairs first, and is revoked after, unless this machine is paired already.
    #[arg(long)]
    once: bool,
    /// The control plane to pair with; the code comes from --code-file or CHECKFU_RUNNER_PAIRING_CODE.
    #[arg(long, value_name = "URL", requires = "once")]
    plane: Option<String>,
    /// Read the code from this file.
    #[arg(long, value_name = "FILE", requires = "once")]
    code_file: Option<PathBuf>,
    /// How long to wait for the session, in seconds.
    #[arg(long, value_name = "SECONDS", requires = "once", default_value_t = 600)]
    wait_seconds: u32,
}

impl Once {
    /// How long to wait for the one session, when there is to be only one.
    pub(crate) fn wait(&self) -> Option<Duration> {
        self.once.then(|| Duration::from_secs(self.wait_seconds.into()))
    }
}

pub(crate) fn main(settings: &Settings, arguments: &Once, wait: Duration) -> Result<Exit, Failure> {
    let config = Config::from(settings);
    let given = settings.path("state_dir");
    let own = given.is_none();
    let path =
        given.unwrap_or_else(|| std::env::temp_dir().join(format!("checkfu-runner-{}", InstanceId::mint())));
    let state = State::open(&path)?;
    let outcome = if let Err(identity::Error::Absent) = Identity::load(&state) {
        let paired = redeem(&state, &config, arguments);
        let ran = paired.and_then(|()| run::main(state.clone(), settings, Some(wait)));
        // Whatever came of it, this identity was for one job only.
        let left = leave(&state, &config);
        ran.and_then(|exit| left.map(|()| exit))
    } else {
        run::main(state.clone(), settings, Some(wait))
    };
    if own {
        // Only an empty directory goes; what could not be cleared has been told.
        let _ = std::fs::remove_dir(&path);
    }
    outcome
}

fn redeem(state: &State, config: &Config, arguments: &Once) -> Result<(), Failure> {
    let plane = arguments.plane.as_deref().ok_or_else(|| {
        Failure::new(Exit::NotPaired, "this machine is not paired; name the control plane with --plane URL")
    })?;
    let plane: Address = plane.parse().map_err(|error| Failure::new(Exit::Usage, error))?;
    let typed = match (&arguments.code_file, std::env::var(CODE)) {
        (None, Ok(code)) => code,
        (file, _) => pair::read_code(file.as_deref())?,
    };
    let code = pairing::normalised(&typed)?;
    let host = pairing::this_host();
    let wish = pairing::Wish { plane, code, name: host.hostname.clone(), labels: Vec::new(), host };
    let _lock = super::lock(state)?;
    super::runtime()?.block_on(pairing::pair(state, wish, config.ca.as_deref()))?;
    Ok(())
}

fn leave(state: &State, config: &Config) -> Result<(), Failure> {
    let _lock = super::lock(state)?;
    let gone = match Identity::load(state) {
        Ok(identity) => {
            let identity = Arc::new(identity);
            let runtime = super::runtime()?;
            let revoked = runtime.block_on(unpair::revoke(&identity, config));
            runtime.block_on(unpair::dispose(state, &identity, config)).and(revoked)
        }
        Err(_) => Ok(()),
    };
    // A revocation that did not go through is told; the key goes all the same, so that nobody can use it any more.
    state.empty()?;
    gone
}
