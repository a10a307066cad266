//! The HTTP face of the scripted model: headers, the one route table, errors in the service's own shape.
//! It decides nothing about conversations; `request`, `rules` and `script` do.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use serde_json::{Value, json};

use super::Settings;
use super::chat;
use super::playback::{self, Holds};
use super::record::{Outcome, Record};
use super::request::{Block, Message, Refusal, Request};
use super::rules;
use super::script::{Fault, Reply, Script};
use super::sse;

const MAX_BODY_BYTES: usize = 32 * 1024 * 1024;
const REMEMBERED_TRIES: usize = 4_096;
const QUOTED_CHARS: usize = 2_000;

#[derive(Debug)]
pub(super) struct Shared {
    script: Script,
    key: Option<String>,
    context_window_tokens: u64,
    pub(super) record: Record,
    pub(super) holds: Holds,
    tries: Mutex<Tries>,
    replies: AtomicU64,
    /// Makes ids differ between servers, so a conversation that outlives one never meets an id twice.
    seed: RandomState,
}

/// How many faults each request has met; the oldest requests are forgotten.
#[derive(Debug, Default)]
struct Tries {
    met: HashMap<u64, usize>,
    order: VecDeque<u64>,
}

impl Shared {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            script: settings.script,
            key: settings.key,
            context_window_tokens: settings.context_window_tokens,
            record: Record::default(),
            holds: Holds::default(),
            tries: Mutex::default(),
            replies: AtomicU64::new(0),
            seed: RandomState::new(),
        }
    }

    fn next_id(&self, prefix: &str) -> String {
        let number = self.replies.fetch_add(1, Ordering::Relaxed);
        format!("{prefix}_01{:016x}{number:06x}", self.seed.hash_one(number))
    }

    fn next_fault(&self, fingerprint: u64, faults: &[Fault]) -> Option<Fault> {
        if faults.is_empty() {
            return None;
        }
        let mut tries = self.tries.lock().unwrap_or_else(PoisonError::into_inner);
        if !tries.met.contains_key(&fingerprint) {
            tries.order.push_back(fingerprint);
            if tries.order.len() > REMEMBERED_TRIES
                && let Some(oldest) = tries.order.pop_front()
            {
                tries.met.remove(&oldest);
            }
        }
        let met = tries.met.entry(fingerprint).or_default();
        let fault = faults.get(*met).cloned();
        *met += 1;
        fault
    }
}

pub(super) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/v1/messages", post(create_message))
        .route("/v1/chat/completions", post(create_completion))
        .route("/v1/messages/count_tokens", post(count_tokens))
        .route("/_rig/requests", get(list_requests))
        .route("/_rig/refusals", get(list_refusals))
        .route("/_rig/release/{name}", post(release))
        .fallback(unknown_path)
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .with_state(shared)
}

async fn list_requests(State(shared): State<Arc<Shared>>) -> Response {
    Json(json!({ "data": shared.record.requests() })).into_response()
}

async fn list_refusals(State(shared): State<Arc<Shared>>) -> Response {
    Json(json!({ "data": shared.record.refusals() })).into_response()
}

async fn release(State(shared): State<Arc<Shared>>, Path(name): Path<String>) -> StatusCode {
    shared.holds.release(&name);
    StatusCode::NO_CONTENT
}

async fn unknown_path() -> Response {
    error_response(Wire::Messages, 404, "not_found_error", "Not found", None)
}

async fn count_tokens(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    match admit(&shared, &headers, body) {
        // Counting needs no `max_tokens`, so the full shape check does not apply.
        Ok((body, _)) => Json(json!({ "input_tokens": count_input_tokens(&body) })).into_response(),
        Err(refusal) => refuse(&shared, Wire::Messages, &headers, Value::Null, 0, &refusal),
    }
}

/// The two wires that are spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wire {
    Messages,
    Chat,
}

async fn create_message(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let admitted = admit(&shared, &headers, body);
    answer(&shared, Wire::Messages, &headers, admitted).await
}

async fn create_completion(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let admitted = admit_bearer(&shared, &headers, body);
    answer(&shared, Wire::Chat, &headers, admitted).await
}

async fn answer(
    shared: &Shared,
    wire: Wire,
    headers: &HeaderMap,
    admitted: Result<(Value, usize), Refusal>,
) -> Response {
    let (body, bytes) = match admitted {
        Ok(admitted) => admitted,
        Err(refusal) => return refuse(shared, wire, headers, Value::Null, 0, &refusal),
    };
    let Prepared { reply, fault, message, form } = match prepare(shared, wire, &body) {
        Ok(prepared) => prepared,
        Err(refusal) => return refuse(shared, wire, headers, body, bytes, &refusal),
    };
    let outcome = match &fault {
        None => Outcome::Replied,
        Some(fault) => Outcome::Faulted { fault: format!("{fault:?}") },
    };
    shared.record.add(body, bytes, betas(headers), outcome);
    if let Some(name) = &reply.hold {
        shared.holds.pass(name).await;
    }
    if let Some(Fault::Status { status, retry_after_seconds }) = fault {
        let (kind, text) = status_error(status);
        return error_response(wire, status, kind, text, retry_after_seconds);
    }
    play(shared, &reply, fault.as_ref(), &message, form).await
}

