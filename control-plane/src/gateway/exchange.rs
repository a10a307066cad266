//! One model request on its way: the candidates in order, and the reply of the first that gives one. Another candidate is
//! asked only while the client has seen nothing; once a piece went out, the reply is that provider's or it is cut.

use super::{
    DROPPED, MODEL_REQUEST_ID,
    call::{Billed, Call, fenced},
    candidate::{self, Candidate},
    meter::Reading,
    provider::{self, Reply},
    relay::{self, Ended, Source, Way},
    request::Given,
    wire::{Wire, fault::Fault, reply::Label},
};
use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::Response,
};
use checkfu_shared::problem::{Code, Problem};
use serde_json::Value;
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
        let body = match candidate.body(given) {
            Ok(body) => body,
            Err(problem) => {
                last = Err(problem);
                continue;
            }
        };
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

/// For whom a reply is.
#[derive(Debug)]
pub(super) struct Client {
    /// What it speaks.
    wire: Wire,
    /// Whether the reply passes as it is.
    is_unchanged: bool,
    /// What it sees beside what the model said.
    label: Label,
}

impl Client {
    /// The client that made a request, which `candidate` answers.
    ///
    /// # Errors
    /// `unsupported` when the request cannot be translated.
    pub(super) fn new(
        call: &Call,
        given: &Given,
        candidate: &Candidate,
        created_s: u64,
    ) -> Result<Self, Problem> {
        let (wire, is_unchanged) = (given.wire(), given.passes_unchanged(candidate.spoken()));
        let id = call.id.to_string();
        let id = id.rsplit_once('_').map_or(id.as_str(), |(_, tail)| tail).to_owned();
        let model = call.capability.model.id.clone();
        let mut label = Label { id, model, created_s, ..Label::default() };
        if !is_unchanged {
            let ask = given.neutral()?;
            (label.wants_usage, label.origins) = (ask.wants_usage, ask.origins());
        }
        Ok(Self { wire, is_unchanged, label })
    }
}

/// Passes a reply on: as a stream when it is one, else whole.
///
/// # Errors
/// `provider_key_refused` instead of what the provider says of the key; `provider_unreachable`, `fenced`, or `overloaded`
/// when the count is not on record.
pub(super) async fn answer(
    call: Call,
    candidate: &Candidate,
    client: Client,
    reply: Reply,
    relays: &TaskTracker,
    stop: CancellationToken,
) -> Result<Response, Problem> {
    if reply.is_stream() {
        return Ok(stream(call, candidate, client, reply, relays, stop));
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
    let spoken = candidate.spoken();
    if reply.status.is_success() {
        let reading = Reading::of_body(candidate.provider.kind(), &body);
        if !call.record(reading, &billed).await {
            return Err(unrecorded());
        }
    }
    if spoken.agrees(client.wire) {
        return Ok(shaped(reply.status, reply.headers, &call, Body::from(body)));
    }
    let read: Value = serde_json::from_slice(&body).unwrap_or_default();
    let written = if reply.status.is_success() {
        let told = spoken.read_reply(&read, &client.label.id).map_err(|fault| nonsense(&fault))?;
        client.wire.write_reply(&told, &client.label)
    } else {
        client.wire.write_fault(&Fault::of_body(reply.status.as_u16(), &read), &call.id.to_string())
    };
    Ok(shaped(reply.status, reply.headers, &call, Body::from(written.to_string())))
}

/// The relay runs beside the request, so that a reader that goes away cannot lose the count.
fn stream(
    call: Call,
    candidate: &Candidate,
    client: Client,
    reply: Reply,
    relays: &TaskTracker,
    stop: CancellationToken,
) -> Response {
    let (sender, pieces) = relay::channel();
    let (waits, billed) = (candidate.provider.waits(), Billed::of(candidate, &reply));
    let Reply { status, headers, first, body } = reply;
    let way = Way::new(candidate.provider.kind(), client.wire, client.is_unchanged, client.label);
    let response = shaped(status, headers, &call, Body::from_stream(relay::body(pieces)));
    relays.spawn(async move {
        let fenced = async {
            tokio::select! {
                () = call.fenced() => {}
                () = stop.cancelled() => {}
            }
        };
        let source = Source { first, rest: body, waits };
        let ended = relay::relay(source, way, sender, fenced, |reading| call.record(reading, &billed)).await;
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
    // What was translated has another length.
    headers.remove(header::CONTENT_LENGTH);
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

fn nonsense(fault: &Fault) -> Problem {
    Problem::new(
        Code::ProviderUnreachable,
        format!("The model provider answered what cannot be used: {}", fault.message),
    )
}

fn unrecorded() -> Problem {
    Problem::new(Code::Overloaded, "The usage of the model request could not be put on record. Try again.")
}
