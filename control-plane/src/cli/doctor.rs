//! `checkfu doctor`: what a server on this machine stands on, and what a client here can reach. It changes nothing.
//! Judgements are pure and apart from looks; each line says what was seen and what to do.

use super::{
    client::Client,
    exit::Exit,
    failure::Failure,
    serve,
    terminal::{self, Output},
};
use clap::Args;
use serde::Serialize;
use std::{io, os::unix::fs::MetadataExt, path::PathBuf};

/// `doctor`.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// The server's data directory [default: the user's data directory for checkfu]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

/// How one check came out; the worst counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    Warn,
    Fail,
}

/// One line of the report.
#[derive(Debug, Serialize)]
struct Finding {
    check: &'static str,
    verdict: Verdict,
    seen: String,
    advice: Option<String>,
}

impl Finding {
    fn ok(check: &'static str, seen: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Ok, seen: seen.into(), advice: None }
    }

    fn bad(
        check: &'static str,
        verdict: Verdict,
        seen: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { check, verdict, seen: seen.into(), advice: Some(advice.into()) }
    }
}

/// Looks at everything and ends by the worst.
pub(crate) async fn doctor(args: Doctor, client: &Client, output: &Output) -> Result<(), Failure> {
    let dir = args.data_dir.map_or_else(serve::default_data_dir, Ok)?;
    let own = rustix::process::geteuid().as_raw();
    let mut findings = Vec::new();
    // What lies in the directory is as private as the directory; the key may be copied elsewhere as it is.
    for (check, path) in [("data directory", dir.clone()), ("owner's key", dir.join("admin.key"))] {
        let found = std::fs::symlink_metadata(&path).map(|found| (found.uid(), found.mode()));
        findings.extend(private(
            check,
            &path.display().to_string(),
            found.map_err(|error| error.kind()),
            own,
        ));
    }
    let above = dir.ancestors().find(|path| path.exists());
    if let Some(stat) = above.and_then(|path| rustix::fs::statvfs(path).ok()) {
        let percent = |free: u64, all: u64| free.saturating_mul(100).checked_div(all).unwrap_or(100);
        findings.push(disk(percent(stat.f_bavail, stat.f_blocks), percent(stat.f_favail, stat.f_files)));
    }
    findings.extend(server(client).await);
    show(&findings, output)?;
    match findings.iter().map(|finding| finding.verdict).max() {
        Some(Verdict::Fail) => {
            Err(Failure::new(Exit::Failed, "Something does not work; see the lines marked FAIL."))
        }
        Some(Verdict::Warn) => Err(Failure::new(Exit::Doubtful, "")),
        Some(Verdict::Ok) | None => Ok(()),
    }
}

/// A file or directory that is for its owner alone; nothing is said of what does not exist yet.
fn private(
    check: &'static str,
    path: &str,
    found: Result<(u32, u32), io::ErrorKind>,
    own: u32,
) -> Option<Finding> {
    Some(match found {
        Err(io::ErrorKind::NotFound) => return None,
        Err(kind) => {
            Finding::bad(check, Verdict::Fail, format!("{path}: {kind}"), "run this as the server's own user")
        }
        Ok((owner, _)) if owner != own => Finding::bad(
            check,
            Verdict::Warn,
            format!("{path} belongs to user {owner}, this is user {own}"),
            "run this as the server's own user, such as with sudo -u checkfu",
        ),
        Ok((_, mode)) if mode & 0o077 != 0 => {
            let seen = format!("{path} has mode {:04o}", mode & 0o7777);
            Finding::bad(check, Verdict::Fail, seen, format!("others can read it; run: chmod go-rwx {path}"))
        }
        Ok((_, mode)) => Finding::ok(check, format!("{path}, mode {:04o}", mode & 0o7777)),
    })
}

fn disk(bytes: u64, inodes: u64) -> Finding {
    let seen = format!("{bytes} % of the space and {inodes} % of the inodes are free");
    match bytes.min(inodes) {
        ..5 => Finding::bad("disk", Verdict::Fail, seen, "make room; a full disk stops the server"),
        5..15 => Finding::bad("disk", Verdict::Warn, seen, "make room soon"),
        _ => Finding::ok("disk", seen),
    }
}

/// The server as this command line reaches it, and whether it takes our key.
async fn server(client: &Client) -> Vec<Finding> {
    let ready = match client.get("/readyz", &[]).await {
        Ok(_) => Finding::ok("server", format!("{} is ready", client.url())),
        Err(failure) => return vec![told("server", &failure)],
    };
    let key = match client.get("/v1/agents", &[("limit", "1".to_owned())]).await {
        Ok(_) => Finding::ok("key", "the server takes it"),
        Err(failure) => told("key", &failure),
    };
    vec![ready, key]
}

/// What failed, and after its first sentence what to do.
fn told(check: &'static str, failure: &Failure) -> Finding {
    let (seen, advice) = failure.message.split_once(". ").unwrap_or((&failure.message, ""));
    let advice = if advice.is_empty() { "check --url or CHECKFU_URL, and the key" } else { advice };
    Finding::bad(check, Verdict::Fail, seen.trim_end_matches('.'), advice.replace('\n', " "))
}

fn show(findings: &[Finding], output: &Output) -> Result<(), Failure> {
    if output.is_json {
        let worst = findings.iter().map(|finding| finding.verdict).max();
        return output.json(&serde_json::json!({ "worst": worst, "findings": findings }));
    }
    findings.iter().try_for_each(|finding| output.line(&shown(finding)))
}

fn shown(finding: &Finding) -> String {
    let word = match finding.verdict {
        Verdict::Ok => "ok  ",
        Verdict::Warn => "warn",
        Verdict::Fail => "FAIL",
    };
    let advice = finding.advice.as_deref();
    let advice = advice.map(|advice| format!("\n      -> {}", terminal::line(advice))).unwrap_or_default();
    format!("{word}  {:<15} {}{advice}", finding.check, terminal::line(&finding.seen))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_of_a_private_file_is_told() {
        for (found, verdict, words) in [
            (Ok((7, 0o40_700)), Verdict::Ok, "0700"),
            (Ok((7, 0o100_640)), Verdict::Fail, "chmod"),
            (Ok((8, 0o40_700)), Verdict::Warn, "user 8"),
            (Err(io::ErrorKind::PermissionDenied), Verdict::Fail, "own user"),
        ] {
            let finding = private("x", "/x", found, 7).unwrap();
            assert_eq!(finding.verdict, verdict, "{finding:?}");
            assert!(shown(&finding).contains(words), "{}", shown(&finding));
        }
        assert!(private("x", "/x", Err(io::ErrorKind::NotFound), 7).is_none());
    }

    #[test]
    fn room_is_judged_by_the_scarcer_of_bytes_and_inodes() {
        for (bytes, inodes, verdict) in
            [(50, 50, Verdict::Ok), (14, 50, Verdict::Warn), (50, 4, Verdict::Fail), (0, 50, Verdict::Fail)]
        {
            assert_eq!(disk(bytes, inodes).verdict, verdict, "{bytes} {inodes}");
        }
    }

    #[tokio::test]
    async fn a_server_that_is_away_says_how_to_reach_it() {
        let client = Client::new("http://127.0.0.1:9", None).unwrap();
        let findings = server(&client).await;
        assert_eq!((findings.len(), findings[0].verdict), (1, Verdict::Fail));
        assert!(shown(&findings[0]).contains("CHECKFU_URL"), "{}", shown(&findings[0]));
    }
}
