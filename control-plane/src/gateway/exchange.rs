//! One model request on its way: the candidates in order, and the reply of the first that gives one. Another candidate is
//! asked only while the client has seen nothing; once a piece went out, the reply is that provider's or it is cut.

use super::{
    DROPPED, MODEL_REQUEST_ID,
    call::{Billed, Call, fenced},
    candidate::{self, Candidate},
    meter::Reading,
    provider::{self, Reply},
    relay::{self, Ended, Source},
    request::Given,
};
use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::Response,
};
use checkfu_shared::problem::{Code, Problem};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Asks the candidates in order; the first reply that no other one could better, or what the last one said.
///
/// # Errors
/// `provider_unreachable` when the last one gave no reply, `fenced` when the claim ended meanwhile.
pub(super) async fn ask<'c>(
    call: &Call,
    candidates: &'c [Candidate],
    given: &Given,
) -> Result<(&'c Candidate, Reply), Problem> {
    let mut last = Err(Problem::new(Code::ProviderUnreachable, "There is no candidate to ask."));
    for (at, candidate) in candidates.iter().enumerate() {
        let body = candidate.body(given);
        let asked = tokio::select! {
            asked = candidate.provider.ask(&body, call.id) => asked,
            () = call.fenced() => return Err(fenced()),
        };
        let goes_on = at + 1 < candidates.len();
        match asked {
            Ok(reply) if !goes_on || !candidate::is_worth_another(reply.status) => {
                return Ok((candidate, reply));
            }
            Ok(reply) => {
                tracing::warn!(model_request_id = %call.id, status = %reply.status, "the next candidate is asked");
            }
            Err(problem) => {
                tracing::warn!(model_request_id = %call.id, %problem, goes_on, "a candidate gave no reply");
                last = Err(problem);
            }
        }
    }
    last
}

/// Passes a reply on: as a stream when it is one, else whole.
///
/// # Errors
/// `provider_key_refused` instead of what the provider says of the key; `provider_unreachable`, `fenced`, or `overloaded`
/// when the count is not on record.
pub(super) async fn answer(
    call: Call,
    candidate: &Candidate,
    reply: Reply,
    relays: &TaskTracker,
    stop: CancellationToken,
) -> Result<Response, Problem> {
    if reply.is_stream() {
        return Ok(stream(call, candidate, reply, relays, stop));
    }
    if Reply::refuses_key(reply.status) {
        // Providers quote parts of the key in these, so nothing of them is passed on.
        return Err(provider::key_refused());
    }
    let billed = Billed::of(candidate, &reply);
    let body = tokio::select! {
        body = candidate.provider.read(reply.body) => body?,
        () = call.fenced() => return Err(fenced()),
    };
    if reply.status.is_success() {
        let reading = Reading::of_body(candidate.provider.kind(), &body);
        if !call.record(reading, &billed).await {
            return Err(unrecorded());
        }
    }
    Ok(shaped(reply.status, reply.headers, &call, Body::from(body)))
}

/// The relay runs beside the request, so that a reader that goes away cannot lose the count.
fn stream(
    call: Call,
    candidate: &Candidate,
    reply: Reply,
    relays: &TaskTracker,
    stop: CancellationToken,
) -> Response {
    let (sender, pieces) = relay::channel();
    let (waits, kind, billed) =
        (candidate.provider.waits(), candidate.provider.kind(), Billed::of(candidate, &reply));
    let Reply { status, headers, first, body } = reply;
    let response = shaped(status, headers, &call, Body::from_stream(relay::body(pieces)));
    relays.spawn(async move {
        let fenced = async {
            tokio::select! {
                () = call.fenced() => {}
                () = stop.cancelled() => {}
            }
        };
        let source = Source { kind, first, rest: body, waits };
        let ended = relay::relay(source, sender, fenced, |reading| call.record(reading, &billed)).await;
        let (claim_id, model_request_id) = (call.capability.claim_id, call.id);
        if ended == Ended::Whole {
            tracing::debug!(%claim_id, %model_request_id, "a model reply was passed on");
        } else {
            tracing::info!(%claim_id, %model_request_id, ?ended, "a model reply was cut");
        }
    });
    response
}

fn shaped(status: StatusCode, headers: HeaderMap, call: &Call, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Ok(id) = HeaderValue::from_str(&call.id.to_string()) {
        headers.insert(MODEL_REQUEST_ID, id);
    }
    let dropped = call.dropped.join(", ");
    if let Some(dropped) = HeaderValue::from_str(&dropped).ok().filter(|_| !call.dropped.is_empty()) {
        headers.insert(DROPPED, dropped);
    }
    response
}

fn unrecorded() -> Problem {
    Problem::new(Code::Overloaded, "The usage of the model request could not be put on record. Try again.")
}
