//! Action policies: which tool calls run, ask or are refused. One pure resolution over every rule that matches, the agent's
//! own among them: deny over require_approval over allow, in whatever order the rules come. Without a match the defaults hold.

use super::{glob, grant::texts};
use checkfu_shared::id::{AgentId, PolicyId, PrincipalId, SessionId};
use serde::{Deserialize, Serialize};

texts! {
    /// Whom a rule is about.
    SubjectKind {
        /// The session's acting principal.
        Principal "principal";
        /// A group of the acting principal.
        Group "group";
        /// The session's agent.
        AgentDefinition "agent_definition";
        /// The installation that the session came by.
        AgentInstallation "agent_installation";
        /// The scope of the surface that the session came by.
        SurfaceScope "surface_scope";
        /// The session.
        Session "session";
        /// Everybody.
        Any "*";
    }
}

texts! {
    /// What a rule is about.
    ResourceKind {
        /// A built-in tool, by its name.
        Tool "tool";
        /// A tool of the host application, by its name.
        CustomTool "custom_tool";
        /// A tool of an MCP server, as `server/tool`.
        McpTool "mcp_tool";
        /// A connection.
        Connection "connection";
        /// A memory store.
        MemoryStore "memory_store";
        /// A file.
        File "file";
        /// A host.
        Network "network";
        /// All of them.
        Any "*";
    }
}

texts! {
    /// What becomes of an action, the weakest first.
    Disposition {
        /// It runs.
        Allow "allow";
        /// Somebody has to answer first.
        RequireApproval "require_approval";
        /// It does not run.
        Deny "deny";
    }
}

/// The permission that running a tool asks for.
pub const INVOKE: &str = "invoke";

/// What one rule of a policy says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Whom it is about.
    pub subject: Subject,
    /// What it is about.
    pub resource: Resource,
    /// Which permissions.
    pub permission_glob: String,
    /// What becomes of it.
    pub disposition: Disposition,
    /// Whether the acting principal may not answer its own approval.
    #[serde(default)]
    pub other_responder: bool,
    /// How long an approval waits for its answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u32>,
}

/// Whom a rule is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// The kind.
    pub kind: SubjectKind,
    /// Which of them.
    pub id_glob: String,
}

/// What a rule is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resource {
    /// The kind.
    pub kind: ResourceKind,
    /// Which of them.
    pub id_glob: String,
}

/// Where a rule comes from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Source {
    /// A policy of the workspace.
    ActionPolicy {
        /// Which.
        policy_id: PolicyId,
        /// Its name.
        name: String,
        /// Which of its rules, from 0.
        rule: u32,
    },
    /// The agent's own `permission_policy`, or its declaration of a custom tool.
    Agent,
    /// No rule matched.
    Default,
    /// The agent does not have the tool.
    NotOffered,
    /// A standing approval took the place of an answer.
    StandingApproval {
        /// Which.
        standing_id: checkfu_shared::id::StandingId,
    },
}

/// An action that is asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked<'a> {
    /// Whose rights.
    pub principal: PrincipalId,
    /// The groups of the principal.
    pub groups: &'a [PrincipalId],
    /// Which agent.
    pub agent: AgentId,
    /// Which session, when there is one.
    pub session: Option<SessionId>,
    /// What kind of resource.
    pub kind: ResourceKind,
    /// Which of them.
    pub id: &'a str,
    /// Which permission.
    pub permission: &'a str,
}

/// A rule with where it comes from.
pub type Sourced = (Source, Rule);

/// What the rules say, and which of them decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// What becomes of it.
    pub disposition: Disposition,
    /// What decided.
    pub by: Source,
    /// Whether the acting principal may not answer it.
    pub other_responder: bool,
    /// How long an approval waits, when a rule says so.
    pub ttl_seconds: Option<u32>,
}

