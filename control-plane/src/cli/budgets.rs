//! `checkfu budgets`: what sessions may spend on models.

use super::{
    client::Client,
    failure::Failure,
    shape::{self, Members},
    terminal::Output,
};
use checkfu_shared::id::{BudgetId, SessionId};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};

const COLUMNS: Members = &[
    ("ID", "/id"),
    ("SESSION", "/session_id"),
    ("METRIC", "/metric"),
    ("LIMIT", "/limit"),
    ("USED", "/used"),
    ("STATUS", "/status"),
];

/// What to do with budgets.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Give a session a budget
    Create(Create),
    /// List budgets, newest first
    List {
        /// Only those of this session
        #[arg(long)]
        session: Option<SessionId>,
        /// Show at most this many
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Give a budget another limit; a session that waited for it goes on
    Raise {
        /// The budget's id
        budget: BudgetId,
        /// The new limit, in the budget's unit, above what was used
        limit: u64,
    },
    /// Let a budget limit nothing for now
    Pause {
        /// The budget's id
        budget: BudgetId,
    },
    /// Let a budget hold again
    Resume {
        /// The budget's id
        budget: BudgetId,
    },
}

/// `budgets create`.
#[derive(Debug, Args)]
pub(crate) struct Create {
    /// Whose
    #[arg(long)]
    session: SessionId,
    /// How much: micro-USD (1,000,000 are one USD), or tokens
    #[arg(long)]
    limit: u64,
    /// Of what
    #[arg(long, default_value = "model_spend")]
    metric: Metric,
}

/// What a budget limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Metric {
    /// What models cost by the price list, in micro-USD
    ModelSpend,
    /// Tokens as providers count them
    ModelTokens,
}

/// Runs one of the commands.
pub(crate) async fn run(command: Command, client: &Client, output: &Output) -> Result<(), Failure> {
    let changed = match command {
        Command::List { session, limit } => {
            let query: Vec<(&str, String)> =
                session.map(|id| ("session_id", id.to_string())).into_iter().collect();
            let rows = client.list("/v1/budgets", &query, limit).await?;
            if output.is_json {
                return output.json(&rows);
            }
            return output.table(
                &shape::head(COLUMNS),
                &shape::rows(&rows, COLUMNS),
                "There are no budgets.",
            );
        }
        Command::Create(args) => {
            let metric = if args.metric == Metric::ModelSpend { "model_spend" } else { "model_tokens" };
            let body = json!({"session_id": args.session, "limit": args.limit, "metric": metric});
            client.post("/v1/budgets", &body).await?
        }
        Command::Raise { budget, limit } => {
            client.post(&format!("/v1/budgets/{budget}"), &json!({"limit": limit})).await?
        }
        Command::Pause { budget } => client.post(&format!("/v1/budgets/{budget}/pause"), &json!({})).await?,
        Command::Resume { budget } => {
            client.post(&format!("/v1/budgets/{budget}/resume"), &json!({})).await?
        }
    };
    shown(&changed, output)
}

fn shown(budget: &Value, output: &Output) -> Result<(), Failure> {
    if output.is_json {
        return output.json(budget);
    }
    let rows = shape::rows(std::slice::from_ref(budget), COLUMNS);
    output.table(&shape::head(COLUMNS), &rows, "")
}