/// How a reply is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Whole(Wire),
    Messages,
    Chat { wants_usage: bool },
}

/// What a request gets.
struct Prepared {
    reply: Reply,
    fault: Option<Fault>,
    message: Value,
    form: Form,
}

async fn play(
    shared: &Shared,
    reply: &Reply,
    fault: Option<&Fault>,
    message: &Value,
    form: Form,
) -> Response {
    const WORDS: &str = "the script ends this stream with an error";
    let pace = reply.delay_per_delta;
    let beats = match form {
        Form::Messages => {
            playback::streamed(&sse::frames(message), pace, fault, |kind| sse::Frame::error(kind, WORDS))
        }
        Form::Chat { wants_usage } => {
            let error = |kind: &str| sse::Frame { name: "end", data: chat::error(200, kind, WORDS) };
            playback::streamed(&chat::frames::frames(message, wants_usage), pace, fault, error)
        }
        Form::Whole(Wire::Messages) => playback::whole(&message.to_string(), fault),
        Form::Whole(Wire::Chat) => playback::whole(&chat::frames::whole(message).to_string(), fault),
    };
    let is_streamed = !matches!(form, Form::Whole(_));
    let content_type = if is_streamed { "text/event-stream; charset=utf-8" } else { "application/json" };
    if !is_streamed && !reply.delay_per_delta.is_zero() {
        tokio::time::sleep(reply.delay_per_delta).await;
    }
    let mut response = Response::new(playback::body(beats));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-cache"));
    if let Ok(id) = shared.next_id("req").parse() {
        headers.insert("request-id", id);
    }
    response
}

/// Checks the headers and reads the body as JSON; the number is its size in bytes.
fn admit(
    shared: &Shared,
    headers: &HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<(Value, usize), Refusal> {
    let header =
        |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).filter(|text| !text.is_empty());
    let unauthorised =
        |message: &str| Refusal { status: 401, kind: "authentication_error", message: message.to_owned() };
    let Some(key) = header("x-api-key") else {
        return Err(unauthorised("x-api-key header is required"));
    };
    if shared.key.as_deref().is_some_and(|expected| expected != key) {
        return Err(unauthorised("invalid x-api-key"));
    }
    if header("anthropic-version") != Some("2023-06-01") {
        return Err(Refusal::invalid("anthropic-version: header is required and must be a known version"));
    }
    read_json(headers, body)
}

/// The same for the wire whose key comes as a bearer.
fn admit_bearer(
    shared: &Shared,
    headers: &HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<(Value, usize), Refusal> {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let key = bearer.and_then(|text| text.strip_prefix("Bearer ")).filter(|key| !key.is_empty());
    let unauthorised =
        |message: &str| Refusal { status: 401, kind: "authentication_error", message: message.to_owned() };
    let key = key.ok_or_else(|| unauthorised("You didn't provide an API key."))?;
    if shared.key.as_deref().is_some_and(|expected| expected != key) {
        let tail: String = key.chars().rev().take(4).collect::<Vec<_>>().into_iter().rev().collect();
        return Err(unauthorised(&format!("Incorrect API key provided: sk-****{tail}.")));
    }
    read_json(headers, body)
}

fn read_json(headers: &HeaderMap, body: Result<Bytes, BytesRejection>) -> Result<(Value, usize), Refusal> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if !kind.is_some_and(|kind| kind.starts_with("application/json")) {
        return Err(Refusal::invalid("content-type: must be application/json"));
    }
    let body = body.map_err(|_| Refusal {
        status: 413,
        kind: "request_too_large",
        message: "Request exceeds the maximum size".to_owned(),
    })?;
    let value = serde_json::from_slice(&body)
        .map_err(|error| Refusal::invalid(format!("The request body is not valid JSON: {error}")))?;
    Ok((value, body.len()))
}

fn prepare(shared: &Shared, wire: Wire, body: &Value) -> Result<Prepared, Refusal> {
    let (request, form) = match wire {
        Wire::Messages => {
            let request = Request::read(body)?;
            rules::check(&request)?;
            (request, Form::Messages)
        }
        Wire::Chat => {
            let (request, wishes) = chat::read(body)?;
            (request, Form::Chat { wants_usage: wishes.wants_usage })
        }
    };
    let form = if request.stream { form } else { Form::Whole(wire) };
    let tokens = count_input_tokens(body);
    if tokens > shared.context_window_tokens {
        let limit = shared.context_window_tokens;
        return Err(Refusal::invalid(format!("prompt is too long: {tokens} tokens > {limit} maximum")));
    }
    let reply = shared
        .script
        .reply(&request.messages)
        .map_err(|error| Refusal::invalid(format!("scripted model: {error}")))?;
    check_expectations(&reply, &request)?;
    let fault = shared.next_fault(fingerprint(body), &reply.faults);
    let message = message_object(shared, &reply, &request, tokens);
    Ok(Prepared { reply, fault, message, form })
}

