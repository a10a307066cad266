//! The second wire over real HTTP, and what it refuses.

use super::super::{ScriptedModel, Settings};
use super::*;
use reqwest::Client;

fn client() -> Client {
    // Without a provider the client cannot be built, even for plain HTTP; a second install is refused harmlessly.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().no_proxy().build().unwrap()
}

async fn ask(model: &ScriptedModel, body: &Value) -> reqwest::Response {
    let url = format!("{}/v1/chat/completions", model.url());
    client().post(url).bearer_auth("k").json(body).send().await.unwrap()
}

fn body(text: &str) -> Value {
    json!({
        "model": "m", "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": text}],
        "tools": [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}],
    })
}

fn call(id: &str) -> Value {
    json!({"role": "assistant", "content": null, "tool_calls": [
        {"id": id, "type": "function", "function": {"name": "bash", "arguments": "{}"}}]})
}

fn result(id: &str) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": "out"})
}

#[tokio::test]
async fn a_script_is_played_turn_by_turn_whole_and_streamed() {
    let model = ScriptedModel::start(Settings::default()).await.unwrap();
    let mut body = body(
        r#"script: [{"think":"hm","say":"look","tool":"bash","input":{"command":"ls"}}, {"expect":"out","say":"done"}]"#,
    );
    let whole: Value = ask(&model, &body).await.json().await.unwrap();
    let message = &whole["choices"][0]["message"];
    assert_eq!(whole["choices"][0]["finish_reason"], "tool_calls");
    assert_eq!((&message["reasoning_content"], &message["content"]), (&json!("hm"), &json!("look")));
    assert_eq!(message["tool_calls"][0]["function"]["arguments"], r#"{"command":"ls"}"#);
    let id = message["tool_calls"][0]["id"].as_str().unwrap();

    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "content": "look", "tool_calls": message["tool_calls"]}));
    messages.push(result(id));
    body["stream"] = true.into();
    body["stream_options"] = json!({"include_usage": true});
    let text = ask(&model, &body).await.text().await.unwrap();
    assert!(text.contains(r#""content":"done""#), "{text}");
    assert!(text.contains(r#""finish_reason":"stop""#) && text.contains(r#""prompt_tokens":"#), "{text}");
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    model.assert_no_refusals();
}

#[tokio::test]
async fn a_malformed_conversation_is_refused_and_remembered() {
    let model = ScriptedModel::start(Settings::default()).await.unwrap();
    for (messages, words) in [
        (vec![call("a")], "did not have response messages: a"),
        (vec![call("a"), json!({"role": "user", "content": "x"})], "did not have response messages: a"),
        (vec![call("a"), result("a"), result("a")], "'a' is not waited for"),
        (vec![result("a")], "'a' is not waited for"),
        (vec![json!({"role": "assistant", "content": null})], "expected a string, got null"),
        (
            vec![
                json!({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x"}}]}),
            ],
            "image_url",
        ),
        (vec![json!({"role": "bot", "content": "x"})], "Invalid value: 'bot'"),
    ] {
        let mut body = body("hi");
        body["messages"].as_array_mut().unwrap().extend(messages);
        let response = ask(&model, &body).await;
        assert_eq!(response.status(), 400);
        let error: Value = response.json().await.unwrap();
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.contains(words), "{message}");
    }
    let mut unknown = body("hi");
    unknown["system"] = "s".into();
    assert_eq!(ask(&model, &unknown).await.status(), 400);
    assert_eq!(model.refusals().len(), 8);
}

#[tokio::test]
async fn faults_come_in_this_wires_form() {
    let model = ScriptedModel::start(Settings::default()).await.unwrap();
    let mut body =
        body(r#"script: [{"error":429,"retry_after":3}, {"stream_error":"overloaded_error"}, {"say":"x"}]"#);
    let refused = ask(&model, &body).await;
    assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (429, &"3".parse().unwrap()));
    assert_eq!(refused.json::<Value>().await.unwrap()["error"]["code"], "rate_limit_exceeded");
    body["stream"] = true.into();
    let text = ask(&model, &body).await.text().await.unwrap();
    assert!(text.trim_end().ends_with("}}") && text.contains(r#""type":"overloaded_error""#), "{text}");
    assert!(!text.contains("[DONE]"));
}
