//! `checkfu files`: what a session left in `/mnt/session/outputs`.

use super::{
    client::Client,
    failure::Failure,
    shape::{self, Members},
    terminal::{self, Output},
};
use checkfu_shared::id::SessionId;
use clap::{Args, Subcommand};
use reqwest::{Response, header};
use serde_json::{Value, json};
use std::{
    fs::{self, File},
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
};

const COLUMNS: Members = &[("PATH", "/path"), ("STATUS", "/status"), ("SHA256", "/sha256")];
/// One reply carries at most this many bytes.
const WINDOW_BYTES: u64 = 8 << 20;

/// What to do with files.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List what a session left
    List {
        /// The session's id
        session: SessionId,
    },
    /// Get one file
    Get(Get),
}

/// `files get`.
#[derive(Debug, Args)]
pub(crate) struct Get {
    /// The session's id
    session: SessionId,
    /// The file's path, as `files list` shows it
    path: String,
    /// Where to put it; without this option it goes to standard output
    #[arg(long, short)]
    output: Option<PathBuf>,
}

/// Runs one of the commands.
pub(crate) async fn run(command: Command, client: &Client, output: &Output) -> Result<(), Failure> {
    match command {
        Command::List { session } => list(client, session, output).await,
        Command::Get(args) => get(client, args, output).await,
    }
}

async fn list(client: &Client, session: SessionId, output: &Output) -> Result<(), Failure> {
    /// More files than any session may leave in one turn.
    const LIMIT: usize = 10_000;
    let rows = client.list(&format!("/v1/sessions/{session}/files"), &[], LIMIT).await?;
    if output.is_json {
        return output.json(&rows);
    }
    let mut head = shape::head(COLUMNS);
    head.insert(1, "SIZE");
    let mut cells = shape::rows(&rows, COLUMNS);
    for (row, cells) in rows.iter().zip(&mut cells) {
        let bytes = row.get("size_bytes").and_then(Value::as_u64);
        cells.insert(1, bytes.map(terminal::size).unwrap_or_default());
    }
    output.table(&head, &cells, "The session left no files.")
}

async fn get(client: &Client, args: Get, output: &Output) -> Result<(), Failure> {
    match &args.output {
        None if io::stdout().is_terminal() => Err(Failure::usage(
            "A file's bytes do not belong on a terminal. Say where to put it with --output.",
        )),
        None => copy(client, &args, |bytes| output.bytes(bytes)).await.map(drop),
        Some(target) => {
            let bytes = save(client, &args, target).await?;
            if output.is_json {
                return output.json(&json!({"path": args.path, "output": target, "size_bytes": bytes}));
            }
            output.line(&format!("{} ({})", target.display(), terminal::size(bytes)))
        }
    }
}

/// Writes the file beside its place first, so that a broken download leaves nothing that looks whole.
async fn save(client: &Client, args: &Get, target: &Path) -> Result<u64, Failure> {
    let failed = |error: io::Error| {
        Failure::local(format!("The file cannot be written to {}: {error}.", target.display()))
    };
    let mut name = target.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    let part = target.with_file_name(name);
    let mut file = File::create(&part).map_err(failed)?;
    let copied = copy(client, args, |bytes| file.write_all(bytes).map_err(failed)).await;
    let kept = copied.and_then(|bytes| {
        file.sync_all().and_then(|()| fs::rename(&part, target)).map_err(failed)?;
        Ok(bytes)
    });
    if kept.is_err() {
        // What failed is told; what is left of it is of no use.
        let _ = fs::remove_file(&part);
    }
    kept
}

/// Reads the file window by window; the result is its size in bytes.
async fn copy(
    client: &Client,
    args: &Get,
    mut write: impl FnMut(&[u8]) -> Result<(), Failure>,
) -> Result<u64, Failure> {
    let path = format!("/v1/sessions/{}/files/content", args.session);
    let mut offset = 0;
    loop {
        let query = [
            ("path", args.path.clone()),
            ("offset", offset.to_string()),
            ("length", WINDOW_BYTES.to_string()),
        ];
        let mut reply = client.window(&path, &query).await?;
        let total = total_bytes(&reply);
        let before = offset;
        while let Some(bytes) = reply.chunk().await.map_err(|error| client.unreachable(&error))? {
            offset += bytes.len() as u64;
            write(&bytes)?;
        }
        // Without a total the reply was the whole file.
        if total.is_none_or(|total| offset >= total) {
            return Ok(offset);
        }
        if offset == before {
            return Err(Failure::local("The server gave no more bytes before the file's end. Try again."));
        }
    }
}

fn total_bytes(reply: &Response) -> Option<u64> {
    let range = reply.headers().get(header::CONTENT_RANGE)?.to_str().ok()?;
    range.rsplit_once('/')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::{Router, extract::Query, http::StatusCode, routing::get as route};
    use std::collections::HashMap;
    use tokio::net::TcpListener;

    /// Serves `0123456789` in windows of at most four bytes.
    async fn server() -> Client {
        let window = |Query(query): Query<HashMap<String, String>>| async move {
            assert_eq!(query["path"], "a%20b.txt");
            let from: usize = query["offset"].parse().unwrap();
            let to = (from + 4).min(10);
            let range = format!("bytes {from}-{}/10", to - 1);
            (StatusCode::PARTIAL_CONTENT, [("content-range", range)], "0123456789"[from..to].to_owned())
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().route("/v1/sessions/{id}/files/content", route(window));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Client::new(&url, None).unwrap()
    }

    #[tokio::test]
    async fn a_file_larger_than_a_window_is_put_together() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("out");
        let args = Get { session: SessionId::mint(), path: "a%20b.txt".into(), output: Some(target.clone()) };
        assert_eq!(save(&server().await, &args, &target).await, Ok(10));
        assert_eq!(fs::read_to_string(&target).unwrap(), "0123456789");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn a_failed_download_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("out");
        let args = Get { session: SessionId::mint(), path: "x".into(), output: Some(target.clone()) };
        let client = Client::new("http://127.0.0.1:1", None).unwrap();
        assert!(save(&client, &args, &target).await.is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
