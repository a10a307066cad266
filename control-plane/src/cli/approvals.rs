//! `checkfu approvals`: tool calls that wait for somebody, and their one answer.

use super::{
    client::Client,
    failure::Failure,
    shape::{self, Members},
    terminal::Output,
};
use checkfu_shared::id::ApprovalId;
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

const COLUMNS: Members = &[
    ("ID", "/id"),
    ("STATUS", "/status"),
    ("TOOL", "/tool"),
    ("SESSION", "/session_id"),
    ("ASKED", "/requested_at"),
    ("UNTIL", "/expires_at"),
];
const FIELDS: Members = &[
    ("id", "/id"),
    ("status", "/status"),
    ("tool", "/tool"),
    ("arguments", "/arguments"),
    ("sha256", "/arguments_sha256"),
    ("asked by", "/policy_rule"),
    ("session", "/session_id"),
    ("principal", "/principal_id"),
    ("asked", "/requested_at"),
    ("until", "/expires_at"),
    ("responder", "/responder"),
    ("answered", "/responded_at"),
    ("note", "/note"),
    ("stands as", "/standing_approval_id"),
];

/// What to do with approvals.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List approvals, those that wait unless told otherwise
    List {
        /// pending, approved, denied, expired, invalidated or all
        #[arg(long, default_value = "pending")]
        status: String,
        /// Show at most this many
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Show what is asked, with its arguments
    Show {
        /// The approval's id
        approval: ApprovalId,
    },
    /// Let the call run
    Approve(Approve),
    /// Refuse the call
    Deny {
        /// The approval's id
        approval: ApprovalId,
        /// What the model is told
        #[arg(long)]
        note: Option<String>,
    },
}

/// `approvals approve`.
#[derive(Debug, Args)]
pub(crate) struct Approve {
    /// The approval's id
    approval: ApprovalId,
    /// A note for the record
    #[arg(long)]
    note: Option<String>,
    /// Let the same call run without asking for so many seconds
    #[arg(long, value_name = "SECONDS")]
    standing: Option<u32>,
    /// With --standing: so often at most
    #[arg(long, requires = "standing")]
    max_uses: Option<u32>,
}

/// Runs one of the commands.
pub(crate) async fn run(command: Command, client: &Client, output: &Output) -> Result<(), Failure> {
    match command {
        Command::List { status, limit } => {
            let status = Some(status).filter(|status| status != "all");
            let query: Vec<_> = status.into_iter().map(|status| ("status", status)).collect();
            let rows = client.list("/v1/action-approvals", &query, limit).await?;
            if output.is_json {
                return output.json(&rows);
            }
            output.table(&shape::head(COLUMNS), &shape::rows(&rows, COLUMNS), "Nothing waits for an answer.")
        }
        Command::Show { approval } => {
            shown(&client.get(&format!("/v1/action-approvals/{approval}"), &[]).await?, output)
        }
        Command::Approve(args) => {
            let standing = args.standing.map(|ttl| {
                let mut wish = Map::from_iter([("ttl_seconds".to_owned(), json!(ttl))]);
                wish.extend(args.max_uses.map(|uses| ("max_uses".to_owned(), json!(uses))));
                Value::Object(wish)
            });
            respond(client, args.approval, "approve", args.note, standing, output).await
        }
        Command::Deny { approval, note } => respond(client, approval, "deny", note, None, output).await,
    }
}

async fn respond(
    client: &Client,
    approval: ApprovalId,
    decision: &str,
    note: Option<String>,
    standing: Option<Value>,
    output: &Output,
) -> Result<(), Failure> {
    let mut body = Map::from_iter([("decision".to_owned(), json!(decision))]);
    body.extend(note.map(|note| ("note".to_owned(), json!(note))));
    body.extend(standing.map(|standing| ("standing".to_owned(), standing)));
    shown(&client.post(&format!("/v1/action-approvals/{approval}/responses"), &body).await?, output)
}

fn shown(approval: &Value, output: &Output) -> Result<(), Failure> {
    if output.is_json { output.json(approval) } else { output.text(&shape::lines(approval, FIELDS)) }
}
