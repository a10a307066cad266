//! `checkfu sessions`: sessions, what is said to them, and what they say.

use super::{
    client::Client,
    exit::Exit,
    failure::Failure,
    follow::{self, Follower, Manner},
    shape::{self, Members},
    terminal::Output,
};
use checkfu_shared::{
    content::Block,
    event::{Body, Confirmation, ToolConfirmation},
    id::{EventId, SessionId},
};
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

const COLUMNS: Members = &[
    ("ID", "/id"),
    ("STATUS", "/status"),
    ("AGENT", "/agent/name"),
    ("TITLE", "/title"),
    ("CREATED", "/created_at"),
];
const FIELDS: Members = &[
    ("id", "/id"),
    ("status", "/status"),
    ("title", "/title"),
    ("agent", "/agent/name"),
    ("agent id", "/agent/id"),
    ("version", "/agent/version"),
    ("model", "/agent/model/id"),
    ("environment", "/environment_id"),
    ("tokens in", "/usage/input_tokens"),
    ("tokens out", "/usage/output_tokens"),
    ("active s", "/usage/active_seconds"),
    ("created", "/created_at"),
    ("updated", "/updated_at"),
    ("archived", "/archived_at"),
];

const INTERRUPTED: &str = "The session is being interrupted.";

/// What to do with sessions.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a session, with a first message or without
    Create(Create),
    /// List sessions, newest first
    List {
        /// Show at most this many
        #[arg(long, default_value_t = 20)]
        limit: usize,
        /// Show archived ones too
        #[arg(long)]
        archived: bool,
    },
    /// Show one session
    Show {
        /// The session's id
        session: SessionId,
    },
    /// Follow a session live; takes the stream up again when the connection is lost
    Watch(Watch),
    /// Say something to a session
    Send {
        /// The session's id
        session: SessionId,
        /// What to say
        text: String,
        /// Follow the session until it is idle
        #[arg(long, short)]
        follow: bool,
        /// Ask here about tool calls that need an answer (with --follow)
        #[arg(long, requires = "follow")]
        ask: bool,
    },
    /// Stop what a session is doing
    Interrupt {
        /// The session's id
        session: SessionId,
    },
    /// Answer a tool call that asks
    Confirm(Confirm),
    /// End a session for good; its log and files stay readable
    Archive {
        /// The session's id
        session: SessionId,
    },
    /// Remove a session with its log and files
    Delete {
        /// The session's id
        session: SessionId,
    },
}

/// `sessions create`.
#[derive(Debug, Args)]
pub(crate) struct Create {
    /// The agent: its id or its name
    #[arg(long)]
    pub(crate) agent: String,
    /// The environment: its id or its name
    #[arg(long)]
    pub(crate) environment: String,
    /// A title for people
    #[arg(long)]
    pub(crate) title: Option<String>,
    /// The first message
    #[arg(long)]
    pub(crate) message: Option<String>,
}

/// `sessions watch`.
#[derive(Debug, Args)]
pub(crate) struct Watch {
    /// The session's id
    session: SessionId,
    /// Show what comes after this place of the log; 0 is the beginning
    #[arg(long, default_value_t = 0, conflicts_with = "new")]
    after: u64,
    /// Show only what comes from now on
    #[arg(long)]
    new: bool,
    /// Stop when the session is idle
    #[arg(long)]
    until_idle: bool,
}

/// `sessions confirm`.
#[derive(Debug, Args)]
pub(crate) struct Confirm {
    /// The session's id
    session: SessionId,
    /// The tool call's id
    tool_use: EventId,
    /// It may run
    #[arg(long, required_unless_present = "deny", conflicts_with = "deny")]
    allow: bool,
    /// It may not run
    #[arg(long)]
    deny: bool,
    /// What the model is told about a denial
    #[arg(long, conflicts_with = "allow")]
    message: Option<String>,
}

/// The path of a session. Ids from a server are checked before they become part of a path.
pub(crate) fn path(session: &str) -> Result<String, Failure> {
    let id: SessionId = session
        .parse()
        .map_err(|error| Failure::local(format!("The session's id cannot be used: {error}.")))?;
    Ok(format!("/v1/sessions/{id}"))
}

/// Runs one of the commands.
pub(crate) async fn run(command: Command, client: &Client, output: &Output) -> Result<(), Failure> {
    match command {
        Command::Create(args) => shown(&create(client, args).await?, output),
        Command::List { limit, archived } => {
            let query = [("include_archived", archived.to_string())];
            let rows = client.list("/v1/sessions", &query, limit).await?;
            list(&rows, output)
        }
        Command::Show { session } => {
            shown(&client.get(&format!("/v1/sessions/{session}"), &[]).await?, output)
        }
        Command::Watch(args) => watch(client, output, args).await,
        Command::Send { session, text, follow, ask } => say(client, output, session, text, follow, ask).await,
        Command::Interrupt { session } => {
            let idle = is_idle(client, session).await?;
            let said = send(client, session, &Body::UserInterrupt { session_thread_id: None }).await?;
            let words =
                if idle { "The session is idle; there was nothing to interrupt." } else { INTERRUPTED };
            done(&said, words, output)
        }
        Command::Confirm(args) => {
            let result = if args.allow { Confirmation::Allow } else { Confirmation::Deny };
            let answer = ToolConfirmation { tool_use_id: args.tool_use, result, deny_message: args.message };
            let said = send(client, args.session, &Body::UserToolConfirmation(answer)).await?;
            done(&said, "The answer is on record.", output)
        }
        Command::Archive { session } => {
            let reply = client.post(&format!("/v1/sessions/{session}/archive"), &json!({})).await?;
            done(&reply, "The session is archived.", output)
        }
        Command::Delete { session } => {
            let reply = client.delete(&format!("/v1/sessions/{session}")).await?;
            done(&reply, "The session is deleted.", output)
        }
    }
}

