//! Whether a tool call may run: one pure function over the agent's own rules and the defaults. The one place where
//! workspace policies will join; nobody else decides.

use checkfu_shared::{
    agent::{Agent, PermissionPolicy},
    event::EvaluatedPermission,
    tool,
};

/// What the rules say, with a sentence that the model may read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evaluated {
    /// Yes, no, or somebody has to answer.
    pub permission: EvaluatedPermission,
    /// Why.
    pub reason: String,
}

impl Evaluated {
    fn new(permission: EvaluatedPermission, reason: impl Into<String>) -> Self {
        Self { permission, reason: reason.into() }
    }
}

/// What the rules say of a built-in tool.
#[must_use]
pub fn built_in(agent: &Agent, name: &str) -> Evaluated {
    let Some(tool) = tool::Name::from_text(name) else {
        let offered = tool::Name::ALL.map(tool::Name::as_str).join(", ");
        return Evaluated::new(
            EvaluatedPermission::Deny,
            format!("There is no tool named `{name}`. The built-in tools are: {offered}."),
        );
    };
    match agent.built_in(tool) {
        None => Evaluated::new(
            EvaluatedPermission::Deny,
            format!("The tool `{name}` is not enabled for this agent. Go on without it."),
        ),
        Some(Some(PermissionPolicy::AlwaysAllow)) => {
            Evaluated::new(EvaluatedPermission::Allow, "The agent's rule always allows this tool.")
        }
        Some(Some(PermissionPolicy::AlwaysAsk)) => {
            Evaluated::new(EvaluatedPermission::Ask, "The agent's rule asks each time this tool is called.")
        }
        Some(None) if tool.is_read_only() => {
            Evaluated::new(EvaluatedPermission::Allow, "Tools that only read are allowed by default.")
        }
        Some(None) => {
            Evaluated::new(EvaluatedPermission::Ask, "Tools that can change something ask by default.")
        }
    }
}

/// What the rules say of a custom tool: the host application that runs it has its own gate.
#[must_use]
pub fn custom(agent: &Agent, name: &str) -> Evaluated {
    if agent.has_custom(name) {
        Evaluated::new(EvaluatedPermission::Allow, "The agent declares this custom tool.")
    } else {
        Evaluated::new(
            EvaluatedPermission::Deny,
            format!("The agent declares no custom tool named `{name}`. Go on without it."),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use checkfu_shared::agent::{Tool, ToolConfig, ToolSwitch};

    fn agent(default: Option<PermissionPolicy>, config: Option<ToolConfig>) -> Agent {
        let toolset = Tool::Toolset {
            configs: config.into_iter().collect(),
            default_config: ToolSwitch { enabled: true, permission_policy: default },
        };
        crate::domain::tests::agent(vec![toolset])
    }

    #[test]
    fn the_agents_rule_comes_before_the_defaults() {
        use EvaluatedPermission::{Allow, Ask, Deny};
        let off = ToolConfig { name: "bash".to_owned(), kind: None, enabled: false, permission_policy: None };
        let cases = [
            (agent(None, None), "read", Allow),
            (agent(None, None), "grep", Allow),
            (agent(None, None), "write", Ask),
            (agent(None, None), "bash", Ask),
            (agent(Some(PermissionPolicy::AlwaysAllow), None), "bash", Allow),
            (agent(Some(PermissionPolicy::AlwaysAsk), None), "read", Ask),
            (agent(None, Some(off)), "bash", Deny),
            (agent(None, None), "teleport", Deny),
            (crate::domain::tests::agent(vec![]), "read", Deny),
        ];
        for (agent, name, want) in cases {
            assert_eq!(built_in(&agent, name).permission, want, "{name}");
        }
    }
}
