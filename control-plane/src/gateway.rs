//! The model gateway: a claim's capability comes in, the provider's real key goes out, and what passes is counted.
//! It decides nothing about a session and writes no event; the engine judges capabilities and keeps the counts.
//! A capability is judged again while its reply streams, so that a fenced or revoked claim loses the rest of it.

mod call;
pub mod candidate;
pub mod catalogue;
mod clients;
mod exchange;
pub mod meter;
mod places;
pub mod price;
pub mod provider;
mod relay;
pub mod request;
mod routing;
pub mod wire;

use crate::{
    domain::budget::{self, Metric},
    engine::Capability,
    http::{
        Plane, auth, body,
        reply::Answer,
        route::{Guard, Routes},
    },
};
use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderName},
};
use call::Call;
use candidate::Candidate;
use checkfu_shared::{
    id::RequestId,
    problem::{Code, Problem},
    secret::Secret,
};
use exchange::Client;
use places::Places;
use provider::Provider;
use request::Given;
use routing::Connections;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use wire::Wire;

/// The path of the gateway below the control plane's address: the `base_path` that a renewal names.
pub const BASE_PATH: &str = "/v1/gateway";
/// The header that names a model request, for `span.model_request_end`; its presence says that the provider answered.
pub const MODEL_REQUEST_ID: HeaderName = HeaderName::from_static("checkfu-model-request-id");
/// The header that names the members of the request that were not passed on.
pub const DROPPED: HeaderName = HeaderName::from_static("checkfu-dropped-parameters");
/// Model requests that may be under way at once.
const REQUESTS_MAX: usize = 512;

/// What the gateway keeps between requests; clones share it.
#[derive(Debug, Clone)]
pub struct Gateway(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Where models without a route go.
    built_in: Option<Arc<Provider>>,
    connections: Connections,
    slots: Arc<Semaphore>,
    places: Places,
    relays: TaskTracker,
    stop: CancellationToken,
}

impl Gateway {
    /// A gateway whose models without a route go to `built_in`; without one, they are refused with what to do.
    #[must_use]
    pub fn new(built_in: Option<Provider>) -> Self {
        Self(Arc::new(Inner {
            built_in: built_in.map(Arc::new),
            connections: Connections::default(),
            slots: Arc::new(Semaphore::new(REQUESTS_MAX)),
            places: Places::default(),
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

    fn slot(&self) -> Result<OwnedSemaphorePermit, Problem> {
        Arc::clone(&self.0.slots).try_acquire_owned().map_err(|_| {
            Problem::new(Code::Overloaded, "Too many model requests are under way. Try again in a moment.")
                .with("retry_after_seconds", 1)
        })
    }
}

/// The gateway's routes, for runners and for the harnesses of sessions; a base address is `/v1/gateway` for Messages and
/// `/v1/gateway/v1` for the others.
#[must_use]
pub fn routes() -> Routes {
    use Guard::Capability;
    Routes::new()
        .post("/v1/gateway/v1/messages", Capability, messages)
        .post("/v1/gateway/v1/messages/count_tokens", Capability, clients::count)
        .post("/v1/gateway/v1/chat/completions", Capability, completions)
        .post("/v1/gateway/v1/responses", Capability, responses)
        .get("/v1/gateway/v1/models", Capability, clients::models)
}

async fn messages(State(plane): State<Plane>, headers: HeaderMap, body: Body) -> Answer {
    ask(plane, headers, body, Wire::Messages).await
}

async fn completions(State(plane): State<Plane>, headers: HeaderMap, body: Body) -> Answer {
    clients::in_words(Wire::Chat, ask(plane, headers, body, Wire::Chat).await)
}

async fn responses(State(plane): State<Plane>, headers: HeaderMap, body: Body) -> Answer {
    clients::in_words(Wire::Responses, ask(plane, headers, body, Wire::Responses).await)
}

async fn ask(plane: Plane, headers: HeaderMap, body: Body, wire: Wire) -> Answer {
    let token = auth::credential(&headers).map(Secret::new).ok_or_else(no_capability)?;
    let capability = plane.engine.capability(token.reveal()).await?;
    let place = plane.gateway.0.places.take(capability.claim_id)?;
    let slot = plane.gateway.slot()?;
    let candidates = plane.gateway.candidates(&plane.registry, &capability).await?;
    let bytes = body::read(body, body::BODY_BYTES_MAX).await?;
    let given = Given::read(wire, &bytes)?;
    let request_bytes = bytes.len();
    drop(bytes);
    // Judged after the body is here, since a slow one would let others spend meanwhile.
    let capability = plane.engine.capability(token.reveal()).await?;
    budget::admits(capability.limits.iter().copied(), capability.spend)?;
    let candidates = priced(candidates, &capability)?;
    let call = Call {
        engine: plane.engine.clone(),
        token,
        capability,
        id: RequestId::mint(),
        dropped: given.dropped().to_vec(),
        request_bytes,
        _slot: slot,
        _place: place,
    };
    let (candidate, reply) = exchange::ask(&call, &candidates, &given).await?;
    let inner = &plane.gateway.0;
    let created_s = u64::try_from(plane.clock.now().as_ms() / 1_000).unwrap_or(0);
    let client = Client::new(&call, &given, candidate, created_s)?;
    Ok(exchange::answer(call, candidate, client, reply, &inner.relays, inner.stop.clone()).await?)
}

/// Under a budget in money only candidates with a price may answer.
fn priced(mut candidates: Vec<Candidate>, capability: &Capability) -> Result<Vec<Candidate>, Problem> {
    if capability.limits.iter().any(|limit| limit.metric == Metric::ModelSpend) {
        candidates.retain(|candidate| candidate.price.is_some());
    }
    if candidates.is_empty() {
        return Err(Problem::new(
            Code::InvalidState,
            "The session has a budget in money, and the price of its model is not known. Give the model a price with a route, or pause the budget.",
        )
        .with("reason", "model_not_budgetable"));
    }
    Ok(candidates)
}

fn no_capability() -> Problem {
    Problem::new(
        Code::Unauthenticated,
        "The request carries no gateway capability. Send the token of the last renewal as `x-api-key`.",
    )
}

#[cfg(test)]
mod tests;
