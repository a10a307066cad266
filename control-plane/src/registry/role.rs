//! Which acts a role covers. A pure table, asked at the edge of every governing request.

use checkfu_shared::problem::{Code, Problem};
use serde::{Deserialize, Serialize};

/// A named set of permissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Reads.
    Viewer,
    /// Works with agents, environments and sessions.
    Developer,
    /// Pairs, drains and revokes runners too.
    Operator,
    /// Everything, keys and principals included.
    Owner,
}

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Changes agents, environments or sessions.
    Write,
    /// Pairs, drains or revokes runners.
    GovernRunners,
    /// Makes or revokes keys and principals.
    GovernKeys,
    /// Speaks for another principal.
    ActAs,
}

impl Role {
    /// The stored text.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Developer => "developer",
            Self::Operator => "operator",
            Self::Owner => "owner",
        }
    }

    /// The role with this text.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        [Self::Viewer, Self::Developer, Self::Operator, Self::Owner]
            .into_iter()
            .find(|role| role.as_str() == text)
    }

    const fn least_for(act: Act) -> Self {
        match act {
            Act::Write => Self::Developer,
            Act::GovernRunners => Self::Operator,
            Act::GovernKeys | Act::ActAs => Self::Owner,
        }
    }

    /// Lets the act pass.
    ///
    /// # Errors
    /// `permission_denied` naming the role that would do.
    pub fn check(self, act: Act) -> Result<(), Problem> {
        let least = Self::least_for(act);
        if self >= least {
            return Ok(());
        }
        let what = match act {
            Act::Write => "change anything",
            Act::GovernRunners => "govern runners",
            Act::GovernKeys => "govern keys and principals",
            Act::ActAs => "speak for another principal (act_as)",
        };
        let message = format!(
            "The key's principal has the role {} and may not {what}. Use a key of a principal with the role {}.",
            self.as_str(),
            least.as_str()
        );
        Err(Problem::new(Code::PermissionDenied, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_covers_its_acts_and_no_more() {
        use Act::{ActAs, GovernKeys, GovernRunners, Write};
        for (role, acts) in [
            (Role::Viewer, &[][..]),
            (Role::Developer, &[Write]),
            (Role::Operator, &[Write, GovernRunners]),
            (Role::Owner, &[Write, GovernRunners, GovernKeys, ActAs]),
        ] {
            for act in [Write, GovernRunners, GovernKeys, ActAs] {
                assert_eq!(role.check(act).is_ok(), acts.contains(&act), "{role:?} {act:?}");
            }
            assert_eq!(Role::from_text(role.as_str()), Some(role));
        }
    }
}
