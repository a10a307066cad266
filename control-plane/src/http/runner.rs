//! The runner protocol over HTTP: parse, call the engine, shape the reply; nothing is decided here. Every reply carries the
//! protocol's version, so that old meets new in both directions.

mod claims;
mod identity;
mod settlement;

use super::{Plane, auth, body, reply::Refusal};
use crate::engine::Caller;
use axum::{
    Router,
    extract::{FromRequest, FromRequestParts, Request},
    http::{HeaderName, HeaderValue, request::Parts},
    middleware,
    response::Response,
    routing::{get, post, put},
};
use checkfu_shared::{
    problem::{Code, Problem},
    protocol::{self, append::BATCH_BYTES_MAX},
};
use serde::de::DeserializeOwned;
use std::str::FromStr;

/// The largest body of a call that is no upload: a batch and its wrapping.
const BODY_BYTES_MAX: usize = BATCH_BYTES_MAX + (64 << 10);

/// The routes that runners call.
pub fn routes() -> Router<Plane> {
    let claim = Router::new()
        .route("/renew", post(claims::renew))
        .route("/directives", post(claims::directives))
        .route("/events", post(claims::append))
        .route("/deltas", post(claims::deltas))
        .route("/history", get(claims::history))
        .route("/settlement", post(settlement::announce))
        .route("/settle", post(settlement::settle));
    let routes = Router::new()
        .route("/nonce", get(identity::nonce))
        .route("/pair", post(identity::pair))
        .route("/token", post(identity::token))
        .route("/claims", post(claims::poll))
        .nest("/claims/{claim_id}", claim)
        .route("/uploads/{upload_id}", put(settlement::upload).head(settlement::offset))
        .route("/recover", post(claims::recover))
        .route("/inventory", post(claims::inventory))
        .route("/close", post(claims::close));
    Router::new().nest("/v1/runner", routes).layer(middleware::map_response(versioned))
}

async fn versioned(mut response: Response) -> Response {
    let name = HeaderName::from_static(protocol::HEADER);
    response.headers_mut().insert(name, HeaderValue::from_static(protocol::VERSION));
    response
}

/// The runner behind the request, checked against the store.
struct By(Caller);

impl FromRequestParts<Plane> for By {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, plane: &Plane) -> Result<Self, Refusal> {
        let Some(token) = auth::credential(&parts.headers) else {
            return Err(Problem::new(
                Code::Unauthenticated,
                "A runner token is missing. Send it as `Authorization: Bearer`.",
            )
            .into());
        };
        Ok(Self(plane.engine.authenticate(token).await?))
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
