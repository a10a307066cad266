//! What harnesses ask of the gateway besides replies, and how refusals of ours reach those that do not speak Messages.
//! Nothing here is metered: no provider charges for it.

use super::{
    call::fenced,
    candidate::Candidate,
    no_capability,
    provider::{self, Reply},
    request::Given,
    wire::{
        Spoken, Wire,
        fault::{Fault, Kind},
    },
};
use crate::http::{
    Plane, auth, body,
    reply::{self, Answer, Refusal},
};
use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use checkfu_shared::{
    id::RequestId,
    problem::{Code, Problem},
};
use serde_json::{Map, Value, json};

/// The members of a request that its count does not take.
const NOT_COUNTED: [&str; 6] =
    ["max_tokens", "stream", "stop_sequences", "temperature", "output_config", "cache_control"];

/// The one model that a capability may ask, in a list that clients of every wire can read.
pub(super) async fn models(State(plane): State<Plane>, headers: HeaderMap) -> Answer {
    let token = auth::credential(&headers).ok_or_else(no_capability)?;
    let id = plane.engine.capability(token).await?.model.id;
    let model = json!({
        "id": id, "object": "model", "type": "model", "display_name": id, "created": 0,
        "created_at": "1970-01-01T00:00:00Z", "owned_by": "checkfu",
    });
    // Clients of the Responses wire read `models`, which describe more than is known here.
    reply::ok(&json!({
        "object": "list", "data": [model], "has_more": false, "first_id": id, "last_id": id, "models": [],
    }))
}

/// How many tokens a request of the Messages wire has: the provider's own count where it has one, else an estimate.
pub(super) async fn count(State(plane): State<Plane>, headers: HeaderMap, body: Body) -> Answer {
    let token = auth::credential(&headers).ok_or_else(no_capability)?;
    let capability = plane.engine.capability(token).await?;
    let _place = plane.gateway.0.places.take(capability.claim_id)?;
    let _slot = plane.gateway.slot()?;
    let candidates = plane.gateway.candidates(&plane.registry, &capability).await?;
    let given = countable(&body::read(body, body::BODY_BYTES_MAX).await?)?;
    match candidates.first() {
        Some(candidate) if candidate.spoken() == Spoken::Messages => {
            tokio::select! {
                counted = counted(candidate, &given) => counted,
                () = plane.gateway.0.stop.cancelled() => Err(Refusal(fenced())),
            }
        }
        _ => reply::ok(&json!({"input_tokens": given.neutral()?.estimated_tokens()})),
    }
}

/// A request to be counted has no `max_tokens`, which every other one must have.
fn countable(body: &[u8]) -> Result<Given, Problem> {
    let mut members: Map<String, Value> = serde_json::from_slice(body)
        .map_err(|_| Problem::new(Code::InvalidJson, "The body is not a JSON object."))?;
    members.insert("max_tokens".to_owned(), 1.into());
    Given::read(Wire::Messages, Value::Object(members).to_string().as_bytes())
}

async fn counted(candidate: &Candidate, given: &Given) -> Answer {
    let mut body = candidate.body(given)?;
    if let Some(members) = body.as_object_mut() {
        members.retain(|name, _| !NOT_COUNTED.contains(&name.as_str()));
    }
    let Reply { status, body, .. } = candidate.provider.count(&body, RequestId::mint()).await?;
    if Reply::refuses_key(status) {
        return Err(Refusal(provider::key_refused()));
    }
    let read = candidate.provider.read(body).await?;
    Ok((status, [(header::CONTENT_TYPE, "application/json")], read).into_response())
}

/// The answer in the words of the client's wire; a Messages client reads our own refusals as they are.
pub(super) fn in_words(wire: Wire, answer: Answer) -> Answer {
    match answer {
        Err(Refusal(problem)) if wire != Wire::Messages => Ok(refusal(&problem)),
        answer => answer,
    }
}

fn refusal(problem: &Problem) -> Response {
    // These clients ask again on most statuses, but know that a spent limit is final.
    let is_spent = problem.code == Code::BudgetReached;
    let status = if is_spent { 429 } else { problem.code.status() };
    let mut body = Fault::new(Kind::of_status(status), problem.message.as_str()).openai();
    body["error"]["code"] = problem.code.as_str().into();
    if is_spent {
        body["error"]["type"] = "usage_limit_reached".into();
    }
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response =
        (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response();
    let headers = response.headers_mut();
    if is_spent || matches!(status, StatusCode::CONFLICT | StatusCode::FORBIDDEN) {
        headers.insert("x-should-retry", HeaderValue::from_static("false"));
    }
    if let Some(seconds) = problem.details.get("retry_after_seconds").and_then(Value::as_u64) {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

#[cfg(test)]
mod tests;
