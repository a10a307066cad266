//! Whole replies of the Messages wire.

use super::{
    super::{
        ask::object,
        fault::Fault,
        reply::{Block, Label, Reply},
        sequence::Sequence,
        step::Opening,
    },
    read_stop, usage, write_stop, write_usage,
};
use serde_json::{Value, json};

pub(in super::super) fn read(body: &Value) -> Result<Reply, Fault> {
    if body["type"] == "error" {
        return Err(Fault::of_event(body));
    }
    let Value::Array(blocks) = &body["content"] else {
        return Err(Fault::broken("The model provider's reply is no message."));
    };
    let mut sequence = Sequence::default();
    sequence.begin();
    for block in blocks {
        read_block(&mut sequence, block);
    }
    sequence.count(usage(&body["usage"]).unwrap_or_default());
    if let Some(reason) = body["stop_reason"].as_str() {
        sequence.stop(read_stop(reason, &body["stop_sequence"]));
    }
    sequence.end();
    let reply = Reply::of(&sequence.take());
    reply.fault.clone().map_or(Ok(reply), Err)
}

fn read_block(sequence: &mut Sequence, block: &Value) {
    let text = |name: &str| block[name].as_str().unwrap_or_default();
    match text("type") {
        "text" => {
            sequence.open(Opening::Text);
            sequence.piece(text("text"));
        }
        "thinking" => {
            sequence.open(Opening::Thinking);
            sequence.piece(text("thinking"));
            sequence.sign(text("signature"));
        }
        "redacted_thinking" => sequence.open(Opening::Redacted(text("data").to_owned())),
        "tool_use" => {
            sequence.open(Opening::Call { id: text("id").to_owned(), name: text("name").to_owned() });
            sequence.piece(&block["input"].to_string());
        }
        // What the provider's own tools did; the client did not offer them.
        _ => return,
    }
    sequence.close();
}

pub(in super::super) fn write(reply: &Reply, label: &Label) -> Value {
    let (reason, stop_sequence) = write_stop(&reply.stop);
    json!({
        "id": format!("msg_{}", label.id),
        "type": "message",
        "role": "assistant",
        "model": label.model,
        "content": reply.blocks.iter().map(write_block).collect::<Vec<_>>(),
        "stop_reason": reason,
        "stop_sequence": stop_sequence,
        "usage": write_usage(&reply.usage),
    })
}

fn write_block(block: &Block) -> Value {
    match block {
        Block::Text(text) => json!({"type": "text", "text": text}),
        Block::Thinking { text, signature } => {
            json!({"type": "thinking", "thinking": text, "signature": signature})
        }
        Block::Redacted(data) => json!({"type": "redacted_thinking", "data": data}),
        Block::Call { id, name, arguments } => {
            json!({"type": "tool_use", "id": id, "name": name, "input": object(arguments)})
        }
    }
}
