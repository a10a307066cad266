//! PID 1 of a sandbox: one loop that owns all state, speaks with the runner over stdin and
//! stdout, hands calls to supervisors and workers, and enforces the lease.
//! It must never block on anybody, never die of anything from inside, and never run an id twice.

mod backstop;
mod freeze;
mod links;
mod outbox;
mod workers;

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{WaitOptions, wait};

use crate::call::{Bash, Outcome, Tool};
use crate::lease::{Lease, Step};
use crate::ledger::{Admission, Ledger, Ticket};
use crate::message::{self, CallState, FromToolbox, Inbox, Refusal, ToToolbox};
use crate::shell::StateFiles;
use crate::supervise::{FromSupervisor, Order, Places, ToSupervisor};
use crate::{forward, spill};
use freeze::Freezer;
use links::{Links, Told};
use outbox::Outbox;
use workers::{Bell, Workers};

const BUSY_TICK: Duration = Duration::from_secs(1);
const IDLE_TICK: Duration = Duration::from_secs(5);
/// How long to wait after the end of stdin before looking for the next attach.
const DETACHED_TICK: Duration = Duration::from_millis(100);

/// Serves the runner for ever.
///
/// # Errors
/// Only when the process cannot be set up, or polling itself fails.
pub fn run(places: Places) -> io::Result<()> {
    let program = std::env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into());
    if rustix::process::getpid().as_raw_pid() != 1 {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    }
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    let bell = Bell::new()?;
    let stdout = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let ring = bell.try_clone()?;
    let mut server = Server {
        outbox: Outbox::start(stdout, move || ring.ring())?,
        workers: Workers::start(&places, bell.try_clone()?)?,
        warnings: warnings(&places),
        links: Links::new(program, places.clone()),
        places,
        bell,
        inbox: Inbox::new(),
        ledger: Ledger::default(),
        lease: Lease::default(),
        freezer: Freezer::default(),
        unsent: VecDeque::new(),
        number: 0,
        read_again: None,
    };
    server.links.warm_up();
    loop {
        server.turn()?;
    }
}

fn warnings(places: &Places) -> Vec<String> {
    let mut warnings = forward::start_if_wanted(&places.root);
    if let Err(error) = spill::folder(&places.root, "out") {
        warnings
            .push(format!("{} cannot be used: {error}; long results are not kept", places.root.display()));
    }
    if !places.workspace.is_dir() {
        warnings.push(format!("{} does not exist; commands start in /", places.workspace.display()));
    }
    warnings
}

struct Server {
    places: Places,
    bell: Bell,
    inbox: Inbox,
    outbox: Outbox,
    ledger: Ledger,
    lease: Lease,
    freezer: Freezer,
    links: Links,
    workers: Workers,
    warnings: Vec<String>,
    unsent: VecDeque<String>,
    number: u64,
    read_again: Option<Instant>,
}

/// Milliseconds since boot, suspension included.
fn now_ms() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
}

impl Server {
    fn turn(&mut self) -> io::Result<()> {
        let (stdin, ready) = self.wait()?;
        if stdin {
            self.read_stdin();
        }
        self.bell.hush();
        for (call_id, outcome) in self.workers.finished() {
            self.finish(&call_id, outcome);
        }
        for told in self.links.receive(&ready) {
            self.hear(told);
        }
        while matches!(wait(WaitOptions::NOHANG), Ok(Some(_))) {}
        let step = self.lease.tick(now_ms());
        self.step(step);
        self.keep_time();
        self.start_ready();
        self.flush();
        Ok(())
    }

    /// Waits for something to happen; tells whether stdin can be read and which links can.
    fn wait(&mut self) -> io::Result<(bool, Vec<usize>)> {
        let detached = self.read_again.is_some_and(|at| Instant::now() < at);
        let busy = self.lease.frozen() || self.links.busy() || self.workers.busy();
        let mut timeout = if busy { BUSY_TICK } else { IDLE_TICK };
        if detached {
            timeout = timeout.min(DETACHED_TICK);
        }
        if let Some(lease) = self.lease.next_tick_ms(now_ms()) {
            timeout = timeout.min(Duration::from_millis(lease.saturating_add(1)));
        }
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(1),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        let stdin = io::stdin();
        let mut fds = vec![PollFd::new(&self.bell, PollFlags::IN)];
        fds.extend(self.links.poll_fds());
        if !detached {
            fds.push(PollFd::new(&stdin, PollFlags::IN));
        }
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let on_stdin = !detached && fds.last().is_some_and(ready);
        let count = fds.len() - usize::from(!detached);
        let links = (1..count).filter(|at| fds.get(*at).is_some_and(ready)).map(|at| at - 1).collect();
        Ok((on_stdin, links))
    }

