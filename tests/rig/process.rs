//! Real programs under test: started with their output in files, watched for their ready line, signalled, and
//! killed when the test lets go of them. A process never outlives its [`Process`].

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use thiserror::Error;
use tokio::time::Instant;

use crate::wait;

/// Why a program did not do what the test needs.
#[derive(Debug, Error)]
pub enum Error {
    #[error("cannot start {program}")]
    Start { program: String, source: io::Error },
    #[error("{program} ended with {status} before it was ready; its errors:\n{errors}")]
    EndedEarly { program: String, status: ExitStatus, errors: String },
    #[error("{program} did not print a line starting with {prefix:?} in time; its errors:\n{errors}")]
    NotReady { program: String, prefix: String, errors: String },
    #[error("{0}")]
    NotPrepared(String),
}

/// The path of a program of this workspace, built beforehand with the profile of the running test.
pub fn binary(name: &str) -> Result<PathBuf, Error> {
    let place = match std::env::var_os("CHECKFU_TEST_BINARIES") {
        Some(place) => PathBuf::from(place),
        // A test runs from target/PROFILE/deps, beside which the programs lie.
        None => std::env::current_exe()
            .ok()
            .and_then(|test| Some(test.parent()?.parent()?.to_owned()))
            .ok_or_else(|| Error::NotPrepared("the place of the running test is unknown".to_owned()))?,
    };
    let path = place.join(name);
    if path.is_file() {
        Ok(path)
    } else {
        Err(Error::NotPrepared(format!("{} is not built: run ./tests/run.sh", path.display())))
    }
}

/// The static toolbox that `packaging/toolbox.sh` built, named by the environment of the run.
pub fn toolbox() -> Result<PathBuf, Error> {
    std::env::var_os("CHECKFU_TEST_TOOLBOX").map(PathBuf::from).ok_or_else(|| {
        Error::NotPrepared(
            "CHECKFU_TEST_TOOLBOX names no toolbox: run ./tests/run.sh, or set it to what packaging/toolbox.sh prints"
                .to_owned(),
        )
    })
}

/// A program to start.
#[derive(Debug, Clone)]
pub struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    input: Vec<u8>,
}

impl Program {
    /// The environment starts with `PATH` and `HOME` only, so that the tester's own settings change nothing.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let environment = ["PATH", "HOME"]
            .iter()
            .filter_map(|name| Some((OsString::from(name), std::env::var_os(name)?)))
            .collect();
        Self { path: path.into(), arguments: Vec::new(), environment, input: Vec::new() }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<S: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// Sets one environment variable.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// What the program reads from its standard input; nothing unless given, and at most a pipe's 64 KiB.
    #[must_use]
    pub fn input(mut self, text: impl AsRef<[u8]>) -> Self {
        text.as_ref().clone_into(&mut self.input);
        self
    }

    /// Starts the program; its output goes to new files in `logs`, which must exist.
    pub fn start(self, logs: &Path) -> Result<Process, Error> {
        let program = self.name();
        self.spawn(logs).map_err(|source| Error::Start { program, source })
    }

    fn name(&self) -> String {
        self.path.file_name().unwrap_or(self.path.as_os_str()).to_string_lossy().into_owned()
    }

    fn spawn(self, logs: &Path) -> io::Result<Process> {
        let program = self.name();
        // A program may be started many times in one test; each start keeps its own logs.
        let (output, output_file) = fresh_file(logs, &program, "out")?;
        let (errors, errors_file) = fresh_file(logs, &program, "err")?;
        let mut child = Command::new(&self.path)
            .args(&self.arguments)
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(output_file)
            .stderr(errors_file)
            .spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            // A program that reads nothing may already be gone; its exit status tells more than the broken pipe.
            let _ = stdin.write_all(&self.input);
        }
        Ok(Process { program, child, output, errors })
    }
}

fn fresh_file(logs: &Path, program: &str, kind: &str) -> io::Result<(PathBuf, File)> {
    let mut number = 0;
    loop {
        let path = logs.join(format!("{program}-{number}.{kind}"));
        match File::create_new(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            created => return created.map(|file| (path, file)),
        }
    }
}

/// A started program; dropping it kills it.
#[derive(Debug)]
pub struct Process {
    program: String,
    child: Child,
    output: PathBuf,
    errors: PathBuf,
}

