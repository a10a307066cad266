//! Whether a tool call may run: what the agent offers, its own rules, the workspace's policies and the approvals that stand,
//! in one pure function. Nobody else decides.

use super::{
    draft::Facts,
    policy::{self, Asked, Disposition, ResourceKind, Source},
};
use checkfu_shared::{agent::PermissionPolicy, event::EvaluatedPermission, id::StandingId, tool};

/// What the rules say, with a sentence that the model may read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evaluated {
    /// Yes, no, or somebody has to answer.
    pub permission: EvaluatedPermission,
    /// Why.
    pub reason: String,
    /// What decided.
    pub by: Source,
    /// Whether the acting principal may not answer it.
    pub other_responder: bool,
    /// How long an approval waits, when a rule says so.
    pub ttl_seconds: Option<u32>,
}

impl Evaluated {
    /// What needs no rule.
    #[must_use]
    pub fn plain(permission: EvaluatedPermission, reason: impl Into<String>, by: Source) -> Self {
        Self { permission, reason: reason.into(), by, other_responder: false, ttl_seconds: None }
    }

    /// The standing approval that answered, when one did.
    #[must_use]
    pub const fn standing(&self) -> Option<StandingId> {
        match self.by {
            Source::StandingApproval { standing_id } => Some(standing_id),
            _ => None,
        }
    }
}

/// What the rules say of a call with these arguments.
#[must_use]
pub fn evaluate(facts: &Facts, kind: ResourceKind, name: &str, arguments_sha256: &str) -> Evaluated {
    let own = match kind {
        ResourceKind::CustomTool => custom(facts, name),
        _ => built_in(facts, name),
    };
    let own = match own {
        Ok(own) => own,
        Err(reason) => {
            return Evaluated::plain(EvaluatedPermission::Deny, reason, Source::NotOffered);
        }
    };
    let (agent, context) = (facts.agent.id, &facts.policy);
    let own = own.map(|disposition| policy::agents_own(agent, kind, name, disposition));
    let asked = Asked {
        principal: facts.pins.principal_id,
        groups: &context.groups,
        agent,
        session: Some(facts.session_id),
        kind,
        id: name,
        permission: policy::INVOKE,
    };
    let reads =
        kind == ResourceKind::Tool && tool::Name::from_text(name).is_some_and(tool::Name::is_read_only);
    let resolved = policy::resolve(context.rules.iter().chain(&own), &asked, reads);
    if resolved.disposition == Disposition::RequireApproval {
        let stands = context.standing.iter().find(|standing| {
            standing.kind == kind && standing.tool == name && standing.arguments_sha256 == arguments_sha256
        });
        if let Some(standing) = stands {
            let by = Source::StandingApproval { standing_id: standing.id };
            return Evaluated::plain(
                EvaluatedPermission::Allow,
                "A standing approval covers this exact call.",
                by,
            );
        }
    }
    Evaluated {
        permission: match resolved.disposition {
            Disposition::Allow => EvaluatedPermission::Allow,
            Disposition::RequireApproval => EvaluatedPermission::Ask,
            Disposition::Deny => EvaluatedPermission::Deny,
        },
        reason: reason(&resolved),
        by: resolved.by,
        other_responder: resolved.other_responder,
        ttl_seconds: resolved.ttl_seconds,
    }
}

/// Why, in a sentence.
#[must_use]
pub fn reason(resolved: &policy::Resolved) -> String {
    use Disposition::{Allow, Deny, RequireApproval};
    match (&resolved.by, resolved.disposition) {
        (Source::ActionPolicy { name, rule, .. }, disposition) => {
            let what = match disposition {
                Allow => "allows it",
                RequireApproval => "asks each time",
                Deny => "denies it",
            };
            format!("The workspace's policy `{name}` {what} (rule {rule}).")
        }
        (Source::Agent, Allow) => "The agent's rule always allows this tool.".to_owned(),
        (Source::Agent, _) => "The agent's rule asks each time this tool is called.".to_owned(),
        (_, Allow) => "Tools that only read are allowed by default.".to_owned(),
        (_, RequireApproval) => "Tools that can change something ask by default.".to_owned(),
        (_, Deny) => "It is not allowed.".to_owned(),
    }
}

/// The agent's own rule for a built-in tool.
fn built_in(facts: &Facts, name: &str) -> Result<Option<Disposition>, String> {
    let Some(tool) = tool::Name::from_text(name) else {
        let offered = tool::Name::ALL.map(tool::Name::as_str).join(", ");
        return Err(format!("There is no tool named `{name}`. The built-in tools are: {offered}."));
    };
    let own = facts.agent.built_in(tool);
    let own =
        own.ok_or_else(|| format!("The tool `{name}` is not enabled for this agent. Go on without it."))?;
    Ok(own.map(|policy| match policy {
        PermissionPolicy::AlwaysAllow => Disposition::Allow,
        PermissionPolicy::AlwaysAsk => Disposition::RequireApproval,
    }))
}

