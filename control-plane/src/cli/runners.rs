//! `checkfu pair` and `checkfu runners`: which machines may take work.

use super::{
    client::Client,
    failure::Failure,
    sessions,
    shape::{self, Members},
    terminal::{self, Output},
};
use checkfu_shared::id::{PrincipalId, RunnerId};
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

const COLUMNS: Members = &[
    ("ID", "/id"),
    ("NAME", "/name"),
    ("STATUS", "/status"),
    ("LABELS", "/labels"),
    ("SEEN", "/last_seen_at"),
];
const FIELDS: Members = &[
    ("id", "/id"),
    ("name", "/name"),
    ("status", "/status"),
    ("labels", "/labels"),
    ("sessions at most", "/max_sessions"),
    ("host", "/host/hostname"),
    ("platform", "/host/platform"),
    ("version", "/host/version"),
    ("paired", "/created_at"),
    ("last seen", "/last_seen_at"),
    ("revoked", "/revoked_at"),
];

/// What to do with runners.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List runners
    List {
        /// Show at most this many
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Show one runner
    Show {
        /// The runner: its id or its name
        runner: String,
    },
    /// Take all rights from a runner at once; it stops its sandboxes
    Revoke {
        /// The runner's id
        runner: RunnerId,
        /// Why, for the record
        #[arg(long, default_value = "revoked at the command line")]
        reason: String,
    },
    /// Let a runner finish what it does and take no more
    Drain {
        /// The runner's id
        runner: RunnerId,
    },
}

/// `pair`.
#[derive(Debug, Args)]
pub(crate) struct Pair {
    /// A name for the runner; without this option its host's name
    #[arg(long)]
    name: Option<String>,
    /// A label it gets (repeatable)
    #[arg(long = "label")]
    labels: Vec<String>,
    /// How many sessions it may run at once
    #[arg(long)]
    max_sessions: Option<u32>,
    /// Forget it as soon as it goes away
    #[arg(long)]
    ephemeral: bool,
    /// How long the code is good for, seconds, at most an hour
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u32).range(1..=3600))]
    ttl_seconds: u32,
    /// Print nothing but the code, for a pipe
    #[arg(long, conflicts_with = "json")]
    code_only: bool,
    /// As whom it takes work; without this option as the key's principal
    #[arg(long)]
    principal: Option<PrincipalId>,
}

/// Mints a pairing code and says how to use it.
pub(crate) async fn pair(args: Pair, client: &Client, output: &Output) -> Result<(), Failure> {
    let mut body = Map::new();
    body.insert("ttl_seconds".to_owned(), args.ttl_seconds.into());
    body.extend(args.name.map(|name| ("name".to_owned(), name.into())));
    body.extend(args.max_sessions.map(|count| ("max_sessions".to_owned(), count.into())));
    body.extend(args.principal.map(|id| ("principal".to_owned(), json!(id))));
    if !args.labels.is_empty() {
        body.insert("labels".to_owned(), json!(args.labels));
    }
    if args.ephemeral {
        body.insert("ephemeral".to_owned(), true.into());
    }
    let minted = client.post("/v1/runner-pairings", &body).await?;
    if output.is_json {
        output.json(&minted)
    } else if args.code_only {
        output.line(&terminal::line(&shape::text(&minted, "/code")))
    } else {
        output.text(&how_to_pair(client.url(), &minted))
    }
}

fn how_to_pair(url: &str, minted: &Value) -> String {
    let code = shape::text(minted, "/code");
    let until = shape::text(minted, "/expires_at");
    let (code, until, url) = (terminal::line(&code), terminal::line(&until), terminal::line(url));
    format!(
        "{code}\n\nGood until {until}, once. On the machine that is to run sessions:\n\n  checkfu-runner pair --plane {url}\n\nand type the code when it asks.\n"
    )
}

/// Runs one of the commands.
pub(crate) async fn run(command: Command, client: &Client, output: &Output) -> Result<(), Failure> {
    match command {
        Command::List { limit } => {
            let rows = client.list("/v1/runners", &[], limit).await?;
            if output.is_json {
                return output.json(&rows);
            }
            let nothing = "There are no runners. `checkfu pair` mints a code for one.";
            output.table(&shape::head(COLUMNS), &shape::rows(&rows, COLUMNS), nothing)
        }
        Command::Show { runner } => {
            let reply = sessions::found(client, "runner", "/v1/runners", &runner).await?;
            if output.is_json { output.json(&reply) } else { output.text(&shape::lines(&reply, FIELDS)) }
        }
        Command::Revoke { runner, reason } => {
            let reply =
                client.post(&format!("/v1/runners/{runner}/revoke"), &json!({"reason": reason})).await?;
            done(&reply, "The runner is revoked; its sessions go on elsewhere.", output)
        }
        Command::Drain { runner } => {
            let reply = client.post(&format!("/v1/runners/{runner}/drain"), &json!({})).await?;
            done(&reply, "The runner takes no more work.", output)
        }
    }
}

fn done(reply: &Value, words: &str, output: &Output) -> Result<(), Failure> {
    if output.is_json { output.json(reply) } else { output.line(words) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minted_code_comes_first_and_with_what_to_do() {
        let minted = json!({"code": "ABCD-EFGH-JKLM", "expires_at": "2026-01-01T00:00:00.000Z"});
        let text = how_to_pair("http://host:8321", &minted);
        assert!(text.starts_with("ABCD-EFGH-JKLM\n"), "{text}");
        assert!(text.contains("checkfu-runner pair --plane http://host:8321\n"), "{text}");
    }
}
