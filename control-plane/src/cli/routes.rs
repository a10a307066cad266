//! `checkfu routes`: names that agents use as their model, and who answers them in which order.

use super::{
    client::Client,
    failure::Failure,
    shape::{self, Members},
    terminal::Output,
};
use checkfu_shared::id::{ModelRouteId, ProviderId};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

const COLUMNS: Members =
    &[("ID", "/id"), ("NAME", "/name"), ("CANDIDATES", "/candidates"), ("CREATED", "/created_at")];
const FIELDS: Members = &[
    ("id", "/id"),
    ("name", "/name"),
    ("candidates", "/candidates"),
    ("created", "/created_at"),
    ("archived", "/archived_at"),
];

/// What to do with model routes.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a route
    Create(Create),
    /// List routes
    List {
        /// Show at most this many
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Remove a route; models of its name go to the server's own provider again
    Remove {
        /// The route's id
        route: ModelRouteId,
    },
}

/// `routes create`.
#[derive(Debug, Args)]
pub(crate) struct Create {
    /// The name that agents use as their model
    #[arg(long)]
    name: String,
    /// Who answers, as PROVIDER=MODEL with a provider's id or `default` (repeatable; in the order they are asked)
    #[arg(long = "candidate", value_name = "PROVIDER=MODEL", required = true)]
    candidates: Vec<String>,
}

/// Runs one of the commands.
pub(crate) async fn run(command: Command, client: &Client, output: &Output) -> Result<(), Failure> {
    match command {
        Command::Create(args) => {
            let candidates =
                args.candidates.iter().map(|text| candidate(text)).collect::<Result<Vec<_>, _>>()?;
            let body = json!({"name": args.name, "candidates": candidates});
            let made = client.post("/v1/model-routes", &body).await?;
            if output.is_json { output.json(&made) } else { output.text(&shape::lines(&made, FIELDS)) }
        }
        Command::List { limit } => {
            let rows = client.list("/v1/model-routes", &[], limit).await?;
            if output.is_json {
                return output.json(&rows);
            }
            output.table(&shape::head(COLUMNS), &shape::rows(&rows, COLUMNS), "There are no model routes.")
        }
        Command::Remove { route } => {
            let reply = client.post(&format!("/v1/model-routes/{route}/archive"), &json!({})).await?;
            if output.is_json { output.json(&reply) } else { output.line("The route is removed.") }
        }
    }
}

fn candidate(text: &str) -> Result<Value, Failure> {
    let wrong = || {
        Failure::usage(format!(
            "The candidate {text} cannot be used. Write PROVIDER=MODEL with a provider's id, or default=MODEL."
        ))
    };
    let (provider, model) = text.split_once('=').filter(|(_, model)| !model.is_empty()).ok_or_else(wrong)?;
    if provider == "default" {
        return Ok(json!({"model": model}));
    }
    let provider: ProviderId = provider.parse().map_err(|_| wrong())?;
    Ok(json!({"provider_id": provider, "model": model}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_candidate_names_a_provider_and_a_model() {
        assert_eq!(candidate("default=m=1").unwrap(), json!({"model": "m=1"}));
        let id = ProviderId::mint();
        assert_eq!(candidate(&format!("{id}=m")).unwrap(), json!({"provider_id": id, "model": "m"}));
        for bad in ["", "m", "default=", "other=m", "=m"] {
            assert!(candidate(bad).is_err(), "{bad}");
        }
    }
}
