//! The sandbox's rows: a call through the toolbox against Docker's own exec, the start of a sandbox against the bare steps,
//! and a capture against `docker cp` and a sync, each on the same image and round about in one run.

use crate::{Bound, ROUNDS, Row};
use bollard::{
    Docker as Daemon,
    exec::{StartExecOptions, StartExecResults},
    models::{ContainerCreateBody, ExecConfig, HostConfig},
    query_parameters::{CreateContainerOptionsBuilder, RemoveContainerOptionsBuilder, StartContainerOptions},
};
use checkfu_runner::{
    outputs::Limits,
    sandbox::{Config, DEFAULT_IMAGE, Docker, Open, Request, Sandbox, egress::Reach},
};
use checkfu_shared::{
    environment::{self, Network, Packages, Profile, Spec},
    id::{InstanceId, SessionId},
    time::SystemClock,
};
use checkfu_toolbox::call::{Bash, Tool};
use futures_util::{StreamExt as _, future::join_all};
use std::{
    path::Path,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

const SAMPLES: usize = 20;
const SIDE_BY_SIDE: usize = 16;

struct Bench {
    docker: Docker,
    daemon: Daemon,
    directory: tempfile::TempDir,
}

/// Every row of the sandbox.
pub(crate) async fn rows() -> Vec<Row> {
    let bench = Bench::start().await;
    let session = SessionId::mint();
    let sandbox = bench.open(session).await;
    let mut rows = vec![bench.tool_call(&sandbox, 1).await, bench.tool_call(&sandbox, SIDE_BY_SIDE).await];
    rows.push(bench.capture(&sandbox, "capture", 1, 64).await);
    rows.push(bench.capture(&sandbox, "capture_64", 64, 1).await);
    drop(sandbox);
    bench.docker.remove_session(session).await.expect("removed");
    rows.push(bench.session_start().await);
    bench.docker.close().await;
    rows
}

fn bash(id: String, command: &str) -> Request {
    let tool = Tool::Bash(Bash { command: Some(command.to_owned()), ..Bash::default() });
    Request { thread: id.clone(), call_id: id, tool }
}

async fn run(sandbox: &Sandbox, id: String, command: &str) {
    let outcome = sandbox.call(bash(id, command)).await.expect("the call ran");
    assert_eq!(outcome.exit_code, Some(0), "{command}: {outcome:?}");
}

impl Bench {
    async fn start() -> Self {
        // Not below /tmp: a sandbox may have a file system of its own there.
        let directory = tempfile::Builder::new().prefix("checkfu-bench-").tempdir_in("/var/tmp");
        let directory = directory.expect("a directory");
        let docker = Docker::connect(Config {
            socket: None,
            instance: InstanceId::mint().to_string(),
            toolbox: rig::process::toolbox().expect("the toolbox"),
            state_dir: directory.path().to_owned(),
            default_image: DEFAULT_IMAGE.to_owned(),
            runtime: None,
            accept_missing_limits: false,
            reach: Reach::default(),
            clock: Arc::new(SystemClock),
        });
        let daemon = Daemon::connect_with_unix_defaults().expect("Docker");
        Self { docker: docker.await.expect("Docker"), daemon, directory }
    }

    async fn open(&self, session_id: SessionId) -> Arc<Sandbox> {
        let spec = Spec {
            image: None,
            network: Network::None,
            limits: environment::Limits::default(),
            profile: Profile::Standard,
            packages: Packages::default(),
            placement_labels: Vec::new(),
        };
        let open = Open { session_id, epoch: 1, spec, lease_ms: 600_000, keep_ms: 60_000 };
        self.docker.open(open).await.expect("a sandbox").sandbox
    }

    async fn exec(&self, container: &str) {
        let config = ExecConfig {
            cmd: Some(["bash", "-c", "true"].map(str::to_owned).to_vec()),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            ..Default::default()
        };
        let exec = self.daemon.create_exec(container, config).await.expect("an exec");
        let started = self.daemon.start_exec(&exec.id, None::<StartExecOptions>).await.expect("it starts");
        let StartExecResults::Attached { mut output, .. } = started else { panic!("it is not attached") };
        while output.next().await.is_some() {}
        let ended = self.daemon.inspect_exec(&exec.id).await.expect("it ended");
        assert_eq!(ended.exit_code, Some(0));
    }

    async fn tool_call(&self, sandbox: &Sandbox, count: usize) -> Row {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        let samples = if count == 1 { SAMPLES } else { 4 };
        for round in 0..=ROUNDS {
            for sample in 0..samples {
                let id = |at: usize| format!("{count}-{round}-{sample}-{at}");
                let begun = Instant::now();
                join_all((0..count).map(|at| run(sandbox, id(at), "true"))).await;
                a.push(begun.elapsed());
            }
            for _ in 0..samples {
                let begun = Instant::now();
                join_all((0..count).map(|_| self.exec(sandbox.container()))).await;
                b.push(begun.elapsed());
            }
            // The first round warms both up.
            if round == 0 {
                (a, b) = (Vec::new(), Vec::new());
            }
        }
        let (name, goal) = if count == 1 { ("tool_call", 0.05) } else { ("tool_call_16", 0.02) };
        Row {
            name,
            what: "calls through the toolbox / docker exec of the same command",
            a,
            b,
            goal: Bound::AtMost(goal),
        }
    }

    async fn session_start(&self) -> Row {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let session = SessionId::mint();
            let begun = Instant::now();
            let sandbox = self.open(session).await;
            run(&sandbox, "first".to_owned(), "true").await;
            a.push(begun.elapsed());
            drop(sandbox);
            self.docker.remove_session(session).await.expect("removed");
            b.push(self.raw_start().await);
        }
        Row {
            name: "session_start",
            what: "open and first result / bare create, start and exec of the same image",
            a,
            b,
            goal: Bound::AtMost(1.1),
        }
    }

    async fn raw_start(&self) -> Duration {
        let name = format!("checkfu-bench-{}", InstanceId::mint());
        let options = CreateContainerOptionsBuilder::default().name(&name).build();
        let body = ContainerCreateBody {
            image: Some(DEFAULT_IMAGE.to_owned()),
            cmd: Some(["sleep", "600"].map(str::to_owned).to_vec()),
            host_config: Some(HostConfig { network_mode: Some("none".to_owned()), ..Default::default() }),
            ..Default::default()
        };
        let begun = Instant::now();
        self.daemon.create_container(Some(options), body).await.expect("created");
        self.daemon.start_container(&name, None::<StartContainerOptions>).await.expect("started");
        self.exec(&name).await;
        let took = begun.elapsed();
        let force = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
        self.daemon.remove_container(&name, Some(force)).await.expect("removed");
        took
    }

    /// So many files of so many MiB into durable custody; as throughputs, so that more is better.
    async fn capture(&self, sandbox: &Sandbox, name: &'static str, files: usize, mib: usize) -> Row {
        let fill = format!(
            "cd /mnt/session/outputs && rm -rf -- * && for i in $(seq {files}); do head -c {mib}M /dev/urandom > f$i; done"
        );
        run(sandbox, format!("{name}-fill"), &fill).await;
        let spool = self.directory.path().join("spool");
        let copy = self.directory.path().join("copy");
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let begun = Instant::now();
            let taken = sandbox.capture(&spool, Limits::default()).await.expect("captured");
            a.push(begun.elapsed());
            assert_eq!(taken.files.iter().filter(|file| file.spool.is_some()).count(), files);
            let begun = Instant::now();
            copy_and_sync(sandbox.container(), &copy);
            b.push(begun.elapsed());
            std::fs::remove_dir_all(&copy).expect("removed");
        }
        Row {
            name,
            what: "outputs into durable custody / docker cp and sync",
            a,
            b,
            goal: Bound::AtLeast(0.8),
        }
    }
}

fn copy_and_sync(container: &str, to: &Path) {
    let from = format!("{container}:/mnt/session/outputs");
    let copied = Command::new("docker").arg("cp").arg(from).arg(to).output().expect("docker cp");
    assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
    let synced = Command::new("sync").arg("-f").arg(to).status().expect("sync");
    assert!(synced.success());
}
