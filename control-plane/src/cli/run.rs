//! `checkfu run`: a session for one message, followed live until it is idle.

use super::{
    client::Client,
    failure::Failure,
    follow::{self, Follower, Manner},
    sessions, shape,
    terminal::{self, Output},
};
use clap::Args;

/// `run`.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// What is to be done
    text: String,
    /// The agent: its id or its name
    #[arg(long)]
    agent: String,
    /// The environment: its id or its name
    #[arg(long)]
    environment: String,
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
    let create = sessions::Create {
        agent: args.agent,
        environment: args.environment,
        title: args.title,
        message: Some(args.text),
    };
    let session = shape::id(&sessions::create(client, create).await?)?;
    if !output.is_json {
        output.line(&format!("[session {}]", terminal::line(&session)))?;
    }
    let manner = Manner { after: 0, until_idle: true, asks: args.ask };
    let rest = Follower::new(client, output, &session, manner).follow().await?;
    follow::verdict(&session, &rest)
}
