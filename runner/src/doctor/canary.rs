//! A container that goes the whole way: start, one tool call, capture of its output, end. Nothing of it stays.

use super::{Finding, broken};
use crate::{
    outputs::Limits as Capture,
    sandbox::{Docker, Error, Open, Request},
};
use checkfu_shared::{
    environment::{Limits, Network, Packages, Profile, Spec},
    event::CaptureStatus,
    id::SessionId,
};
use checkfu_toolbox::call::{Bash, Tool};
use std::{path::Path, time::Duration};

const CHECK: &str = "canary";
const MOST: Duration = Duration::from_secs(120);
const COMMAND: &str = "printf canary > /mnt/session/outputs/canary && id -u";

pub(super) async fn run(docker: &Docker, image: &str, scratch: &Path) -> Finding {
    let session = SessionId::mint();
    let went = tokio::time::timeout(MOST, whole(docker, session, image, scratch)).await;
    let removed = docker.remove_session(session).await;
    docker.close().await;
    match (went, removed) {
        (Err(_), _) => Finding::fail(
            CHECK,
            "a container did not get through in 120 s",
            "look at the load of this machine and at Docker's log",
        ),
        (Ok(Err(finding)), _) => finding,
        (Ok(Ok(_)), Err(error)) => broken(CHECK, &error),
        (Ok(Ok(how)), Ok(())) => Finding::ok(CHECK, how),
    }
}

async fn whole(docker: &Docker, session: SessionId, image: &str, scratch: &Path) -> Result<String, Finding> {
    let spec = Spec {
        image: None,
        network: Network::None,
        limits: Limits { memory_bytes: 256 << 20, ..Limits::default() },
        profile: Profile::Standard,
        packages: Packages::default(),
        placement_labels: Vec::new(),
    };
    let open = Open { session_id: session, epoch: 1, spec, lease_ms: 120_000, keep_ms: 1_000 };
    let failed = |error: Error| broken(CHECK, &error);
    let sandbox = docker.open(open).await.map_err(failed)?.sandbox;
    let bash = Bash { command: Some(COMMAND.to_owned()), timeout_ms: Some(60_000), ..Bash::default() };
    let request = Request { call_id: "canary".to_owned(), thread: "main".to_owned(), tool: Tool::Bash(bash) };
    let outcome = sandbox.call(request).await.map_err(failed)?;
    if outcome.exit_code != Some(0) {
        let seen = format!("a command in a container ended with {:?}", outcome.exit_code);
        return Err(Finding::fail(CHECK, seen, format!("try the image by hand: docker run --rm {image} id")));
    }
    let place = scratch.join(format!("doctor-{session}"));
    let captured = sandbox.capture(&place, Capture::default()).await;
    let cleared = std::fs::remove_dir_all(&place);
    let captured = captured.map_err(|error| {
        Finding::fail(
            CHECK,
            format!("the outputs of a container cannot be read: {error}"),
            "look at Docker's log",
        )
    })?;
    let whole = captured
        .files
        .iter()
        .any(|file| file.path == b"canary" && file.size == 6 && file.status == CaptureStatus::Captured);
    if !whole {
        return Err(Finding::fail(
            CHECK,
            "the output of a container did not come back whole",
            "look at the disk and at Docker's log",
        ));
    }
    if cleared.is_err() {
        return Err(Finding::warn(
            CHECK,
            "its copy could not be removed",
            format!("remove {}", place.display()),
        ));
    }
    Ok(format!("{image}: started, ran a command, its output came back, removed"))
}
