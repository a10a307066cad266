//! The typed client of the runner protocol. It knows HTTP so that nobody else does.
//! Methods that say "repeats" wait out any outage; drop their future when the claim is lost.

pub mod address;
pub mod carrier;
mod issuer;
mod link;
mod pool;
pub mod tls;
pub mod token;
mod upload;

pub use address::Address;
pub(crate) use link::{Link, Outgoing};
pub use token::Standing;

use crate::{backoff::Backoff, claim::lease::BootInstant, identity::Identity, mask::Masker};
use bytes::Bytes;
use carrier::{Carrier, Way};
use checkfu_shared::{
    id::{ClaimId, InstanceId, SessionId},
    problem::Problem,
    protocol::{
        Tempo,
        append::{AppendReply, Deltas},
        claim::{ClaimReply, ClaimRequest, Close, History},
        pairing::Host,
        recover::{HeldClaim, Inventory, InventoryReply, Recover, Recovered},
        renew::{Directives, DirectivesRequest, Gateway, Renew, Renewed},
        settlement::{Settle, Settled, SettlementReply, SettlementRequest},
    },
};
pub(crate) use link::unreachable;
use link::{Failure, unreached};
use reqwest::Method;
use serde::{Serialize, de::DeserializeOwned};
use std::{
    path::Path,
    sync::{Arc, OnceLock},
    time::Duration,
};
use token::{Bearer, Complaint, Keeper};
use tokio::sync::{mpsc, watch};

/// How long a plain call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// How much longer than it hangs a poll may take.
const POLL_SLACK: Duration = Duration::from_secs(10);
/// How long a call waits for a token before it counts as unanswered.
const TOKEN_WAIT: Duration = Duration::from_secs(10);
const HISTORY_PAGE: u32 = 100;

/// Why a call to the control plane failed, by what to do next.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// A newer epoch owns the session, or the claim ended: stop and report nothing.
    #[error("a newer epoch owns the session, or the claim ended")]
    Fenced,
    /// This runner was revoked: stop every sandbox.
    #[error("this runner was revoked")]
    Revoked,
    /// The request is understood and refused; repeating it changes nothing.
    #[error("the control plane refuses: {0}")]
    Refused(Problem),
    /// No answer of ours: no connection, a time-out, overload or a defect. Worth repeating.
    #[error("the control plane cannot be reached: {reason}")]
    Unreachable {
        /// What happened, without secrets.
        reason: String,
        /// How long the server wants to be left alone.
        retry_after: Option<Duration>,
        /// Whether it may pass by itself; a certificate or a password that is not accepted needs a person.
        passes: bool,
    },
}

/// Why the client cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The trusted authorities are unusable.
    #[error(transparent)]
    Tls(#[from] tls::Error),
    /// The HTTP client refuses its settings, such as a malformed proxy address.
    #[error("the HTTP client cannot be set up: {0}")]
    Client(String),
}

/// The control plane as one start of a runner reaches it.
#[derive(Debug)]
pub struct Plane {
    link: Link,
    /// Connections of their own for what must not wait behind sessions; they live on the lease runtime.
    lease_link: Link,
    instance: InstanceId,
    standing: watch::Receiver<Standing>,
    complaints: mpsc::Sender<Complaint>,
    tempo: watch::Sender<Tempo>,
    mask: OnceLock<Arc<Masker>>,
}

impl Plane {
    /// The client and the keeper of its token, which somebody has to run on the lease runtime.
    ///
    /// # Errors
    /// [`SetupError`] when TLS or the proxy settings are unusable.
    pub fn new(
        identity: Arc<Identity>,
        instance: InstanceId,
        host: Host,
        extra_ca: Option<&Path>,
    ) -> Result<(Arc<Self>, Keeper), SetupError> {
        let link = Link::new(identity.plane.clone(), extra_ca)?;
        let lease_link = Link::new(identity.plane.clone(), extra_ca)?;
        Ok(Self::over(link, lease_link, identity, instance, host))
    }

    /// Like [`Plane::new`], with requests that `carrier` carries.
    #[must_use]
    pub fn carried(
        carrier: Arc<dyn Carrier>,
        identity: Arc<Identity>,
        instance: InstanceId,
        host: Host,
    ) -> (Arc<Self>, Keeper) {
        let link = |carrier| Link::carried(identity.plane.clone(), carrier);
        let (link, lease_link) = (link(Arc::clone(&carrier)), link(carrier));
        Self::over(link, lease_link, identity, instance, host)
    }