fn check_expectations(reply: &Reply, request: &Request<'_>) -> Result<(), Refusal> {
    let newest = request.messages.last().map(newest_text).unwrap_or_default();
    if let Some(missing) = reply.expects.iter().find(|text| !newest.contains(text.as_str())) {
        return Err(Refusal::invalid(format!(
            "scripted model: expected the newest message to hold {missing:?}; it holds {:?}",
            shortened(&newest)
        )));
    }
    if let Some(call) = reply.calls.iter().find(|call| !request.tools.contains(call.tool.as_str())) {
        return Err(Refusal::invalid(format!(
            "scripted model: the script calls {:?}, which the request does not offer",
            call.tool
        )));
    }
    Ok(())
}

fn newest_text(message: &Message<'_>) -> String {
    let texts: Vec<&str> = message
        .blocks
        .iter()
        .filter_map(|block| match block {
            Block::Text(text) => Some(*text),
            Block::ToolResult { text, .. } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    texts.join("\n")
}

fn message_object(shared: &Shared, reply: &Reply, request: &Request<'_>, input_tokens: u64) -> Value {
    let mut content = Vec::new();
    if let Some(thinking) = &reply.thinking {
        content
            .push(json!({"type": "thinking", "thinking": thinking, "signature": rules::signature(thinking)}));
    }
    if let Some(say) = &reply.say {
        let quoted = request.messages.last().map(newest_text).unwrap_or_default();
        let text = say.replace("{{newest}}", shortened(&quoted).trim());
        content.push(json!({"type": "text", "text": text}));
    }
    for call in &reply.calls {
        let id = shared.next_id("toolu");
        content.push(json!({"type": "tool_use", "id": id, "name": call.tool, "input": call.input}));
    }
    let stops = if reply.calls.is_empty() { "end_turn" } else { "tool_use" };
    let content = Value::Array(content);
    let output_tokens = tokens_of(chars_of(&content)).max(1);
    json!({
        "id": shared.next_id("msg"),
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": content,
        "stop_reason": reply.stop_reason.as_deref().unwrap_or(stops),
        "stop_sequence": null,
        "usage": {
            "input_tokens": input_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
            "output_tokens": output_tokens,
            "service_tier": "standard",
        },
    })
}

fn shortened(text: &str) -> String {
    text.chars().take(QUOTED_CHARS).collect()
}

fn count_input_tokens(body: &Value) -> u64 {
    let chars = ["system", "tools", "messages"].iter().map(|field| chars_of(&body[*field])).sum();
    tokens_of(chars).max(1)
}

fn tokens_of(chars: usize) -> u64 {
    u64::try_from(chars.div_ceil(4)).unwrap_or(u64::MAX)
}

/// Characters of text in a value; an encoded image weighs what an image of middle size does.
fn chars_of(value: &Value) -> usize {
    const IMAGE_CHARS: usize = 6_400;
    match value {
        Value::String(text) => text.chars().count(),
        Value::Array(items) => items.iter().map(chars_of).sum(),
        Value::Object(fields) if fields.get("type").is_some_and(|kind| kind == "base64") => IMAGE_CHARS,
        Value::Object(fields) => fields.iter().map(|(key, inner)| key.len() + chars_of(inner)).sum(),
        Value::Null => 0,
        Value::Bool(_) | Value::Number(_) => 4,
    }
}

/// The same conversation asked again is the same request, whatever else the client changed.
fn fingerprint(body: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    for field in ["system", "messages", "metadata"] {
        body[field].to_string().hash(&mut hasher);
    }
    hasher.finish()
}

fn betas(headers: &HeaderMap) -> String {
    headers.get("anthropic-beta").and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

fn refuse(
    shared: &Shared,
    wire: Wire,
    headers: &HeaderMap,
    body: Value,
    bytes: usize,
    refusal: &Refusal,
) -> Response {
    let outcome = Outcome::Refused { sentence: refusal.to_string() };
    shared.record.add(body, bytes, betas(headers), outcome);
    error_response(wire, refusal.status, refusal.kind, &refusal.message, None)
}

fn status_error(status: u16) -> (&'static str, &'static str) {
    match status {
        400 => ("invalid_request_error", "The script refuses this request"),
        401 => ("authentication_error", "invalid x-api-key"),
        402 => ("billing_error", "Your credit balance is too low"),
        403 => ("permission_error", "Your API key does not have permission to use this resource"),
        404 => ("not_found_error", "The requested model could not be found"),
        413 => ("request_too_large", "Request exceeds the maximum size"),
        429 => ("rate_limit_error", "This request would exceed your rate limit"),
        504 => ("timeout_error", "The request timed out"),
        529 => ("overloaded_error", "Overloaded"),
        _ => ("api_error", "Internal server error"),
    }
}

fn error_response(
    wire: Wire,
    status: u16,
    kind: &str,
    message: &str,
    retry_after_seconds: Option<u64>,
) -> Response {
    let body = match wire {
        Wire::Messages => {
            json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_scripted"})
        }
        Wire::Chat => chat::error(status, kind, message),
    };
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    if let Some(seconds) = retry_after_seconds {
        headers.insert(header::RETRY_AFTER, header::HeaderValue::from(seconds));
    }
    response
}
