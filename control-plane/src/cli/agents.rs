//! `checkfu agents`: who does the work, with which model, and which tools it may call.

use super::{
    client::Client,
    failure::Failure,
    sessions,
    shape::{self, Members},
    terminal::Output,
};
use checkfu_shared::{agent::Effort, tool};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Map, Value, json};
use std::{fs, path::PathBuf};

const COLUMNS: Members = &[
    ("ID", "/id"),
    ("NAME", "/name"),
    ("MODEL", "/model/id"),
    ("VERSION", "/version"),
    ("CREATED", "/created_at"),
];
const FIELDS: Members = &[
    ("id", "/id"),
    ("name", "/name"),
    ("version", "/version"),
    ("description", "/description"),
    ("model", "/model/id"),
    ("effort", "/model/effort/type"),
    ("system", "/system"),
    ("tools", "/tools"),
    ("created", "/created_at"),
    ("updated", "/updated_at"),
    ("archived", "/archived_at"),
];

/// What to do with agents.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make an agent
    Create(Create),
    /// List agents
    List {
        /// Show at most this many
        #[arg(long, default_value_t = 20)]
        limit: usize,
    },
    /// Show one agent
    Show {
        /// The agent: its id or its name
        agent: String,
    },
}

/// `agents create`.
#[derive(Debug, Args)]
pub(crate) struct Create {
    /// A name for people
    #[arg(long)]
    name: String,
    /// The model, as its provider calls it
    #[arg(long)]
    model: String,
    /// How hard the model thinks
    #[arg(long)]
    effort: Option<Level>,
    /// What the agent is for
    #[arg(long)]
    description: Option<String>,
    /// The system prompt
    #[arg(long, conflicts_with = "system_file")]
    system: Option<String>,
    /// A file with the system prompt
    #[arg(long)]
    system_file: Option<PathBuf>,
    /// A tool it has (repeatable); without this option it has all of bash, read, write, edit, glob and grep
    #[arg(long = "tool", value_parser = tool_name)]
    tools: Vec<tool::Name>,
    /// Whether its tools run without asking; without this option the workspace's policies decide
    #[arg(long)]
    tools_may: Option<May>,
}

/// When tools may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum May {
    /// They run without asking
    Run,
    /// Each call asks
    Ask,
}

/// The effort scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Level {
    Minimal,
    Low,
    Medium,
    High,
    Max,
}

impl From<Level> for Effort {
    fn from(level: Level) -> Self {
        match level {
            Level::Minimal => Self::Minimal,
            Level::Low => Self::Low,
            Level::Medium => Self::Medium,
            Level::High => Self::High,
            Level::Max => Self::Max,
        }
    }
}

fn tool_name(text: &str) -> Result<tool::Name, String> {
    tool::Name::from_text(text).ok_or_else(|| {
        format!("there is no such tool; there are {}", tool::Name::ALL.map(tool::Name::as_str).join(", "))
    })
}

/// Runs one of the commands.
pub(crate) async fn run(command: Command, client: &Client, output: &Output) -> Result<(), Failure> {
    match command {
        Command::Create(args) => shown(&client.post("/v1/agents", &body(args)?).await?, output),
        Command::List { limit } => {
            let rows = client.list("/v1/agents", &[], limit).await?;
            if output.is_json {
                return output.json(&rows);
            }
            output.table(&shape::head(COLUMNS), &shape::rows(&rows, COLUMNS), "There are no agents.")
        }
        Command::Show { agent } => {
            shown(&sessions::found(client, "agent", "/v1/agents", &agent).await?, output)
        }
    }
}

fn body(args: Create) -> Result<Map<String, Value>, Failure> {
    let system = match args.system_file {
        Some(file) => Some(fs::read_to_string(&file).map_err(|error| {
            Failure::usage(format!("The system prompt in {} cannot be read: {error}.", file.display()))
        })?),
        None => args.system,
    };
    let mut model = Map::new();
    model.insert("id".to_owned(), args.model.into());
    if let Some(effort) = args.effort {
        model.insert("effort".to_owned(), json!({"type": Effort::from(effort)}));
    }
    let mut body = Map::new();
    body.insert("name".to_owned(), args.name.into());
    body.insert("model".to_owned(), model.into());
    body.extend(args.description.map(|text| ("description".to_owned(), text.into())));
    body.extend(system.map(|text| ("system".to_owned(), text.into())));
    body.insert("tools".to_owned(), json!([toolset(&args.tools, args.tools_may)]));
    Ok(body)
}

/// The body of an agent with all tools, which run without asking.
pub(crate) fn all_tools(name: &str, model: &str) -> Map<String, Value> {
    let tools = json!([toolset(&[], Some(May::Run))]);
    let members = [("name", name.into()), ("model", json!({"id": model})), ("tools", tools)];
    members.into_iter().map(|(member, value)| (member.to_owned(), value)).collect()
}

fn toolset(tools: &[tool::Name], may: Option<May>) -> Value {
    let mut default = Map::new();
    default.insert("enabled".to_owned(), tools.is_empty().into());
    if let Some(may) = may {
        let policy = if may == May::Run { "always_allow" } else { "always_ask" };
        default.insert("permission_policy".to_owned(), json!({"type": policy}));
    }
    let configs: Vec<Value> =
        tools.iter().map(|name| json!({"name": name.as_str(), "enabled": true})).collect();
    json!({"type": tool::TOOLSET, "default_config": default, "configs": configs})
}

fn shown(agent: &Value, output: &Output) -> Result<(), Failure> {
    if output.is_json { output.json(agent) } else { output.text(&shape::lines(agent, FIELDS)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_tools_are_there_unless_some_are_named() {
        assert_eq!(
            toolset(&[], None),
            json!({"type": "agent_toolset_20260401", "default_config": {"enabled": true}, "configs": []})
        );
        assert_eq!(
            toolset(&[tool::Name::Read], Some(May::Run)),
            json!({"type": "agent_toolset_20260401", "configs": [{"name": "read", "enabled": true}],
                   "default_config": {"enabled": false, "permission_policy": {"type": "always_allow"}}})
        );
        assert_eq!(toolset(&[], Some(May::Ask))["default_config"]["permission_policy"]["type"], "always_ask");
    }

    #[test]
    fn an_unknown_tool_is_refused_with_those_that_are() {
        assert!(tool_name("sudo").unwrap_err().contains("bash, read"));
    }
}
