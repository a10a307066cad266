//! Streams of the Responses wire.

use super::{
    super::{
        ask::Origin,
        reply::{Block, Label, Reply},
        step::Step,
    },
    item::{free_text, id, item, part, summary},
    reply::{begun, status, write},
};
use serde_json::{Value, json};

/// Writes a client's events. It keeps the whole reply, because the last event repeats it.
#[derive(Debug, Default)]
pub(in super::super) struct Writer {
    reply: Reply,
    sequence: u64,
}

impl Writer {
    pub(in super::super) fn write(&mut self, step: &Step, label: &Label, out: &mut String) {
        self.reply.take(step);
        match step {
            Step::Begin => {
                for name in ["response.created", "response.in_progress"] {
                    self.event(out, name, json!({"response": begun(label)}));
                }
            }
            Step::Open(_) => self.open(label, out),
            Step::Piece(piece) => self.piece(piece, label, out),
            Step::Close => self.close(label, out),
            Step::Sign(_) | Step::Count(_) | Step::Stop(_) => {}
            Step::End | Step::Fail(_) => {
                let name = match status(&self.reply).0 {
                    "failed" => "response.failed",
                    "incomplete" => "response.incomplete",
                    _ => "response.completed",
                };
                self.event(out, name, json!({"response": write(&self.reply, label)}));
            }
        }
    }

    /// The open block, its place and its item's id.
    fn last(&self, label: &Label) -> Option<(Block, usize, String)> {
        let index = self.reply.blocks.len().checked_sub(1)?;
        let block = self.reply.blocks.get(index)?;
        Some((block.clone(), index, id(block, index, label)))
    }

    fn open(&mut self, label: &Label, out: &mut String) {
        let Some((block, index, id)) = self.last(label) else { return };
        let mut opened = item(&block, index, label, "in_progress");
        if matches!(block, Block::Text(_)) {
            opened["content"] = json!([]);
        }
        if matches!(block, Block::Thinking { .. }) {
            opened["encrypted_content"] = Value::Null;
        }
        self.event(out, "response.output_item.added", json!({"output_index": index, "item": opened}));
        match block {
            Block::Text(_) => self.event(
                out,
                "response.content_part.added",
                json!({"item_id": id, "output_index": index, "content_index": 0, "part": part("")}),
            ),
            Block::Thinking { .. } => self.event(
                out,
                "response.reasoning_summary_part.added",
                json!({"item_id": id, "output_index": index, "summary_index": 0, "part": summary("")}),
            ),
            Block::Redacted(_) | Block::Call { .. } => {}
        }
    }

    fn piece(&mut self, piece: &str, label: &Label, out: &mut String) {
        let index = self.reply.blocks.len().saturating_sub(1);
        let Some(block) = self.reply.blocks.last() else { return };
        let (name, place) = match block {
            Block::Text(_) => ("response.output_text.delta", Some("content_index")),
            Block::Thinking { .. } => ("response.reasoning_summary_text.delta", Some("summary_index")),
            // A free text can only be told from its JSON when that is whole.
            Block::Call { name, .. } if label.origins.get(name) == Some(&Origin::Custom) => return,
            Block::Call { .. } => ("response.function_call_arguments.delta", None),
            Block::Redacted(_) => return,
        };
        let mut data = json!({"item_id": id(block, index, label), "output_index": index, "delta": piece});
        if let Some(place) = place {
            data[place] = 0.into();
        }
        self.event(out, name, data);
    }

    fn close(&mut self, label: &Label, out: &mut String) {
        let Some((block, index, id)) = self.last(label) else { return };
        let at = |mut data: Value| {
            data["item_id"] = id.as_str().into();
            data["output_index"] = index.into();
            data
        };
        let events = match &block {
            Block::Text(text) => vec![
                ("response.output_text.done", at(json!({"content_index": 0, "text": text}))),
                ("response.content_part.done", at(json!({"content_index": 0, "part": part(text)}))),
            ],
            Block::Thinking { text, .. } => vec![
                ("response.reasoning_summary_text.done", at(json!({"summary_index": 0, "text": text}))),
                (
                    "response.reasoning_summary_part.done",
                    at(json!({"summary_index": 0, "part": summary(text)})),
                ),
            ],
            Block::Redacted(_) => vec![],
            Block::Call { name, arguments, .. } if label.origins.get(name) == Some(&Origin::Custom) => {
                let input = free_text(arguments);
                vec![
                    ("response.custom_tool_call_input.delta", at(json!({"delta": input}))),
                    ("response.custom_tool_call_input.done", at(json!({"input": input}))),
                ]
            }
            Block::Call { arguments, .. } => {
                vec![("response.function_call_arguments.done", at(json!({"arguments": arguments})))]
            }
        };
        for (name, data) in events {
            self.event(out, name, data);
        }
        let done = item(&block, index, label, "completed");
        self.event(out, "response.output_item.done", json!({"output_index": index, "item": done}));
    }

    fn event(&mut self, out: &mut String, name: &str, mut data: Value) {
        data["type"] = name.into();
        data["sequence_number"] = self.sequence.into();
        self.sequence += 1;
        out.push_str(&format!("event: {name}\ndata: {data}\n\n"));
    }
}