impl Process {
    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it wrote to standard output so far.
    #[must_use]
    pub fn output(&self) -> String {
        read(&self.output)
    }

    /// What it wrote to standard error so far.
    #[must_use]
    pub fn errors(&self) -> String {
        read(&self.errors)
    }

    /// Waits for a whole line of output starting with `prefix`, and returns what follows the prefix.
    pub async fn ready(&mut self, prefix: &str) -> Result<String, Error> {
        let end = Instant::now() + wait::PATIENCE;
        loop {
            // The order matters: what it wrote before it ended must still be found.
            let ended = self.exited();
            if let Some(rest) = whole_line(&self.output(), prefix) {
                return Ok(rest);
            }
            let program = self.program.clone();
            if let Some(status) = ended {
                return Err(Error::EndedEarly { program, status, errors: self.errors() });
            }
            if Instant::now() >= end {
                return Err(Error::NotReady { program, prefix: prefix.to_owned(), errors: self.errors() });
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Its exit status, when it has ended.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Sends a signal; a process that has ended is left alone.
    pub fn signal(&mut self, signal: Signal) {
        if self.exited().is_none() {
            // It may end between the look and the signal; as a child it stays unreaped, so the id is still its own.
            let _ = kill_process(Pid::from_child(&self.child), signal);
        }
    }

    /// Kills it without warning and waits until it is gone, as a power cut would.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it has not ended within the patience of [`wait`].
    pub async fn ended(&mut self) -> ExitStatus {
        let what = format!("the end of {}", self.program);
        wait::until(&what, async || self.exited()).await
    }

    /// Asks it to end with SIGTERM and waits for that.
    ///
    /// # Panics
    /// When it has not ended within the patience of [`wait`].
    pub async fn terminate(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.ended().await
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn read(path: &Path) -> String {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

fn whole_line(text: &str, prefix: &str) -> Option<String> {
    text.split_inclusive('\n')
        .filter_map(|line| line.strip_suffix('\n'))
        .find_map(|line| line.strip_prefix(prefix))
        .map(|rest| rest.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Program {
        Program::new("/bin/sh").args(["-c", script])
    }

    #[tokio::test]
    async fn the_ready_line_is_found_and_the_program_terminates() {
        let logs = tempfile::tempdir().unwrap();
        let mut process =
            shell("echo noise; echo 'listening on http://x:1'; exec sleep 600").start(logs.path()).unwrap();
        assert_eq!(process.ready("listening on ").await.unwrap(), "http://x:1");
        assert!(!process.terminate().await.success());
    }

    #[tokio::test]
    async fn an_early_end_is_told_with_its_errors() {
        let logs = tempfile::tempdir().unwrap();
        let mut process = shell("echo broken >&2; exit 3").start(logs.path()).unwrap();
        let error = process.ready("listening").await.unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.contains("broken"), "{error}");
    }

    #[tokio::test]
    async fn input_and_environment_reach_the_program_and_the_testers_own_does_not() {
        let logs = tempfile::tempdir().unwrap();
        let mut process = shell("cat; echo \"$A-${CARGO_MANIFEST_DIR:-none}\"")
            .input("in\n")
            .env("A", "1")
            .start(logs.path())
            .unwrap();
        assert!(process.ended().await.success());
        assert_eq!(process.output(), "in\n1-none\n");
    }

    #[tokio::test]
    async fn a_dropped_process_is_gone_and_a_second_start_keeps_the_first_logs() {
        let logs = tempfile::tempdir().unwrap();
        let mut process = shell("echo first; exec sleep 600").start(logs.path()).unwrap();
        process.ready("first").await.unwrap();
        let id = process.id();
        drop(process);
        assert!(!Path::new(&format!("/proc/{id}")).exists());
        shell("echo second").start(logs.path()).unwrap().ended().await;
        assert_eq!(read(&logs.path().join("sh-0.out")), "first\n");
        assert_eq!(read(&logs.path().join("sh-1.out")), "second\n");
    }

    #[test]
    fn half_a_line_is_no_line() {
        assert_eq!(whole_line("ready on po", "ready on "), None);
        assert_eq!(whole_line("x\nready on port 1\n", "ready on ").as_deref(), Some("port 1"));
    }
}
