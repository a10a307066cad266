//! Links to supervisors: a pool of processes that each run one bash call at a time. One whose
//! call left nothing behind is used again; one with background processes stays with them.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;

use super::backstop::Backstop;
use crate::call::{Bash, Outcome, Tool};
use crate::message::{self, Inbox};
use crate::report;
use crate::supervise::{FromSupervisor, Order, Places, ToSupervisor, kill_all, signal};

const MAX_LINKS: usize = 256;
const MAX_IDLE: usize = 16;
const WARM: usize = 2;
/// What a supervisor needs beyond the call's limit: grace, kill, and some load.
const MARGIN: Duration = Duration::from_secs(15);

/// News from a supervisor.
#[derive(Debug)]
pub(super) enum Told {
    /// Something about a call.
    Message(String, FromSupervisor),
    /// The supervisor is gone, with the call it ran.
    Gone(Option<String>),
}

#[derive(Debug)]
enum Use {
    Idle,
    Running { call_id: String, thread: String, backstop: Backstop },
    Background { call_id: String, thread: String, ending: Option<Backstop> },
}

#[derive(Debug)]
struct Link {
    pid: i32,
    socket: UnixStream,
    inbox: Inbox,
    unsent: Vec<u8>,
    number: u64,
    used: Use,
}

#[derive(Debug)]
pub(super) struct Links {
    program: PathBuf,
    places: Places,
    links: Vec<Link>,
}

impl Links {
    pub(super) const fn new(program: PathBuf, places: Places) -> Self {
        Self { program, places, links: Vec::new() }
    }

    /// Starts a few supervisors ahead of the first call; failure shows again when one is needed.
    pub(super) fn warm_up(&mut self) {
        for _ in 0..WARM {
            if let Ok(link) = self.spawn() {
                self.links.push(link);
            }
        }
    }

    /// Runs an order, on an idle supervisor when there is one.
    ///
    /// # Errors
    /// The outcome to report when no supervisor can be had.
    pub(super) fn run(&mut self, order: Order) -> Result<(), Box<Outcome>> {
        let idle = self.links.iter().position(|link| matches!(link.used, Use::Idle));
        let at = match idle {
            Some(at) => at,
            None if self.links.len() >= MAX_LINKS => {
                let cause = "too many calls left background processes";
                return Err(Box::new(report::fork_failed(cause)));
            }
            None => {
                let link = self.spawn().map_err(|error| Box::new(report::fork_failed(&error.to_string())))?;
                self.links.push(link);
                self.links.len() - 1
            }
        };
        let Some(link) = self.links.get_mut(at) else { return Ok(()) };
        link.used = Use::Running {
            call_id: order.call_id.clone(),
            thread: order.thread.clone(),
            backstop: Backstop::new(Duration::from_millis(order.timeout_ms) + MARGIN),
        };
        link.send(&ToSupervisor::Run(order));
        Ok(())
    }