/// Makes a session; the agent and the environment may be named by name.
pub(crate) async fn create(client: &Client, args: Create) -> Result<Value, Failure> {
    let mut body = Map::new();
    body.insert("agent".to_owned(), named(client, "agent", "/v1/agents", &args.agent).await?.into());
    let environment = named(client, "environment", "/v1/environments", &args.environment).await?;
    body.insert("environment_id".to_owned(), environment.into());
    if let Some(title) = args.title {
        body.insert("title".to_owned(), title.into());
    }
    if let Some(text) = args.message {
        body.insert("initial_events".to_owned(), json!([message(text)]));
    }
    client.post("/v1/sessions", &body).await
}

fn message(text: String) -> Body {
    Body::UserMessage { content: vec![Block::text(text)] }
}

/// The id of the thing called `name`: an id stands for itself.
pub(crate) async fn named(client: &Client, noun: &str, path: &str, name: &str) -> Result<String, Failure> {
    /// More than this many things are not searched by name.
    const SEARCHED: usize = 1000;
    let prefix = match noun {
        "agent" => "agent_",
        "runner" => "rnr_",
        _ => "env_",
    };
    let is_id = |rest: &str| rest.len() == 32 && rest.bytes().all(|byte| byte.is_ascii_hexdigit());
    if name.strip_prefix(prefix).is_some_and(is_id) {
        return Ok(name.to_owned());
    }
    let rows = client.list(path, &[], SEARCHED).await?;
    let mut found = rows.iter().filter(|row| shape::text(row, "/name") == name);
    match (found.next(), found.next()) {
        (Some(row), None) => shape::id(row),
        (None, _) => Err(Failure::new(
            Exit::NotFound,
            format!("There is no {noun} called {name}. `checkfu {noun}s list` shows those that are."),
        )),
        (Some(_), Some(_)) => Err(Failure::usage(format!(
            "There is more than one {noun} called {name}. Give its id; `checkfu {noun}s list` shows it."
        ))),
    }
}

/// The thing called `name`, in full.
pub(crate) async fn found(client: &Client, noun: &str, path: &str, name: &str) -> Result<Value, Failure> {
    let id = named(client, noun, path, name).await?;
    // Ids from a server are checked before they become part of a path.
    if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return Err(Failure::local(format!("The {noun}'s id cannot be used.")));
    }
    client.get(&format!("{path}/{id}"), &[]).await
}

/// Sends one input; the reply is its echo.
async fn send(client: &Client, session: SessionId, body: &Body) -> Result<Value, Failure> {
    client.post(&format!("/v1/sessions/{session}/events"), &json!({"events": [body]})).await
}

/// Answers a tool call that asks.
pub(crate) async fn confirm(client: &Client, session: &str, answer: ToolConfirmation) -> Result<(), Failure> {
    let path = format!("{}/events", path(session)?);
    client.post(&path, &json!({"events": [Body::UserToolConfirmation(answer)]})).await.map(drop)
}

async fn say(
    client: &Client,
    output: &Output,
    session: SessionId,
    text: String,
    follow: bool,
    ask: bool,
) -> Result<(), Failure> {
    follow::require_person(ask)?;
    let said = send(client, session, &message(text)).await?;
    if !follow {
        return done(&said, "The message is on record.", output);
    }
    // The echo's own place is followed from the one before, so that the reader sees it too.
    let seq = said.pointer("/data/0/seq").and_then(Value::as_u64).unwrap_or(1);
    let session = session.to_string();
    let manner = Manner { after: seq.saturating_sub(1), present: seq, until_idle: true, asks: ask };
    let rest = Follower::new(client, output, &session, manner).follow().await?;
    follow::verdict(&session, &rest)
}

async fn watch(client: &Client, output: &Output, args: Watch) -> Result<(), Failure> {
    let present = if args.new || args.until_idle { last_seq(client, args.session).await? } else { 0 };
    let after = if args.new { present } else { args.after };
    if args.until_idle && !args.new && after >= present && is_idle(client, args.session).await? {
        return Ok(());
    }
    let manner = Manner { after, present, until_idle: args.until_idle, asks: false };
    Follower::new(client, output, &args.session.to_string(), manner).follow().await.map(drop)
}

/// Whether nothing is to be waited for now.
async fn is_idle(client: &Client, session: SessionId) -> Result<bool, Failure> {
    let session = client.get(&format!("/v1/sessions/{session}"), &[]).await?;
    Ok(shape::text(&session, "/status") == "idle")
}

async fn last_seq(client: &Client, session: SessionId) -> Result<u64, Failure> {
    let path = format!("/v1/sessions/{session}/events");
    let last = client.list(&path, &[("order", "desc".to_owned())], 1).await?;
    Ok(last.first().and_then(|event| event.get("seq")).and_then(Value::as_u64).unwrap_or(0))
}

fn list(rows: &[Value], output: &Output) -> Result<(), Failure> {
    if output.is_json {
        return output.json(&rows);
    }
    output.table(&shape::head(COLUMNS), &shape::rows(rows, COLUMNS), "There are no sessions.")
}

fn shown(session: &Value, output: &Output) -> Result<(), Failure> {
    if output.is_json { output.json(session) } else { output.text(&shape::lines(session, FIELDS)) }
}

fn done(reply: &Value, words: &str, output: &Output) -> Result<(), Failure> {
    if output.is_json { output.json(reply) } else { output.line(words) }
}
