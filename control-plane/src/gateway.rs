//! The model gateway: a claim's capability comes in, the provider's real key goes out, and what passes is counted.
//! It decides nothing about a session and writes no event; the engine judges capabilities and keeps the counts.
//! A capability is judged again while its reply streams, so that a fenced or revoked claim loses the rest of it.

pub mod budget;
pub mod meter;
pub mod provider;
mod relay;
pub mod request;

use crate::{
    engine::{Capability, Engine},
    http::{
        Plane, auth, body,
        reply::{Answer, Refusal},
    },
};
use axum::{
    Router,
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::Response,
    routing::post,
};
use checkfu_shared::{
    event::ModelUsage,
    id::RequestId,
    problem::{Code, Problem},
    secret::Secret,
};
use meter::Reading;
use provider::{Provider, Reply};
use relay::Ended;
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{MissedTickBehavior, interval_at, sleep},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// The path of the gateway below the control plane's address: the `base_path` that a renewal names.
pub const BASE_PATH: &str = "/v1/gateway";
/// The header that names a model request, for `span.model_request_end`; its presence says that the provider answered.
pub const MODEL_REQUEST_ID: HeaderName = HeaderName::from_static("checkfu-model-request-id");
/// Model requests that may be under way at once.
const REQUESTS_MAX: usize = 512;
/// How often a streaming reply's capability is judged again, at the latest.
const RECHECK: Duration = Duration::from_secs(5);
/// How quickly at most, however fast the session's log grows.
const RECHECK_PAUSE: Duration = Duration::from_millis(250);

/// What the gateway keeps between requests; clones share it.
#[derive(Debug, Clone)]
pub struct Gateway(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    provider: Option<Provider>,
    slots: Arc<Semaphore>,
    relays: TaskTracker,
    stop: CancellationToken,
}

/// One admitted request and what is needed to go on judging it.
struct Call {
    engine: Engine,
    token: Secret,
    capability: Capability,
    id: RequestId,
    /// Held while the request is under way.
    _slot: OwnedSemaphorePermit,
}

impl Gateway {
    /// A gateway to `provider`; without one, every request is refused with what to do.
    #[must_use]
    pub fn new(provider: Option<Provider>) -> Self {
        Self(Arc::new(Inner {
            provider,
            slots: Arc::new(Semaphore::new(REQUESTS_MAX)),
            relays: TaskTracker::new(),
            stop: CancellationToken::new(),
        }))
    }

    /// Cuts what still streams and waits until every count is on record. Nothing may be asked afterwards.
    pub async fn close(&self) {
        self.0.slots.close();
        self.0.stop.cancel();
        self.0.relays.close();
        self.0.relays.wait().await;
    }

    fn provider(&self) -> Result<&Provider, Problem> {
        self.0.provider.as_ref().ok_or_else(|| {
            Problem::new(
                Code::ProviderUnreachable,
                "The server has no model provider. Start it with --model-base-url and --model-key-file.",
            )
        })
    }

    fn slot(&self) -> Result<OwnedSemaphorePermit, Problem> {
        Arc::clone(&self.0.slots).try_acquire_owned().map_err(|_| {
            Problem::new(Code::Overloaded, "Too many model requests are under way. Try again in a moment.")
                .with("retry_after_seconds", 1)
        })
    }

    async fn answer(&self, call: Call, reply: Reply) -> Result<Response, Problem> {
        if reply.is_stream() {
            return Ok(self.stream(call, reply));
        }
        let provider = self.provider()?;
        let body = tokio::select! {
            body = provider.read(reply.body) => body?,
            () = call.fenced() => return Err(fenced()),
        };
        if reply.status.is_success() && !call.record(Reading::of_body(&body).usage).await {
            return Err(unrecorded());
        }
        Ok(shaped(reply.status, reply.headers, call.id, Body::from(body)))
    }

