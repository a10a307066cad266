//! `checkfu permissions`: who may do what to which resources, row by row.

use super::{
    client::Client,
    failure::Failure,
    shape::{self, Members},
    terminal::Output,
};
use checkfu_shared::id::{AssignmentId, PrincipalId};
use clap::{Args, Subcommand};
use serde_json::{Map, json};

const COLUMNS: Members = &[
    ("ID", "/id"),
    ("SUBJECT", "/subject"),
    ("PERMISSION", "/permission"),
    ("KIND", "/resource/kind"),
    ("WHICH", "/resource/id_glob"),
    ("ROLE", "/role"),
    ("EXPIRES", "/expires_at"),
    ("REVOKED", "/revoked_at"),
];

/// What to do with permissions.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List assignments
    List {
        /// Only those of this principal or group
        #[arg(long)]
        subject: Option<PrincipalId>,
        /// Revoked ones too
        #[arg(long)]
        all: bool,
        /// Show at most this many
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Let a principal or a group do something
    Grant(Grant),
    /// Take an assignment back, with everything that rests on it
    Revoke {
        /// The assignment's id
        assignment: AssignmentId,
    },
}

/// `permissions grant`.
#[derive(Debug, Args)]
pub(crate) struct Grant {
    /// Who: a principal or a group
    subject: PrincipalId,
    /// What, such as read, write, invoke or respond_approval
    permission: String,
    /// To what kind of resource, such as agent or session; * for all
    kind: String,
    /// To which of them, as a pattern of ids
    #[arg(default_value = "*")]
    id_glob: String,
    /// For so long only
    #[arg(long, value_name = "SECONDS")]
    ttl: Option<u64>,
}

/// Runs one of the commands.
pub(crate) async fn run(command: Command, client: &Client, output: &Output) -> Result<(), Failure> {
    const PATH: &str = "/v1/permission-assignments";
    match command {
        Command::List { subject, all, limit } => {
            let mut query = Vec::new();
            query.extend(subject.map(|id| ("subject", id.to_string())));
            query.extend(all.then(|| ("include_revoked", "true".to_owned())));
            let rows = client.list(PATH, &query, limit).await?;
            if output.is_json {
                return output.json(&rows);
            }
            output.table(&shape::head(COLUMNS), &shape::rows(&rows, COLUMNS), "Nobody may do anything.")
        }
        Command::Grant(args) => {
            let mut body = Map::from_iter([
                ("subject".to_owned(), json!(args.subject)),
                ("permission".to_owned(), json!(args.permission)),
                ("resource".to_owned(), json!({"kind": args.kind, "id_glob": args.id_glob})),
            ]);
            body.extend(args.ttl.map(|seconds| ("ttl_seconds".to_owned(), json!(seconds))));
            let made = client.post(PATH, &body).await?;
            if output.is_json { output.json(&made) } else { output.line(&shape::id(&made)?) }
        }
        Command::Revoke { assignment } => {
            let reply = client.post(&format!("{PATH}/{assignment}/revoke"), &json!({})).await?;
            if output.is_json {
                return output.json(&reply);
            }
            output.line("The assignment is revoked, and what rested on it has stopped.")
        }
    }
}
