//! The body of an update in, a patch out, judged against the session as it is.

use super::budget;
use crate::{
    engine::{SessionPatch, SessionRecord},
    http::{
        fields::{Fields, Patch, unsupported},
        public::{agents, metadata},
    },
};
use checkfu_shared::{
    agent::{Agent, Tool},
    problem::Problem,
};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

const TITLE_CHARS_MAX: usize = 512;

/// Reads an update.
///
/// # Errors
/// A refusal naming the first member that breaks a rule.
pub(crate) fn read(mut fields: Fields, now: &SessionRecord) -> Result<SessionPatch, Problem> {
    let title = match fields.patch_text("title", TITLE_CHARS_MAX)? {
        Patch::Keep => None,
        Patch::Clear => Some(None),
        Patch::Set(title) => Some(Some(title)),
    };
    let metadata = pairs(&mut fields, now)?;
    let budget = if fields.has("budget") {
        let dialect = fields.dialect();
        let new = fields.value("budget").map(|value| budget::read(value, "budget", dialect)).transpose()?;
        Some(new)
    } else {
        None
    };
    let agent = fields.object("agent")?.map(|inner| changed_agent(inner, &now.agent)).transpose()?;
    if fields.value("vault_ids").is_some() {
        let message = "Vaults cannot be given to sessions yet. Leave `vault_ids` out.";
        return Err(unsupported("vault_ids", message));
    }
    fields.end()?;
    Ok(SessionPatch { title, metadata, budget, agent })
}

fn pairs(fields: &mut Fields, now: &SessionRecord) -> Result<Option<Map<String, Value>>, Problem> {
    if !fields.has("metadata") {
        return Ok(None);
    }
    let old: BTreeMap<String, String> = now
        .metadata
        .iter()
        .map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()))
        .collect();
    let change = metadata::change(fields, false)?;
    let patch = change.patch();
    change.over(old)?;
    Ok(Some(patch))
}

/// The session's own copy of the agent with other tools; it holds from the next turn on.
fn changed_agent(mut fields: Fields, old: &Agent) -> Result<Agent, Problem> {
    let mut agent = old.clone();
    let path = fields.path("tools");
    if let Some(tools) = agents::take_tools(&mut fields)? {
        if tools.iter().any(|tool| matches!(tool, Tool::Mcp { .. })) {
            let message = "Sessions cannot use MCP servers yet. Leave the `mcp_toolset` out.";
            return Err(unsupported(&path, message));
        }
        agent.tools = tools;
    }
    if fields.list("mcp_servers", 20)?.is_some_and(|servers| !servers.is_empty()) {
        let message = "Sessions cannot use MCP servers yet. Leave `mcp_servers` out.";
        return Err(unsupported(&fields.path("mcp_servers"), message));
    }
    fields.end()?;
    Ok(agent)
}