    fn read_stdin(&mut self) {
        let mut buffer = vec![0_u8; 64 * 1024];
        match rustix::io::read(io::stdin(), &mut buffer) {
            Ok(count) if count > 0 => {
                self.read_again = None;
                self.inbox.push(buffer.get(..count).unwrap_or_default());
                self.read_messages();
            }
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            // The runner is detached, which is no reason to end: the next one will come.
            Ok(_) | Err(_) => self.read_again = Some(Instant::now() + DETACHED_TICK),
        }
    }

    fn read_messages(&mut self) {
        loop {
            match self.inbox.next_message() {
                Ok(Some(message)) => self.obey(message),
                Ok(None) => return,
                // What is no message is left of an attach that broke off; the next HELLO mends it.
                Err(_) => {}
            }
        }
    }

    fn obey(&mut self, message: ToToolbox) {
        match message {
            ToToolbox::Hello { epoch, lease_ms, keep_ms } => {
                match self.lease.hello(now_ms(), epoch, lease_ms, keep_ms) {
                    Ok(step) => self.welcome(epoch, step),
                    Err(reason) => self.say(&FromToolbox::Refused { call_id: None, reason }),
                }
            }
            ToToolbox::Lease { epoch, remaining_ms } => {
                match self.lease.renew(now_ms(), epoch, remaining_ms) {
                    Ok(step) => self.step(step),
                    Err(reason) => self.say(&FromToolbox::Refused { call_id: None, reason }),
                }
            }
            ToToolbox::Call { epoch, call_id, thread, tool } => self.call(epoch, call_id, &thread, tool),
            ToToolbox::Cancel { call_id } => self.cancel(call_id),
            ToToolbox::Ack { call_id } => self.ledger.acknowledge(&call_id),
            ToToolbox::Query { call_id } => self.tell_state(call_id),
        }
    }

    fn welcome(&mut self, epoch: u64, step: Step) {
        self.outbox.clear();
        let calls = self.ledger.known();
        self.unsent = calls
            .iter()
            .filter(|call| call.state == CallState::Done)
            .map(|call| call.call_id.clone())
            .collect();
        self.say(&FromToolbox::Ready {
            epoch,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            calls,
            warnings: self.warnings.clone(),
        });
        self.step(step);
    }

    fn call(&mut self, epoch: u64, call_id: String, thread: &str, tool: Tool) {
        if self.ledger.state(&call_id).is_some() {
            return self.tell_state(call_id);
        }
        let admission = match self.lease.admit(now_ms(), epoch) {
            Ok(()) => self.ledger.admit(&call_id, thread, tool),
            Err(reason) => Admission::Refused(reason),
        };
        match admission {
            Admission::Accepted => {
                self.say(&FromToolbox::Started { call_id });
                self.start_ready();
            }
            Admission::Refused(reason) => self.say(&FromToolbox::Refused { call_id: Some(call_id), reason }),
            Admission::Running | Admission::Done => self.tell_state(call_id),
        }
    }

    fn tell_state(&mut self, call_id: String) {
        match self.ledger.state(&call_id) {
            Some(CallState::Running) => self.say(&FromToolbox::Started { call_id }),
            Some(CallState::Done) => self.unsent.push_back(call_id),
            None if self.ledger.acknowledged(&call_id) => {
                let reason = Refusal::AlreadyAcknowledged;
                self.say(&FromToolbox::Refused { call_id: Some(call_id), reason });
            }
            None => self.say(&FromToolbox::Unknown { call_id }),
        }
    }

