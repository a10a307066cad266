//! What principals may do: closed permissions on closed kinds of resources, each over a pattern of ids. Nothing here denies;
//! what no grant covers is refused. Roles are named sets of grants and nothing more.

use super::glob;
use checkfu_shared::problem::{Code, Problem};
use serde::{Deserialize, Serialize};

macro_rules! texts {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident $text:literal;)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name { $($(#[$variant_doc])* #[serde(rename = $text)] $variant,)* }

        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The text on the wire and in the store.
            #[must_use]
            pub const fn as_str(self) -> &'static str { match self { $(Self::$variant => $text,)* } }

            /// The one with this text.
            #[must_use]
            pub fn from_text(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$variant),)* _ => None }
            }
        }
    };
}
pub(crate) use texts;

texts! {
    /// What may be done.
    Permission {
        /// Have sessions of an agent act for oneself.
        Invoke "invoke";
        /// Have sessions in an environment act for oneself.
        UseEnvironment "use_environment";
        /// Be reached by a coordinator of an agent.
        UseAgent "use_agent";
        /// Use a connection.
        UseConnection "use_connection";
        /// Pair, drain and revoke runners.
        PairRunner "pair_runner";
        /// Take up runs in an environment, as a runner.
        Claim "claim";
        /// Answer what asks.
        RespondApproval "respond_approval";
        /// Speak for another principal.
        ActAs "act_as";
        /// Read.
        Read "read";
        /// Make and change.
        Write "write";
        /// Govern: principals, keys, assignments, policies, audit.
        Admin "admin";
    }
}

texts! {
    /// What something may be done to.
    Kind {
        /// An agent definition.
        Agent "agent";
        /// An environment.
        Environment "environment";
        /// A session with its log and files.
        Session "session";
        /// A runner or a pairing.
        Runner "runner";
        /// A principal.
        Principal "principal";
        /// The workspace itself: keys, assignments, policies, audit.
        Workspace "workspace";
        /// An action approval.
        ActionApproval "action_approval";
        /// A connection.
        Connection "connection";
        /// All of them.
        Any "*";
    }
}

texts! {
    /// A named set of permissions, each on everything.
    Role {
        /// Nothing; what its principal may do is assigned row by row.
        None "none";
        /// Reads.
        Viewer "viewer";
        /// Works with agents, environments and sessions.
        Developer "developer";
        /// Pairs runners too.
        Operator "operator";
        /// Everything.
        Owner "owner";
    }
}

impl Role {
    /// The permissions that the role is compiled to.
    #[must_use]
    pub fn permissions(self) -> &'static [Permission] {
        use Permission::{Claim, Invoke, PairRunner, Read, RespondApproval, UseAgent, UseEnvironment, Write};
        match self {
            Self::None => &[],
            Self::Viewer => &[Read],
            Self::Developer => &[Read, Write, Invoke, UseEnvironment, UseAgent, RespondApproval],
            Self::Operator => {
                &[Read, Write, Invoke, UseEnvironment, UseAgent, RespondApproval, PairRunner, Claim]
            }
            Self::Owner => Permission::ALL,
        }
    }
}

/// One live assignment, as a decision sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// What may be done.
    pub permission: Permission,
    /// To what.
    pub kind: Kind,
    /// To which of them.
    pub id_glob: String,
}

/// Everything that one principal may do now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grants(pub Vec<Grant>);

impl Grants {
    /// The grants of a role.
    #[must_use]
    pub fn of_role(role: Role) -> Self {
        let grant = |&permission| Grant { permission, kind: Kind::Any, id_glob: "*".to_owned() };
        Self(role.permissions().iter().map(grant).collect())
    }

    /// Whether the resource with this id is covered; the empty id stands for the kind as a whole.
    #[must_use]
    pub fn covers(&self, permission: Permission, kind: Kind, id: &str) -> bool {
        self.of(permission, kind).any(|grant| glob::fits(&grant.id_glob, id))
    }

    /// Whether anything of this kind is covered.
    #[must_use]
    pub fn covers_some(&self, permission: Permission, kind: Kind) -> bool {
        self.of(permission, kind).next().is_some()
    }

    fn of(&self, permission: Permission, kind: Kind) -> impl Iterator<Item = &Grant> {
        self.0.iter().filter(move |grant| {
            grant.permission == permission && (grant.kind == kind || grant.kind == Kind::Any)
        })
    }

    /// Lets the act pass.
    ///
    /// # Errors
    /// [`Code::PermissionDenied`] naming what is missing.
    pub fn check(&self, permission: Permission, kind: Kind, id: &str) -> Result<(), Problem> {
        if self.covers(permission, kind, id) { Ok(()) } else { Err(denied(permission, kind, id)) }
    }
}

/// The refusal of an act that no grant covers.
#[must_use]
pub fn denied(permission: Permission, kind: Kind, id: &str) -> Problem {
    let (permission, kind) = (permission.as_str(), kind.as_str());
    let which = if id.is_empty() { format!("{kind} *") } else { format!("{kind} {id}") };
    Problem::new(
        Code::PermissionDenied,
        format!("This needs the permission `{permission}` on {which}, which no permission assignment gives. Ask an owner of the workspace for one."),
    )
    .with("permission", permission)
    .with("resource_kind", kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_role_holds_what_the_one_below_holds() {
        let roles = [Role::None, Role::Viewer, Role::Developer, Role::Operator, Role::Owner];
        for pair in roles.windows(2) {
            for permission in pair[0].permissions() {
                assert!(pair[1].permissions().contains(permission), "{pair:?} {permission:?}");
            }
        }
        assert_eq!(Role::ALL.len(), roles.len());
        for &role in Role::ALL {
            assert_eq!(Role::from_text(role.as_str()), Some(role));
        }
    }

    #[test]
    fn a_narrow_grant_covers_its_ids_and_not_the_kind_as_a_whole() {
        let grant = Grant { permission: Permission::Read, kind: Kind::Agent, id_glob: "agent_0*".to_owned() };
        let grants = Grants(vec![grant]);
        assert!(grants.covers(Permission::Read, Kind::Agent, "agent_01"));
        assert!(!grants.covers(Permission::Read, Kind::Agent, "agent_1"));
        assert!(!grants.covers(Permission::Read, Kind::Agent, ""));
        assert!(grants.covers_some(Permission::Read, Kind::Agent));
        assert!(!grants.covers(Permission::Write, Kind::Agent, "agent_01"));
        assert!(!grants.covers(Permission::Read, Kind::Session, "agent_01"));
        assert_eq!(
            Grants::default().check(Permission::Read, Kind::Agent, "").unwrap_err().code,
            Code::PermissionDenied
        );
    }

    proptest! {
        #[test]
        fn taking_a_grant_away_never_allows_more(roles in proptest::collection::vec(0usize..5, 0..4), drop in 0usize..30,
            permission in 0usize..11, kind in 0usize..9, id in "[a-z]{0,4}") {
            let all = Grants(roles.iter().flat_map(|&at| Grants::of_role(Role::ALL[at]).0).collect());
            let mut less = all.clone();
            if drop < less.0.len() {
                less.0.remove(drop);
            }
            let (permission, kind) = (Permission::ALL[permission], Kind::ALL[kind]);
            prop_assert!(!less.covers(permission, kind, &id) || all.covers(permission, kind, &id));
        }
    }
}
