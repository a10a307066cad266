//! Clients of each wire before a provider of the other one, over real HTTP.

use super::super::{
    provider,
    tests::{Bench, request_id, text},
};
use super::*;
use axum::{
    Json, Router,
    body::Bytes,
    extract::State as Shared,
    http::Request,
    routing::{get, post},
};
use checkfu_shared::event::ModelUsage;
use futures_util::{StreamExt, stream};
use std::sync::{Arc, Mutex};

const EVENTS: [(&str, &str); 1] = [("content-type", "text/event-stream")];
const FIRST: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"}}]}\n\n";
const REST: &str = concat!(
    "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c\",\"function\":{\"name\":\"bash\",\"arguments\":\"{}\"}}]}}]}\n\n",
    "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\n",
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4,\"prompt_tokens_details\":{\"cached_tokens\":2}}}\n\n",
    "data: [DONE]\n\n",
);
const USED: ModelUsage = ModelUsage {
    input_tokens: 7,
    output_tokens: 4,
    cache_creation_input_tokens: 0,
    cache_read_input_tokens: 2,
};

type Asked = Arc<Mutex<Vec<Value>>>;

/// A provider of the Chat wire that streams a text and a call, or answers whole.
async fn chat(Shared(asked): Shared<Asked>, headers: HeaderMap, body: Bytes) -> Response {
    assert!(headers["authorization"].to_str().unwrap().starts_with("Bearer sk-canary"));
    let body: Value = serde_json::from_slice(&body).unwrap();
    let is_stream = body["stream"] == true;
    asked.lock().unwrap().push(body);
    if is_stream {
        return (EVENTS, format!("{FIRST}{REST}")).into_response();
    }
    Json(json!({
        "choices": [{"message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 2}},
    }))
    .into_response()
}

async fn before_chat() -> (Bench, Asked) {
    let asked = Asked::default();
    let provider = Router::new().route("/chat/completions", post(chat)).with_state(Arc::clone(&asked));
    (Bench::with(provider::Kind::OpenaiCompatible, provider).await, asked)
}

fn messages(is_stream: bool) -> Value {
    json!({"model": "x", "max_tokens": 9, "stream": is_stream, "system": "s", "thinking": {"type": "adaptive"},
           "tools": [{"name": "bash", "input_schema": {"type": "object"}, "defer_loading": true}],
           "messages": [{"role": "user", "content": "hi"}, {"role": "system", "content": "now"}]})
}

#[tokio::test]
async fn a_messages_client_runs_on_a_chat_provider() {
    let (bench, asked) = before_chat().await;
    let response = bench.ask_at("/v1/messages", &bench.token, &messages(true)).await;
    let id = request_id(&response);
    let streamed = text(response).await;
    assert!(streamed.starts_with("event: message_start\n"), "{streamed}");
    assert!(
        streamed.contains("\"stop_reason\":\"tool_use\"") && streamed.contains("\"name\":\"bash\""),
        "{streamed}"
    );
    assert!(streamed.ends_with("data: {\"type\":\"message_stop\"}\n\n"), "{streamed}");
    assert_eq!(bench.recorded(id).await, Some(USED));

    let response = bench.ask_at("/v1/messages", &bench.token, &messages(false)).await;
    let id = request_id(&response);
    let whole: Value = serde_json::from_str(&text(response).await).unwrap();
    assert_eq!(whole["content"], json!([{"type": "text", "text": "hi"}]));
    assert_eq!((&whole["stop_reason"], &whole["usage"]["input_tokens"]), (&json!("end_turn"), &json!(7)));
    assert_eq!(bench.recorded(id).await, Some(USED));

    let asked = asked.lock().unwrap();
    assert_eq!(asked[0]["model"], "pinned");
    assert_eq!(asked[0]["stream_options"], json!({"include_usage": true}));
    assert_eq!(asked[0]["messages"][0], json!({"role": "system", "content": "s"}));
}

#[tokio::test]
async fn a_responses_client_runs_on_a_chat_provider() {
    let (bench, _) = before_chat().await;
    let body = json!({"model": "x", "stream": true, "input": "hi", "store": false});
    let streamed = text(bench.ask_at("/v1/responses", &bench.token, &body).await).await;
    let last = streamed.trim_end().rsplit_once("\n\n").unwrap().1;
    assert!(last.starts_with("event: response.completed\n"), "{streamed}");
    let done: Value = serde_json::from_str(last.split_once("data: ").unwrap().1).unwrap();
    assert_eq!(done["response"]["output"][1]["call_id"], "c");
    assert_eq!(done["response"]["usage"]["input_tokens"], 9);
}

#[tokio::test]
async fn a_chat_client_gets_a_chat_providers_bytes_and_its_usage_only_if_it_asked() {
    let (bench, _) = before_chat().await;
    let mut body = json!({"model": "x", "stream": true, "messages": [{"role": "user", "content": "hi"}]});
    let response = bench.ask_at("/v1/chat/completions", &bench.token, &body).await;
    let id = request_id(&response);
    let without = text(response).await;
    assert!(!without.contains("prompt_tokens") && without.ends_with("data: [DONE]\n\n"), "{without}");
    assert_eq!(bench.recorded(id).await, Some(USED));
    body["stream_options"] = json!({"include_usage": true});
    let response = bench.ask_at("/v1/chat/completions", &bench.token, &body).await;
    let id = request_id(&response);
    assert_eq!(text(response).await, format!("{FIRST}{REST}"));
    assert_eq!(bench.recorded(id).await, Some(USED));
}

#[tokio::test]
async fn pieces_reach_the_client_at_once_and_the_provider_is_left_when_the_client_leaves() {
    let gone = Arc::new(tokio::sync::Notify::new());
    let leaving = Arc::clone(&gone);
    let answer = move || {
        let guard = Guard(Arc::clone(&leaving));
        async move {
            let rest = stream::once(async move {
                let _held = guard;
                std::future::pending::<Result<&str, std::io::Error>>().await
            });
            (EVENTS, Body::from_stream(stream::iter([Ok(FIRST)]).chain(rest)))
        }
    };
    let provider = Router::new().route("/chat/completions", post(answer));
    let bench = Bench::with(provider::Kind::OpenaiCompatible, provider).await;
    let response = bench.ask_at("/v1/messages", &bench.token, &messages(true)).await;
    let mut body = response.into_body().into_data_stream();
    // The provider sends nothing more, so this comes now or never.
    let piece = body.next().await.unwrap().unwrap();
    assert!(std::str::from_utf8(&piece).unwrap().contains("\"text\":\"hi\""));
    drop(body);
    gone.notified().await;
}

/// Tells when it is dropped.
struct Guard(Arc<tokio::sync::Notify>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

#[tokio::test]
async fn a_provider_that_breaks_off_ends_each_clients_stream_with_its_own_error() {
    let answer = || async { (EVENTS, FIRST) };
    let provider = Router::new().route("/chat/completions", post(answer));
    let bench = Bench::with(provider::Kind::OpenaiCompatible, provider).await;
    let chat = json!({"stream": true, "messages": [{"role": "user", "content": "hi"}]});
    for (path, body, last) in [
        ("/v1/messages", messages(true), "event: error\ndata: {\"error\":"),
        ("/v1/responses", json!({"stream": true, "input": "hi"}), "event: response.failed\n"),
        ("/v1/chat/completions", chat, "data: {\"error\":"),
    ] {
        let response = bench.ask_at(path, &bench.token, &body).await;
        let mut body = response.into_body().into_data_stream();
        let mut said = String::new();
        let is_broken = loop {
            match body.next().await {
                Some(Ok(piece)) => said.push_str(std::str::from_utf8(&piece).unwrap()),
                end => break matches!(end, Some(Err(_))),
            }
        };
        assert!(is_broken, "{path}: {said}");
        let event = said.trim_end().rsplit_once("\n\n").unwrap().1;
        assert!(event.starts_with(last), "{path}: {event}");
    }
}

#[tokio::test]
async fn errors_reach_each_client_in_its_own_form() {
    let refuse = || async {
        let error = json!({"error": {"message": "busy", "type": "requests", "code": "rate_limit_exceeded"}});
        (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "7")], Json(error))
    };
    let provider = Router::new().route("/chat/completions", post(refuse));
    let bench = Bench::with(provider::Kind::OpenaiCompatible, provider).await;
    let response = bench.ask_at("/v1/messages", &bench.token, &messages(true)).await;
    assert_eq!(
        (response.status().as_u16(), &response.headers()["retry-after"]),
        (429, &HeaderValue::from_static("7"))
    );
    let body: Value = serde_json::from_str(&text(response).await).unwrap();
    assert_eq!(body["error"], json!({"type": "rate_limit_error", "message": "busy"}));

    let body = json!({"input": "hi", "tools": [{"type": "web_search"}]});
    for (token, status, code) in
        [(bench.token.as_str(), 400, "unsupported"), ("nonsense", 401, "unauthenticated")]
    {
        let response = bench.ask_at("/v1/responses", token, &body).await;
        assert_eq!(response.status().as_u16(), status);
        let body: Value = serde_json::from_str(&text(response).await).unwrap();
        assert_eq!(body["error"]["code"], code, "{body}");
        assert!(body["error"]["message"].is_string());
    }
}

#[tokio::test]
async fn tokens_are_counted_by_the_provider_or_estimated() {
    let asked = Asked::default();
    let count = |Shared(asked): Shared<Asked>, Json(body): Json<Value>| async move {
        asked.lock().unwrap().push(body);
        Json(json!({"input_tokens": 42}))
    };
    let provider =
        Router::new().route("/v1/messages/count_tokens", post(count)).with_state(Arc::clone(&asked));
    let bench = Bench::with(provider::Kind::Anthropic, provider).await;
    let mut body = messages(false);
    body.as_object_mut().unwrap().remove("max_tokens");
    let counted = text(bench.ask_at("/v1/messages/count_tokens", &bench.token, &body).await).await;
    assert_eq!(counted, "{\"input_tokens\":42}");
    let asked = asked.lock().unwrap()[0].clone();
    assert_eq!((asked["model"].as_str(), asked.get("max_tokens")), (Some("pinned"), None));

    let (bench, _) = before_chat().await;
    let counted = text(bench.ask_at("/v1/messages/count_tokens", &bench.token, &body).await).await;
    let counted: Value = serde_json::from_str(&counted).unwrap();
    assert!(counted["input_tokens"].as_u64().unwrap() > 5, "{counted}");
    let refused = bench.ask_at("/v1/messages/count_tokens", "nonsense", &body).await;
    assert_eq!(refused.status().as_u16(), 401);
}

#[tokio::test]
async fn the_list_of_models_has_the_one_that_the_capability_may_ask() {
    let provider = Router::new().route("/", get(|| async {}));
    let bench = Bench::with(provider::Kind::Anthropic, provider).await;
    let ask = |path: &str, token: &str| {
        let path = format!("{}{path}", super::super::BASE_PATH);
        let request = Request::get(path).header("authorization", format!("Bearer {token}"));
        tower::ServiceExt::oneshot(bench.router.clone(), request.body(Body::empty()).unwrap())
    };
    let listed = text(ask("/v1/models", &bench.token).await.unwrap()).await;
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!((&listed["data"][0]["id"], &listed["models"]), (&json!("pinned"), &json!([])));
    assert_eq!(ask("/v1/models", "nonsense").await.unwrap().status().as_u16(), 401);
}
