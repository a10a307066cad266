//! A reply in the form of the Chat wire: the whole object, and the chunks in the order of the real service.

use super::super::sse::{Frame, pieces};
use serde_json::{Value, json};

const TEXT_PIECE_CHARS: usize = 24;
const JSON_PIECE_CHARS: usize = 32;

/// The whole reply, from the message object of the Messages wire.
pub(in super::super) fn whole(message: &Value) -> Value {
    let mut said = json!({"role": "assistant", "content": null, "refusal": null});
    let mut calls = Vec::new();
    for block in message["content"].as_array().into_iter().flatten() {
        match block["type"].as_str() {
            Some("text") => said["content"] = block["text"].clone(),
            Some("thinking") => said["reasoning_content"] = block["thinking"].clone(),
            _ => calls.push(call(block)),
        }
    }
    if !calls.is_empty() {
        said["tool_calls"] = calls.into();
    }
    json!({
        "id": message["id"], "object": "chat.completion", "created": 1_700_000_000, "model": message["model"],
        "choices": [{"index": 0, "message": said, "logprobs": null, "finish_reason": finish_reason(message)}],
        "usage": usage(message),
    })
}

/// All chunks of the reply.
pub(in super::super) fn frames(message: &Value, wants_usage: bool) -> Vec<Frame> {
    let opening = choice(&json!({"role": "assistant", "content": ""}), &Value::Null);
    let mut frames = vec![chunk(message, "chunk", opening)];
    let mut index = 0;
    for block in message["content"].as_array().into_iter().flatten() {
        let text = |name: &str| block[name].as_str().unwrap_or_default();
        let deltas: Vec<Value> = match block["type"].as_str() {
            Some("text") => {
                pieces(text("text"), TEXT_PIECE_CHARS).map(|text| json!({"content": text})).collect()
            }
            Some("thinking") => pieces(text("thinking"), TEXT_PIECE_CHARS)
                .map(|text| json!({"reasoning_content": text}))
                .collect(),
            _ => {
                let deltas = call_deltas(block, index);
                index += 1;
                deltas
            }
        };
        frames.extend(deltas.iter().map(|delta| chunk(message, "delta", choice(delta, &Value::Null))));
    }
    frames.push(chunk(message, "end", choice(&json!({}), &finish_reason(message))));
    if wants_usage {
        let mut last = chunk(message, "end", json!([]));
        last.data["usage"] = usage(message);
        frames.push(last);
    }
    frames.push(Frame { name: "end", data: "[DONE]".into() });
    frames
}

/// First the id and the name, then the arguments in pieces.
fn call_deltas(block: &Value, index: usize) -> Vec<Value> {
    let mut opened = call(block);
    opened["index"] = index.into();
    opened["function"]["arguments"] = "".into();
    let mut deltas = vec![json!({"tool_calls": [opened]})];
    let input = block["input"].to_string();
    deltas.extend(
        pieces(&input, JSON_PIECE_CHARS)
            .map(|piece| json!({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})),
    );
    deltas
}

fn call(block: &Value) -> Value {
    let function = json!({"name": block["name"], "arguments": block["input"].to_string()});
    json!({"id": block["id"], "type": "function", "function": function})
}

fn choice(delta: &Value, finish_reason: &Value) -> Value {
    json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish_reason}])
}

fn chunk(message: &Value, name: &'static str, choices: Value) -> Frame {
    let data = json!({
        "id": message["id"], "object": "chat.completion.chunk", "created": 1_700_000_000,
        "model": message["model"], "choices": choices,
    });
    Frame { name, data }
}

fn finish_reason(message: &Value) -> Value {
    match message["stop_reason"].as_str() {
        Some("tool_use") => "tool_calls",
        Some("max_tokens") => "length",
        Some("refusal") => "content_filter",
        _ => "stop",
    }
    .into()
}

fn usage(message: &Value) -> Value {
    let number = |name: &str| message["usage"][name].as_u64().unwrap_or(0);
    let (input, output) = (number("input_tokens"), number("output_tokens"));
    json!({
        "prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output,
        "prompt_tokens_details": {"cached_tokens": 0},
    })
}
