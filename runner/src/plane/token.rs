//! The bearer token: one keeper fetches and renews it, everybody else waits for what it publishes.
//! A refusal to authenticate never makes the runner forget its identity.

use super::{
    Error,
    link::{Failure, Link, Outgoing},
};
use crate::{
    backoff::{Backoff, spread},
    identity::Identity,
};
use checkfu_shared::{
    id::InstanceId,
    problem::Code,
    protocol::pairing::{Host, Nonce, Token, TokenRequest},
    secret::Secret,
};
use reqwest::Method;
use std::{sync::Arc, time::Duration};
use tokio::sync::{mpsc, watch};

const TIMEOUT: Duration = Duration::from_secs(15);
/// How often a parked runner asks whether it is welcome again.
const PROBE: Duration = Duration::from_secs(300);

/// A token and which one it is.
#[derive(Debug, Clone)]
pub struct Bearer {
    pub(crate) generation: u64,
    pub(crate) secret: Secret,
}

/// How this runner stands with its control plane.
#[derive(Debug, Clone)]
pub enum Standing {
    /// No token yet, or the last one is not accepted any more.
    Pending {
        /// Why it takes so long.
        reason: Option<String>,
    },
    /// All is well.
    Valid(Bearer),
    /// Revoked: it stops its sandboxes and parks.
    Revoked,
    /// Another machine runs under this identity; this process has to end.
    InUse {
        /// What the control plane says.
        reason: String,
    },
}

/// What a caller found out about a token.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Complaint {
    Stale(u64),
    Revoked,
}

/// The one task that authenticates.
#[derive(Debug)]
pub struct Keeper {
    pub(crate) link: Link,
    pub(crate) identity: Arc<Identity>,
    pub(crate) instance: InstanceId,
    pub(crate) host: Host,
    pub(crate) standing: watch::Sender<Standing>,
    pub(crate) complaints: mpsc::Receiver<Complaint>,
}

impl Keeper {
    /// Keeps a valid token until everybody who could use it is gone, or the identity is in use elsewhere.
    pub async fn run(mut self) {
        let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
        let mut generation = 0;
        loop {
            match self.authenticate().await {
                Ok(token) => {
                    backoff.reset();
                    generation += 1;
                    self.standing.send_replace(Standing::Valid(Bearer { generation, secret: token.token }));
                    let life = Duration::from_millis(token.expires_in_ms);
                    match self.until_renewal(generation, spread(life * 2 / 3, 10)).await {
                        Wake::Renew => {}
                        Wake::Stale => self.pend(None),
                        Wake::Revoked => self.park().await,
                        Wake::Abandoned => return,
                    }
                }
                Err(Error::Revoked) => self.park().await,
                Err(Error::Refused(problem)) if problem.code == Code::IdentityInUse => {
                    self.standing.send_replace(Standing::InUse { reason: problem.message });
                    return;
                }
                Err(error) => {
                    // A token that still lives is better than none.
                    if !matches!(*self.standing.borrow(), Standing::Valid(_)) {
                        self.pend(Some(error.to_string()));
                    }
                    let retry_after = match &error {
                        Error::Unreachable { retry_after, .. } => *retry_after,
                        Error::Fenced | Error::Revoked | Error::Refused(_) => Some(Duration::from_secs(30)),
                    };
                    tracing::warn!(%error, "no token from the control plane yet");
                    tokio::time::sleep(backoff.next(retry_after)).await;
                }
            }
            if self.standing.is_closed() {
                return;
            }
        }
    }

    fn pend(&self, reason: Option<String>) {
        self.standing.send_replace(Standing::Pending { reason });
    }

    async fn park(&self) {
        let before = self.standing.send_replace(Standing::Revoked);
        if !matches!(before, Standing::Revoked) {
            tracing::error!(
                "this runner was revoked: it stops its sandboxes and waits; pair it again after `unpair`"
            );
        }
        tokio::select! {
            () = tokio::time::sleep(spread(PROBE, 50)) => {}
            () = self.standing.closed() => {}
        }
    }

    async fn until_renewal(&mut self, generation: u64, wait: Duration) -> Wake {
        let renewal = tokio::time::sleep(wait);
        tokio::pin!(renewal);
        loop {
            tokio::select! {
                () = &mut renewal => return Wake::Renew,
                complaint = self.complaints.recv() => match complaint {
                    Some(Complaint::Stale(old)) if old < generation => {}
                    Some(Complaint::Stale(_)) => return Wake::Stale,
                    Some(Complaint::Revoked) => return Wake::Revoked,
                    None => return Wake::Abandoned,
                },
            }
        }
    }

    async fn authenticate(&self) -> Result<Token, Error> {
        let nonce = nonce(&self.link).await?;
        let subject = self.identity.runner_id.to_string();
        let origin = self.link.address.origin();
        let signature = self.identity.key.sign("token", origin, &subject, self.instance, &nonce);
        let request = TokenRequest {
            runner_id: self.identity.runner_id,
            instance_id: self.instance,
            nonce,
            signature,
            host: self.host.clone(),
        };
        post(&self.link, "/v1/runner/token", &request).await
    }
}

enum Wake {
    Renew,
    Stale,
    Revoked,
    Abandoned,
}

/// A fresh value to sign.
pub(crate) async fn nonce(link: &Link) -> Result<String, Error> {
    let outgoing = Outgoing {
        method: Method::GET,
        path: "/v1/runner/nonce".to_owned(),
        query: Vec::new(),
        body: None,
        timeout: TIMEOUT,
    };
    let body = link.attempt(&outgoing, None).await.map_err(without_token)?;
    super::parse::<Nonce>(&body).map(|nonce| nonce.nonce)
}

/// One request that proves itself by a signature, not by a token.
pub(crate) async fn post<T: serde::de::DeserializeOwned>(
    link: &Link,
    path: &str,
    request: &(impl serde::Serialize + Sync),
) -> Result<T, Error> {
    let outgoing = Outgoing::post(path.to_owned(), super::json(request)?, TIMEOUT);
    super::parse(&link.attempt(&outgoing, None).await.map_err(without_token)?)
}

fn without_token(failure: Failure) -> Error {
    match failure {
        Failure::Unauthenticated(message) => {
            Error::Refused(checkfu_shared::problem::Problem::new(Code::Unauthenticated, message))
        }
        Failure::Other(error) => error,
    }
}