    /// The relay runs beside the request, so that a reader that goes away cannot lose the count.
    fn stream(&self, call: Call, reply: Reply) -> Response {
        let (sender, pieces) = relay::channel();
        let (id, stop) = (call.id, self.0.stop.clone());
        let waits = self.0.provider.as_ref().map(Provider::waits).unwrap_or_default();
        let Reply { status, headers, body } = reply;
        self.0.relays.spawn(async move {
            let fenced = async {
                tokio::select! {
                    () = call.fenced() => {}
                    () = stop.cancelled() => {}
                }
            };
            let ended = relay::relay(body, sender, waits, fenced, |usage| call.record(usage)).await;
            let (claim_id, model_request_id) = (call.capability.claim_id, call.id);
            if ended == Ended::Whole {
                tracing::debug!(%claim_id, %model_request_id, "a model reply was passed on");
            } else {
                tracing::info!(%claim_id, %model_request_id, ?ended, "a model reply was cut");
            }
        });
        shaped(status, headers, id, Body::from_stream(relay::body(pieces)))
    }
}

impl Call {
    /// Completes when the claim may not go on: judged anew with each change of its session, and at least every 5 s.
    async fn fenced(&self) {
        let mut head = self.engine.fanout().watch(self.capability.session_id);
        let mut due = interval_at(tokio::time::Instant::now() + RECHECK, RECHECK);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = due.tick() => {}
                Ok(()) = head.changed() => sleep(RECHECK_PAUSE).await,
            }
            match self.engine.capability(self.token.reveal()).await {
                // A store that cannot be read just now says nothing about the claim.
                Err(problem) if problem.code != Code::Internal => return,
                _ => {}
            }
        }
    }

    /// Puts a count on record; `false` when that failed.
    async fn record(&self, usage: ModelUsage) -> bool {
        let model = self.capability.model.id.clone();
        match self.engine.record_usage(&self.capability, self.id.to_string(), usage, model).await {
            Ok(()) => true,
            Err(problem) => {
                tracing::error!(claim_id = %self.capability.claim_id, %problem, "a model request's usage is not on record");
                false
            }
        }
    }
}

/// The gateway's routes, below [`BASE_PATH`].
pub fn routes() -> Router<Plane> {
    Router::new().route("/v1/messages", post(messages))
}

async fn messages(State(plane): State<Plane>, headers: HeaderMap, body: Body) -> Answer {
    let token = auth::credential(&headers).map(Secret::new).ok_or_else(no_capability)?;
    let capability = plane.engine.capability(token.reveal()).await?;
    if let Some(limit_cents) = capability.budget.as_ref().and_then(budget::limit_cents) {
        let session = plane.engine.session(capability.workspace_id, capability.session_id).await?;
        budget::admits(limit_cents, session.as_ref().map(|session| &session.usage))?;
    }
    let provider = plane.gateway.provider()?;
    let slot = plane.gateway.slot()?;
    let given = body::read(body, body::BODY_BYTES_MAX).await?;
    let rebuilt = request::rebuild(&given, &capability.model)?;
    drop(given);
    let call = Call { engine: plane.engine.clone(), token, capability, id: RequestId::mint(), _slot: slot };
    let reply = tokio::select! {
        reply = provider.ask(&rebuilt) => reply?,
        () = call.fenced() => return Err(Refusal(fenced())),
    };
    Ok(plane.gateway.answer(call, reply).await?)
}

fn shaped(status: StatusCode, headers: HeaderMap, id: RequestId, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Ok(id) = HeaderValue::from_str(&id.to_string()) {
        response.headers_mut().insert(MODEL_REQUEST_ID, id);
    }
    response
}

fn no_capability() -> Problem {
    Problem::new(
        Code::Unauthenticated,
        "The request carries no gateway capability. Send the token of the last renewal as `x-api-key`.",
    )
}

fn fenced() -> Problem {
    Problem::new(Code::Fenced, "The claim ended while the model was asked. Stop working on it.")
}

fn unrecorded() -> Problem {
    Problem::new(Code::Overloaded, "The usage of the model request could not be put on record. Try again.")
}

#[cfg(test)]
mod tests;
