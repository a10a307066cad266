//! The runner protocol over HTTP: parse, call the engine, shape the reply; nothing is decided here. Every reply carries the
//! protocol's version, so that old meets new in both directions.

mod claims;
mod identity;
mod settlement;

use super::{
    Plane, body,
    reply::Refusal,
    route::{self, Guard, Routes},
};
use crate::engine::Caller;
use axum::{
    extract::{FromRequest, FromRequestParts, Request},
    http::{HeaderName, HeaderValue, request::Parts},
    middleware::Next,
    response::Response,
};
use checkfu_shared::{
    problem::{Code, Problem},
    protocol::{self, append::BATCH_BYTES_MAX},
};
use serde::de::DeserializeOwned;
use std::str::FromStr;

/// The largest body of a call that is no upload: a batch and its wrapping.
const BODY_BYTES_MAX: usize = BATCH_BYTES_MAX + (64 << 10);

/// Where they are.
const BASE_PATH: &str = "/v1/runner/";

/// The routes that runners call.
pub fn routes() -> Routes {
    use Guard::{Open, Runner};
    Routes::new()
        .get("/v1/runner/nonce", Open, identity::nonce)
        .post("/v1/runner/pair", Open, identity::pair)
        .post("/v1/runner/token", Open, identity::token)
        .post("/v1/runner/claims", Runner, claims::poll)
        .post("/v1/runner/claims/{claim_id}/renew", Runner, claims::renew)
        .post("/v1/runner/claims/{claim_id}/directives", Runner, claims::directives)
        .post("/v1/runner/claims/{claim_id}/events", Runner, claims::append)
        .post("/v1/runner/claims/{claim_id}/deltas", Runner, claims::deltas)
        .get("/v1/runner/claims/{claim_id}/history", Runner, claims::history)
        .post("/v1/runner/claims/{claim_id}/settlement", Runner, settlement::announce)
        .post("/v1/runner/claims/{claim_id}/settle", Runner, settlement::settle)
        .put("/v1/runner/uploads/{upload_id}", Runner, settlement::upload)
        .head("/v1/runner/uploads/{upload_id}", Runner, settlement::offset)
        .post("/v1/runner/recover", Runner, claims::recover)
        .post("/v1/runner/inventory", Runner, claims::inventory)
        .post("/v1/runner/close", Runner, claims::close)
        .post("/v1/runner/unpair", Runner, identity::unpair)
}

/// Puts the protocol's version on every reply to a runner, refusals included.
pub(super) async fn versioned(request: Request, next: Next) -> Response {
    let is_runner = request.uri().path().starts_with(BASE_PATH);
    let mut response = next.run(request).await;
    if is_runner {
        let name = HeaderName::from_static(protocol::HEADER);
        response.headers_mut().insert(name, HeaderValue::from_static(protocol::VERSION));
    }
    response
}

/// The runner whom the route's guard let in.
struct By(Caller);

impl FromRequestParts<Plane> for By {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &Plane) -> Result<Self, Refusal> {
        parts.extensions.get::<Caller>().copied().map(Self).ok_or_else(route::no_caller)
    }
}

/// A JSON body of the protocol; members that this version does not know are ignored.
struct Said<T>(T);

impl<T: DeserializeOwned> FromRequest<Plane> for Said<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, _: &Plane) -> Result<Self, Refusal> {
        let bytes = body::read(request.into_body(), BODY_BYTES_MAX).await?;
        let said = serde_json::from_slice(&bytes).map_err(|error| {
            Problem::new(Code::InvalidRequest, format!("The body does not fit this call: {error}."))
        })?;
        Ok(Self(said))
    }
}

/// An id of the path or query; one that does not parse names nothing.
fn id<T: FromStr>(text: &str) -> Result<T, Problem> {
    text.parse().map_err(|_| Problem::new(Code::NotFound, "The path names nothing that exists."))
}

/// Waits for a long poll, but no longer than the server lives.
async fn hang<T>(plane: &Plane, poll: impl Future<Output = Result<T, Problem>>) -> Result<T, Problem> {
    tokio::select! {
        answer = poll => answer,
        () = plane.stop.cancelled() => {
            Err(Problem::new(Code::Stopping, "The server is stopping. Ask again in a moment."))
        }
    }
}
