//! `checkfu audit`: who did what, and whether the record of it is whole.

use super::{
    client::Client,
    exit::Exit,
    failure::Failure,
    shape::{self, Members},
    terminal::Output,
};
use clap::{Args, Subcommand};

const COLUMNS: Members = &[
    ("SEQ", "/seq"),
    ("AT", "/at"),
    ("OUTCOME", "/outcome"),
    ("ACTOR", "/actor"),
    ("ACTION", "/action"),
    ("RESOURCE", "/resource"),
];

/// What to do with the audit.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List acts and denials, oldest first
    List(List),
    /// Check that no row was changed, added or taken out
    Verify,
}

/// `audit list`.
#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only later rows than this
    #[arg(long, value_name = "SEQ")]
    after: Option<u64>,
    /// Only acts of this principal
    #[arg(long)]
    actor: Option<String>,
    /// Only acts that begin so, such as `POST /v1/api-keys`
    #[arg(long)]
    action: Option<String>,
    /// Only denials
    #[arg(long)]
    denied: bool,
    /// Show at most this many
    #[arg(long, default_value_t = 100)]
    limit: usize,
}

/// Runs one of the commands.
pub(crate) async fn run(command: Command, client: &Client, output: &Output) -> Result<(), Failure> {
    match command {
        Command::List(args) => {
            let mut query = Vec::new();
            query.extend(args.after.map(|seq| ("after_seq", seq.to_string())));
            query.extend(args.actor.map(|actor| ("actor", actor)));
            query.extend(args.action.map(|action| ("action", action)));
            query.extend(args.denied.then(|| ("outcome", "denied".to_owned())));
            let rows = client.list("/v1/audit", &query, args.limit).await?;
            if output.is_json {
                return output.json(&rows);
            }
            output.table(&shape::head(COLUMNS), &shape::rows(&rows, COLUMNS), "Nothing is on record.")
        }
        Command::Verify => {
            let verdict = client.get("/v1/audit/verification", &[]).await?;
            if output.is_json {
                output.json(&verdict)?;
            } else if verdict["intact"] == true {
                let (rows, head) = (shape::text(&verdict, "/rows"), shape::text(&verdict, "/head"));
                output.line(&format!("{rows} row(s), whole; the last one's hash is {head}"))?;
            }
            if verdict["intact"] == true {
                return Ok(());
            }
            let (row, why) = (shape::text(&verdict, "/broken_at"), shape::text(&verdict, "/reason"));
            Err(Failure::new(Exit::Damaged, format!("The audit is broken at row {row}: {why}.")))
        }
    }
}
