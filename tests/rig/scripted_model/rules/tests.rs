//! A table of conversations the real service refuses, with the words that name the fault, and ones it takes.

use serde_json::{Value, json};

use super::super::request::Request;
use super::*;

fn with(messages: Value) -> Value {
    let schema = json!({"type": "object"});
    json!({
        "model": "m", "max_tokens": 100, "messages": messages,
        "tools": [{"name": "bash", "input_schema": schema}, {"name": "read", "input_schema": schema}],
    })
}

fn refusal(body: &Value) -> Option<String> {
    Request::read(body).and_then(|request| check(&request)).err().map(|refusal| refusal.message)
}

fn user(content: Value) -> Value {
    json!({"role": "user", "content": content})
}

fn assistant(content: Value) -> Value {
    json!({"role": "assistant", "content": content})
}

fn call(id: &str) -> Value {
    json!({"type": "tool_use", "id": id, "name": "bash", "input": {"command": "ls"}})
}

fn result(id: &str) -> Value {
    json!({"type": "tool_result", "tool_use_id": id, "content": "ok"})
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

#[test]
fn well_formed_conversations_pass() {
    let thinking = json!({"type": "thinking", "thinking": "hm", "signature": signature("hm")});
    let image =
        json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}});
    for messages in [
        json!([user(json!("hi"))]),
        json!([user(json!("hi")), user(json!([text("and more"), image]))]),
        json!([user(json!("hi")), assistant(json!("hello")), user(json!("bye"))]),
        json!([user(json!("hi")), assistant(json!([thinking, call("a")])), user(json!([result("a")]))]),
        json!([
            user(json!("hi")),
            assistant(json!([text("both"), call("a"), call("b")])),
            user(json!([result("b"), result("a"), text("steer")])),
            assistant(json!([call("c")])),
            user(json!([{"type": "tool_result", "tool_use_id": "c", "content": [image]}])),
        ]),
        json!([
            user(json!("hi")),
            assistant(json!([call("a")])),
            user(json!([result("a")])),
            user(json!("more"))
        ]),
    ] {
        assert_eq!(refusal(&with(messages.clone())), None, "{messages}");
    }
}

#[test]
fn broken_pairs_are_refused() {
    let hi = user(json!("hi"));
    for (messages, words) in [
        (json!([]), "at least one message"),
        (json!([assistant(json!("hi"))]), "first message must use the \"user\" role"),
        (json!([hi, assistant(json!("hello"))]), "must end with a user message"),
        (json!([hi, assistant(json!([call("a")]))]), "without `tool_result` blocks immediately after: a"),
        (json!([hi, assistant(json!([call("a")])), user(json!("more"))]), "without `tool_result` blocks"),
        (
            json!([hi, assistant(json!([call("a"), call("b")])), user(json!([result("a")]))]),
            "immediately after: b",
        ),
        (
            json!([hi, assistant(json!([call("a")])), user(json!([result("a"), result("a")]))]),
            "each tool_use must have a single result",
        ),
        (
            json!([hi, assistant(json!([call("a")])), user(json!([result("a"), result("x")]))]),
            "unexpected `tool_use_id`",
        ),
        (json!([user(json!([result("a")]))]), "unexpected `tool_use_id`"),
        (
            json!([hi, assistant(json!([call("a")])), user(json!([text("first"), result("a")]))]),
            "must come before all other content",
        ),
        (
            json!([
                hi,
                assistant(json!([call("a")])),
                user(json!([result("a")])),
                assistant(json!([call("a")])),
                user(json!([result("a")]))
            ]),
            "ids must be unique",
        ),
        (
            json!([
                hi,
                assistant(json!([{"type": "tool_use", "id": "a", "name": "hammer", "input": {}}])),
                user(json!([result("a")]))
            ]),
            "'hammer' not found",
        ),
        (
            json!([
                hi,
                assistant(
                    json!([{"type": "thinking", "thinking": "changed", "signature": signature("hm")}, text("x")])
                ),
                hi
            ]),
            "Invalid `signature`",
        ),
    ] {
        let found = refusal(&with(messages.clone())).unwrap_or_default();
        assert!(found.contains(words), "{messages}\nexpected {words:?}, found {found:?}");
    }
}

#[test]
fn wrong_shapes_are_refused() {
    let hi = json!([user(json!("hi"))]);
    let change = |field: &str, value: Value| {
        let mut body = with(hi.clone());
        body[field] = value;
        body
    };
    let without = |field: &str| {
        let mut body = with(hi.clone());
        body.as_object_mut().unwrap().remove(field);
        body
    };
    let cached = |n: usize| {
        let block = json!({"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}});
        with(json!([user(json!(vec![block; n]))]))
    };
    assert_eq!(refusal(&cached(4)), None);
    for (body, words) in [
        (json!([]), "valid dictionary"),
        (without("model"), "model: Field required"),
        (without("max_tokens"), "max_tokens: Field required"),
        (change("max_tokens", json!(0)), "greater than or equal to 1"),
        (change("max_tokens", json!("8")), "valid integer"),
        (without("messages"), "messages: Field required"),
        (change("maximum_tokens", json!(1)), "maximum_tokens: Extra inputs are not permitted"),
        (change("temperature", json!(1.5)), "range"),
        (change("stream", json!("yes")), "stream: Input should be a valid boolean"),
        (change("system", json!([{"type": "text", "text": ""}])), "must be non-empty"),
        (change("tools", json!([{"name": "a b", "input_schema": {"type": "object"}}])), "match pattern"),
        (change("tools", json!([{"name": "bash"}])), "input_schema"),
        (
            change("tools", json!(vec![json!({"name": "bash", "input_schema": {"type": "object"}}); 2])),
            "names must be unique",
        ),
        (with(json!([{"role": "system", "content": "x"}])), "'user' or 'assistant'"),
        (with(json!([user(json!(""))])), "non-empty content"),
        (with(json!([user(json!([]))])), "non-empty content"),
        (with(json!([user(json!([text("")]))])), "must be non-empty"),
        (with(json!([user(json!([text(" \n")]))])), "non-whitespace"),
        (with(json!([user(json!([call("a")]))])), "Input tag 'tool_use'"),
        (
            with(json!([
                user(json!("hi")),
                assistant(json!([call("a")])),
                user(json!([{
                    "type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": ""}],
                }]))
            ])),
            "must be non-empty",
        ),
        (
            with(json!([
                user(json!("hi")),
                assistant(json!([call("a")])),
                user(json!([{
                    "type": "tool_result", "tool_use_id": "a", "is_error": true,
                }]))
            ])),
            "content cannot be empty",
        ),
        (
            with(json!([user(json!([{
                "type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "?"},
            }]))])),
            "Invalid base64",
        ),
        (cached(5), "Found 5"),
    ] {
        let found = refusal(&body).unwrap_or_default();
        assert!(found.contains(words), "{body}\nexpected {words:?}, found {found:?}");
    }
}
