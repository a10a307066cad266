//! `checkfu verify`: whether what is stored beside the log follows from it. Reads a data directory; changes no session.

use super::{
    exit::Exit,
    failure::Failure,
    serve,
    terminal::{self, Output},
};
use checkfu::{
    DATABASE_FILE,
    engine::verify::{self, Report},
    store::Store,
};
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

/// `verify`.
#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// The server's data directory [default: the user's data directory for checkfu]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

/// Verifies every session of a data directory.
pub(crate) async fn verify(args: Verify, output: &Output) -> Result<(), Failure> {
    let dir = args.data_dir.map_or_else(serve::default_data_dir, Ok)?;
    let path = dir.join(DATABASE_FILE);
    if !path.is_file() {
        return Err(Failure::usage(format!(
            "There is no database in {}. Name the server's data directory with --data-dir.",
            dir.display()
        )));
    }
    let failed = |why: &dyn std::fmt::Display| {
        Failure::local(format!("The database {} cannot be read: {why}.", path.display()))
    };
    let store = Store::open(&path).map_err(|error| failed(&error))?;
    let report = verify::verify(&store).await.map_err(|problem| failed(&problem))?;
    tokio::task::spawn_blocking(move || store.close()).await.map_err(|error| failed(&error))?;
    show(&report, output)?;
    if report.differences.is_empty() {
        return Ok(());
    }
    Err(Failure::new(
        Exit::Damaged,
        "What is stored does not follow from the log. Keep a copy of the data directory and restore a backup.",
    ))
}

fn show(report: &Report, output: &Output) -> Result<(), Failure> {
    if output.is_json {
        let differences: Vec<_> = report
            .differences
            .iter()
            .map(|difference| json!({"session_id": difference.session_id, "what": difference.what}))
            .collect();
        return output.json(&json!({
            "sessions": report.sessions, "events": report.events, "differences": differences,
        }));
    }
    for difference in &report.differences {
        output.line(&format!("{}: {}", difference.session_id, terminal::line(&difference.what)))?;
    }
    output.line(&format!(
        "{} session(s), {} event(s), {} difference(s)",
        report.sessions,
        report.events,
        report.differences.len()
    ))
}
