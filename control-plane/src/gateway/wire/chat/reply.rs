//! Whole replies of the Chat wire.

use super::{
    super::{
        fault::Fault,
        reply::{Block, Label, Reply},
        sequence::Sequence,
        step::Opening,
    },
    THOUGHTS,
    calls::Calls,
    member_of, read_stop, signature, thought, usage, write_stop, write_usage,
};
use serde_json::{Value, json};

pub(in super::super) fn read(body: &Value, base: &str) -> Result<Reply, Fault> {
    if !body["error"].is_null() {
        return Err(Fault::of_event(body));
    }
    let message = &body["choices"][0]["message"];
    if !message.is_object() {
        return Err(Fault::broken("The model provider's reply holds no message."));
    }
    let mut sequence = Sequence::default();
    sequence.begin();
    if let Some((member, text)) = thought(message) {
        sequence.open(Opening::Thinking);
        sequence.piece(text);
        sequence.sign(&signature(member));
    }
    for name in ["content", "refusal"] {
        if let Some(text) = message[name].as_str().filter(|text| !text.is_empty()) {
            sequence.open(Opening::Text);
            sequence.piece(text);
        }
    }
    let mut calls = Calls::new(base);
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        calls.take(call, &mut sequence);
    }
    calls.finish(&mut sequence);
    sequence.count(usage(&body["usage"]).unwrap_or_default());
    if let Some(reason) = body["choices"][0]["finish_reason"].as_str() {
        sequence.stop(read_stop(reason));
    }
    sequence.end();
    let reply = Reply::of(&sequence.take());
    reply.fault.clone().map_or(Ok(reply), Err)
}

pub(in super::super) fn write(reply: &Reply, label: &Label) -> Value {
    let mut message = json!({"role": "assistant", "content": null, "refusal": null});
    let mut add = |name: &str, text: &str| {
        let held = message[name].as_str().unwrap_or_default();
        message[name] = format!("{held}{text}").into();
    };
    let mut calls = Vec::new();
    for block in &reply.blocks {
        match block {
            Block::Text(text) => add("content", text),
            Block::Thinking { text, signature } => add(member_of(signature).unwrap_or(THOUGHTS[0]), text),
            Block::Redacted(_) => {}
            Block::Call { id, name, arguments } => calls.push(json!({
                "id": id, "type": "function", "function": {"name": name, "arguments": arguments},
            })),
        }
    }
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    json!({
        "id": format!("chatcmpl-{}", label.id),
        "object": "chat.completion",
        "created": label.created_s,
        "model": label.model,
        "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": write_stop(&reply.stop)}],
        "usage": write_usage(&reply.usage),
    })
}