impl Rule {
    /// Whether it is about this action.
    #[must_use]
    pub fn matches(&self, asked: &Asked<'_>) -> bool {
        let fits = |text: String| glob::fits(&self.subject.id_glob, &text);
        let subject = match self.subject.kind {
            SubjectKind::Any => true,
            SubjectKind::Principal => fits(asked.principal.to_string()),
            SubjectKind::Group => asked.groups.iter().any(|group| fits(group.to_string())),
            SubjectKind::AgentDefinition => fits(asked.agent.to_string()),
            SubjectKind::Session => asked.session.is_some_and(|session| fits(session.to_string())),
            // No session comes by an installation or a surface yet, so no such rule is about it.
            SubjectKind::AgentInstallation | SubjectKind::SurfaceScope => false,
        };
        subject
            && (self.resource.kind == ResourceKind::Any || self.resource.kind == asked.kind)
            && glob::fits(&self.resource.id_glob, asked.id)
            && glob::fits(&self.permission_glob, asked.permission)
    }
}

/// What becomes of an action that no rule is about.
#[must_use]
pub const fn default_of(kind: ResourceKind, is_read_only: bool) -> Disposition {
    match kind {
        ResourceKind::Tool if is_read_only => Disposition::Allow,
        // Whoever runs an MCP server writes its hints, so they count for nothing.
        _ => Disposition::RequireApproval,
    }
}

/// Resolves an action over all rules. Which of several equally strong rules is named does not depend on their order either.
#[must_use]
pub fn resolve<'r>(
    rules: impl IntoIterator<Item = &'r Sourced>,
    asked: &Asked<'_>,
    is_read_only: bool,
) -> Resolved {
    let mut best: Option<&Sourced> = None;
    let (mut other_responder, mut ttl_seconds) = (false, None);
    for sourced in rules.into_iter().filter(|(_, rule)| rule.matches(asked)) {
        let (source, rule) = sourced;
        if rule.disposition == Disposition::RequireApproval {
            other_responder |= rule.other_responder;
            ttl_seconds = match (ttl_seconds, rule.ttl_seconds) {
                (Some(one), Some(other)) => Some(std::cmp::min::<u32>(one, other)),
                (one, other) => one.or(other),
            };
        }
        let is_better = best.is_none_or(|(best_source, best_rule)| {
            (rule.disposition, std::cmp::Reverse(source))
                > (best_rule.disposition, std::cmp::Reverse(best_source))
        });
        if is_better {
            best = Some(sourced);
        }
    }
    match best {
        Some((source, rule)) => {
            Resolved { disposition: rule.disposition, by: source.clone(), other_responder, ttl_seconds }
        }
        None => Resolved {
            disposition: default_of(asked.kind, is_read_only),
            by: Source::Default,
            other_responder: false,
            ttl_seconds: None,
        },
    }
}

/// A rule of the agent itself.
#[must_use]
pub fn agents_own(agent: AgentId, kind: ResourceKind, name: &str, disposition: Disposition) -> Sourced {
    let rule = Rule {
        subject: Subject { kind: SubjectKind::AgentDefinition, id_glob: agent.to_string() },
        resource: Resource { kind, id_glob: name.to_owned() },
        permission_glob: "*".to_owned(),
        disposition,
        other_responder: false,
        ttl_seconds: None,
    };
    (Source::Agent, rule)
}

/// An approval that stands: the same call of the same agent for the same principal runs without asking again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Which.
    pub id: checkfu_shared::id::StandingId,
    /// What kind of tool.
    pub kind: ResourceKind,
    /// Its name.
    pub tool: String,
    /// SHA-256 of the one argument object that it is good for.
    pub arguments_sha256: String,
}

/// What a workspace says that a decision has to know; loaded with the session, for this one decision.
#[derive(Debug, Clone, Default)]
pub struct Context {
    /// The rules of every policy in force.
    pub rules: Vec<Sourced>,
    /// The groups of the acting principal.
    pub groups: Vec<PrincipalId>,
    /// The approvals that stand for this principal and this agent.
    pub standing: Vec<Standing>,
}

#[cfg(test)]
mod tests;
