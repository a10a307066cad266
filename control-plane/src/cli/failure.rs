//! What went wrong, for a person and for a script: one sentence on what failed and what to do, and an exit code.

use super::{exit::Exit, terminal};
use checkfu_shared::problem::{Code, Problem};
use std::io;

/// A command that did not go well.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Failure {
    /// How the program ends.
    pub(crate) exit: Exit,
    /// For a person; empty when there is nobody to read it.
    pub(crate) message: String,
}

impl Failure {
    /// A failure with this code. `message` may hold foreign text.
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }

    /// Something on this machine failed.
    pub(crate) fn local(message: impl Into<String>) -> Self {
        Self::new(Exit::Failed, message)
    }

    /// The command line or the configuration is wrong.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// Output could not be written. A closed pipe means that its reader has seen enough.
    pub(crate) fn output(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::new(Exit::Fine, "");
        }
        Self::local(format!("The output could not be written: {error}."))
    }

    /// The server refused.
    pub(crate) fn refused(status: u16, problem: &Problem, request_id: &str) -> Self {
        let mut message = problem.message.clone();
        if let Some(hint) = hint(problem) {
            message = format!("{message}\n{hint}");
        }
        if status >= 500 {
            message = format!("{message}\nRequest id: {request_id}");
        }
        // What a body names and nobody knows is as absent as what a path names.
        let exit = match problem.code {
            Code::UnknownReference => Exit::NotFound,
            _ => Exit::of_status(status),
        };
        Self::new(exit, message)
    }

    /// The text for standard error, escaped.
    pub(crate) fn shown(&self) -> String {
        terminal::block(&self.message).into_owned()
    }
}

/// What a person at the command line can do, where the server's own words are for programs.
fn hint(problem: &Problem) -> Option<&'static str> {
    match problem.code {
        Code::Unauthenticated => {
            Some("Set CHECKFU_API_KEY, or CHECKFU_API_KEY_FILE to a file such as DATA_DIR/admin.key.")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_body_names_and_nobody_knows_is_not_found() {
        let failure = Failure::refused(400, &Problem::new(Code::UnknownReference, "No such agent."), "req_1");
        assert_eq!(failure.exit, Exit::NotFound);
    }

    #[test]
    fn a_refusal_shows_the_servers_words_and_ends_by_its_class() {
        let failure =
            Failure::refused(404, &Problem::new(Code::NotFound, "No such session.\u{1b}[2J"), "req_1");
        assert_eq!((failure.exit, failure.shown().as_str()), (Exit::NotFound, "No such session.\\u{1b}[2J"));
    }

    #[test]
    fn a_missing_key_says_where_to_put_it_and_a_defect_names_its_request() {
        let failure = Failure::refused(401, &Problem::new(Code::Unauthenticated, "No."), "req_1");
        assert!(failure.message.contains("CHECKFU_API_KEY_FILE"));
        let failure = Failure::refused(500, &Problem::new(Code::Internal, "No."), "req_7");
        assert!(failure.message.contains("req_7"));
    }

    #[test]
    fn a_closed_pipe_is_quiet() {
        let failure = Failure::output(&io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!((failure.exit, failure.message.as_str()), (Exit::Fine, ""));
    }
}
