//! Streams of the Messages wire.

use super::{
    super::{
        fault::Fault,
        reply::Label,
        sequence::Sequence,
        step::{Opening, Step, Stop},
    },
    read_stop, usage, write_stop, write_usage,
};
use crate::sse::Frame;
use checkfu_shared::event::ModelUsage;
use serde_json::{Value, json};

/// Reads a provider's events.
#[derive(Debug, Default)]
pub(in super::super) struct Reader {
    /// The index of the open block; a block of an unknown kind is open here and nowhere else.
    open: Option<u64>,
    is_known: bool,
}

impl Reader {
    pub(in super::super) fn read(&mut self, frame: &Frame, to: &mut Sequence) {
        let Ok(event) = serde_json::from_str::<Value>(&frame.data) else {
            to.fail(Fault::broken("The model provider sent an event that is not JSON."));
            return;
        };
        match event["type"].as_str().unwrap_or_default() {
            "message_start" => {
                to.begin();
                if let Some(usage) = usage(&event["message"]["usage"]) {
                    to.count(usage);
                }
            }
            "content_block_start" => self.start(&event, to),
            "content_block_delta" => self.delta(&event, to),
            "content_block_stop" => self.stop(&event, to),
            "message_delta" => {
                if let Some(usage) = usage(&event["usage"]) {
                    to.count(usage);
                }
                if let Some(reason) = event["delta"]["stop_reason"].as_str() {
                    to.stop(read_stop(reason, &event["delta"]["stop_sequence"]));
                }
            }
            "message_stop" => to.end(),
            "error" => to.fail(Fault::of_event(&event)),
            _ => {}
        }
    }

    fn start(&mut self, event: &Value, to: &mut Sequence) {
        let block = &event["content_block"];
        let text = |name: &str| block[name].as_str().unwrap_or_default();
        self.open = Some(event["index"].as_u64().unwrap_or(0));
        self.is_known = true;
        match text("type") {
            "text" => to.open(Opening::Text),
            "thinking" => to.open(Opening::Thinking),
            "redacted_thinking" => to.open(Opening::Redacted(text("data").to_owned())),
            "tool_use" => {
                to.open(Opening::Call { id: text("id").to_owned(), name: text("name").to_owned() });
            }
            _ => self.is_known = false,
        }
        if self.is_known {
            to.piece(text("text"));
            to.piece(text("thinking"));
            to.sign(text("signature"));
        }
    }

    fn stop(&mut self, event: &Value, to: &mut Sequence) {
        if self.open.take() == event["index"].as_u64() && self.is_known {
            to.close();
        }
    }

    fn delta(&self, event: &Value, to: &mut Sequence) {
        if self.open != event["index"].as_u64() {
            to.fail(Fault::broken("The model provider sent a piece of a block that is not open."));
            return;
        }
        if !self.is_known {
            return;
        }
        let delta = &event["delta"];
        let text = |name: &str| delta[name].as_str().unwrap_or_default();
        match text("type") {
            "text_delta" => to.piece(text("text")),
            "thinking_delta" => to.piece(text("thinking")),
            "input_json_delta" => to.piece(text("partial_json")),
            "signature_delta" => to.sign(text("signature")),
            _ => {}
        }
    }
}

/// Writes a client's events.
#[derive(Debug, Default)]
pub(in super::super) struct Writer {
    index: u64,
    open: Option<Opening>,
    stop: Stop,
    usage: ModelUsage,
}

impl Writer {
    pub(in super::super) fn write(&mut self, step: &Step, label: &Label, out: &mut String) {
        match step {
            Step::Begin => {
                let message = json!({
                    "id": format!("msg_{}", label.id), "type": "message", "role": "assistant", "model": label.model,
                    "content": [], "stop_reason": null, "stop_sequence": null, "usage": write_usage(&self.usage),
                });
                event(out, "message_start", json!({"message": message}));
            }
            Step::Open(opening) => {
                event(
                    out,
                    "content_block_start",
                    json!({"index": self.index, "content_block": opened(opening)}),
                );
                self.open = Some(opening.clone());
            }
            Step::Piece(piece) => {
                let delta = match self.open {
                    Some(Opening::Thinking) => json!({"type": "thinking_delta", "thinking": piece}),
                    Some(Opening::Call { .. }) => json!({"type": "input_json_delta", "partial_json": piece}),
                    _ => json!({"type": "text_delta", "text": piece}),
                };
                self.delta(&delta, out);
            }
            Step::Sign(proof) => self.delta(&json!({"type": "signature_delta", "signature": proof}), out),
            Step::Close => {
                event(out, "content_block_stop", json!({"index": self.index}));
                (self.index, self.open) = (self.index + 1, None);
            }
            Step::Count(usage) => self.usage = *usage,
            Step::Stop(stop) => self.stop = stop.clone(),
            Step::End => {
                let (reason, sequence) = write_stop(&self.stop);
                let delta = json!({"stop_reason": reason, "stop_sequence": sequence});
                event(out, "message_delta", json!({"delta": delta, "usage": write_usage(&self.usage)}));
                event(out, "message_stop", json!({}));
            }
            Step::Fail(fault) => fail(fault, label, out),
        }
    }

    fn delta(&self, delta: &Value, out: &mut String) {
        event(out, "content_block_delta", json!({"index": self.index, "delta": delta}));
    }
}

/// Writes the event that replaces the rest of a stream.
pub(in super::super) fn fail(fault: &Fault, label: &Label, out: &mut String) {
    event(out, "error", fault.messages(&label.id));
}

fn opened(opening: &Opening) -> Value {
    match opening {
        Opening::Text => json!({"type": "text", "text": ""}),
        Opening::Thinking => json!({"type": "thinking", "thinking": "", "signature": ""}),
        Opening::Redacted(data) => json!({"type": "redacted_thinking", "data": data}),
        Opening::Call { id, name } => json!({"type": "tool_use", "id": id, "name": name, "input": {}}),
    }
}

fn event(out: &mut String, name: &str, mut data: Value) {
    data["type"] = name.into();
    out.push_str(&format!("event: {name}\ndata: {data}\n\n"));
}
