//! The scripted model over real HTTP: streaming, faults, holds, headers and what it remembers.

use reqwest::{Client, Response};
use serde_json::{Value, json};

use super::*;

async fn started() -> ScriptedModel {
    ScriptedModel::start(Settings::default()).await.unwrap()
}

fn client() -> Client {
    // Without a provider the client cannot be built, even for plain HTTP; a second install is refused harmlessly.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().no_proxy().build().unwrap()
}

fn body(text: &str, stream: bool) -> Value {
    json!({
        "model": "m", "max_tokens": 100, "stream": stream, "messages": [{"role": "user", "content": text}],
        "tools": [{"name": "bash", "input_schema": {"type": "object"}}],
    })
}

async fn ask(model: &ScriptedModel, body: &Value) -> Response {
    client()
        .post(format!("{}/v1/messages", model.url()))
        .header("x-api-key", "k")
        .header("anthropic-version", "2023-06-01")
        .json(body)
        .send()
        .await
        .unwrap()
}

#[tokio::test]
async fn a_whole_reply_holds_text_calls_and_usage() {
    let model = started().await;
    let script = r#"script: [{"say":"look","tool":"bash","input":{"command":"ls"}}]"#;
    let reply: Value = ask(&model, &body(script, false)).await.json().await.unwrap();
    assert_eq!(reply["content"][0], json!({"type": "text", "text": "look"}));
    assert_eq!(reply["content"][1]["input"], json!({"command": "ls"}));
    assert_eq!(reply["stop_reason"], "tool_use");
    assert!(reply["usage"]["input_tokens"].as_u64().unwrap() > 10);
    assert!(reply["usage"]["output_tokens"].as_u64().unwrap() > 1);
    model.assert_no_refusals();
}

