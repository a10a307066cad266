//! `agent_with_overrides`: a session may take capability away from its agent and never add any. Instructions are content,
//! so they may be replaced.

use crate::http::{
    fields::{Fields, unsupported, wrong},
    public::agents,
};
use checkfu_shared::{
    agent::{Agent, PermissionPolicy, Tool, ToolConfig, ToolSwitch},
    problem::Problem,
    tool::Name,
};

const INSTRUCTIONS_BYTES_MAX: usize = 64 << 10;

/// Applies the overrides in `fields` to a snapshot; the instructions that take the system prompt's place, if any.
///
/// # Errors
/// A refusal naming the override that would add capability or is not there.
pub(crate) fn apply(fields: &mut Fields, agent: &mut Agent) -> Result<Option<String>, Problem> {
    if fields.has("model") {
        let message = "A session runs the model of its agent. Make another agent, or leave `model` out.";
        return Err(unsupported(&fields.path("model"), message));
    }
    if fields.has("mcp_servers") {
        let message = "MCP servers are declared on the agent only. Leave `mcp_servers` out.";
        return Err(unsupported(&fields.path("mcp_servers"), message));
    }
    if fields.value("skills").is_some_and(|skills| skills != serde_json::json!(agent.skills)) {
        let message = "Choosing among skills is not there yet. Leave `skills` out.";
        return Err(unsupported(&fields.path("skills"), message));
    }
    select(fields, agent)?;
    instructions_named(fields, "system", agent)
}

/// Applies a choice among the agent's tools; without one the agent keeps all of them.
///
/// # Errors
/// A refusal naming the tool that would add capability.
pub(crate) fn select(fields: &mut Fields, agent: &mut Agent) -> Result<(), Problem> {
    let path = fields.path("tools");
    if let Some(tools) = agents::take_tools(fields)? {
        agent.tools = narrowed(agent, &tools, &path)?;
    }
    Ok(())
}

/// Takes what replaces the system prompt, from the member of this name.
///
/// # Errors
/// A refusal of a text that is too long.
pub(crate) fn instructions_named(
    fields: &mut Fields,
    name: &str,
    agent: &mut Agent,
) -> Result<Option<String>, Problem> {
    if !fields.has(name) {
        return Ok(None);
    }
    let path = fields.path(name);
    match fields.text(name)?.filter(|text| !text.is_empty()) {
        Some(text) if text.len() > INSTRUCTIONS_BYTES_MAX => {
            Err(wrong(&path, &format!("must have at most {INSTRUCTIONS_BYTES_MAX} bytes")))
        }
        Some(text) => Ok(Some(text)),
        None => {
            agent.system = None;
            Ok(None)
        }
    }
}

fn narrowed(agent: &Agent, wanted: &[Tool], path: &str) -> Result<Vec<Tool>, Problem> {
    wanted.iter().map(|tool| one(agent, tool, path)).collect()
}

fn one(agent: &Agent, wanted: &Tool, path: &str) -> Result<Tool, Problem> {
    match wanted {
        Tool::Toolset { configs, default_config } => toolset(agent, configs, default_config, path),
        Tool::Custom { name, .. } if agent.tools.contains(wanted) => {
            tracing::trace!(name, "a custom tool stays");
            Ok(wanted.clone())
        }
        Tool::Custom { name, .. } => Err(wrong(
            path,
            &format!("has the custom tool `{name}`, which the agent does not have in this form"),
        )),
        Tool::Mcp { mcp_server_name, .. } if agent.tools.contains(wanted) => {
            tracing::trace!(mcp_server_name, "an MCP toolset stays");
            Ok(wanted.clone())
        }
        Tool::Mcp { mcp_server_name, .. } => Err(wrong(
            path,
            &format!("has the tools of `{mcp_server_name}`, which the agent does not have in this form"),
        )),
    }
}

