//! Redeems a pairing code once: the code comes from a terminal, a pipe or a file, never from the command line.
//! The key is durable before it is used, so that a lost reply can be asked for again with the same code.

use crate::{
    backoff::Backoff,
    identity::{self, Identity},
    plane::{self, Address, Link, token},
    state::State,
};
use checkfu_shared::{
    id::InstanceId,
    problem::Code,
    protocol::pairing::{Host, Pair, Paired},
    secret::Secret,
};
use std::{
    path::Path,
    time::{Duration, Instant},
};

/// How long a control plane that does not answer is asked.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why this runner is not paired.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is paired already.
    #[error("this runner is already paired with {plane} as {runner_id}; run `checkfu-runner unpair` first")]
    Already {
        /// With which control plane.
        plane: String,
        /// As which runner.
        runner_id: String,
    },
    /// What was typed cannot be a code.
    #[error("a pairing code looks like ABCD-EFGH-JKLM; nothing was sent")]
    Shape,
    /// The control plane refuses.
    #[error("{0}")]
    Refused(String),
    /// The control plane did not answer; the same code may be tried again until it expires.
    #[error("{0}; run the same command with the same code again")]
    Unanswered(String),
    /// The client cannot be set up.
    #[error(transparent)]
    Setup(#[from] plane::SetupError),
    /// The identity cannot be kept.
    #[error(transparent)]
    Identity(#[from] identity::Error),
}

/// What one wants to be called.
#[derive(Debug, Clone)]
pub struct Wish {
    /// Where the control plane is.
    pub plane: Address,
    /// The code as typed.
    pub code: Secret,
    /// A name for people.
    pub name: String,
    /// Labels it calls itself by, beside those of the pairing.
    pub labels: Vec<String>,
    /// The machine.
    pub host: Host,
}

/// The code in its form, whatever spaces, dashes and letter case it was typed with.
///
/// # Errors
/// [`Error::Shape`] when it cannot be one.
pub fn normalised(typed: &str) -> Result<Secret, Error> {
    let letters: Vec<char> =
        typed.chars().filter(|c| !c.is_whitespace() && *c != '-').map(|c| c.to_ascii_uppercase()).collect();
    if letters.len() != 12 || !letters.iter().all(char::is_ascii_alphanumeric) {
        return Err(Error::Shape);
    }
    let groups: Vec<String> = letters.chunks(4).map(|group| group.iter().collect()).collect();
    Ok(Secret::new(groups.join("-")))
}

/// Pairs and keeps the identity. A refusal is final and costs one request; only silence is asked again.
///
/// # Errors
/// [`Error`], which says what to do.
pub async fn pair(state: &State, wish: Wish, extra_ca: Option<&Path>) -> Result<Identity, Error> {
    match Identity::load(state) {
        Ok(old) => {
            let (plane, runner_id) = (old.plane.to_string(), old.runner_id.to_string());
            return Err(Error::Already { plane, runner_id });
        }
        Err(identity::Error::Absent) => {}
        Err(error) => return Err(error.into()),
    }
    let link = Link::new(wish.plane.clone(), extra_ca)?;
    let key = identity::pending_key(state)?;
    let instance = InstanceId::mint();
    let paired = match redeem(&link, &wish, &key, instance).await {
        Ok(paired) => paired,
        Err(plane::Error::Refused(problem)) => {
            if matches!(problem.code, Code::PairingCodeInvalid | Code::PairingCodeExpired) {
                identity::forget_pending(state)?;
            }
            return Err(Error::Refused(problem.message));
        }
        Err(plane::Error::Unreachable { reason, retry_after: Some(wait), .. }) => {
            let wait = wait.as_secs();
            return Err(Error::Unanswered(format!("the control plane asks to wait {wait} s ({reason})")));
        }
        Err(error) => return Err(Error::Unanswered(error.to_string())),
    };
    let mut labels = paired.labels;
    labels.extend(wish.labels.into_iter().filter(|label| !label.trim().is_empty()));
    let identity = Identity {
        plane: wish.plane,
        runner_id: paired.runner_id,
        name: paired.name,
        max_sessions: paired.max_sessions,
        labels,
        key,
    };
    identity.save(state)?;
    Ok(identity)
}

async fn redeem(
    link: &Link,
    wish: &Wish,
    key: &identity::Key,
    instance: InstanceId,
) -> Result<Paired, plane::Error> {
    let begun = Instant::now();
    let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(10));
    loop {
        match once(link, wish, key, instance).await {
            // Told to wait, a person waits better than a loop.
            Err(plane::Error::Unreachable { reason, retry_after: None, passes: true })
                if begun.elapsed() < PATIENCE =>
            {
                tracing::warn!(%reason, "the control plane does not answer; trying again");
                tokio::time::sleep(backoff.next(None)).await;
            }
            outcome => return outcome,
        }
    }
}

async fn once(
    link: &Link,
    wish: &Wish,
    key: &identity::Key,
    instance_id: InstanceId,
) -> Result<Paired, plane::Error> {
    let nonce = token::nonce(link).await?;
    let public_key = key.public();
    let signature = key.sign("pair", wish.plane.origin(), &public_key, instance_id, &nonce);
    let request = Pair {
        code: wish.code.clone(),
        public_key,
        nonce,
        signature,
        instance_id,
        name: wish.name.clone(),
        host: wish.host.clone(),
    };
    token::post(link, "/v1/runner/pair", &request).await
}

/// What this machine is, as far as the control plane has to know it.
#[must_use]
pub fn this_host() -> Host {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let machine =
        ["/etc/machine-id", "/var/lib/dbus/machine-id"].map(read).into_iter().find(|id| !id.is_empty());
    let hostname = read("/proc/sys/kernel/hostname");
    // The id itself is confidential by its specification; a digest tells machines apart as well.
    let machine = machine.unwrap_or_else(|| hostname.clone());
    Host {
        machine: checkfu_shared::protocol::append::sha256_hex(format!("checkfu-runner:{machine}").as_bytes()),
        hostname,
        platform: format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

#[cfg(test)]
mod tests;
