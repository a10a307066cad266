//! Looks at everything a runner depends on and says of each: fine, doubtful or broken, what was seen, and what to do.
//! It changes nothing but the one container of its own that it makes and removes. Judgements are pure and apart from looks.

mod canary;
mod chain;
pub mod judge;
mod plane;

use crate::{
    config::Config,
    identity::Identity,
    plane::Address,
    sandbox::{self, Docker},
    state::State,
};
use checkfu_shared::id::RunnerId;
use serde::Serialize;
use std::path::Path;

/// How one check came out; the worst counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Fine.
    Ok,
    /// It works, but something should be done.
    Warn,
    /// It does not work.
    Fail,
}

/// One line of the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub check: &'static str,
    /// How it came out.
    pub verdict: Verdict,
    /// What was seen.
    pub seen: String,
    /// What to do; absent when all is well.
    pub advice: Option<String>,
}

impl Finding {
    pub(crate) fn ok(check: &'static str, seen: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Ok, seen: seen.into(), advice: None }
    }

    pub(crate) fn warn(check: &'static str, seen: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Warn, seen: seen.into(), advice: Some(advice.into()) }
    }

    pub(crate) fn fail(check: &'static str, seen: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Fail, seen: seen.into(), advice: Some(advice.into()) }
    }
}

/// What is to be looked at.
#[derive(Debug)]
pub struct Patient<'a> {
    /// Where the state is, or will be.
    pub state_dir: &'a Path,
    /// The settings.
    pub config: &'a Config,
    /// The control plane of a runner that is not paired yet.
    pub plane: Option<Address>,
    /// Whether to run a container.
    pub canary: bool,
}

/// The worst of them.
#[must_use]
pub fn worst(findings: &[Finding]) -> Verdict {
    findings.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::Ok)
}

/// Looks at everything, in an order in which the first failure explains those after it.
pub async fn examine(patient: &Patient<'_>) -> Vec<Finding> {
    let mut findings = vec![state(patient.state_dir)];
    // Opening it would make or mend it, and this only looks.
    let sound = findings.iter().all(|finding| finding.verdict == Verdict::Ok) && patient.state_dir.is_dir();
    let found = sound.then(|| Some(Identity::load(&State::open(patient.state_dir).ok()?))).flatten();
    let (address, runner) = match &found {
        Some(Ok(identity)) => {
            findings.push(Finding::ok(
                "pairing",
                format!("{} ({}) for {}", identity.name, identity.runner_id, identity.plane),
            ));
            (Some(identity.plane.clone()), Some(identity.runner_id))
        }
        Some(Err(crate::identity::Error::Absent)) | None => {
            let advice = "mint a code with `checkfu pair` and run `checkfu-runner pair --plane URL`";
            findings.push(Finding::warn("pairing", "this runner is not paired", advice));
            (patient.plane.clone(), None)
        }
        Some(Err(error)) => {
            findings.push(Finding::fail(
                "pairing",
                error.to_string(),
                "restore the identity, or unpair and pair again",
            ));
            (patient.plane.clone(), None)
        }
    };
    findings.push(judge::proxy(std::env::vars(), address.as_ref().map(Address::is_loopback)));
    match address {
        Some(address) => findings.extend(plane::examine(&address, patient.config.ca.as_deref()).await),
        None => {
            findings.push(Finding::warn("control plane", "no address is known", "name one with --plane URL"))
        }
    }
    findings.extend(host(patient.state_dir));
    findings.extend(docker(patient, runner).await);
    findings
}

fn state(path: &Path) -> Finding {
    use std::os::unix::fs::MetadataExt as _;
    let seen = std::fs::symlink_metadata(path);
    let own = rustix::process::geteuid().as_raw();
    let found = seen.map(|seen| (seen.is_dir(), seen.uid(), seen.mode())).map_err(|error| error.kind());
    judge::permissions(&path.display().to_string(), found, own)
}

/// Memory, disk and the service, as far as they can be seen without Docker.
fn host(state_dir: &Path) -> Vec<Finding> {
    let mut findings = vec![judge::memory(&std::fs::read_to_string("/proc/meminfo").unwrap_or_default())];
    for (check, path) in [("disk of the state", state_dir), ("disk of Docker", Path::new("/var/lib/docker"))]
    {
        // What does not exist yet will be made on the file system of its parent.
        let Some(path) = path.ancestors().find(|path| path.exists()) else { continue };
        if let Ok(stat) = rustix::fs::statvfs(path) {
            let space = judge::Space {
                bytes_free: stat.f_bavail.saturating_mul(stat.f_frsize),
                bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
                inodes_free: stat.f_favail,
                inodes: stat.f_files,
            };
            findings.push(judge::disk(check, &path.display().to_string(), space));
        }
    }
    let shown = std::process::Command::new("systemctl")
        .args(["show", "checkfu-runner.service", "--property", judge::UNIT_PROPERTIES])
        .output();
    let text = shown.ok().filter(|shown| shown.status.success()).map(|shown| shown.stdout);
    findings.push(judge::unit(text.as_deref().map(String::from_utf8_lossy).as_deref()));
    findings
}

async fn docker(patient: &Patient<'_>, runner: Option<RunnerId>) -> Vec<Finding> {
    let instance = runner.unwrap_or_else(RunnerId::mint);
    let scratch = patient.state_dir.join("sandbox");
    let config = patient.config.sandbox_at(&scratch, instance);
    let image = config.default_image.clone();
    let docker = match Docker::connect(config).await {
        Ok(docker) => docker,
        Err(error) => return vec![broken("Docker", &error)],
    };
    let facts = match docker.facts().await {
        Ok(facts) => facts,
        Err(error) => return vec![broken("Docker", &error)],
    };
    let mut findings =
        vec![judge::engine(&facts), judge::limits(&facts, patient.config.accept_missing_limits)];
    let toolbox = patient.config.toolbox();
    findings.push(if toolbox.is_file() {
        Finding::ok("toolbox", toolbox.display().to_string())
    } else {
        let error = sandbox::Error::NoToolbox { path: toolbox };
        broken("toolbox", &error)
    });
    if patient.canary && worst(&findings) < Verdict::Fail {
        findings.push(canary::run(&docker, &image, &scratch).await);
    }
    findings
}

fn broken(check: &'static str, error: &sandbox::Error) -> Finding {
    let text = error.to_string();
    let (seen, advice) = text.split_once("; ").unwrap_or((&text, "look at Docker's own log"));
    Finding::fail(check, seen, advice)
}

#[cfg(test)]
mod tests;