/// The toolset with exactly the wanted tools, each under the agent's own rule or a stricter one.
fn toolset(agent: &Agent, configs: &[ToolConfig], default: &ToolSwitch, path: &str) -> Result<Tool, Problem> {
    let mut kept = Vec::new();
    for name in Name::ALL {
        let config = configs.iter().find(|config| config.name == name.as_str());
        let enabled = config.map_or(default.enabled, |config| config.enabled);
        let rule = config.map_or(default.permission_policy, |config| config.permission_policy);
        match agent.built_in(name) {
            Some(own) if enabled => {
                let permission_policy = match rule {
                    Some(PermissionPolicy::AlwaysAsk) => rule,
                    _ => own,
                };
                let kind = Some(name.as_str().to_owned());
                kept.push(ToolConfig { name: name.as_str().to_owned(), kind, enabled, permission_policy });
            }
            None if config.is_some_and(|config| config.enabled) => {
                let rule = format!(
                    "enables `{}`, which the agent does not offer; a session can only narrow",
                    name.as_str()
                );
                return Err(wrong(path, &rule));
            }
            _ => {}
        }
    }
    if kept.is_empty() && agent.tools.iter().all(|tool| !matches!(tool, Tool::Toolset { .. })) {
        return Err(wrong(path, "has a toolset that the agent does not have"));
    }
    Ok(Tool::Toolset {
        configs: kept,
        default_config: ToolSwitch { enabled: false, permission_policy: None },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::auth::Dialect;
    use checkfu_shared::{id::AgentId, problem::Code, tool::TOOLSET};
    use serde_json::{Value, json};

    fn agent() -> Agent {
        let custom =
            json!({"type": "custom", "name": "c", "description": "d", "input_schema": {"type": "object"}});
        let toolset = json!({
            "type": TOOLSET,
            "default_config": {"enabled": false, "permission_policy": {"type": "always_ask"}},
            "configs": [
                {"name": "read", "enabled": true, "permission_policy": {"type": "always_allow"}},
                {"name": "bash", "enabled": true, "permission_policy": {"type": "always_ask"}},
            ],
        });
        serde_json::from_value(json!({
            "id": AgentId::mint(), "type": "agent", "version": 1, "name": "n", "description": null, "system": "s",
            "model": {"id": "m"}, "tools": [toolset, custom], "mcp_servers": [], "skills": [], "multiagent": null,
        }))
        .unwrap()
    }

    fn applied(body: Value) -> Result<(Agent, Option<String>), Problem> {
        let mut agent = agent();
        let mut fields = Fields::body(body, Dialect::Sdk).unwrap();
        let instructions = apply(&mut fields, &mut agent)?;
        Ok((agent, instructions))
    }

    #[test]
    fn a_selection_takes_tools_away_and_keeps_the_agents_rules() {
        let (agent, _) =
            applied(json!({"tools": [{"type": TOOLSET, "configs": [{"name": "bash"}]}]})).unwrap();
        assert_eq!(agent.built_in(Name::Read), Some(Some(PermissionPolicy::AlwaysAllow)));
        assert_eq!(agent.built_in(Name::Bash), Some(Some(PermissionPolicy::AlwaysAsk)), "widened");
        assert_eq!(agent.built_in(Name::Write), None, "added");
        assert!(!agent.has_custom("c"));
        let stricter = json!({"type": "always_ask"});
        let (agent, _) =
            applied(json!({"tools": [{"type": TOOLSET, "configs": [{"name": "read", "permission_policy": stricter}]}]}))
                .unwrap();
        assert_eq!(agent.built_in(Name::Read), Some(Some(PermissionPolicy::AlwaysAsk)));
        assert_eq!(applied(json!({"tools": []})).unwrap().0.tools, []);
    }

    #[test]
    fn nothing_can_be_added() {
        let other =
            json!({"type": "custom", "name": "d", "description": "d", "input_schema": {"type": "object"}});
        for (body, code) in [
            (
                json!({"tools": [{"type": TOOLSET, "configs": [{"name": "write", "enabled": true}]}]}),
                Code::InvalidRequest,
            ),
            (json!({"tools": [other]}), Code::InvalidRequest),
            (json!({"model": "x"}), Code::Unsupported),
            (json!({"model": null}), Code::Unsupported),
            (json!({"mcp_servers": []}), Code::Unsupported),
            (json!({"system": "s".repeat(INSTRUCTIONS_BYTES_MAX + 1)}), Code::InvalidRequest),
        ] {
            assert_eq!(applied(body.clone()).unwrap_err().code, code, "{body:.80}");
        }
    }

    #[test]
    fn instructions_replace_the_system_prompt_and_null_clears_it() {
        assert_eq!(applied(json!({"system": "x"})).unwrap().1.as_deref(), Some("x"));
        let (agent, instructions) = applied(json!({"system": null})).unwrap();
        assert_eq!((agent.system, instructions), (None, None));
    }
}