    fn cancel(&mut self, call_id: String) {
        if self.ledger.waits(&call_id) {
            let outcome = Outcome::error("(cancelled before it started)");
            self.finish(&call_id, Outcome { cancelled: true, started: false, ..outcome });
        } else if self.ledger.state(&call_id) == Some(CallState::Running) {
            self.links.cancel(&call_id);
            self.workers.cancel(&call_id);
        } else {
            self.tell_state(call_id);
        }
    }

    fn start_ready(&mut self) {
        while !self.lease.frozen() {
            let links = &mut self.links;
            let Some(ticket) = self.ledger.next(|thread, tool| links.hold(thread, tool)) else { return };
            self.start(ticket);
        }
    }

    fn start(&mut self, ticket: Ticket) {
        let Ticket { call_id, thread, tool } = ticket;
        let Tool::Bash(bash) = tool else {
            return self.workers.submit(call_id, thread, tool);
        };
        if bash.restart == Some(true) {
            StateFiles::new(&self.places.root.join("state"), &thread).forget();
        }
        let timeout_ms = bash.effective_timeout_ms();
        let Bash { command: Some(command), restart, .. } = bash else {
            let text = "the shell was restarted: its folder, variables and functions are reset and the \
                        background processes of this thread were ended";
            return self.finish(&call_id, Outcome::text(text));
        };
        if command.trim().is_empty() && restart != Some(true) {
            let text = "the command is empty; give a command, or restart: true for a fresh shell";
            return self.finish(&call_id, Outcome { started: false, ..Outcome::error(text) });
        }
        let order = Order { call_id: call_id.clone(), thread, command, timeout_ms };
        if let Err(outcome) = self.links.run(order) {
            self.finish(&call_id, *outcome);
        }
    }

    fn hear(&mut self, told: Told) {
        match told {
            Told::Message(call_id, FromSupervisor::Progress { text, bytes_seen }) => {
                self.say(&FromToolbox::Progress { call_id, text, bytes_seen });
            }
            Told::Message(call_id, FromSupervisor::Done { outcome, .. }) => self.finish(&call_id, *outcome),
            Told::Message(_, FromSupervisor::Idle) => {}
            Told::Gone(call_id) => {
                let links = self.links.pids();
                freeze::kill_strays(&links);
                if let Some(call_id) = call_id {
                    self.finish(&call_id, crate::report::supervisor_died());
                }
            }
        }
    }

    fn keep_time(&mut self) {
        let frozen = self.lease.frozen();
        self.links.keep_time(frozen);
        for call_id in self.workers.overdue() {
            let text = "the tool did not answer in time (a slow or broken file system?); try a smaller piece";
            self.finish(&call_id, Outcome { timed_out: true, ..Outcome::error(text) });
        }
        if frozen {
            self.freezer.freeze(&self.links.pids());
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::None => {}
            Step::Freeze => {
                self.links.tell_all(&ToSupervisor::Freeze);
                self.freezer.freeze(&self.links.pids());
            }
            Step::Thaw => {
                self.freezer.thaw();
                self.links.tell_all(&ToSupervisor::Thaw);
            }
            Step::Kill => {
                for call_id in self.ledger.open() {
                    self.cancel(call_id);
                }
                self.links.tell_all(&ToSupervisor::EndBackground);
                freeze::kill_everything(&self.links.pids());
            }
        }
    }

    fn finish(&mut self, call_id: &str, outcome: Outcome) {
        if self.ledger.finish(call_id, outcome) {
            self.unsent.push_back(call_id.to_owned());
        }
    }

    /// Sends results as far as there is room; the others stay in order.
    fn flush(&mut self) {
        while let Some(call_id) = self.unsent.front() {
            if let Some(result) = self.ledger.result(call_id) {
                let done = FromToolbox::Done { call_id: call_id.clone(), result: result.clone() };
                if !self.offer(&done) {
                    return;
                }
            }
            self.unsent.pop_front();
        }
    }

    /// Says something that may be lost when the runner does not read.
    fn say(&mut self, message: &FromToolbox) {
        let _may_be_lost = self.offer(message);
    }

    fn offer(&mut self, message: &FromToolbox) -> bool {
        self.number += 1;
        message::encode(message, self.number).is_ok_and(|bytes| self.outbox.offer(bytes))
    }
}
