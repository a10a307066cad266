//! Termination signals, counted, and the mark that a drain has begun: a start after a crash in between takes no work.

use crate::state::{self, State};
use std::io;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc,
};

const MARK: &str = "draining";
/// Somebody wants this runner to take no work until told otherwise.
const DRAINED: &str = "drained";

/// SIGTERM and SIGINT, both the same, or what a simulation gives for them.
#[derive(Debug)]
pub struct Signals(Source);

#[derive(Debug)]
enum Source {
    System { terminate: Signal, interrupt: Signal },
    Told(mpsc::Receiver<()>),
}

impl Signals {
    /// Listens from now on; call it within a runtime, before anything that takes time.
    ///
    /// # Errors
    /// When the system gives no handler.
    pub fn listen() -> io::Result<Self> {
        let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        Ok(Self(Source::System { terminate, interrupt }))
    }

    /// Signals that come from here and not from the system.
    #[must_use]
    pub const fn told(signals: mpsc::Receiver<()>) -> Self {
        Self(Source::Told(signals))
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) {
        let got = match &mut self.0 {
            Source::System { terminate, interrupt } => tokio::select! {
                got = terminate.recv() => got,
                got = interrupt.recv() => got,
            },
            Source::Told(signals) => signals.recv().await,
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

/// Whether this runner was drained by hand.
pub(crate) fn is_drained(state: &State) -> Result<bool, state::Error> {
    Ok(state.read(DRAINED)?.is_some())
}

/// Remembers durably whether this runner is drained by hand; unlike a drain on its way, this outlives a restart of the machine.
pub(crate) fn mark_drained(state: &State, drained: bool) -> Result<(), state::Error> {
    if drained { state.write(DRAINED, b"") } else { state.remove(DRAINED) }
}

fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drain_by_hand_lasts_until_it_is_taken_back() {
        let dir = tempfile::tempdir().unwrap();
        let state = State::open(dir.path()).unwrap();
        for drained in [false, true, true, false, false] {
            mark_drained(&state, drained).unwrap();
            assert_eq!(is_drained(&state).unwrap(), drained);
        }
    }

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
