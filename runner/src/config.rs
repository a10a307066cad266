//! Everything `run` can be told, settled once at start from flags and environment. Limits are non-zero by type.

use crate::{sandbox, state::State};
use checkfu_shared::{id::RunnerId, time::SystemClock};
use std::{
    net::IpAddr,
    num::NonZeroU32,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// How many sessions run at once when nobody says.
const SESSIONS: NonZeroU32 = NonZeroU32::MIN.saturating_add(3);

/// What a start of the daemon goes by.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// How many sessions run at once; `None` leaves it to the pairing, else 4.
    pub max_sessions: Option<NonZeroU32>,
    /// The static toolbox; `None` looks beside the program and where packages put it.
    pub toolbox: Option<PathBuf>,
    /// The image for environments that name none.
    pub image: Option<String>,
    /// Another OCI runtime, such as `runsc`.
    pub runtime: Option<String>,
    /// Run sandboxes even where the host enforces no memory or process limits.
    pub accept_missing_limits: bool,
    /// Private addresses that sandboxes may reach when their environment lists the host.
    pub reach: Vec<IpAddr>,
    /// A further certificate authority.
    pub ca: Option<PathBuf>,
    /// Labels beside those of the pairing.
    pub labels: Vec<String>,
    /// How long a drain waits for running turns.
    pub drain: Duration,
}

impl Config {
    /// How many sessions run at once, given what the pairing allows.
    #[must_use]
    pub fn sessions(&self, paired: Option<u32>) -> NonZeroU32 {
        let paired = paired.and_then(NonZeroU32::new);
        match (self.max_sessions, paired) {
            (Some(own), Some(allowed)) => own.min(allowed),
            (Some(own), None) => own,
            (None, Some(allowed)) => allowed,
            (None, None) => SESSIONS,
        }
    }

    /// The labels of this runner: those of its pairing and its own, each once, in order.
    #[must_use]
    pub fn labels(&self, paired: &[String]) -> Vec<String> {
        let mut all: Vec<String> = paired.iter().chain(&self.labels).cloned().collect();
        all.sort();
        all.dedup();
        all
    }

    /// What the sandbox side has to know of this runner.
    #[must_use]
    pub fn sandbox(&self, state: &State, runner: RunnerId) -> sandbox::Config {
        sandbox::Config {
            socket: None,
            instance: runner.to_string(),
            // Docker takes no relative path for what it mounts.
            toolbox: absolute(self.toolbox()),
            state_dir: absolute(state.join("sandbox")),
            default_image: self.image.clone().unwrap_or_else(|| sandbox::DEFAULT_IMAGE.to_owned()),
            runtime: self.runtime.clone(),
            accept_missing_limits: self.accept_missing_limits,
            reach: sandbox::egress::Reach { exempt: self.reach.clone() },
            clock: Arc::new(SystemClock),
        }
    }

    /// Where the toolbox is: as told, beside the program, or where packages put it.
    #[must_use]
    pub fn toolbox(&self) -> PathBuf {
        const NAME: &str = "checkfu-toolbox";
        let packaged = PathBuf::from("/usr/lib/checkfu").join(NAME);
        self.toolbox.clone().unwrap_or_else(|| {
            let beside = std::env::current_exe().ok().and_then(|program| Some(program.parent()?.join(NAME)));
            beside.filter(|path| path.is_file()).unwrap_or(packaged)
        })
    }
}

fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

/// The state directory when none is given: systemd's, the system's for root, else the user's.
#[must_use]
pub fn default_state_dir() -> PathBuf {
    let systemd = std::env::var_os("STATE_DIRECTORY").filter(|path| Path::new(path).is_absolute());
    if let Some(path) = systemd {
        return path.into();
    }
    if rustix::process::geteuid().is_root() {
        return "/var/lib/checkfu-runner".into();
    }
    directories::ProjectDirs::from("", "", "checkfu-runner").map_or_else(
        || ".checkfu-runner".into(),
        |dirs| dirs.state_dir().unwrap_or_else(|| dirs.data_dir()).to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_docker_mounts_is_named_by_an_absolute_path() {
        assert!(absolute("./checkfu-toolbox".into()).is_absolute());
        assert_eq!(absolute("/usr/lib/x".into()), Path::new("/usr/lib/x"));
    }

    #[test]
    fn the_smaller_of_both_limits_holds() {
        let config = |own| Config {
            max_sessions: NonZeroU32::new(own),
            labels: vec!["b".to_owned(), "a".to_owned()],
            ..Config::default()
        };
        for (own, paired, wanted) in
            [(0, None, 4), (2, None, 2), (0, Some(7), 7), (9, Some(7), 7), (2, Some(7), 2), (2, Some(0), 2)]
        {
            assert_eq!(config(own).sessions(paired).get(), wanted, "{own} {paired:?}");
        }
        assert_eq!(config(1).labels(&["a".to_owned(), "c".to_owned()]), ["a", "b", "c"]);
    }
}
