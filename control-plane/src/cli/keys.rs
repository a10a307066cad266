//! `checkfu keys`: who may ask the API. A key is shown once, when it is made.

use super::{
    client::Client,
    failure::Failure,
    shape::{self, Members},
    terminal::{self, Output},
};
use checkfu_shared::id::{KeyId, PrincipalId};
use clap::{Args, Subcommand};
use serde_json::{Map, json};

const COLUMNS: Members = &[
    ("ID", "/id"),
    ("NAME", "/name"),
    ("PRINCIPAL", "/principal_id"),
    ("LAST USED", "/last_used_at"),
    ("EXPIRES", "/expires_at"),
    ("REVOKED", "/revoked_at"),
];

/// What to do with API keys.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a key and show it, once
    Create(Create),
    /// List keys
    List {
        /// Show at most this many
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Take back a key
    Revoke {
        /// The key's id
        key: KeyId,
    },
}

/// `keys create`.
#[derive(Debug, Args)]
pub(crate) struct Create {
    /// A name for people
    #[arg(long)]
    name: String,
    /// As whom it acts; without this option as the present key's principal
    #[arg(long)]
    principal: Option<PrincipalId>,
    /// When it ends, as 2026-01-31T00:00:00.000Z
    #[arg(long)]
    expires_at: Option<String>,
}

/// Runs one of the commands.
pub(crate) async fn run(command: Command, client: &Client, output: &Output) -> Result<(), Failure> {
    match command {
        Command::Create(args) => {
            let mut body = Map::new();
            body.insert("name".to_owned(), args.name.into());
            body.extend(args.principal.map(|id| ("principal_id".to_owned(), json!(id))));
            body.extend(args.expires_at.map(|at| ("expires_at".to_owned(), at.into())));
            let made = client.post("/v1/api-keys", &body).await?;
            if output.is_json {
                return output.json(&made);
            }
            let key = shape::text(&made, "/key");
            output.line(&format!(
                "{}\n\nIt is not shown again; keep it in a file of mode 0600.",
                terminal::line(&key)
            ))
        }
        Command::List { limit } => {
            let rows = client.list("/v1/api-keys", &[], limit).await?;
            if output.is_json {
                return output.json(&rows);
            }
            output.table(&shape::head(COLUMNS), &shape::rows(&rows, COLUMNS), "There are no keys.")
        }
        Command::Revoke { key } => {
            let reply = client.post(&format!("/v1/api-keys/{key}/revoke"), &json!({})).await?;
            if output.is_json { output.json(&reply) } else { output.line("The key is revoked.") }
        }
    }
}
