//! One command under a supervisor: its pipe, its clock and how it ends.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::WaitStatus;

use super::reaper::Reaped;
use super::{Order, Places, ladder};
use crate::call::Outcome;
use crate::capture::{Capture, HEAD_BYTES};
use crate::report::{self, Facts, Kept};
use crate::shell::{self, StateFiles};
use crate::spill::{self, BackgroundLog, Spill};
use crate::{bound, procfs};

const TERM_GRACE: Duration = Duration::from_secs(2);
const KILL_PASS: Duration = Duration::from_millis(20);
const KILL_PATIENCE: Duration = Duration::from_secs(5);
/// Output of helpers like `tee` that end just after the shell still belongs to the call.
const LATE_OUTPUT: Duration = Duration::from_millis(20);
const PROGRESS_EVERY: Duration = Duration::from_millis(250);
const PROGRESS_BYTES: usize = 4096;
const READ_BYTES: usize = 128 * 1024;
const TICK: Duration = Duration::from_secs(1);
/// A gap between two looks at the clock beyond this is a suspension and not charged.
const GAP: Duration = Duration::from_secs(3);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Running,
    Asked(Instant),
    Killing(Instant),
    Over,
}

#[derive(Debug)]
pub(super) struct Job {
    order: Order,
    places: Places,
    child: i32,
    exit: Option<WaitStatus>,
    pipe: Option<File>,
    capture: Capture,
    spill: Option<Result<Spill, ()>>,
    log: Option<BackgroundLog>,
    state: Result<StateFiles, String>,
    stage: Stage,
    timed_out: bool,
    cancelled: bool,
    empty: bool,
    started: Instant,
    last_look: Instant,
    left: Duration,
    fresh: Vec<u8>,
    told: Instant,
    oom_before: u64,
}

impl Job {
    /// Starts the command.
    ///
    /// # Errors
    /// The outcome to report when it did not start.
    pub(super) fn start(places: &Places, order: Order) -> Result<Self, Box<Outcome>> {
        let search_path = std::env::var("PATH").ok();
        let Some(shell) = shell::find(search_path.as_deref()) else {
            return Err(Box::new(report::no_shell()));
        };
        if procfs::pids_left().is_some_and(|left| left < 2) {
            return Err(Box::new(report::fork_failed("the process limit of the sandbox is reached")));
        }
        let state = spill::folder(&places.root, "state")
            .map(|_| StateFiles::new(&places.root.join("state"), &order.thread))
            .map_err(|error| error.to_string());
        let oom_before = procfs::oom_kills();
        let (child, pipe) =
            spawn(&shell, &order, state.as_ref().ok(), places).map_err(|error| Box::new(refusal(&error)))?;
        let now = Instant::now();
        Ok(Self {
            places: places.clone(),
            child,
            exit: None,
            pipe: Some(File::from(pipe)),
            capture: Capture::default(),
            spill: None,
            log: None,
            state,
            stage: Stage::Running,
            timed_out: false,
            cancelled: false,
            empty: false,
            started: now,
            last_look: now,
            left: Duration::from_millis(order.timeout_ms),
            fresh: Vec::new(),
            told: now,
            oom_before,
            order,
        })
    }

    pub(super) const fn output(&self) -> Option<&File> {
        self.pipe.as_ref()
    }

    /// No process of the call is left.
    pub(super) const fn empty(&self) -> bool {
        self.empty
    }

    /// The result was given.
    pub(super) fn concluded(&self) -> bool {
        self.stage == Stage::Over
    }

