//! The `tools` of an agent, resolved: every switch and every permission policy that the caller left out is filled in.
//! The SDK expects `always_allow` then; our own callers get no rule, so that the workspace's defaults apply.

use super::schema;
use crate::http::{
    auth::Dialect,
    fields::{Fields, unsupported, wrong},
};
use checkfu_shared::{
    agent::{PermissionPolicy, Tool, ToolConfig, ToolSwitch},
    problem::Problem,
    tool::{self, Name},
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const ENTRIES_MAX: usize = 128;
/// Tools of the same toolset that the provider runs; known, and not offered.
const PROVIDER_TOOLS: [&str; 2] = ["web_fetch", "web_search"];

/// Takes `tools`; `None` when it is absent, empty when it is `null`.
///
/// # Errors
/// `invalid_request` when an entry breaks a rule, `unsupported` when it asks for what is not there yet.
pub(crate) fn take(fields: &mut Fields) -> Result<Option<Vec<Tool>>, Problem> {
    if !fields.has("tools") {
        return Ok(None);
    }
    let path = fields.path("tools");
    let dialect = fields.dialect();
    let entries = fields.list("tools", ENTRIES_MAX)?.unwrap_or_default();
    let open = |(at, value)| entry(Fields::of(value, &format!("{path}[{at}]"), dialect)?);
    let tools: Vec<Tool> = entries.into_iter().enumerate().map(open).collect::<Result<_, _>>()?;
    unique(&tools, &path)?;
    Ok(Some(tools))
}

fn unique(tools: &[Tool], path: &str) -> Result<(), Problem> {
    let mut seen = BTreeSet::new();
    for tool in tools {
        let key = match tool {
            Tool::Toolset { .. } => tool::TOOLSET.to_owned(),
            Tool::Custom { name, .. } => format!("the tool {name}"),
            Tool::Mcp { mcp_server_name, .. } => format!("the toolset of {mcp_server_name}"),
        };
        if !seen.insert(key.clone()) {
            return Err(wrong(path, &format!("names {key} twice")));
        }
    }
    Ok(())
}

fn entry(mut fields: Fields) -> Result<Tool, Problem> {
    let kind = fields.required_text("type", 1, 64)?;
    let tool = match kind.as_str() {
        tool::TOOLSET => toolset(&mut fields)?,
        "custom" => custom(&mut fields)?,
        "mcp_toolset" => mcp(&mut fields)?,
        _ => {
            let rule = format!("must be {}, custom or mcp_toolset", tool::TOOLSET);
            return Err(wrong(&fields.path("type"), &rule));
        }
    };
    fields.end()?;
    Ok(tool)
}

fn toolset(fields: &mut Fields) -> Result<Tool, Problem> {
    let omitted = (fields.dialect() == Dialect::Sdk).then_some(PermissionPolicy::AlwaysAllow);
    let default_config = switch(fields.object("default_config")?, true, omitted)?;
    let path = fields.path("configs");
    let dialect = fields.dialect();
    let mut configs: Vec<ToolConfig> = Vec::new();
    for (at, value) in fields.list("configs", ENTRIES_MAX)?.unwrap_or_default().into_iter().enumerate() {
        let config = config(Fields::of(value, &format!("{path}[{at}]"), dialect)?, &default_config)?;
        if configs.iter().any(|earlier| earlier.name == config.name) {
            return Err(wrong(&format!("{path}[{at}].name"), &format!("names {} twice", config.name)));
        }
        configs.push(config);
    }
    Ok(Tool::Toolset { configs, default_config })
}

fn switch(
    fields: Option<Fields>,
    enabled: bool,
    omitted: Option<PermissionPolicy>,
) -> Result<ToolSwitch, Problem> {
    let Some(mut fields) = fields else { return Ok(ToolSwitch { enabled, permission_policy: omitted }) };
    let enabled = fields.flag("enabled")?.unwrap_or(enabled);
    let permission_policy = policy(&mut fields)?.or(omitted);
    fields.end()?;
    Ok(ToolSwitch { enabled, permission_policy })
}

fn config(mut fields: Fields, default: &ToolSwitch) -> Result<ToolConfig, Problem> {
    let name = fields.required_text("name", 1, 128)?;
    let provider_runs_it = PROVIDER_TOOLS.contains(&name.as_str());
    if Name::from_text(&name).is_none() && !provider_runs_it {
        let names: Vec<_> = Name::ALL.iter().map(|name| name.as_str()).collect();
        return Err(wrong(&fields.path("name"), &format!("must be one of {}", names.join(", "))));
    }
    if fields.text("type")?.is_some_and(|kind| kind != name) {
        return Err(wrong(&fields.path("type"), "must equal `name`"));
    }
    let enabled = fields.flag("enabled")?.unwrap_or(default.enabled && !provider_runs_it);
    if enabled && provider_runs_it {
        let message = format!("The tool {name} is not offered yet. Leave it out or set `enabled` to false.");
        return Err(unsupported(&fields.path("enabled"), &message));
    }
    let permission_policy = policy(&mut fields)?.or(default.permission_policy);
    fields.end()?;
    Ok(ToolConfig { kind: Some(name.clone()), name, enabled, permission_policy })
}

fn policy(fields: &mut Fields) -> Result<Option<PermissionPolicy>, Problem> {
    let Some(mut fields) = fields.object("permission_policy")? else { return Ok(None) };
    let kind = fields.required_text("type", 1, 64)?;
    let path = fields.path("type");
    fields.end()?;
    match kind.as_str() {
        "always_allow" => Ok(Some(PermissionPolicy::AlwaysAllow)),
        "always_ask" => Ok(Some(PermissionPolicy::AlwaysAsk)),
        "auto" => Err(unsupported(
            &path,
            "The permission policy `auto` is not there yet. Use always_allow or always_ask.",
        )),
        _ => Err(wrong(&path, "must be always_allow or always_ask")),
    }
}

fn custom(fields: &mut Fields) -> Result<Tool, Problem> {
    let name = fields.required_text("name", 1, 128)?;
    let path = fields.path("name");
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-') {
        return Err(wrong(&path, "may have letters, digits, `_` and `-` only"));
    }
    if Name::from_text(&name).is_some() || PROVIDER_TOOLS.contains(&name.as_str()) {
        return Err(wrong(&path, &format!("is `{name}`, which a built-in tool has already")));
    }
    if name.starts_with("mcp__") {
        return Err(wrong(&path, "must not begin with `mcp__`, which marks tools of MCP servers"));
    }
    let description = fields.required_text("description", 1, 16_384)?;
    let schema_path = fields.path("input_schema");
    let input_schema = fields.value("input_schema").ok_or_else(|| wrong(&schema_path, "is required"))?;
    schema::check(&input_schema, &schema_path)?;
    Ok(Tool::Custom { name, description, input_schema })
}

fn mcp(fields: &mut Fields) -> Result<Tool, Problem> {
    let mcp_server_name = fields.required_text("mcp_server_name", 1, 255)?;
    let ask = Some(PermissionPolicy::AlwaysAsk);
    let default_config = switch(fields.object("default_config")?, true, ask)?;
    let path = fields.path("configs");
    let dialect = fields.dialect();
    let config = |(at, value)| -> Result<Value, Problem> {
        let mut fields = Fields::of(value, &format!("{path}[{at}]"), dialect)?;
        let name = fields.required_text("name", 1, 128)?;
        let switch = switch(Some(fields), default_config.enabled, default_config.permission_policy)?;
        Ok(json!({"name": name, "enabled": switch.enabled, "permission_policy": switch.permission_policy}))
    };
    let entries = fields.list("configs", ENTRIES_MAX)?.unwrap_or_default();
    let configs: Vec<Value> = entries.into_iter().enumerate().map(config).collect::<Result<_, _>>()?;
    let rest =
        [("configs".to_owned(), Value::Array(configs)), ("default_config".to_owned(), json!(default_config))];
    Ok(Tool::Mcp { mcp_server_name, rest: rest.into_iter().collect() })
}

#[cfg(test)]
mod tests;
