//! `checkfu run`: a session for one message, followed live until it is idle.
//! Without an agent or an environment it uses its own: all tools, run without asking, in a sandbox without network.

use super::{
    agents,
    client::Client,
    environments,
    exit::Exit,
    failure::Failure,
    follow::{self, Follower, Manner},
    sessions, shape,
    terminal::{self, Output},
};
use clap::Args;
use serde_json::{Map, Value};

/// The name of the environment that is made when none is named.
const ENVIRONMENT: &str = "run";

/// `run`.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// What is to be done
    text: String,
    /// The agent: its id or its name; without one, an agent of --model with all tools
    #[arg(long)]
    agent: Option<String>,
    /// The model of the agent that is made when none is named
    #[arg(long, env = "CHECKFU_MODEL", default_value = "claude-sonnet-4-5")]
    model: String,
    /// The environment: its id or its name; without one, the default image without network
    #[arg(long)]
    environment: Option<String>,
    /// A title for people
    #[arg(long)]
    title: Option<String>,
    /// Ask here about tool calls that need an answer
    #[arg(long)]
    ask: bool,
}

/// Makes the session and follows it; success means that the agent ended its turn.
pub(crate) async fn run(args: Run, client: &Client, output: &Output) -> Result<(), Failure> {
    follow::require_person(args.ask)?;
    let agent = match args.agent {
        Some(agent) => agent,
        None => {
            let name = format!("run-{}", args.model);
            let body = agents::all_tools(&name, &args.model);
            found_or_made(client, "agent", "/v1/agents", &name, body).await?
        }
    };
    let environment = match args.environment {
        Some(environment) => environment,
        None => {
            let body = environments::without_network(ENVIRONMENT);
            found_or_made(client, "environment", "/v1/environments", ENVIRONMENT, body).await?
        }
    };
    let create = sessions::Create { agent, environment, title: args.title, message: Some(args.text) };
    let session = shape::id(&sessions::create(client, create).await?)?;
    if !output.is_json {
        output.line(&format!("[session {}]", terminal::line(&session)))?;
    }
    let manner = Manner { after: 0, present: 0, until_idle: true, asks: args.ask };
    let rest = Follower::new(client, output, &session, manner).follow().await?;
    follow::verdict(&session, &rest)
}

/// The id of the thing called `name`, made when there is none.
async fn found_or_made(
    client: &Client,
    noun: &str,
    path: &str,
    name: &str,
    body: Map<String, Value>,
) -> Result<String, Failure> {
    match sessions::named(client, noun, path, name).await {
        Err(failure) if failure.exit == Exit::NotFound => shape::id(&client.post(path, &body).await?),
        found => found,
    }
}