#[tokio::test]
async fn a_streamed_reply_ends_with_its_message() {
    let model = started().await;
    let response = ask(&model, &body("hello there", true)).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream; charset=utf-8");
    let text = response.text().await.unwrap();
    assert!(text.starts_with("event: message_start\n"), "{text}");
    assert!(text.trim_end().ends_with(r#"data: {"type":"message_stop"}"#), "{text}");
}

#[tokio::test]
async fn faults_are_met_once_each_and_then_the_reply_comes() {
    let model = started().await;
    let script = r#"script: [{"error":429,"retry_after":7},{"error":529,"times":2},{"cut":true,"after_deltas":1},
        {"say":"at last, after all of these faults"}]"#;
    let body = body(script, true);
    let first = ask(&model, &body).await;
    assert_eq!((first.status().as_u16(), &first.headers()["retry-after"]), (429, &"7".parse().unwrap()));
    let error: Value = first.json().await.unwrap();
    assert_eq!(error["error"]["type"], "rate_limit_error");
    assert_eq!(ask(&model, &body).await.status(), 529);
    assert_eq!(ask(&model, &body).await.status(), 529);
    assert!(ask(&model, &body).await.text().await.is_err(), "a cut body is not a whole one");
    let text = ask(&model, &body).await.text().await.unwrap();
    assert!(text.contains("message_stop"));
    let outcomes: Vec<bool> =
        model.requests().iter().map(|request| request.outcome == Outcome::Replied).collect();
    assert_eq!(outcomes, [false, false, false, false, true]);
    model.assert_no_refusals();
}

#[tokio::test]
async fn a_malformed_conversation_is_refused_and_remembered() {
    let model = started().await;
    let mut bad = body("hi", true);
    bad["messages"][0]["content"] = json!([{"type": "tool_result", "tool_use_id": "x", "content": "y"}]);
    let response = ask(&model, &bad).await;
    assert_eq!(response.status(), 400);
    let error: Value = response.json().await.unwrap();
    assert_eq!(error["error"]["type"], "invalid_request_error");
    assert_eq!(model.refusals().len(), 1);
    assert!(model.refusals()[0].contains("unexpected `tool_use_id`"));
    assert!(matches!(model.requests()[0].outcome, Outcome::Refused { .. }));
}

#[tokio::test]
async fn a_script_that_expects_what_is_not_there_is_a_refusal() {
    let model = started().await;
    let met = r#"script: [{"expect":"expect","say":"yes, {{newest}}"}]"#;
    let reply: Value = ask(&model, &body(met, false)).await.json().await.unwrap();
    assert!(reply["content"][0]["text"].as_str().unwrap().contains("script: ["));
    model.assert_no_refusals();
    let mut missed = body(r#"script: [{"say":"a","tool":"bash"},{"expect":"exit 0","say":"b"}]"#, false);
    let messages = missed["messages"].as_array_mut().unwrap();
    let call = json!({"type": "tool_use", "id": "t", "name": "bash", "input": {}});
    messages.push(json!({"role": "assistant", "content": [call]}));
    let result = json!({"type": "tool_result", "tool_use_id": "t", "content": "exit 1"});
    messages.push(json!({"role": "user", "content": [result]}));
    assert_eq!(ask(&model, &missed).await.status(), 400);
    assert!(model.refusals()[0].contains("expected the newest message to hold"));
    let unoffered = body(r#"script: [{"tool":"hammer"}]"#, false);
    assert_eq!(ask(&model, &unoffered).await.status(), 400);
}

#[tokio::test]
async fn headers_are_demanded() {
    let settings = Settings { key: Some("right".to_owned()), ..Settings::default() };
    let model = ScriptedModel::start(settings).await.unwrap();
    for (key, version, status) in [
        (None, Some("2023-06-01"), 401),
        (Some("wrong"), Some("2023-06-01"), 401),
        (Some("right"), None, 400),
        (Some("right"), Some("2023-06-01"), 200),
    ] {
        let mut request = client().post(format!("{}/v1/messages", model.url())).json(&body("hi", false));
        if let Some(key) = key {
            request = request.header("x-api-key", key);
        }
        if let Some(version) = version {
            request = request.header("anthropic-version", version);
        }
        assert_eq!(request.send().await.unwrap().status(), status, "{key:?} {version:?}");
    }
}

#[tokio::test]
async fn a_too_long_conversation_is_refused_as_the_service_does() {
    let settings = Settings { context_window_tokens: 50, ..Settings::default() };
    let model = ScriptedModel::start(settings).await.unwrap();
    let response = ask(&model, &body(&"word ".repeat(100), false)).await;
    let error: Value = response.json().await.unwrap();
    assert!(error["error"]["message"].as_str().unwrap().starts_with("prompt is too long: "), "{error}");
}

#[tokio::test]
async fn a_held_reply_waits_for_its_release_while_others_are_served() {
    let model = started().await;
    let held = body(r#"script: [{"say":"late","hold":"gate"}]"#, false);
    let other = body("quick", false);
    let waiting = ask(&model, &held);
    tokio::pin!(waiting);
    tokio::select! {
        _ = &mut waiting => panic!("the reply came before its release"),
        () = async {
            while !model.has_reached("gate") {
                tokio::task::yield_now().await;
            }
        } => {}
    }
    assert_eq!(ask(&model, &other).await.status(), 200);
    model.release("gate");
    assert_eq!(waiting.await.status(), 200);
}

#[tokio::test]
async fn ids_are_never_used_twice() {
    let model = started().await;
    let script = body(r#"script: [{"tools":[{"tool":"bash"},{"tool":"bash"}]}]"#, false);
    let mut ids = std::collections::HashSet::new();
    for _ in 0..3 {
        let reply: Value = ask(&model, &script).await.json().await.unwrap();
        for block in reply["content"].as_array().unwrap() {
            assert!(ids.insert(block["id"].as_str().unwrap().to_owned()));
        }
    }
    assert_eq!(ids.len(), 6);
}

#[tokio::test]
async fn a_stopped_model_answers_nobody() {
    let model = started().await;
    let url = model.url();
    model.stop().await;
    assert!(client().get(url).send().await.is_err());
}