/// An agent's declaration of a custom tool lets its calls reach the host application; a policy may ask first or deny.
fn custom(facts: &Facts, name: &str) -> Result<Option<Disposition>, String> {
    if facts.agent.has_custom(name) {
        Ok(Some(Disposition::Allow))
    } else {
        Err(format!("The agent declares no custom tool named `{name}`. Go on without it."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{
        policy::{Resource, Rule, Subject, SubjectKind},
        tests::{agent, facts},
    };
    use checkfu_shared::{
        agent::{Agent, Tool, ToolConfig, ToolSwitch},
        id::PolicyId,
    };

    fn with(default: Option<PermissionPolicy>, config: Option<ToolConfig>) -> Agent {
        let toolset = Tool::Toolset {
            configs: config.into_iter().collect(),
            default_config: ToolSwitch { enabled: true, permission_policy: default },
        };
        agent(vec![toolset])
    }

    fn rule(kind: ResourceKind, disposition: Disposition) -> policy::Sourced {
        let by =
            Source::ActionPolicy { policy_id: PolicyId::from_bytes([1; 16]), name: "p".to_owned(), rule: 0 };
        let rule = Rule {
            subject: Subject { kind: SubjectKind::Any, id_glob: "*".to_owned() },
            resource: Resource { kind, id_glob: "*".to_owned() },
            permission_glob: "*".to_owned(),
            disposition,
            other_responder: false,
            ttl_seconds: None,
        };
        (by, rule)
    }

    #[test]
    fn the_agents_rule_comes_before_the_defaults() {
        use EvaluatedPermission::{Allow, Ask, Deny};
        let off = ToolConfig { name: "bash".to_owned(), kind: None, enabled: false, permission_policy: None };
        let cases = [
            (with(None, None), "read", Allow),
            (with(None, None), "grep", Allow),
            (with(None, None), "write", Ask),
            (with(None, None), "bash", Ask),
            (with(Some(PermissionPolicy::AlwaysAllow), None), "bash", Allow),
            (with(Some(PermissionPolicy::AlwaysAsk), None), "read", Ask),
            (with(None, Some(off)), "bash", Deny),
            (with(None, None), "teleport", Deny),
            (agent(vec![]), "read", Deny),
        ];
        for (agent, name, want) in cases {
            let facts = Facts { agent, ..facts() };
            assert_eq!(evaluate(&facts, ResourceKind::Tool, name, "").permission, want, "{name}");
        }
    }

    #[test]
    fn a_policy_overrules_the_agent_by_asking_or_denying_and_never_by_allowing_more_than_it() {
        use EvaluatedPermission::{Allow, Ask, Deny};
        let always = Some(PermissionPolicy::AlwaysAllow);
        let asks = Some(PermissionPolicy::AlwaysAsk);
        for (own, disposition, want) in [
            (always, Disposition::Deny, Deny),
            (always, Disposition::RequireApproval, Ask),
            (asks, Disposition::Allow, Ask),
            (None, Disposition::Allow, Allow),
        ] {
            let mut facts = Facts { agent: with(own, None), ..facts() };
            facts.policy.rules = vec![rule(ResourceKind::Tool, disposition)];
            assert_eq!(
                evaluate(&facts, ResourceKind::Tool, "bash", "").permission,
                want,
                "{own:?} {disposition:?}"
            );
        }
    }

    #[test]
    fn a_custom_tool_passes_the_same_gate_and_a_standing_approval_fits_one_exact_call() {
        let custom = Tool::Custom {
            name: "lookup".to_owned(),
            description: "looks up".to_owned(),
            input_schema: serde_json::json!({}),
        };
        let mut facts = Facts { agent: agent(vec![custom]), ..facts() };
        let see = |facts: &Facts, digest: &str| {
            evaluate(facts, ResourceKind::CustomTool, "lookup", digest).permission
        };
        assert_eq!(see(&facts, "a"), EvaluatedPermission::Allow);
        assert_eq!(evaluate(&facts, ResourceKind::CustomTool, "other", "").by, Source::NotOffered);
        facts.policy.rules = vec![rule(ResourceKind::CustomTool, Disposition::RequireApproval)];
        assert_eq!(see(&facts, "a"), EvaluatedPermission::Ask);
        facts.policy.standing = vec![policy::Standing {
            id: StandingId::from_bytes([3; 16]),
            kind: ResourceKind::CustomTool,
            tool: "lookup".to_owned(),
            arguments_sha256: "a".to_owned(),
        }];
        assert_eq!(see(&facts, "a"), EvaluatedPermission::Allow);
        assert_eq!(see(&facts, "b"), EvaluatedPermission::Ask);
        facts.policy.rules.push(rule(ResourceKind::Any, Disposition::Deny));
        assert_eq!(see(&facts, "a"), EvaluatedPermission::Deny);
    }
}
