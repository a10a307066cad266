//! An agent's request bodies in, a whole definition out. Pure: the same rules hold for a create and for an update.

use super::{model, tools};
use crate::{
    http::{
        fields::{Fields, Patch, unsupported, wrong},
        public::metadata,
    },
    registry::Definition,
};
use checkfu_shared::{agent::Tool, problem::Problem, tool};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const NAME_CHARS_MAX: usize = 256;
const DESCRIPTION_CHARS_MAX: usize = 2_048;
const SYSTEM_CHARS_MAX: usize = 100_000;
const SERVERS_MAX: usize = 20;
const SKILLS_MAX: usize = 20;

/// Reads the body of a create.
///
/// # Errors
/// A refusal naming the first member that breaks a rule.
pub(crate) fn create(mut fields: Fields) -> Result<Definition, Problem> {
    let definition = Definition {
        name: fields.required_text("name", 1, NAME_CHARS_MAX)?,
        description: fields.bounded_text("description", DESCRIPTION_CHARS_MAX)?,
        system: fields.bounded_text("system", SYSTEM_CHARS_MAX)?,
        model: model::take(&mut fields, None)?.ok_or_else(|| wrong("model", "is required"))?,
        tools: tools::take(&mut fields)?.unwrap_or_default(),
        mcp_servers: servers(&mut fields)?.unwrap_or_default(),
        skills: skills(&mut fields)?.unwrap_or_default(),
        metadata: metadata::create(&mut fields)?,
    };
    unsupported_members(&mut fields)?;
    fields.end()?;
    consistent(&definition)?;
    Ok(definition)
}

/// A partial update that is read and not yet applied.
#[derive(Debug)]
pub(crate) struct Update {
    /// The version it is meant for.
    pub(crate) version: Option<u32>,
    fields: Fields,
}

impl Update {
    /// Reads the part that does not depend on what is stored.
    ///
    /// # Errors
    /// A refusal when `version` is no version.
    pub(crate) fn read(mut fields: Fields) -> Result<Self, Problem> {
        let version = fields.whole("version", 1, u64::from(u32::MAX))?;
        Ok(Self { version: version.and_then(|version| u32::try_from(version).ok()), fields })
    }

    /// The definition after the update of `old`.
    ///
    /// # Errors
    /// A refusal naming the first member that breaks a rule.
    pub(crate) fn over(self, old: Definition) -> Result<Definition, Problem> {
        let mut fields = self.fields;
        let name = match fields.patch_text("name", NAME_CHARS_MAX)? {
            Patch::Keep => old.name,
            Patch::Set(name) if !name.is_empty() => name,
            Patch::Set(_) | Patch::Clear => return Err(wrong("name", "cannot be cleared")),
        };
        let model = model::take(&mut fields, Some(&old.model))?.unwrap_or(old.model);
        let description = fields.patch_text("description", DESCRIPTION_CHARS_MAX)?.over(old.description);
        let system = fields.patch_text("system", SYSTEM_CHARS_MAX)?.over(old.system);
        let definition = Definition {
            name,
            description: description.filter(|text| !text.is_empty()),
            system: system.filter(|text| !text.is_empty()),
            model,
            tools: tools::take(&mut fields)?.unwrap_or(old.tools),
            mcp_servers: servers(&mut fields)?.unwrap_or(old.mcp_servers),
            skills: skills(&mut fields)?.unwrap_or(old.skills),
            metadata: metadata::change(&mut fields, false)?.over(old.metadata)?,
        };
        unsupported_members(&mut fields)?;
        fields.end()?;
        consistent(&definition)?;
        Ok(definition)
    }
}

fn unsupported_members(fields: &mut Fields) -> Result<(), Problem> {
    if fields.value("multiagent").is_some() {
        return Err(unsupported(
            "multiagent",
            "Agents with a roster are not there yet. Leave `multiagent` out.",
        ));
    }
    if let Some(mut identity) = fields.object("execution_identity")? {
        if identity.required_text("type", 1, 64)? != "service_account" {
            let message =
                "Only the execution identity `service_account` is there. Leave `execution_identity` out.";
            return Err(unsupported("execution_identity.type", message));
        }
        identity.end()?;
    }
    Ok(())
}

fn servers(fields: &mut Fields) -> Result<Option<Vec<Value>>, Problem> {
    each(fields, "mcp_servers", SERVERS_MAX, |mut fields| {
        let kind = fields.required_text("type", 1, 64)?;
        if kind != "url" {
            return Err(wrong(&fields.path("type"), "must be url"));
        }
        let name = fields.required_text("name", 1, 255)?;
        let url = fields.required_text("url", 1, 2_048)?;
        if !url.starts_with("https://") && !url.starts_with("http://") {
            return Err(wrong(&fields.path("url"), "must be an http or https address"));
        }
        fields.end()?;
        Ok(json!({"type": kind, "name": name, "url": url}))
    })
}

fn skills(fields: &mut Fields) -> Result<Option<Vec<Value>>, Problem> {
    each(fields, "skills", SKILLS_MAX, |mut fields| {
        let kind = fields.required_text("type", 1, 64)?;
        if !["anthropic", "custom"].contains(&kind.as_str()) {
            return Err(wrong(&fields.path("type"), "must be anthropic or custom"));
        }
        let skill_id = fields.required_text("skill_id", 1, 255)?;
        let version = fields.bounded_text("version", 255)?.unwrap_or_else(|| "latest".to_owned());
        fields.end()?;
        Ok(json!({"type": kind, "skill_id": skill_id, "version": version}))
    })
}

