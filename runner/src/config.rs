//! Everything the daemon can be told, settled once at start from flags, environment and file. Limits are non-zero by type.

pub mod keys;

use crate::{
    mask::Masker,
    sandbox,
    settings::{self, Settings},
    state::State,
};
use checkfu_shared::{id::RunnerId, time::SystemClock};
use std::{
    fs,
    io::{self, Read as _},
    net::{IpAddr, SocketAddr},
    num::NonZeroU32,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// Where administrators put the file.
const SYSTEM_FILE: &str = "/etc/checkfu/runner.toml";
/// How long a drain waits when nobody says.
const DRAIN: Duration = Duration::from_secs(240);
/// How much of the state directory's disk stays free when nobody says.
const FREE_MIB: u32 = 512;
/// The largest file that is read; a wrong path must not fill the memory.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// How many sessions run at once when nobody says.
const SESSIONS: NonZeroU32 = NonZeroU32::MIN.saturating_add(3);

/// What a start of the daemon goes by.
#[derive(Debug, Clone)]
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
    /// Take no work while less than this is free on the state directory's disk, in MiB.
    pub min_free_mib: u32,
    /// Where health and metrics are answered.
    pub metrics: Option<SocketAddr>,
    /// Secrets that must not leave this host, one a line.
    pub mask_file: Option<PathBuf>,
    /// What must not leave this host, once it was read.
    pub mask: Masker,
    /// Take exactly one claim, wait for it no longer than this, and stop.
    pub once: Option<Duration>,
    /// Whether log lines are JSON.
    pub json_log: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self::from(&Settings::default())
    }
}

impl From<&Settings> for Config {
    fn from(settings: &Settings) -> Self {
        Self {
            max_sessions: settings.parsed("max_sessions"),
            toolbox: settings.path("toolbox"),
            image: settings.text("image"),
            runtime: settings.text("runtime"),
            accept_missing_limits: settings.is_on("accept_missing_limits"),
            reach: settings.texts("reach").iter().filter_map(|text| text.parse().ok()).collect(),
            ca: settings.path("ca"),
            labels: settings.texts("labels"),
            drain: settings.seconds("drain_seconds").unwrap_or(DRAIN),
            min_free_mib: settings.parsed("min_free_mib").unwrap_or(FREE_MIB),
            metrics: settings.parsed("metrics"),
            mask_file: settings.path("mask_file").or_else(|| credential("mask")),
            mask: Masker::default(),
            once: None,
            json_log: settings.text("log_format").as_deref() == Some("json"),
        }
    }
}

/// The configuration file with its path: the named one, else the user's, else the system's; `None` when there is none.
///
/// # Errors
/// [`settings::Error::Unreadable`] when it is there, or was named, and cannot be read.
pub fn read_file(named: Option<&Path>) -> Result<Option<(PathBuf, String)>, settings::Error> {
    let own = directories::ProjectDirs::from("", "", "checkfu-runner")
        .map(|dirs| dirs.config_dir().join("runner.toml"));
    let candidates = match named {
        Some(path) => vec![path.to_owned()],
        None => own.into_iter().chain([SYSTEM_FILE.into()]).collect(),
    };
    for path in candidates {
        let mut text = String::new();
        let read = fs::File::open(&path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text));
        match read {
            Ok(_) => return Ok(Some((path, text))),
            Err(error) if error.kind() == io::ErrorKind::NotFound && named.is_none() => {}
            Err(error) => {
                let path = path.display().to_string();
                return Err(settings::Error::Unreadable { path, why: error.to_string() });
            }
        }
    }
    Ok(None)
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
        self.sandbox_at(&state.join("sandbox"), runner)
    }

    /// The same, with the directory of the sandboxes' sockets named.
    #[must_use]
    pub fn sandbox_at(&self, directory: &Path, runner: RunnerId) -> sandbox::Config {
        sandbox::Config {
            socket: None,
            instance: runner.to_string(),
            // Docker takes no relative path for what it mounts.
            toolbox: absolute(self.toolbox()),
            state_dir: absolute(directory.to_owned()),
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

/// What systemd hands over under this name, when it does.
fn credential(name: &str) -> Option<PathBuf> {
    let directory = std::env::var_os("CREDENTIALS_DIRECTORY")?;
    Some(Path::new(&directory).join(name)).filter(|path| path.is_file())
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
    fn a_named_file_must_be_there_and_is_read_as_a_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("runner.toml");
        let error = read_file(Some(&path)).unwrap_err().to_string();
        assert!(error.contains("runner.toml"), "{error}");
        fs::write(&path, "max_sessions = 3\n").unwrap();
        assert_eq!(read_file(Some(&path)).unwrap(), Some((path, "max_sessions = 3\n".to_owned())));
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
