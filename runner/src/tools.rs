//! The tool calls of a model: what is offered, how a call is read, and the permit without which nothing is dispatched.
//! Tools hold no handle on the harness; they return values.

pub mod bounds;
pub mod permit;

use crate::model::Definition;
use checkfu_shared::{
    agent::{Agent, Tool},
    tool::Name,
};
use serde_json::{Value, json};

/// The tools that a model is offered, in a fixed order so that prompt caches hold.
#[must_use]
pub fn offered(agent: &Agent) -> Vec<Definition> {
    let built_in = Name::ALL.into_iter().filter(|name| agent.built_in(*name).is_some()).map(built_in);
    let custom = agent.tools.iter().filter_map(|tool| match tool {
        Tool::Custom { name, description, input_schema } => Some(Definition {
            name: name.clone(),
            description: description.clone(),
            input_schema: input_schema.clone(),
        }),
        Tool::Toolset { .. } | Tool::Mcp { .. } => None,
    });
    built_in.chain(custom).collect()
}

/// Whether the agent can call anything that runs in the sandbox.
#[must_use]
pub fn needs_sandbox(agent: &Agent) -> bool {
    Name::ALL.into_iter().any(|name| agent.built_in(name).is_some())
}

fn built_in(name: Name) -> Definition {
    let (description, properties, required): (&str, Value, &[&str]) = match name {
        Name::Bash => (BASH, bash_properties(), &[]),
        Name::Read => (READ, read_properties(), &["file_path"]),
        Name::Write => (
            "Create a file or replace all of its content; folders on the way are made. Prefer edit for changes to a \
             file that exists.",
            json!({"file_path": text(PATH), "content": text("The whole new content.")}),
            &["file_path", "content"],
        ),
        Name::Edit => (EDIT, edit_properties(), &["file_path", "old_string", "new_string"]),
        Name::Glob => (
            "List the files that match a pattern, newest first. Patterns know *, **, ?, [..] and {a,b}.",
            json!({"pattern": text("Such as `**/*.rs`."), "path": text("The folder to look in; /workspace when absent.")}),
            &["pattern"],
        ),
        Name::Grep => (
            "Search file contents by a regular expression in Rust syntax, line by line; gives file, line number and \
             line. Files that .gitignore names are skipped.",
            json!({"pattern": text("The regular expression."), "path": text("A file or folder; /workspace when absent.")}),
            &["pattern"],
        ),
    };
    Definition {
        name: name.as_str().to_owned(),
        description: description.to_owned(),
        input_schema: json!({"type": "object", "properties": properties, "required": required}),
    }
}

const PATH: &str = "The file; a relative path starts at /workspace.";
const BASH: &str = "Run a command in a persistent shell: the working directory, exported variables and functions carry over \
                    from call to call, also after a timeout or an exit. Output of both streams comes back in order, with \
                    the exit code when it is not 0. Standard input is empty. Files written to /mnt/session/outputs are \
                    delivered to the user when the turn ends.";
const READ: &str = "Read a file: text with line numbers, images and PDF documents as what they are. Use view_range for a \
                    part of a long file.";
const EDIT: &str = "Replace text in a file. old_string has to occur exactly once, unless replace_all is set. Read the file \
                    first; an edit is refused when the file changed since.";

fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

fn bash_properties() -> Value {
    json!({
        "command": text("The command. Needed unless restart is true."),
        "restart": {"type": "boolean", "description": "Forget the shell's state and end its background processes first."},
        "timeout_ms": {"type": "integer", "minimum": 0,
            "description": "Milliseconds after which the command is ended: 120000 when absent or 0, at most 1800000."},
    })
}

fn read_properties() -> Value {
    json!({
        "file_path": text(PATH),
        "view_range": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2,
            "description": "First and last line, from 1, inclusive; a last line of 0 or less is the end of the file."},
    })
}

fn edit_properties() -> Value {
    json!({
        "file_path": text(PATH),
        "old_string": text("The text to replace, exactly as it stands in the file."),
        "new_string": text("What takes its place."),
        "replace_all": {"type": "boolean", "description": "Replace every occurrence."},
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An agent with the whole toolset, `write` switched off, and one custom tool.
    pub(crate) fn agent() -> Agent {
        serde_json::from_value(json!({
            "id": "agent_01010101010101010101010101010101", "type": "agent", "version": 1, "name": "a",
            "description": null, "system": "be kind", "model": {"id": "m"}, "mcp_servers": [], "skills": [],
            "multiagent": null,
            "tools": [
                {"type": "agent_toolset_20260401", "configs": [{"name": "write", "enabled": false}],
                 "default_config": {"enabled": true}},
                {"type": "custom", "name": "look_up", "description": "looks up", "input_schema": {"type": "object"}},
            ],
        }))
        .unwrap()
    }

    #[test]
    fn only_enabled_tools_are_offered_and_each_schema_is_an_object() {
        let offered = offered(&agent());
        let names: Vec<&str> = offered.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, ["bash", "read", "edit", "glob", "grep", "look_up"]);
        assert!(offered.iter().all(|tool| tool.input_schema["type"] == "object"));
        assert!(needs_sandbox(&agent()));
    }

    #[test]
    fn the_schemas_name_exactly_the_fields_that_the_toolbox_reads() {
        let examples = [
            (Name::Bash, json!({"command": "a", "restart": false, "timeout_ms": 1})),
            (Name::Read, json!({"file_path": "a", "view_range": [1, 2]})),
            (Name::Write, json!({"file_path": "a", "content": "b"})),
            (
                Name::Edit,
                json!({"file_path": "a", "old_string": "b", "new_string": "c", "replace_all": true}),
            ),
            (Name::Glob, json!({"pattern": "a", "path": "b"})),
            (Name::Grep, json!({"pattern": "a", "path": "b"})),
        ];
        for (name, input) in examples {
            let schema = built_in(name).input_schema;
            let properties: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
            assert_eq!(properties, input.as_object().unwrap().keys().collect::<Vec<_>>());
            let read = checkfu_toolbox::call::Tool::from_use(name.as_str(), &input).unwrap();
            assert_eq!(serde_json::to_value(read).unwrap()["input"], input);
        }
    }
}
