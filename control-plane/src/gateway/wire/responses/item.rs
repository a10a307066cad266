//! The output items of the Responses wire, from the blocks of a reply.

use super::{
    super::{
        ask::{Origin, object},
        reply::{Block, Label},
    },
    INPUT,
};
use serde_json::{Value, json};

/// The item of one block, the `index`th of its reply.
pub(super) fn item(block: &Block, index: usize, label: &Label, status: &str) -> Value {
    let id = id(block, index, label);
    match block {
        Block::Text(text) => json!({
            "id": id, "type": "message", "status": status, "role": "assistant", "content": [part(text)],
        }),
        Block::Thinking { text, signature } => {
            let held = json!({"thinking": text, "signature": signature}).to_string();
            let summary = if text.is_empty() { json!([]) } else { json!([summary(text)]) };
            json!({"id": id, "type": "reasoning", "summary": summary, "encrypted_content": held})
        }
        Block::Redacted(data) => {
            let held = json!({"data": data}).to_string();
            json!({"id": id, "type": "reasoning", "summary": [], "encrypted_content": held})
        }
        Block::Call { id: call_id, name, arguments } => match label.origins.get(name) {
            Some(Origin::Custom) => json!({
                "id": id, "type": "custom_tool_call", "status": status, "call_id": call_id, "name": name,
                "input": free_text(arguments),
            }),
            Some(Origin::Member { namespace, name }) => json!({
                "id": id, "type": "function_call", "status": status, "call_id": call_id, "name": name,
                "namespace": namespace, "arguments": arguments,
            }),
            Some(Origin::Function) | None => json!({
                "id": id, "type": "function_call", "status": status, "call_id": call_id, "name": name,
                "arguments": arguments,
            }),
        },
    }
}

/// The id of one block's item.
pub(super) fn id(block: &Block, index: usize, label: &Label) -> String {
    let kind = match block {
        Block::Text(_) => "msg",
        Block::Thinking { .. } | Block::Redacted(_) => "rs",
        Block::Call { name, .. } if label.origins.get(name) == Some(&Origin::Custom) => "ctc",
        Block::Call { .. } => "fc",
    };
    format!("{kind}_{}_{index}", label.id)
}

pub(super) fn part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": []})
}

pub(super) fn summary(text: &str) -> Value {
    json!({"type": "summary_text", "text": text})
}

/// The free text in the input of a custom tool; what is not in the form it was offered passes as the model wrote it.
pub(super) fn free_text(arguments: &str) -> String {
    object(arguments).get(INPUT).and_then(Value::as_str).map_or_else(|| arguments.to_owned(), str::to_owned)
}
