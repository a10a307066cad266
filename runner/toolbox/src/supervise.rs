//! A supervisor: the process between PID 1 and one bash call. It is the subreaper of everything
//! the call starts, so nothing can escape it; it captures output, enforces the time limit and
//! stays on as reaper and drain while background processes of the call live.
//! It must never wait for anything but its own poll.

mod job;
mod ladder;
mod reaper;

use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};

use crate::call::Outcome;
use crate::message::{self, Inbox, Message};
use job::Job;
pub(crate) use ladder::{kill_all, own_pid, signal, stop_to_fixed_point};
use reaper::Reaper;

/// What PID 1 tells a supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToSupervisor {
    /// Run a command; only sent while idle.
    Run(Order),
    /// End the running command and everything it started.
    Cancel,
    /// End background processes that are left of the call before.
    EndBackground,
    /// The lease ended: time stands still.
    Freeze,
    /// Time goes on.
    Thaw,
}

/// A command to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The call.
    pub call_id: String,
    /// The thread whose shell state applies.
    pub thread: String,
    /// The command text.
    pub command: String,
    /// Time limit in milliseconds.
    pub timeout_ms: u64,
}

/// What a supervisor tells PID 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromSupervisor {
    /// New output of the running command.
    Progress {
        /// Decoded lossily, cut to a few KiB.
        text: String,
        /// Bytes seen so far.
        bytes_seen: u64,
    },
    /// The command is over.
    Done {
        /// How it ended.
        outcome: Box<Outcome>,
        /// No process of the call is left: ready for the next order.
        idle: bool,
    },
    /// The last background process is gone: ready for the next order.
    Idle,
}

impl Message for ToSupervisor {
    fn kind(&self) -> u8 {
        16
    }
}

impl Message for FromSupervisor {
    fn kind(&self) -> u8 {
        17
    }
}

/// Where things are in the sandbox.
#[derive(Debug, Clone)]
pub struct Places {
    /// Folder of our own, normally `/.checkfu`.
    pub root: PathBuf,
    /// Where relative paths and new shells begin, normally `/workspace`.
    pub workspace: PathBuf,
}

/// Serves PID 1 over stdin until PID 1 is gone.
///
/// # Errors
/// When the process cannot be set up or the channel breaks.
pub fn run(places: Places) -> io::Result<()> {
    // Raising this needs no right, but becomes impossible once the process is not dumpable.
    let _without = std::fs::write("/proc/self/oom_score_adj", "500");
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let _already_leads = rustix::process::setsid();
    let mut supervisor = Supervisor {
        places,
        inbox: Inbox::new(),
        reaper: Reaper::start()?,
        job: None,
        frozen: false,
        number: 0,
        gone: false,
    };
    while !supervisor.gone {
        supervisor.turn()?;
    }
    ladder::kill_all(ladder::own_pid());
    Ok(())
}

struct Supervisor {
    places: Places,
    inbox: Inbox,
    reaper: Reaper,
    job: Option<Job>,
    frozen: bool,
    number: u64,
    gone: bool,
}

impl Supervisor {
    fn turn(&mut self) -> io::Result<()> {
        let (control, output) = self.wait()?;
        if output && let Some(job) = &mut self.job {
            job.read_output();
        }
        for event in self.reaper.events() {
            if let Some(job) = &mut self.job {
                job.reaped(&event);
            }
        }
        if control {
            self.receive()?;
        }
        self.advance()
    }

    /// Waits for something to happen; tells whether PID 1 spoke and whether there is output.
    fn wait(&self) -> io::Result<(bool, bool)> {
        let stdin = io::stdin();
        let timeout = self.job.as_ref().and_then(|job| job.next_wake(self.frozen));
        let timeout = timeout.map(|wait: Duration| Timespec {
            tv_sec: i64::try_from(wait.as_secs()).unwrap_or(1),
            tv_nsec: i64::from(wait.subsec_nanos()),
        });
        let mut fds = vec![
            PollFd::new(&stdin, PollFlags::IN),
            PollFd::from_borrowed_fd(self.reaper.as_fd(), PollFlags::IN),
        ];
        if let Some(pipe) = self.job.as_ref().and_then(Job::output) {
            fds.push(PollFd::new(pipe, PollFlags::IN));
        }
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
        Ok((ready(0), ready(2)))
    }

    fn receive(&mut self) -> io::Result<()> {
        let mut buffer = [0_u8; 16 * 1024];
        match rustix::io::read(io::stdin(), &mut buffer) {
            Ok(0) => self.gone = true,
            Ok(count) => self.inbox.push(buffer.get(..count).unwrap_or_default()),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
        while let Some(message) = self.inbox.next_message().map_err(io::Error::other)? {
            self.obey(message)?;
        }
        Ok(())
    }

    fn obey(&mut self, message: ToSupervisor) -> io::Result<()> {
        match message {
            ToSupervisor::Run(order) => match Job::start(&self.places, order) {
                Ok(job) => {
                    self.job = Some(job);
                    self.reaper.begin();
                }
                Err(outcome) => return self.send(&FromSupervisor::Done { outcome, idle: true }),
            },
            ToSupervisor::Cancel => {
                if let Some(job) = &mut self.job {
                    job.cancel(self.frozen);
                }
            }
            ToSupervisor::EndBackground => {
                if let Some(job) = &mut self.job {
                    job.end_background();
                }
            }
            ToSupervisor::Freeze => self.freeze(true),
            ToSupervisor::Thaw => self.freeze(false),
        }
        Ok(())
    }

    fn freeze(&mut self, frozen: bool) {
        self.frozen = frozen;
        if let Some(job) = &mut self.job {
            job.time_stood_still();
        }
    }

    /// Lets the job act on what it has learnt and on the time.
    fn advance(&mut self) -> io::Result<()> {
        let Some(job) = &mut self.job else { return Ok(()) };
        if let Some((text, bytes_seen)) = job.progress() {
            self.send(&FromSupervisor::Progress { text, bytes_seen })?;
        }
        let Some(job) = &mut self.job else { return Ok(()) };
        job.keep_time(self.frozen);
        if let Some(outcome) = job.conclude() {
            let idle = job.empty();
            self.send(&FromSupervisor::Done { outcome: Box::new(outcome), idle })?;
            if idle {
                self.job = None;
            }
        } else if job.concluded() && job.empty() {
            self.job = None;
            self.send(&FromSupervisor::Idle)?;
        }
        Ok(())
    }

    fn send(&mut self, message: &FromSupervisor) -> io::Result<()> {
        self.number += 1;
        let bytes = message::encode(message, self.number).map_err(io::Error::other)?;
        let stdin = io::stdin();
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            match rustix::io::write(stdin.as_fd(), rest) {
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