    fn spawn(&self) -> io::Result<Link> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let child = Command::new(&self.program)
            .arg0("checkfu-toolbox")
            .arg("supervise")
            .arg(&self.places.root)
            .arg(&self.places.workspace)
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
        Ok(Link { pid, socket: ours, inbox: Inbox::new(), unsent: Vec::new(), number: 0, used: Use::Idle })
    }

    pub(super) fn cancel(&mut self, wanted: &str) {
        for link in &mut self.links {
            if let Use::Running { call_id, backstop, .. } = &mut link.used
                && call_id == wanted
            {
                backstop.shorten(MARGIN);
                link.send(&ToSupervisor::Cancel);
            }
        }
    }

    /// Whether a bash call has to wait: a restart does, until the thread's background processes
    /// are gone, whose end it begins.
    pub(super) fn hold(&mut self, wanted: &str, tool: &Tool) -> bool {
        if !matches!(tool, Tool::Bash(Bash { restart: Some(true), .. })) {
            return false;
        }
        let mut hold = false;
        for link in &mut self.links {
            if let Use::Background { thread, ending, .. } = &mut link.used
                && thread == wanted
            {
                hold = true;
                if ending.is_none() {
                    *ending = Some(Backstop::new(MARGIN));
                    link.send(&ToSupervisor::EndBackground);
                }
            }
        }
        hold
    }

    pub(super) fn tell_all(&mut self, message: &ToSupervisor) {
        for link in &mut self.links {
            link.send(message);
        }
    }

    /// Ids of all supervisors.
    pub(super) fn pids(&self) -> Vec<i32> {
        self.links.iter().map(|link| link.pid).collect()
    }

    /// Whether time matters to any of them.
    pub(super) fn busy(&self) -> bool {
        self.links.iter().any(|link| !matches!(link.used, Use::Idle | Use::Background { ending: None, .. }))
    }

    pub(super) fn poll_fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.links.iter().map(|link| {
            let out = if link.unsent.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            PollFd::new(&link.socket, PollFlags::IN | out)
        })
    }

    /// Reads from and writes to the links at these places; dead ones are removed.
    pub(super) fn receive(&mut self, ready: &[usize]) -> Vec<Told> {
        let (mut told, mut dead) = (Vec::new(), Vec::new());
        for at in ready {
            let Some(link) = self.links.get_mut(*at) else { continue };
            link.flush();
            let alive = link.read();
            while let Ok(Some(message)) = link.inbox.next_message() {
                told.extend(link.hear(message));
            }
            if !alive {
                dead.push(link.pid);
            }
        }
        for pid in dead {
            if let Some(at) = self.links.iter().position(|link| link.pid == pid) {
                let call_id = match self.links.swap_remove(at).used {
                    Use::Running { call_id, .. } => Some(call_id),
                    Use::Idle | Use::Background { .. } => None,
                };
                told.push(Told::Gone(call_id));
            }
        }
        self.trim();
        told
    }

    /// Lets go of idle supervisors beyond the pool; without their socket they end.
    fn trim(&mut self) {
        let mut idle = 0;
        self.links.retain(|link| {
            idle += usize::from(matches!(link.used, Use::Idle));
            !matches!(link.used, Use::Idle) || idle <= MAX_IDLE
        });
    }

    /// Kills supervisors that did not keep their own time, with all they watch; that they are
    /// gone shows on their sockets.
    pub(super) fn keep_time(&mut self, frozen: bool) {
        for link in &mut self.links {
            let spent = match &mut link.used {
                Use::Running { backstop, .. } => backstop.spent(frozen),
                Use::Background { ending: Some(backstop), .. } => backstop.spent(false),
                Use::Idle | Use::Background { ending: None, .. } => false,
            };
            if spent {
                kill_all(link.pid);
                signal(link.pid, Signal::KILL);
            }
        }
    }
}

impl Link {
    fn send(&mut self, message: &ToSupervisor) {
        self.number += 1;
        // A message is at most what came in as one message, so encoding it again cannot fail.
        if let Ok(bytes) = message::encode(message, self.number) {
            self.unsent.extend_from_slice(&bytes);
        }
        self.flush();
    }

    fn flush(&mut self) {
        while !self.unsent.is_empty() {
            match self.socket.write(&self.unsent) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Full: poll tells when there is room. Broken: reading tells.
                Err(_) => return,
            }
        }
    }

    /// Takes what is there, at most some buffers; false when the supervisor is gone.
    fn read(&mut self) -> bool {
        let mut buffer = [0_u8; 32 * 1024];
        for _ in 0..64 {
            match self.socket.read(&mut buffer) {
                Ok(0) => return false,
                Ok(count) => self.inbox.push(buffer.get(..count).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
        true
    }

    fn hear(&mut self, message: FromSupervisor) -> Option<Told> {
        let (call_id, thread) = match &self.used {
            Use::Idle => return None,
            Use::Running { call_id, thread, .. } | Use::Background { call_id, thread, .. } => {
                (call_id.clone(), thread.clone())
            }
        };
        match &message {
            FromSupervisor::Progress { .. } => {}
            FromSupervisor::Done { idle: false, .. } => {
                self.used = Use::Background { call_id: call_id.clone(), thread, ending: None };
            }
            FromSupervisor::Done { idle: true, .. } | FromSupervisor::Idle => self.used = Use::Idle,
        }
        Some(Told::Message(call_id, message))
    }
}
