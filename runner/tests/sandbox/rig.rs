//! What the tests share: a Docker handle with an instance of its own, and the end of everything it made.

use crate::relay::Relay;
use checkfu_runner::sandbox::{
    Config, DEFAULT_IMAGE, Docker, Error, Known, Open, Opened, Request, Sandbox, egress::Reach,
    spec::LABEL_INSTANCE,
};
use checkfu_shared::{
    environment::{Limits, Network, Packages, Profile, Spec},
    id::{InstanceId, SessionId},
    time::SystemClock,
};
use checkfu_toolbox::call::{Bash, Block, Outcome, Tool};
use std::{path::PathBuf, process::Command, sync::Arc, time::Duration};
use tokio::time::Instant;

pub(crate) struct Rig {
    pub(crate) docker: Docker,
    pub(crate) config: Config,
    pub(crate) session: SessionId,
    pub(crate) directory: tempfile::TempDir,
}

pub(crate) fn spec() -> Spec {
    Spec {
        image: None,
        network: Network::None,
        limits: Limits { memory_bytes: 256 << 20, ..Limits::default() },
        profile: Profile::Standard,
        packages: Packages::default(),
        placement_labels: Vec::new(),
    }
}

impl Rig {
    pub(crate) async fn start() -> Self {
        Self::with_reach(Reach::default()).await
    }

    pub(crate) async fn with_reach(reach: Reach) -> Self {
        let toolbox = std::env::var_os("CHECKFU_TEST_TOOLBOX")
            .expect("CHECKFU_TEST_TOOLBOX names no toolbox: run ./tests/run.sh, or set it to what packaging/toolbox.sh prints");
        // Not below /tmp: a sandbox may have a file system of its own there, and so may the daemon.
        let directory = tempfile::Builder::new().prefix("checkfu-sandbox-").tempdir_in("/var/tmp").unwrap();
        let config = Config {
            socket: None,
            instance: InstanceId::mint().to_string(),
            toolbox: PathBuf::from(toolbox),
            state_dir: directory.path().to_owned(),
            default_image: DEFAULT_IMAGE.to_owned(),
            runtime: None,
            accept_missing_limits: false,
            reach,
            clock: Arc::new(SystemClock),
        };
        let docker = Docker::connect(config.clone()).await.unwrap();
        docker.preflight().await.unwrap();
        Self { docker, config, session: SessionId::mint(), directory }
    }

    /// A second runner process, as far as Docker can tell.
    pub(crate) async fn reconnect(&mut self) {
        self.docker.close().await;
        self.docker = Docker::connect(self.config.clone()).await.unwrap();
    }

    /// Speaks with the daemon through a relay from now on.
    pub(crate) async fn through_a_relay(&mut self) -> Relay {
        let socket = self.directory.path().join("relay.sock");
        let relay = Relay::listen(&socket);
        self.config.socket = Some(socket);
        self.reconnect().await;
        relay
    }

    pub(crate) fn request(&self, spec: Spec, epoch: u64) -> Open {
        Open { session_id: self.session, epoch, spec, lease_ms: 60_000, keep_ms: 60_000 }
    }

    pub(crate) async fn open(&self, spec: Spec) -> Result<Opened, Error> {
        self.docker.open(self.request(spec, 1)).await
    }

    pub(crate) async fn sandbox(&self) -> Arc<Sandbox> {
        self.open(spec()).await.unwrap().sandbox
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let label = format!("label={LABEL_INSTANCE}={}", self.config.instance);
        let left = docker(&["ps", "-aq", "--filter", &label]);
        for container in left.lines() {
            docker(&["rm", "-fv", container]);
        }
        for volume in docker(&["volume", "ls", "-q", "--filter", &label]).lines() {
            docker(&["volume", "rm", volume]);
        }
    }
}

/// Runs Docker's own client and gives what it printed.
pub(crate) fn docker(words: &[&str]) -> String {
    let output = Command::new("docker").args(words).output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

pub(crate) fn bash(id: &str, command: &str) -> Request {
    let bash = Bash { command: Some(command.to_owned()), timeout_ms: Some(60_000), ..Bash::default() };
    Request { call_id: id.to_owned(), thread: "main".to_owned(), tool: Tool::Bash(bash) }
}

pub(crate) fn text(outcome: &Outcome) -> String {
    let texts = outcome.content.iter().map(|block| match block {
        Block::Text { text } => text.as_str(),
        _ => "",
    });
    texts.collect()
}

/// Runs one command, which must succeed, and gives its output.
pub(crate) async fn run(sandbox: &Sandbox, id: &str, command: &str) -> String {
    let outcome = sandbox.call(bash(id, command)).await.unwrap();
    assert_eq!(outcome.exit_code, Some(0), "{command}: {}", text(&outcome));
    text(&outcome)
}

/// Waits until a call has been taken up by the sandbox.
pub(crate) async fn until_running(sandbox: &Sandbox, id: &str) {
    until(async || sandbox.known(id).await.is_ok_and(|known| known == Known::Running)).await;
}

pub(crate) async fn until(mut holds: impl AsyncFnMut() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(30);
    while !holds().await {
        assert!(Instant::now() < give_up, "it never came true");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
