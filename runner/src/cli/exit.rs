//! The exit codes, which scripts and systemd may rely on.

use checkfu_runner::{identity, pairing, settings, state, supervisor};
use std::process::ExitCode;

/// Shown by `--help`.
pub(crate) const HELP: &str = "\
Exit codes:
   0  done; the daemon finished or handed back every session
   1  failed for a reason that is none of the others
   2  the command line or a setting is wrong
   3  not paired
   4  the identity file is damaged or readable by others
   5  another runner uses the state directory
   6  the identity is in use on another machine (do not restart)
   7  the control plane refused the pairing
   8  the control plane could not be reached
   9  already paired
  10  stopped before every session had ended (second signal, or the time to drain was over)
  11  stopped at once (third signal)
  12  no daemon runs
  13  doctor: it works, but something should be done
  14  run --once: the turn did not come to its end here
  15  run --once: no work came in time";

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    Success = 0,
    Failure = 1,
    Usage = 2,
    NotPaired = 3,
    IdentityDamaged = 4,
    AlreadyRunning = 5,
    IdentityInUse = 6,
    PairingRefused = 7,
    Unreachable = 8,
    AlreadyPaired = 9,
    Cancelled = 10,
    Abandoned = 11,
    NotRunning = 12,
    Doubtful = 13,
    Unfinished = 14,
    NoWork = 15,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

impl From<supervisor::Finished> for Exit {
    fn from(finished: supervisor::Finished) -> Self {
        match finished {
            supervisor::Finished::Drained => Self::Success,
            supervisor::Finished::NoWork => Self::NoWork,
            supervisor::Finished::Unfinished => Self::Unfinished,
            supervisor::Finished::Cancelled => Self::Cancelled,
            supervisor::Finished::Abandoned => Self::Abandoned,
            supervisor::Finished::IdentityInUse => Self::IdentityInUse,
            supervisor::Finished::Failed => Self::Failure,
        }
    }
}

/// A command that failed: the sentence to print and the code.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl std::fmt::Display) -> Self {
        Self { exit, message: message.to_string() }
    }
}

impl From<state::Error> for Failure {
    fn from(error: state::Error) -> Self {
        let exit = match error {
            state::Error::Locked { .. } => Exit::AlreadyRunning,
            state::Error::Exposed { .. } => Exit::IdentityDamaged,
            state::Error::Io { .. } | state::Error::Kind { .. } | state::Error::Owner { .. } => Exit::Failure,
        };
        Self::new(exit, error)
    }
}

impl From<settings::Error> for Failure {
    fn from(error: settings::Error) -> Self {
        Self::new(Exit::Usage, error)
    }
}

impl From<identity::Error> for Failure {
    fn from(error: identity::Error) -> Self {
        match error {
            identity::Error::Absent => Self::new(Exit::NotPaired, error),
            identity::Error::Damaged { .. } => Self::new(Exit::IdentityDamaged, error),
            identity::Error::State(error) => error.into(),
            identity::Error::Randomness => Self::new(Exit::Failure, error),
        }
    }
}

impl From<pairing::Error> for Failure {
    fn from(error: pairing::Error) -> Self {
        let exit = match error {
            pairing::Error::Already { .. } => Exit::AlreadyPaired,
            pairing::Error::Shape | pairing::Error::Setup(_) => Exit::Usage,
            pairing::Error::Refused(_) => Exit::PairingRefused,
            pairing::Error::Unanswered(_) => Exit::Unreachable,
            pairing::Error::Identity(error) => return error.into(),
        };
        Self::new(exit, error)
    }
}

impl From<supervisor::Error> for Failure {
    fn from(error: supervisor::Error) -> Self {
        match error {
            supervisor::Error::Plane(_) => Self::new(Exit::Usage, error),
            supervisor::Error::State(error) => error.into(),
            supervisor::Error::System(_) => Self::new(Exit::Failure, error),
        }
    }
}