/// Reads a list of objects; `null` empties it.
fn each(
    fields: &mut Fields,
    name: &str,
    max: usize,
    read: impl Fn(Fields) -> Result<Value, Problem>,
) -> Result<Option<Vec<Value>>, Problem> {
    if !fields.has(name) {
        return Ok(None);
    }
    let path = fields.path(name);
    let dialect = fields.dialect();
    let entries = fields.list(name, max)?.unwrap_or_default().into_iter().enumerate();
    entries
        .map(|(at, value)| read(Fields::of(value, &format!("{path}[{at}]"), dialect)?))
        .collect::<Result<_, _>>()
        .map(Some)
}

/// The rules that tie members together.
fn consistent(definition: &Definition) -> Result<(), Problem> {
    let named: Vec<&str> =
        definition.mcp_servers.iter().filter_map(|server| server["name"].as_str()).collect();
    if named.iter().collect::<BTreeSet<_>>().len() != named.len() {
        return Err(wrong("mcp_servers", "must have unique names"));
    }
    let used: BTreeSet<&str> = definition
        .tools
        .iter()
        .filter_map(|tool| match tool {
            Tool::Mcp { mcp_server_name, .. } => Some(mcp_server_name.as_str()),
            Tool::Toolset { .. } | Tool::Custom { .. } => None,
        })
        .collect();
    if let Some(missing) = used.iter().find(|name| !named.contains(*name)) {
        return Err(wrong(
            "tools",
            &format!("uses the MCP server `{missing}`, which `mcp_servers` does not name"),
        ));
    }
    if let Some(idle) = named.iter().find(|name| !used.contains(*name)) {
        return Err(wrong("mcp_servers", &format!("names `{idle}`, which no `mcp_toolset` of `tools` uses")));
    }
    if !definition.skills.is_empty() && !offers_read(&definition.tools) {
        let rule = format!("need the read tool; add {} to `tools`", tool::TOOLSET);
        return Err(wrong("skills", &rule));
    }
    Ok(())
}

fn offers_read(tools: &[Tool]) -> bool {
    tools.iter().any(|tool| match tool {
        Tool::Toolset { configs, default_config } => configs
            .iter()
            .find(|config| config.name == tool::Name::Read.as_str())
            .map_or(default_config.enabled, |config| config.enabled),
        Tool::Custom { .. } | Tool::Mcp { .. } => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::auth::Dialect;
    use checkfu_shared::problem::Code;

    fn fields(body: Value) -> Fields {
        Fields::body(body, Dialect::Checkfu).unwrap()
    }

    fn made(members: Value) -> Result<Definition, Problem> {
        let mut body = json!({"name": "n", "model": "m"});
        body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        create(fields(body))
    }

    fn changed(body: Value) -> Result<Definition, Problem> {
        let old = made(json!({"description": "d", "system": "s", "metadata": {"a": "1"}})).unwrap();
        Update::read(fields(body))?.over(old)
    }

    #[test]
    fn bad_members_are_refused_by_name() {
        let toolset = json!([{"type": tool::TOOLSET, "default_config": {"enabled": false}}]);
        let server = json!({"type": "url", "name": "s", "url": "https://s.test"});
        for (members, code) in [
            (json!({"name": ""}), Code::InvalidRequest),
            (json!({"name": "n".repeat(257)}), Code::InvalidRequest),
            (json!({"name": 1}), Code::InvalidRequest),
            (json!({"model": null}), Code::InvalidRequest),
            (json!({"description": "d".repeat(2_049)}), Code::InvalidRequest),
            (json!({"system": "s".repeat(100_001)}), Code::InvalidRequest),
            (json!({"tools": {}}), Code::InvalidRequest),
            (json!({"mcp_servers": [server]}), Code::InvalidRequest),
            (json!({"tools": [{"type": "mcp_toolset", "mcp_server_name": "s"}]}), Code::InvalidRequest),
            (json!({"skills": [{"type": "custom", "skill_id": "x"}]}), Code::InvalidRequest),
            (
                json!({"skills": [{"type": "custom", "skill_id": "x"}], "tools": toolset}),
                Code::InvalidRequest,
            ),
            (json!({"multiagent": {"type": "coordinator"}}), Code::Unsupported),
            (json!({"execution_identity": {"type": "aws_role"}}), Code::Unsupported),
            (json!({"nope": 1}), Code::UnknownField),
            (json!({"metadata": {"a": 1}}), Code::InvalidMetadata),
        ] {
            assert_eq!(made(members.clone()).unwrap_err().code, code, "{members}");
        }
    }

    #[test]
    fn a_server_and_its_toolset_come_back_resolved() {
        let definition = made(json!({
            "mcp_servers": [{"type": "url", "name": "s", "url": "https://s.test"}],
            "tools": [{"type": "mcp_toolset", "mcp_server_name": "s"}],
        }))
        .unwrap();
        assert_eq!(
            json!(definition.tools[0]),
            json!({
                "type": "mcp_toolset", "mcp_server_name": "s", "configs": [],
                "default_config": {"enabled": true, "permission_policy": {"type": "always_ask"}},
            })
        );
    }

    #[test]
    fn an_update_keeps_what_it_leaves_out_and_clears_what_is_null() {
        let after = changed(json!({"system": null, "metadata": {"a": null, "b": "2"}})).unwrap();
        assert_eq!((after.system, after.description.as_deref()), (None, Some("d")));
        assert_eq!(json!(after.metadata), json!({"b": "2"}));
        assert_eq!(changed(json!({"description": ""})).unwrap().description, None);
        for bad in
            [json!({"name": null}), json!({"model": null}), json!({"version": 0}), json!({"version": "1"})]
        {
            assert_eq!(changed(bad.clone()).unwrap_err().code, Code::InvalidRequest, "{bad}");
        }
    }
}
