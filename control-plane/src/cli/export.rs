//! `checkfu export`: a session's log in a file that proves itself, and the proof, for which no server is needed.

use super::{
    client::Client,
    exit::Exit,
    failure::Failure,
    terminal::{self, Output},
};
use checkfu::export::{self, Verified};
use checkfu_shared::id::SessionId;
use clap::{Args, Subcommand};
use serde_json::json;
use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

/// What to do with exports.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Write a session's log to a file
    Session(Export),
    /// Check an export without a server: every byte, and who sealed it
    Verify(Verify),
}

/// `export session`.
#[derive(Debug, Args)]
pub(crate) struct Export {
    /// The session's id
    session: SessionId,
    /// Where to put it; without this option it goes to standard output
    #[arg(long, short)]
    output: Option<PathBuf>,
}

/// `export verify`.
#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// The file
    file: PathBuf,
    /// The server's public key in base64, to know that this server sealed it
    #[arg(long, value_name = "BASE64")]
    key: Option<String>,
}

/// Exports a session.
pub(crate) async fn run(args: Export, client: &Client, output: &Output) -> Result<(), Failure> {
    let path = format!("/v1/sessions/{}/export", args.session);
    let mut reply = client.window(&path, &[]).await?;
    let part = args.output.as_ref().map(|file| file.with_extension("part"));
    let mut file = match &part {
        Some(part) => Some(fs::File::create(part).map_err(|error| cannot_write(part, &error))?),
        None => None,
    };
    while let Some(bytes) = reply.chunk().await.map_err(|error| client.unreachable(&error))? {
        match (&mut file, &part) {
            (Some(file), Some(part)) => file.write_all(&bytes).map_err(|error| cannot_write(part, &error))?,
            _ => output.bytes(&bytes)?,
        }
    }
    // Under its own name only once it is whole.
    if let (Some(file), Some(part), Some(to)) = (file, part, args.output) {
        file.sync_all().and_then(|()| fs::rename(&part, &to)).map_err(|error| cannot_write(&to, &error))?;
    }
    Ok(())
}

fn cannot_write(file: &Path, error: &std::io::Error) -> Failure {
    Failure::local(format!("The file {} cannot be written: {error}.", file.display()))
}

/// Checks an export.
pub(crate) fn verify(args: &Verify, output: &Output) -> Result<(), Failure> {
    let bytes = fs::read(&args.file).map_err(|error| {
        Failure::usage(format!("The file {} cannot be read: {error}.", args.file.display()))
    })?;
    match export::verify(&bytes, args.key.as_deref()) {
        Ok(verified) => show(&verified, output),
        Err(broken) => Err(Failure::new(Exit::Damaged, format!("The export proves nothing: {broken}."))),
    }
}

fn show(verified: &Verified, output: &Output) -> Result<(), Failure> {
    let Verified { head, public_key, unavailable } = verified;
    if output.is_json {
        return output.json(&json!({
            "session_id": head.session_id, "exported_at": head.exported_at, "positions": head.positions,
            "unavailable": unavailable, "public_key": public_key,
        }));
    }
    output.line(&format!(
        "{}: {} position(s), {} of them unavailable, whole since {}; sealed by {}",
        head.session_id,
        head.positions,
        unavailable.len(),
        head.exported_at,
        terminal::line(public_key)
    ))
}