    fn over(
        link: Link,
        lease_link: Link,
        identity: Arc<Identity>,
        instance: InstanceId,
        host: Host,
    ) -> (Arc<Self>, Keeper) {
        let (standing_in, standing) = watch::channel(Standing::Pending { reason: None });
        let (complaints, complained) = mpsc::channel(16);
        let keeper = Keeper {
            link: lease_link.clone(),
            identity,
            instance,
            host,
            standing: standing_in,
            complaints: complained,
        };
        let tempo = watch::Sender::new(Tempo::default());
        let mask = OnceLock::new();
        (Arc::new(Self { link, lease_link, instance, standing, complaints, tempo, mask }), keeper)
    }

    /// What must not leave this host, from now on. The first call counts.
    pub fn mask_with(&self, mask: Masker) {
        let _ = self.mask.set(Arc::new(mask));
    }

    /// What must not leave this host.
    #[must_use]
    pub fn mask(&self) -> Arc<Masker> {
        self.mask.get().cloned().unwrap_or_default()
    }

    /// Which start of the runner this is.
    #[must_use]
    pub const fn instance(&self) -> InstanceId {
        self.instance
    }

    /// How fast things go at present.
    #[must_use]
    pub fn tempo(&self) -> Tempo {
        *self.tempo.borrow()
    }

    #[cfg(test)]
    pub(crate) fn set_tempo(&self, tempo: Tempo) {
        self.tempo.send_replace(tempo);
    }

