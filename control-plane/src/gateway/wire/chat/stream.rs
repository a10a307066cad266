//! Streams of the Chat wire.

use super::{
    super::{
        fault::Fault,
        reply::Label,
        sequence::Sequence,
        step::{Opening, Step, Stop},
    },
    THOUGHTS,
    calls::Calls,
    read_stop, signature, thought, usage, write_stop, write_usage,
};
use crate::sse::Frame;
use checkfu_shared::event::ModelUsage;
use serde_json::{Value, json};

/// What ends a stream.
const DONE: &str = "[DONE]";

/// Reads a provider's chunks.
#[derive(Debug)]
pub(in super::super) struct Reader {
    calls: Calls,
    /// The member that the open thought came in.
    member: &'static str,
}

impl Reader {
    /// A reader that makes ids from `base` where the provider sends none.
    pub(in super::super) fn new(base: &str) -> Self {
        Self { calls: Calls::new(base), member: THOUGHTS[0] }
    }

    pub(in super::super) fn read(&mut self, frame: &Frame, to: &mut Sequence) {
        if frame.data.trim() == DONE {
            return to.end();
        }
        let Ok(chunk) = serde_json::from_str::<Value>(&frame.data) else {
            return to.fail(Fault::broken("The model provider sent a chunk that is not JSON."));
        };
        if !chunk["error"].is_null() || frame.event.as_deref() == Some("error") {
            return to.fail(Fault::of_event(&chunk));
        }
        to.begin();
        if let Some(usage) = usage(&chunk["usage"]) {
            to.count(usage);
        }
        for choice in chunk["choices"].as_array().into_iter().flatten() {
            if choice["index"].as_u64().unwrap_or(0) == 0 {
                self.choice(choice, to);
            }
        }
    }

    fn choice(&mut self, choice: &Value, to: &mut Sequence) {
        let delta = &choice["delta"];
        if let Some((member, text)) = thought(delta) {
            self.calls.finish(to);
            self.member = member;
            to.continue_in(Opening::Thinking);
            to.piece(text);
        }
        for name in ["content", "refusal"] {
            if let Some(text) = delta[name].as_str().filter(|text| !text.is_empty()) {
                self.leave_thought(to);
                self.calls.finish(to);
                to.continue_in(Opening::Text);
                to.piece(text);
            }
        }
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            self.leave_thought(to);
            self.calls.take(call, to);
        }
        if let Some(reason) = choice["finish_reason"].as_str() {
            self.leave_thought(to);
            self.calls.finish(to);
            if reason == "error" {
                to.fail(Fault::of_event(choice));
            }
            to.stop(read_stop(reason));
        }
    }

    fn leave_thought(&self, to: &mut Sequence) {
        if to.open_block() == Some(&Opening::Thinking) {
            to.sign(&signature(self.member));
            to.close();
        }
    }
}

/// Writes a client's chunks.
#[derive(Debug, Default)]
pub(in super::super) struct Writer {
    open: Option<Opening>,
    calls: u64,
    stop: Stop,
    usage: ModelUsage,
}

impl Writer {
    pub(in super::super) fn write(&mut self, step: &Step, label: &Label, out: &mut String) {
        let delta = match step {
            Step::Begin => json!({"role": "assistant", "content": ""}),
            Step::Open(opening) => {
                self.open = Some(opening.clone());
                let Opening::Call { id, name } = opening else { return };
                let function = json!({"name": name, "arguments": ""});
                json!({"tool_calls": [{"index": self.calls, "id": id, "type": "function", "function": function}]})
            }
            Step::Piece(piece) => match self.open {
                Some(Opening::Thinking) => json!({THOUGHTS[0]: piece}),
                Some(Opening::Call { .. }) => {
                    json!({"tool_calls": [{"index": self.calls, "function": {"arguments": piece}}]})
                }
                _ => json!({"content": piece}),
            },
            Step::Close => {
                self.calls += u64::from(matches!(self.open.take(), Some(Opening::Call { .. })));
                return;
            }
            Step::Sign(_) => return,
            Step::Count(usage) => {
                self.usage = *usage;
                return;
            }
            Step::Stop(stop) => {
                self.stop = stop.clone();
                return;
            }
            Step::End => return self.end(label, out),
            Step::Fail(fault) => return fail(fault, out),
        };
        let choice = json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": null});
        data(out, &chunk(label, &json!([choice])));
    }

    fn end(&self, label: &Label, out: &mut String) {
        let reason = write_stop(&self.stop);
        let choice = json!({"index": 0, "delta": {}, "logprobs": null, "finish_reason": reason});
        data(out, &chunk(label, &json!([choice])));
        if label.wants_usage {
            let mut last = chunk(label, &json!([]));
            last["usage"] = write_usage(&self.usage);
            data(out, &last);
        }
        out.push_str("data: [DONE]\n\n");
    }
}

/// Writes the chunk that replaces the rest of a stream.
pub(in super::super) fn fail(fault: &Fault, out: &mut String) {
    data(out, &fault.openai());
}

fn chunk(label: &Label, choices: &Value) -> Value {
    json!({
        "id": format!("chatcmpl-{}", label.id), "object": "chat.completion.chunk", "created": label.created_s,
        "model": label.model, "choices": choices,
    })
}

fn data(out: &mut String, chunk: &Value) {
    out.push_str(&format!("data: {chunk}\n\n"));
}
