//! Termination signals, counted, and the mark that a drain has begun: a start after a crash in between takes no work.

use crate::state::{self, State};
use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};

const MARK: &str = "draining";

/// SIGTERM and SIGINT, both the same.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Listens from now on; call it within a runtime, before anything that takes time.
    ///
    /// # Errors
    /// When the system gives no handler.
    pub fn listen() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) {
        let got = tokio::select! {
            got = self.terminate.recv() => got,
            got = self.interrupt.recv() => got,
        };
        if got.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

/// Remembers durably that this runner is to take no more work. The mark is good until the machine restarts.
pub(crate) fn draining(state: &State) -> Result<(), state::Error> {
    state.write(MARK, boot_id().as_bytes())
}

/// Whether the start before ended, since this machine booted, after it was told to drain and before it had.
pub(crate) fn interrupted_drain(state: &State) -> Result<bool, state::Error> {
    let mark = state.read(MARK)?;
    let ours = mark.as_deref() == Some(boot_id().as_bytes());
    if mark.is_some() && !ours {
        state.remove(MARK)?;
    }
    Ok(ours)
}

/// The drain is complete: the next start takes work again.
pub(crate) fn drained(state: &State) -> Result<(), state::Error> {
    state.remove(MARK)
}

fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_drain_is_remembered_until_it_is_complete_or_the_machine_restarts() {
        let dir = tempfile::tempdir().unwrap();
        let state = State::open(dir.path()).unwrap();
        assert!(!interrupted_drain(&state).unwrap());
        draining(&state).unwrap();
        assert!(interrupted_drain(&state).unwrap());
        assert!(interrupted_drain(&state).unwrap(), "a second crash changes nothing");
        drained(&state).unwrap();
        assert!(!interrupted_drain(&state).unwrap());
        state.write(MARK, b"another boot").unwrap();
        assert!(!interrupted_drain(&state).unwrap());
        assert!(!state.join(MARK).exists());
    }
}