    /// How this runner stands with its control plane, from now on.
    #[must_use]
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.clone()
    }

    /// When the control plane last answered anything.
    #[must_use]
    pub fn heard(&self) -> Option<BootInstant> {
        self.link.heard().max(self.lease_link.heard())
    }

    /// Asks for work; hangs up to `wait_ms`. Tried once: the claim loop repeats the same request.
    ///
    /// # Errors
    /// Any [`Error`].
    pub async fn claims(&self, request: &ClaimRequest) -> Result<ClaimReply, Error> {
        let wait = Duration::from_millis(request.wait_ms) + POLL_SLACK;
        let reply: ClaimReply = self.post("/v1/runner/claims".to_owned(), request, wait).await?;
        self.tempo.send_replace(reply.tempo);
        Ok(reply)
    }

    /// Renews a lease; tells when it was sent, from which the lease counts. Tried once; call it on the lease runtime.
    ///
    /// # Errors
    /// Any [`Error`].
    pub async fn renew(
        &self,
        claim: ClaimId,
        epoch: u64,
        timeout: Duration,
    ) -> Result<(BootInstant, Renewed), Error> {
        let outgoing =
            Outgoing::post(format!("/v1/runner/claims/{claim}/renew"), json(&Renew { epoch })?, timeout);
        let (sent, body) = self.send(&self.lease_link, &outgoing).await?;
        Ok((sent, parse(&body)?))
    }

    /// Waits for directives. Tried once.
    ///
    /// # Errors
    /// Any [`Error`].
    pub async fn directives(&self, claim: ClaimId, request: &DirectivesRequest) -> Result<Directives, Error> {
        let wait = Duration::from_millis(request.wait_ms) + POLL_SLACK;
        self.post(format!("/v1/runner/claims/{claim}/directives"), request, wait).await
    }

    /// Sends a batch of events, already in its JSON form. Tried once: the outbox repeats the same batch.
    ///
    /// # Errors
    /// Any [`Error`].
    pub(crate) async fn append(&self, claim: ClaimId, body: Bytes) -> Result<AppendReply, Error> {
        let outgoing = Outgoing::post(format!("/v1/runner/claims/{claim}/events"), body, CALL_TIMEOUT);
        parse(&self.send(&self.link, &outgoing).await?.1)
    }

    /// Sends live text. Tried once; what is lost stays lost.
    ///
    /// # Errors
    /// Any [`Error`].
    pub(crate) async fn deltas(&self, claim: ClaimId, deltas: &Deltas) -> Result<(), Error> {
        let outgoing = Outgoing::post(
            format!("/v1/runner/claims/{claim}/deltas"),
            json(deltas)?,
            Duration::from_secs(5),
        );
        self.send(&self.link, &outgoing).await.map(drop)
    }

    /// One page of the session's log after `after_seq`. Repeats until an answer comes.
    ///
    /// # Errors
    /// Any [`Error`] but [`Error::Unreachable`].
    pub async fn history(&self, claim: ClaimId, epoch: u64, after_seq: u64) -> Result<History, Error> {
        let outgoing = Outgoing {
            method: Method::GET,
            path: format!("/v1/runner/claims/{claim}/history"),
            query: vec![
                ("epoch", epoch.to_string()),
                ("after_seq", after_seq.to_string()),
                ("limit", HISTORY_PAGE.to_string()),
            ],
            body: None,
            timeout: CALL_TIMEOUT,
        };
        self.persist(outgoing).await
    }

    /// Announces the captured files; says which have to be uploaded. Repeats until an answer comes.
    ///
    /// # Errors
    /// Any [`Error`] but [`Error::Unreachable`].
    pub async fn settlement(
        &self,
        claim: ClaimId,
        request: &SettlementRequest,
    ) -> Result<SettlementReply, Error> {
        self.persist(Outgoing::post(
            format!("/v1/runner/claims/{claim}/settlement"),
            json(request)?,
            CALL_TIMEOUT,
        ))
        .await
    }

    /// Ends the claim: files and terminal events in one step. Repeats until an answer comes.
    ///
    /// # Errors
    /// Any [`Error`] but [`Error::Unreachable`].
    pub async fn settle(&self, claim: ClaimId, settle: &Settle) -> Result<Settled, Error> {
        let body = Bytes::from(self.mask().message(json(settle)?.into()));
        self.persist(Outgoing::post(format!("/v1/runner/claims/{claim}/settle"), body, CALL_TIMEOUT)).await
    }

    /// Asks what becomes of claims found on this disk. Repeats until an answer comes.
    ///
    /// # Errors
    /// Any [`Error`] but [`Error::Unreachable`].
    pub async fn recover(&self, claims: Vec<HeldClaim>) -> Result<Recovered, Error> {
        let request = Recover { instance_id: self.instance, claims };
        self.persist(Outgoing::post("/v1/runner/recover".to_owned(), json(&request)?, CALL_TIMEOUT)).await
    }

    /// Tells which sandboxes are here; says which can go. Tried once.
    ///
    /// # Errors
    /// Any [`Error`].
    pub async fn inventory(&self, sandboxes: Vec<SessionId>) -> Result<InventoryReply, Error> {
        let request = Inventory { instance_id: self.instance, sandboxes };
        self.post("/v1/runner/inventory".to_owned(), &request, CALL_TIMEOUT).await
    }

    /// Ends the open poll of this start and lets it take no more work. Tried once, briefly.
    ///
    /// # Errors
    /// Any [`Error`].
    pub async fn close(&self) -> Result<(), Error> {
        let outgoing = Outgoing::post(
            "/v1/runner/close".to_owned(),
            json(&Close { instance_id: self.instance })?,
            Duration::from_secs(5),
        );
        self.send(&self.link, &outgoing).await.map(drop)
    }

    /// Has this runner revoked for good, by its own wish. Tried once.
    ///
    /// # Errors
    /// Any [`Error`].
    pub async fn unpair(&self) -> Result<(), Error> {
        let outgoing =
            Outgoing::post("/v1/runner/unpair".to_owned(), Bytes::from_static(b"{}"), CALL_TIMEOUT);
        self.send(&self.link, &outgoing).await.map(drop)
    }

    /// `POST <gateway>/v1/messages` with a JSON body; the answer streams. Tried once; bound the reading yourself.
    ///
    /// # Errors
    /// [`Error::Unreachable`] when no answer began. Any status is an answer: the caller reads it.
    pub async fn gateway_messages(
        &self,
        gateway: &Gateway,
        body: impl Into<reqwest::Body>,
    ) -> Result<reqwest::Response, Error> {
        let path = format!("{}/v1/messages", gateway.base_path.trim_end_matches('/'));
        let Way::Http(pool) = self.link.way() else {
            return Err(unreached("this way carries no streams".to_owned(), None));
        };
        self.link
            .request(&pool.client().0, Method::POST, &path, None)
            .header("x-api-key", gateway.token.reveal())
            .header("anthropic-version", "2023-06-01")
            .header(reqwest::header::CONTENT_TYPE, "application/json")
            .body(body)
            .send()
            .await
            .map_err(|error| unreachable(&error))
    }

    async fn post<T: DeserializeOwned>(
        &self,
        path: String,
        request: &(impl Serialize + Sync),
        timeout: Duration,
    ) -> Result<T, Error> {
        let outgoing = Outgoing::post(path, json(request)?, timeout);
        parse(&self.send(&self.link, &outgoing).await?.1)
    }

    /// Sends with a token, once more with a new one when the old is not accepted.
    async fn send(&self, link: &Link, outgoing: &Outgoing) -> Result<(BootInstant, Bytes), Error> {
        let mut after = 0;
        loop {
            let bearer = self.bearer(after).await?;
            let sent = BootInstant::now();
            let outcome = link.attempt(outgoing, Some(bearer.secret.reveal())).await;
            match self.judged(&bearer, outcome, after > 0)? {
                Some(body) => return Ok((sent, body)),
                None => after = bearer.generation,
            }
        }
    }

    /// Tells the keeper what this outcome says about the token; `None` when it is worth trying with the next one.
    fn judged(
        &self,
        bearer: &Bearer,
        outcome: Result<Bytes, Failure>,
        last: bool,
    ) -> Result<Option<Bytes>, Error> {
        // A full queue of complaints means that the keeper knows already.
        match outcome {
            Ok(body) => Ok(Some(body)),
            Err(Failure::Unauthenticated(message)) => {
                let _ = self.complaints.try_send(Complaint::Stale(bearer.generation));
                if last { Err(unreached(message, None)) } else { Ok(None) }
            }
            Err(Failure::Other(error)) => {
                if matches!(error, Error::Revoked) {
                    let _ = self.complaints.try_send(Complaint::Revoked);
                }
                Err(error)
            }
        }
    }

    /// A token newer than `after`.
    async fn bearer(&self, after: u64) -> Result<Bearer, Error> {
        let mut standing = self.standing.clone();
        let usable = standing.wait_for(|standing| match standing {
            Standing::Valid(bearer) => bearer.generation > after,
            Standing::Pending { .. } => false,
            Standing::Revoked | Standing::InUse { .. } => true,
        });
        let standing = match tokio::time::timeout(TOKEN_WAIT, usable).await {
            Ok(Ok(standing)) => standing.clone(),
            Ok(Err(_)) | Err(_) => self.standing.borrow().clone(),
        };
        match standing {
            Standing::Valid(bearer) if bearer.generation > after => Ok(bearer),
            Standing::Revoked => Err(Error::Revoked),
            Standing::InUse { reason } => Err(unreached(reason, None)),
            Standing::Pending { reason: Some(reason) } => Err(unreached(reason, None)),
            Standing::Valid(_) | Standing::Pending { reason: None } => {
                Err(unreached("no token was given in time".to_owned(), None))
            }
        }
    }

    /// Sends until an answer comes.
    async fn persist<T: DeserializeOwned>(&self, outgoing: Outgoing) -> Result<T, Error> {
        let mut backoff = Backoff::from(self.tempo());
        loop {
            let reply = self.send(&self.link, &outgoing).await;
            match reply.and_then(|(_, body)| parse(&body)) {
                Err(Error::Unreachable { reason, retry_after, .. }) => {
                    tracing::debug!(path = %outgoing.path, %reason, "the call is repeated");
                    tokio::time::sleep(backoff.next(retry_after)).await;
                }
                outcome => return outcome,
            }
        }
    }
}

fn json(value: &(impl Serialize + ?Sized)) -> Result<Bytes, Error> {
    serde_json::to_vec(value)
        .map(Bytes::from)
        .map_err(|error| unreached(format!("unsendable: {error}"), None))
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Error> {
    // An empty reply is as good as `null`.
    let body: &[u8] = if body.is_empty() { b"null" } else { body };
    serde_json::from_slice(body).map_err(|error| {
        unreached(
            format!("its reply is not the protocol's; does something answer in its place? ({error})"),
            None,
        )
    })
}

#[cfg(test)]
mod tests;
