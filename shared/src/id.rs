//! Prefixed identifiers: `<prefix>_` and 32 lowercase hexadecimal digits of a version 7 UUID, so they sort by time.
//! Parsing is the only way in from outside; an id of another kind does not parse.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{fmt, str::FromStr};
use uuid::Uuid;

/// Why a text is not an id of the wanted kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a valid {kind} id: it must be `{prefix}_` and 32 lowercase hexadecimal digits")]
pub struct Error {
    /// What the id should name, such as `session`.
    pub kind: &'static str,
    /// The prefix it should carry.
    pub prefix: &'static str,
}

fn parse(text: &str, kind: &'static str, prefix: &'static str) -> Result<Uuid, Error> {
    let wrong = Error { kind, prefix };
    let digits =
        text.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('_')).ok_or_else(|| wrong.clone())?;
    let lowercase_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if digits.len() != 32 || !digits.bytes().all(lowercase_hex) {
        return Err(wrong);
    }
    Uuid::try_parse(digits).map_err(|_| wrong)
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident $prefix:literal $kind:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Uuid);

        impl $name {
            /// The text in front of the underscore.
            pub const PREFIX: &'static str = $prefix;

            /// Mints a fresh id; two calls never give the same one.
            #[must_use]
            pub fn mint() -> Self {
                Self(Uuid::now_v7())
            }

            /// The id with these 16 bytes, for tests and for deriving one id from another.
            #[must_use]
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(Uuid::from_bytes(bytes))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "_{}"), self.0.as_simple())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = Error;
            fn from_str(text: &str) -> Result<Self, Error> {
                parse(text, $kind, $prefix).map(Self)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}

ids! {
    /// A session.
    SessionId "sess" "session";
    /// An environment.
    EnvironmentId "env" "environment";
    /// A vault.
    VaultId "vlt" "vault";
    /// An automation.
    AutomationId "auto" "automation";
    /// An agent definition.
    AgentId "agent" "agent";
    /// An event of a session's log.
    EventId "sevt" "event";
    /// A thread of a session.
    ThreadId "sthr" "thread";
    /// A run.
    RunId "run" "run";
    /// A paired runner.
    RunnerId "rnr" "runner";
    /// A pairing code's row.
    PairingId "pair" "pairing";
    /// A claim.
    ClaimId "clm" "claim";
    /// A principal.
    PrincipalId "prin" "principal";
    /// An API key's row.
    KeyId "key" "API key";
    /// A captured or uploaded file.
    FileId "file" "file";
    /// A settlement in progress.
    SettlementId "stl" "settlement";
    /// One upload of a settlement.
    UploadId "upl" "upload";
    /// One start of a runner.
    InstanceId "inst" "instance";
    /// One claim request, repeated unchanged when its reply was lost.
    ClaimRequestId "creq" "claim request";
    /// One HTTP request.
    RequestId "req" "request";
    /// An approval of one action.
    ApprovalId "appr" "approval";
    /// A standing approval.
    StandingId "stnd" "standing approval";
    /// A permission assignment.
    AssignmentId "perm" "permission assignment";
    /// An agent deployment.
    DeploymentId "adep" "agent deployment";
    /// An action policy.
    PolicyId "apol" "action policy";
    /// A model provider.
    ProviderId "prov" "provider";
    /// A model route.
    ModelRouteId "mrt" "model route";
    /// A budget of a session.
    BudgetId "bud" "budget";
    /// A workspace.
    WorkspaceId "wrk" "workspace";
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_id_of_another_kind_or_shape_does_not_parse() {
        let good = SessionId::mint().to_string();
        assert_eq!(good.parse::<SessionId>().unwrap().to_string(), good);
        for bad in
            ["", "sess_", "sess_12", &good.to_uppercase(), &good.replace("sess", "run"), &format!("{good}0")]
        {
            assert!(bad.parse::<SessionId>().is_err(), "{bad} parsed");
        }
    }

    proptest! {
        #[test]
        fn any_sixteen_bytes_survive_printing_and_parsing(bytes: [u8; 16]) {
            let id = RunId::from_bytes(bytes);
            prop_assert_eq!(id.to_string().parse::<RunId>(), Ok(id));
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in ".{0,60}") {
            let _ = text.parse::<EventId>();
        }
    }
}
