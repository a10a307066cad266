//! One whole installation: scripted model, control plane, runner, API client, in a directory of its own.
//! Dropping it kills the programs and removes every container that its runner made.

use crate::{
    api::{Api, text},
    process::{Process, Program, binary, toolbox},
    scripted_model::{ScriptedModel, Settings},
    wait,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::{
    ffi::OsStr,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;

/// The provider key that must never be seen outside the control plane.
const MODEL_KEY: &str = "canary-provider-key-5f1e0c";

/// What a program that ran to its end left.
#[derive(Debug)]
pub struct Finished {
    /// Its exit code; -1 after a signal.
    pub code: i32,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

/// A whole installation.
#[derive(Debug)]
pub struct World {
    /// The client with the administrator's key.
    pub api: Api,
    /// An environment with the default image and no network.
    pub environment: String,
    /// An agent that may use every tool without asking.
    pub agent: String,
    /// The provider.
    pub model: ScriptedModel,
    directory: TempDir,
    port: u16,
    tempo: Value,
    plane: Option<Process>,
    runner: Option<Process>,
    code: String,
}

impl World {
    /// Control plane and one paired, running runner.
    pub async fn start() -> Self {
        Self::with_tempo(json!({})).await
    }

    /// The same, with some of the protocol's durations shortened.
    pub async fn with_tempo(tempo: Value) -> Self {
        let mut world = Self::without_runner_at(tempo).await;
        world.pair("runner").await;
        world.start_runner().await;
        world
    }

    /// A control plane that nobody polls.
    pub async fn without_runner() -> Self {
        Self::without_runner_at(json!({})).await
    }

    /// A control plane that nobody polls, with some of the protocol's durations shortened.
    pub async fn without_runner_at(tempo: Value) -> Self {
        let directory = tempfile::Builder::new().prefix("checkfu-world-").tempdir().expect("a directory");
        let model = ScriptedModel::start(Settings { key: Some(MODEL_KEY.to_owned()), ..Settings::default() })
            .await
            .expect("the model");
        // The port is picked once so that the control plane comes back at the same address after a restart.
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .expect("a free port")
            .port();
        let api = Api::new(&format!("http://127.0.0.1:{port}"), "not yet known");
        let none = String::new();
        let mut world = Self {
            api,
            environment: none.clone(),
            agent: none.clone(),
            model,
            directory,
            port,
            tempo,
            plane: None,
            runner: None,
            code: none,
        };
        std::fs::create_dir(world.path("logs")).expect("a directory for logs");
        std::fs::write(world.path("model.key"), MODEL_KEY).expect("the key file");
        world.start_plane().await;
        let key = std::fs::read_to_string(world.path("plane/admin.key")).expect("the administrator's key");
        world.api = Api::new(&world.url(), key.trim());
        world.environment = world.api.environment().await;
        world.agent = world.api.agent().await;
        world
    }

    /// A path in the installation's directory.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The control plane's address.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// A session with the installation's agent and environment that starts with `message`.
    pub async fn session(&self, message: &str) -> String {
        self.api.session(&self.agent, &self.environment, message).await
    }

    /// Makes a provider of the scripted model's second wire and routes the model `name` to it; gives the id of an agent
    /// that uses that model.
    pub async fn agent_on_chat(&self, name: &str) -> String {
        let provider = json!({
            "name": name, "kind": "openai_compatible", "base_url": format!("{}/v1", self.model.url()),
            "key": MODEL_KEY, "allow_private": true,
        });
        let provider = self.api.post("/v1/providers", provider).await;
        let candidate = json!({"provider_id": provider["id"], "model": "upstream-model"});
        self.api.post("/v1/model-routes", json!({"name": name, "candidates": [candidate]})).await;
        self.api.agent_on(name, json!({"type": "always_allow"})).await
    }

    /// Starts the control plane on the installation's port and waits until it is ready.
    pub async fn start_plane(&mut self) {
        let program = Program::new(binary("checkfu").expect("built"))
            .args([
                "serve",
                "--listen",
                &format!("127.0.0.1:{}", self.port),
                "--model-base-url",
                &self.model.url(),
            ])
            .args(["--tempo", &self.tempo.to_string()])
            .args([OsStr::new("--data-dir"), self.path("plane").as_os_str()])
            .args([OsStr::new("--model-key-file"), self.path("model.key").as_os_str()]);
        let mut plane = program.start(&self.path("logs")).expect("started");
        plane.ready("listening on ").await.expect("a ready control plane");
        self.plane = Some(plane);
    }

    /// Kills the control plane without warning.
    pub fn kill_plane(&mut self) {
        self.plane.take().expect("a running control plane").kill();
    }

    /// Kills the control plane and starts it again.
    pub async fn restart_plane(&mut self) {
        self.kill_plane();
        self.start_plane().await;
    }

    /// The runner's program with its state under `state`; a subcommand is still to be given.
    #[must_use]
    pub fn runner_program(&self, state: &str) -> Program {
        let program = Program::new(binary("checkfu-runner").expect("built"));
        program.args([OsStr::new("--state-dir"), self.path(state).as_os_str()])
    }

    /// Pairs a runner whose state is kept under `state`.
    pub async fn pair(&mut self, state: &str) {
        self.pair_at(state, &self.url(), |program| program).await;
    }

    /// The same, for a runner that sees the control plane at `url` and whose pairing is started as `changed`.
    pub async fn pair_at(&mut self, state: &str, url: &str, changed: impl FnOnce(Program) -> Program) {
        self.code = self.code().await;
        let program = self.runner_program(state).args(["pair", "--plane", url]);
        let finished = self.finish(changed(program).input(format!("{}\n", self.code))).await;
        assert_eq!(finished.code, 0, "{finished:?}");
    }

    /// Where the control plane listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// The process of the control plane.
    #[must_use]
    pub fn plane_id(&self) -> u32 {
        self.plane.as_ref().expect("a running control plane").id()
    }

    /// The key that the provider takes.
    #[must_use]
    pub fn model_key(&self) -> &'static str {
        MODEL_KEY
    }

    /// A fresh pairing code.
    pub async fn code(&self) -> String {
        let principals = self.api.get("/v1/principals").await;
        text(
            &self.api.post("/v1/runner-pairings", json!({"principal": principals["data"][0]["id"]})).await["code"],
        )
    }

    /// Redeems a code as an administrator would: through standard input.
    pub async fn redeem(&self, state: &str, code: &str) -> Finished {
        let program = self.runner_program(state).args(["pair", "--plane", &self.url()]);
        self.finish(program.input(format!("{code}\n"))).await
    }

    /// Runs a program to its end.
    pub async fn finish(&self, program: Program) -> Finished {
        let mut process = program.start(&self.path("logs")).expect("started");
        let code = process.ended().await.code().unwrap_or(-1);
        Finished { code, stdout: process.output(), stderr: process.errors() }
    }

    /// The program that runs the runner of `state`.
    #[must_use]
    pub fn run_program(&self, state: &str) -> Program {
        let toolbox = toolbox().expect("a toolbox");
        let program = self.runner_program(state).args(["run", "--image", IMAGE, "--max-sessions", "4"]);
        program.args([OsStr::new("--toolbox"), toolbox.as_os_str()])
    }

    /// The operator's command line, told where the server is and nothing else.
    #[must_use]
    pub fn operator(&self, arguments: &[&str]) -> Program {
        let program = Program::new(binary("checkfu").expect("built")).env("HOME", self.path("home"));
        program.env("CHECKFU_URL", self.url()).args(arguments)
    }

    /// Starts the paired runner.
    pub async fn start_runner(&mut self) {
        self.runner = Some(self.start_other_runner("runner"));
    }

    /// Starts the paired runner with a changed command line or environment.
    pub fn start_runner_as(&mut self, changed: impl FnOnce(Program) -> Program) {
        let program = changed(self.run_program("runner"));
        self.runner = Some(program.start(&self.path("logs")).expect("started"));
    }

    /// What the runner of `state` says of itself.
    pub async fn status(&self, state: &str) -> Value {
        let told = self.finish(self.runner_program(state).args(["status", "--json"])).await;
        serde_json::from_str(&told.stdout).unwrap_or_default()
    }

    /// Waits until the paired runner is in the state `word`; gives the reason that it names.
    pub async fn runner_is(&self, word: &str) -> String {
        let what = format!("the runner to be {word}");
        wait::until(&what, async || {
            let status = self.status("runner").await["status"].take();
            (status["state"] == word).then(|| status["reason"].as_str().unwrap_or_default().to_owned())
        })
        .await
    }

    /// Starts the runner whose state is kept under `state`, beside the first.
    #[must_use]
    pub fn start_other_runner(&self, state: &str) -> Process {
        self.run_program(state).start(&self.path("logs")).expect("started")
    }

    /// The running runner.
    #[must_use]
    pub fn runner(&mut self) -> &mut Process {
        self.runner.as_mut().expect("a running runner")
    }

    /// The running control plane.
    pub fn plane(&mut self) -> &mut Process {
        self.plane.as_mut().expect("a running control plane")
    }

    /// Kills the runner without warning.
    pub fn kill_runner(&mut self) {
        self.runner.take().expect("a running runner").kill();
    }

    /// Sends the runner a signal.
    pub fn signal_runner(&mut self, signal: Signal) {
        self.runner().signal(signal);
    }

    /// Waits for the runner's end; gives its exit code.
    pub async fn runner_exit(&mut self) -> i32 {
        let mut runner = self.runner.take().expect("a running runner");
        runner.ended().await.code().unwrap_or(-1)
    }

    /// Stops the runner as systemd does and waits for its end.
    pub async fn stop_runner(&mut self) {
        self.signal_runner(Signal::TERM);
        assert_eq!(self.runner_exit().await, 0);
    }

    /// Waits until the session's first tool call was allowed and its command has begun to run in the sandbox.
    pub async fn started(&self, session: &str) {
        self.api.event(session, "an allowed tool call", |event| event["type"] == "agent.tool_use").await;
        wait::until("a process of the call in the sandbox", async || {
            let listing = docker(&["top", &self.find(session)?]);
            listing.lines().any(|line| line.contains("sleep ")).then_some(())
        })
        .await;
    }

    fn containers(&self, session: &str) -> Vec<String> {
        let filter = format!("label=checkfu.session={session}");
        docker(&["ps", "--all", "--no-trunc", "--quiet", "--filter", &filter])
            .lines()
            .map(str::to_owned)
            .collect()
    }

    fn find(&self, session: &str) -> Option<String> {
        self.containers(session).into_iter().next()
    }

    /// How many containers the session has, running or not.
    #[must_use]
    pub fn sandboxes(&self, session: &str) -> usize {
        self.containers(session).len()
    }

    /// The id of the session's one container.
    #[must_use]
    pub fn sandbox(&self, session: &str) -> String {
        let found = self.containers(session);
        assert_eq!(found.len(), 1, "one container for {session}");
        found.into_iter().next().expect("one")
    }

    /// Runs a command in the session's container, beside the agent.
    pub fn inside(&self, session: &str, command: &[&str]) {
        let container = self.sandbox(session);
        docker(&[&["exec", container.as_str()], command].concat());
    }

    /// What Docker knows of the session's containers.
    #[must_use]
    pub fn inspect_sandboxes(&self, session: &str) -> String {
        self.containers(session).iter().map(|id| docker(&["inspect", id])).collect()
    }

    /// Fails the test when the provider refused any conversation as malformed.
    pub fn nothing_malformed_was_asked(&self) {
        let refusals = self.model.refusals();
        assert!(refusals.is_empty(), "the model refused: {refusals:#?}");
    }

    /// Has the operator's own check rebuild every session from its log and compare.
    pub async fn verify(&self) {
        let program = Program::new(binary("checkfu").expect("built"));
        let program =
            program.args([OsStr::new("verify"), OsStr::new("--data-dir"), self.path("plane").as_os_str()]);
        let finished = self.finish(program).await;
        assert_eq!(finished.code, 0, "{finished:?}");
    }

    /// Secrets that must be nowhere but where they belong, by name.
    #[must_use]
    pub fn canaries(&self) -> Vec<(&'static str, String)> {
        let key = std::fs::read_to_string(self.path("plane/admin.key")).expect("the administrator's key");
        vec![
            ("the provider key", MODEL_KEY.to_owned()),
            ("the admin key", key.trim().to_owned()),
            ("the pairing code", self.code.clone()),
        ]
    }

    /// What the programs printed, by file.
    #[must_use]
    pub fn logs(&self) -> Vec<(String, String)> {
        let entries = std::fs::read_dir(self.path("logs")).expect("the directory").flatten();
        entries
            .map(|entry| (entry.file_name().to_string_lossy().into_owned(), lossy(&entry.path())))
            .collect()
    }

    /// The command lines and environments of both programs.
    #[must_use]
    pub fn command_lines(&self) -> String {
        let programs = [self.plane.as_ref(), self.runner.as_ref()];
        let parts = programs
            .iter()
            .flatten()
            .flat_map(|program| ["cmdline", "environ"].map(|part| (program.id(), part)));
        parts.map(|(pid, part)| lossy(Path::new(&format!("/proc/{pid}/{part}")))).collect()
    }

    /// Whether the text stands in any file of the database.
    #[must_use]
    pub fn database_holds(&self, text: &str) -> bool {
        let entries = std::fs::read_dir(self.path("plane")).expect("the data directory").flatten();
        let databases = entries.filter(|entry| entry.file_name().to_string_lossy().contains(".db"));
        databases.map(|entry| lossy(&entry.path())).any(|content| content.contains(text))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for (file, text) in self.logs() {
                let tail: Vec<_> = text.lines().rev().take(40).collect();
                let tail: Vec<_> = tail.into_iter().rev().collect();
                eprintln!("--- {file}\n{}", tail.join("\n"));
            }
        }
        self.runner = None;
        self.plane = None;
        let ours = |instance: String| {
            docker(&["ps", "-aq", "--filter", &format!("label=checkfu.instance={instance}")])
        };
        let states = std::fs::read_dir(self.directory.path()).into_iter().flatten().flatten();
        let identities = states.filter_map(|entry| std::fs::read(entry.path().join("identity.json")).ok());
        let instances = identities.filter_map(|text| {
            let identity: Value = serde_json::from_slice(&text).ok()?;
            Some(identity["runner_id"].as_str()?.to_owned())
        });
        for container in instances.map(ours).collect::<String>().lines() {
            docker(&["rm", "--force", "--volumes", container]);
        }
    }
}

/// The image that `packaging/sandbox-image.sh` makes.
pub const IMAGE: &str = "checkfu/sandbox:default";

/// Runs the Docker client; gives its standard output.
pub fn docker(arguments: &[&str]) -> String {
    let output = Command::new("docker").args(arguments).output().expect("the docker client");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn lossy(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}
