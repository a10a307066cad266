//! What the sandbox's errors and beginnings mean for the session. Pure.

use crate::{
    harness::{News, Trouble},
    sandbox::{Error, How, egress::Denial},
};
use checkfu_shared::event::Body;

/// What a failed opening means: hopeless things stay as they are however often they are tried.
pub(super) fn of_open(error: &Error) -> Trouble {
    let told = error.to_string();
    match error {
        Error::ImageNotFound { .. }
        | Error::ImagePull { .. }
        | Error::Packages { .. }
        | Error::Unsafe { .. }
        | Error::NoToolbox { .. }
        | Error::ToolboxEnded
        | Error::NotLocal { .. }
        | Error::NameTaken { .. } => Trouble::Hopeless(told),
        _ => Trouble::Away(told),
    }
}

/// What a failed call means.
pub(super) fn of_call(error: &Error) -> Trouble {
    let told = error.to_string();
    match error {
        Error::Lost => Trouble::Lost(told),
        Error::BadCall => Trouble::Refused(told),
        Error::NoSocket { .. }
        | Error::SocketDenied { .. }
        | Error::Unavailable { .. }
        | Error::Engine { .. } => Trouble::Away(told),
        _ => Trouble::Unknown(told),
    }
}

/// What is told of a sandbox that was just opened. `had_sandbox`: the log tells of an earlier one.
pub(super) fn news(how: How, had_sandbox: bool) -> News {
    match how {
        How::Adopted => News::default(),
        How::Restarted => News {
            event: Some(Body::SandboxRestarted {}),
            notice: Some(
                "(The sandbox was started again: its files are as they were, its processes are gone.)"
                    .to_owned(),
            ),
        },
        How::Created { image } if !had_sandbox => {
            News { event: Some(Body::SandboxCreated { image }), notice: None }
        }
        How::Created { .. } => replaced("the earlier sandbox is not on this machine any more".to_owned()),
        How::Replaced { reason } => replaced(reason),
    }
}

fn replaced(reason: String) -> News {
    let notice = format!(
        "(This is a new sandbox: the earlier one is gone with all of its files, {reason}. Files that were in \
         /mnt/session/outputs when a turn ended are safe with the user.)"
    );
    News { event: Some(Body::SandboxReplaced { reason }), notice: Some(notice) }
}

/// A refusal of the network policy as an event.
pub(super) fn denial(denial: Denial) -> Body {
    Body::SandboxEgressDenied {
        host: denial.host,
        port: denial.port,
        reason: denial.reason.as_str().to_owned(),
        count: u32::try_from(denial.count).unwrap_or(u32::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_cannot_heal_is_hopeless() {
        assert!(matches!(of_open(&Error::ImageNotFound { image: "x".into() }), Trouble::Hopeless(_)));
        assert!(matches!(of_open(&Error::ToolboxEnded), Trouble::Hopeless(_)));
        assert!(matches!(of_open(&Error::Unavailable { detail: "d".into() }), Trouble::Away(_)));
        assert!(matches!(of_call(&Error::Lost), Trouble::Lost(_)));
        assert!(matches!(of_call(&Error::Hostile { what: "x".into() }), Trouble::Unknown(_)));
    }

    #[test]
    fn a_new_sandbox_after_an_earlier_one_is_told_as_its_replacement() {
        let created = || How::Created { image: "i".into() };
        assert_eq!(news(created(), false).event, Some(Body::SandboxCreated { image: "i".into() }));
        assert!(matches!(news(created(), true).event, Some(Body::SandboxReplaced { .. })));
        assert!(news(created(), true).notice.unwrap().contains("gone"));
        assert_eq!(news(How::Adopted, true), News::default());
    }
}
