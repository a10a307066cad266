//! How the program says how it went. These numbers are a contract with scripts: they are only ever added to.

use std::process::ExitCode;

/// Every exit code of `checkfu`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// It went well.
    Fine = 0,
    /// Something failed that none of the others names, such as a file that cannot be written.
    Failed = 1,
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// The server refused the request as it is; trying again is of no use.
    Refused = 3,
    /// No key, or one that may not do this.
    Denied = 4,
    /// There is no such thing.
    NotFound = 5,
    /// It contradicts what is there already.
    Conflict = 6,
    /// The server is busy or failed; try again later.
    Unavailable = 7,
    /// The server cannot be reached.
    Unreachable = 8,
    /// The followed session stopped without having finished its turn.
    Unfinished = 10,
    /// The followed session waits for an answer to a tool call.
    Waiting = 11,
    /// `serve`: the address is in use.
    AddressInUse = 12,
    /// `verify`, `audit verify`, `export verify`: it is not what was written.
    Damaged = 13,
    /// `doctor`: it works, but something should be done.
    Doubtful = 14,
    /// `serve`: another server uses the data directory.
    DataDirInUse = 15,
}

impl Exit {
    /// All codes with their meaning, for `--help`.
    pub(crate) const HELP: &'static str = "Exit codes:
   0  it went well
   1  something failed that no other code names
   2  the command line or the configuration is wrong
   3  the server refused the request as it is
   4  no key, or one that may not do this
   5  there is no such thing
   6  it contradicts what is there already
   7  the server is busy or failed; try again later
   8  the server cannot be reached
  10  the followed session stopped without finishing its turn
  11  the followed session waits for an answer to a tool call
  12  serve: the address is in use
  13  verify: the log, the audit or the export is not what was written
  14  doctor: it works, but something should be done
  15  serve: another server uses the data directory";

    /// The code for a refusal with this HTTP status.
    pub(crate) const fn of_status(status: u16) -> Self {
        match status {
            401 | 403 => Self::Denied,
            404 => Self::NotFound,
            409 | 412 => Self::Conflict,
            429 | 500.. => Self::Unavailable,
            _ => Self::Refused,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_of_status_has_its_own_code() {
        for (status, want) in [
            (400, Exit::Refused),
            (401, Exit::Denied),
            (403, Exit::Denied),
            (404, Exit::NotFound),
            (409, Exit::Conflict),
            (413, Exit::Refused),
            (429, Exit::Unavailable),
            (503, Exit::Unavailable),
        ] {
            assert_eq!(Exit::of_status(status), want, "{status}");
        }
    }

    #[test]
    fn the_help_names_every_code() {
        for code in [0_u8, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14] {
            assert!(Exit::HELP.lines().any(|line| line.trim().starts_with(&format!("{code} "))), "{code}");
        }
    }
}
