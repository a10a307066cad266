//! Waits for children in a thread of its own, so that the supervisor only ever polls.
//! It waits only between the start of a command and the moment nothing of it is left.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};

use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{WaitOptions, WaitStatus, wait};

/// What happened to children.
#[derive(Debug)]
pub(super) enum Reaped {
    /// A child, or a descendant that had lost its parent, ended.
    Ended(i32, WaitStatus),
    /// No descendant is left.
    Empty,
}

/// Handle to the waiting thread.
#[derive(Debug)]
pub(super) struct Reaper {
    begin: Sender<()>,
    events: Receiver<Reaped>,
    wake: OwnedFd,
}

impl Reaper {
    pub(super) fn start() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let ring = wake.try_clone()?;
        let (begin, begun) = channel();
        let (sender, events) = channel();
        // The thread lives as long as the process, which ends without joining it: it may be
        // waiting for a child that never ends.
        std::thread::Builder::new().name("reaper".into()).spawn(move || reap(&begun, &sender, &ring))?;
        Ok(Self { begin, events, wake })
    }

    /// Starts waiting. There must be a child, and the last round must have ended with `Empty`.
    pub(super) fn begin(&self) {
        let _thread_lives = self.begin.send(());
    }

    /// What was reaped since the last time.
    pub(super) fn events(&self) -> Vec<Reaped> {
        let mut count = [0_u8; 8];
        let _nothing_new = rustix::io::read(&self.wake, &mut count);
        self.events.try_iter().collect()
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

fn reap(begun: &Receiver<()>, events: &Sender<Reaped>, ring: &OwnedFd) {
    while begun.recv().is_ok() {
        let mut left = true;
        while left {
            left = reap_some(events);
            let _supervisor_is_behind = rustix::io::write(ring, &1_u64.to_ne_bytes());
        }
    }
}

/// Blocks for one child and takes every other that is ready; false when none is left.
fn reap_some(events: &Sender<Reaped>) -> bool {
    let mut options = WaitOptions::empty();
    loop {
        match wait(options) {
            Ok(Some((pid, status))) => {
                let _supervisor_lives = events.send(Reaped::Ended(pid.as_raw_pid(), status));
                options = WaitOptions::NOHANG;
            }
            Ok(None) => return true,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => {
                let _supervisor_lives = events.send(Reaped::Empty);
                return false;
            }
        }
    }
}