    /// Takes what is in the pipe, at most one buffer.
    pub(super) fn read_output(&mut self) {
        let mut buffer = vec![0_u8; READ_BYTES];
        let Some(pipe) = &mut self.pipe else { return };
        match pipe.read(&mut buffer) {
            Ok(0) => self.pipe = None,
            Ok(count) => self.take(buffer.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => self.pipe = None,
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        if self.stage == Stage::Over {
            if let Some(log) = &mut self.log {
                log.push(bytes);
            }
            return;
        }
        if self.spill.is_none() && self.capture.bytes() + bytes.len() as u64 > HEAD_BYTES as u64 {
            self.open_spill();
        }
        if let Some(Ok(spill)) = &mut self.spill {
            spill.push(bytes);
        }
        self.capture.push(bytes);
        self.fresh
            .extend_from_slice(bytes.get(bytes.len().saturating_sub(PROGRESS_BYTES)..).unwrap_or(bytes));
        let excess = self.fresh.len().saturating_sub(PROGRESS_BYTES);
        self.fresh.drain(..excess);
    }

    fn open_spill(&mut self) {
        let name = spill::file_name(&self.order.call_id);
        let mut spill = Spill::create(&self.places.root, &name);
        if let Ok(spill) = &mut spill {
            spill.push(self.capture.head());
        }
        self.spill = Some(spill.map_err(|_| ()));
    }

    pub(super) fn reaped(&mut self, event: &Reaped) {
        match event {
            Reaped::Ended(pid, status) if *pid == self.child && self.exit.is_none() => {
                self.exit = Some(*status);
            }
            Reaped::Ended(..) => {}
            Reaped::Empty => self.empty = true,
        }
    }

    pub(super) fn cancel(&mut self, frozen: bool) {
        if self.stage == Stage::Running {
            self.cancelled = true;
            self.ask(frozen);
        }
    }

    pub(super) fn end_background(&mut self) {
        if self.concluded() && !self.empty {
            ladder::kill_all(ladder::own_pid());
        }
    }

    /// What was asked to end while stopped could not answer, so it is killed at once.
    fn ask(&mut self, frozen: bool) {
        let now = Instant::now();
        if frozen {
            self.stage = Stage::Killing(now);
            ladder::kill_all(ladder::own_pid());
        } else {
            self.stage = Stage::Asked(now);
            ladder::ask_all(ladder::own_pid());
        }
    }

    /// The time since the last look is not charged.
    pub(super) fn time_stood_still(&mut self) {
        self.last_look = Instant::now();
    }

    /// Charges the clock and climbs the ladder.
    pub(super) fn keep_time(&mut self, frozen: bool) {
        let now = Instant::now();
        let passed = now - std::mem::replace(&mut self.last_look, now);
        match self.stage {
            Stage::Running if !frozen && self.exit.is_none() => {
                self.left = self.left.saturating_sub(if passed > GAP { TICK } else { passed });
                if self.left.is_zero() {
                    self.timed_out = true;
                    self.ask(frozen);
                }
            }
            Stage::Asked(since) if !self.empty && now - since >= TERM_GRACE => {
                self.stage = Stage::Killing(now);
                ladder::kill_all(ladder::own_pid());
            }
            Stage::Killing(_) if !self.empty && passed >= KILL_PASS => ladder::kill_all(ladder::own_pid()),
            _ => {}
        }
    }

    /// When to look at the clock again; `None` when only events matter.
    pub(super) fn next_wake(&self, frozen: bool) -> Option<Duration> {
        match self.stage {
            Stage::Over => None,
            Stage::Running if frozen => None,
            Stage::Running if !self.fresh.is_empty() => Some(self.left.min(PROGRESS_EVERY)),
            Stage::Running => Some(self.left.min(TICK)),
            Stage::Asked(since) => Some((TERM_GRACE).saturating_sub(since.elapsed())),
            Stage::Killing(_) => Some(KILL_PASS),
        }
    }

    /// New output worth telling.
    pub(super) fn progress(&mut self) -> Option<(String, u64)> {
        if self.fresh.is_empty() || self.stage != Stage::Running || self.told.elapsed() < PROGRESS_EVERY {
            return None;
        }
        self.told = Instant::now();
        let bytes = std::mem::take(&mut self.fresh);
        Some((String::from_utf8_lossy(&bytes).into_owned(), self.capture.bytes()))
    }

    /// The result, once, when the call is over.
    pub(super) fn conclude(&mut self) -> Option<Outcome> {
        let over = match self.stage {
            Stage::Over => false,
            Stage::Running => self.exit.is_some(),
            Stage::Asked(_) => self.empty,
            Stage::Killing(since) => self.empty || since.elapsed() >= KILL_PATIENCE,
        };
        if !over {
            return None;
        }
        self.drain();
        let outcome = self.outcome();
        self.stage = Stage::Over;
        if self.empty {
            self.pipe = None;
        }
        Some(outcome)
    }

    /// Takes what the ended command left in the pipe; whoever still holds it is not waited for,
    /// except a moment for helpers that are just ending.
    fn drain(&mut self) {
        let until = Instant::now() + LATE_OUTPUT;
        loop {
            let Some(pipe) = &self.pipe else { return };
            let waiting = rustix::io::ioctl_fionread(pipe).unwrap_or(0);
            if waiting > 0 {
                self.read_output();
            } else {
                let left = until.saturating_duration_since(Instant::now());
                let wait = Timespec { tv_sec: 0, tv_nsec: i64::from(left.subsec_nanos()) };
                let mut fds = [PollFd::new(pipe, PollFlags::IN)];
                if self.empty || !matches!(poll(&mut fds, Some(&wait)), Ok(1..)) {
                    return;
                }
                self.read_output();
            }
            if Instant::now() >= until + LATE_OUTPUT {
                return;
            }
        }
    }

    fn outcome(&mut self) -> Outcome {
        let ended = self.timed_out || self.cancelled;
        let survivors = if self.empty { Vec::new() } else { ladder::living(ladder::own_pid()) };
        let (background, unkillable) = if ended { (Vec::new(), survivors.len()) } else { (survivors, 0) };
        if !background.is_empty() && self.pipe.is_some() {
            let name = spill::file_name(&self.order.call_id);
            self.log = BackgroundLog::create(&self.places.root, &name).ok();
        }
        if let Ok(state) = &self.state {
            state.settle();
        }
        let facts = Facts {
            exit_code: self.exit.and_then(WaitStatus::exit_status),
            signal: self.exit.and_then(WaitStatus::terminating_signal),
            timed_out_ms: self.timed_out.then_some(self.order.timeout_ms),
            cancelled: self.cancelled,
            unkillable,
            oom_kills: procfs::oom_kills().saturating_sub(self.oom_before),
            duration_ms: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            background: background.into_iter().map(|process| (process.pid, process.name)).collect(),
            background_log: self.log.as_ref().map(|log| log.path().to_string_lossy().into_owned()),
            pids_exhausted: self.exit.and_then(WaitStatus::exit_status) == Some(254)
                && procfs::pids_left().is_some_and(|left| left < 2),
            no_state: self.state.as_ref().err().cloned(),
        };
        let kept = self.keep();
        report::conclude(&facts, &self.capture, &kept)
    }

    fn keep(&mut self) -> Kept {
        // Leave room for the notes, which also count: spill a little before it is needed.
        let near = self.capture.chars() + 4_000 > bound::MAX_RESULT_CHARS as u64;
        if self.spill.is_none() && near {
            self.open_spill();
        }
        match &self.spill {
            Some(Ok(spill)) if spill.cut() && spill.written() == 0 => Kept::Nowhere,
            Some(Ok(spill)) if spill.cut() => {
                Kept::Start(spill.path().to_string_lossy().into_owned(), spill.written())
            }
            Some(Ok(spill)) => Kept::Whole(spill.path().to_string_lossy().into_owned()),
            Some(Err(())) | None => Kept::Nowhere,
        }
    }
}

fn spawn(
    shell: &shell::Shell,
    order: &Order,
    state: Option<&StateFiles>,
    places: &Places,
) -> std::io::Result<(i32, OwnedFd)> {
    let workspace = places.workspace.to_string_lossy();
    let arguments = shell::arguments(shell.dialect, &order.command, state, &workspace)?;
    if std::env::set_current_dir(&places.workspace).is_err() {
        std::env::set_current_dir("/")?;
    }
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let mut command = Command::new(&shell.path);
    command.args(arguments).process_group(0);
    command.stdin(Stdio::null()).stdout(write.try_clone()?).stderr(write);
    for (name, value) in [("TERM", "dumb"), ("HOME", "/tmp")] {
        if std::env::var_os(name).is_none() {
            command.env(name, value);
        }
    }
    let child = command.spawn()?;
    i32::try_from(child.id()).map(|pid| (pid, read)).map_err(std::io::Error::other)
}

fn refusal(error: &std::io::Error) -> Outcome {
    if error.raw_os_error() == Some(rustix::io::Errno::AGAIN.raw_os_error()) {
        return report::fork_failed("resource temporarily unavailable");
    }
    let text = format!("the shell could not be started: {error}. The command did not run; try it again.");
    Outcome { started: false, ..Outcome::error(text) }
}
