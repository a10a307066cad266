//! The one mapping from results to replies: JSON bodies, refusals, request ids, and what becomes of a panic.
//! A reply never carries a stack, a path of the server, SQL or a secret.

use super::Plane;
use axum::{
    body::Body,
    extract::{Request, State},
    http::{HeaderValue, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use checkfu_shared::{
    id::RequestId,
    problem::{Code, Problem},
};
use futures_util::FutureExt;
use serde::Serialize;
use std::panic::AssertUnwindSafe;

/// What every handler returns.
pub type Answer = Result<Response, Refusal>;

/// A refusal on its way to the caller; [`stamp`] gives it its body, since that names the request.
#[derive(Debug, Clone)]
pub struct Refusal(pub Problem);

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = status.into_response();
        response.extensions_mut().insert(self.0);
        response
    }
}

/// A defect of ours as the caller sees it; the cause goes to the log only.
#[must_use]
pub fn internal(cause: &dyn std::fmt::Display) -> Problem {
    tracing::error!(%cause, "internal failure");
    Problem::new(
        Code::Internal,
        "The server failed to answer. Try again; if it stays, give the request id to whoever runs the server.",
    )
}

/// A reply with status 200 of a text that is JSON already.
#[must_use]
pub fn text(text: String) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

/// A reply with status 200.
///
/// # Errors
/// `internal` when `value` cannot be written as JSON.
pub fn ok(value: &impl Serialize) -> Answer {
    Ok(text(serde_json::to_string(value).map_err(|error| internal(&error))?))
}

/// The outermost layer: names the request, turns refusals into bodies and panics into refusals.
pub async fn stamp(State(plane): State<Plane>, mut request: Request, next: Next) -> Response {
    let id = RequestId::mint();
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let began = plane.clock.now();
    request.extensions_mut().insert(id);
    let outcome = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    let mut response = outcome.unwrap_or_else(|_| {
        tracing::error!(request_id = %id, %method, path, "a handler panicked");
        Refusal(Problem::new(
            Code::Internal,
            "The server failed to answer. Give the request id to whoever runs the server.",
        ))
        .into_response()
    });
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        response = refuse(&problem, id, response);
    }
    if let Ok(value) = HeaderValue::from_str(&id.to_string()) {
        response.headers_mut().insert("request-id", value);
    }
    let took_ms = plane.clock.now().since_ms(began);
    tracing::debug!(request_id = %id, %method, path, status = response.status().as_u16(), took_ms, "request");
    response
}

fn refuse(problem: &Problem, id: RequestId, response: Response) -> Response {
    let (mut parts, _) = response.into_parts();
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if parts.status == StatusCode::CONFLICT || problem.code == Code::BudgetReached {
        parts.headers.insert("x-should-retry", HeaderValue::from_static("false"));
    }
    if parts.status == StatusCode::UNAUTHORIZED {
        parts.headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    let retry_after = problem.details.get("retry_after_seconds").and_then(serde_json::Value::as_u64);
    if let Some(seconds) =
        retry_after.or_else(|| (parts.status == StatusCode::SERVICE_UNAVAILABLE).then_some(1))
    {
        parts.headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    Response::from_parts(parts, Body::from(problem.body(&id.to_string()).to_string()))
}

/// Answers where no route is.
pub async fn unknown_route(request: Request) -> Refusal {
    let path: String = request.uri().path().chars().take(200).collect();
    Refusal(Problem::new(Code::UnknownRoute, format!("There is no route {path}. Check the address.")))
}

/// Answers where the route is and the method is not.
pub async fn unknown_method(request: Request) -> Refusal {
    Refusal(Problem::new(
        Code::MethodNotAllowed,
        format!("{} is not a method of this route. `Allow` names those that are.", request.method()),
    ))
}
