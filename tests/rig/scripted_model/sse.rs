//! Turns an assistant message into the frames of the streamed Messages wire, in the order the real service sends them.
//! Pure; timing and faults are laid over the frames by `playback`.

use serde_json::{Value, json};

/// One server-sent event. Those of the Chat wire have no name on the wire; theirs says what they are: `chunk`, `delta`, or
/// `end`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Frame {
    pub(super) name: &'static str,
    pub(super) data: Value,
}

impl Frame {
    fn new(name: &'static str, mut data: Value) -> Self {
        data["type"] = json!(name);
        Self { name, data }
    }

    /// The `error` event that may replace the rest of a stream.
    pub(super) fn error(kind: &str, message: &str) -> Self {
        Self::new("error", json!({"error": {"type": kind, "message": message}}))
    }

    /// Whether this frame carries a piece of content.
    pub(super) fn is_delta(&self) -> bool {
        matches!(self.name, "content_block_delta" | "delta")
    }

    /// Whether this frame belongs to the end of the reply.
    pub(super) fn is_end(&self) -> bool {
        matches!(self.name, "message_delta" | "message_stop" | "end")
    }

    /// The bytes on the wire.
    pub(super) fn encode(&self) -> String {
        match (self.name, self.data.as_str()) {
            (_, Some(words)) => format!("data: {words}\n\n"),
            ("chunk" | "delta" | "end", None) => format!("data: {}\n\n", self.data),
            (name, None) => format!("event: {name}\ndata: {}\n\n", self.data),
        }
    }
}

const TEXT_PIECE_CHARS: usize = 24;
const JSON_PIECE_CHARS: usize = 32;

/// All frames of a finished message object.
pub(super) fn frames(message: &Value) -> Vec<Frame> {
    let mut frames = vec![start(message), Frame::new("ping", json!({}))];
    for (index, block) in message["content"].as_array().into_iter().flatten().enumerate() {
        frames.extend(block_frames(index, block));
    }
    frames.push(Frame::new(
        "message_delta",
        json!({
            "delta": {"stop_reason": message["stop_reason"], "stop_sequence": null},
            "usage": message["usage"],
        }),
    ));
    frames.push(Frame::new("message_stop", json!({})));
    frames
}

fn start(message: &Value) -> Frame {
    let mut opened = message.clone();
    opened["content"] = json!([]);
    opened["stop_reason"] = Value::Null;
    opened["usage"]["output_tokens"] = json!(1);
    Frame::new("message_start", json!({ "message": opened }))
}

fn block_frames(index: usize, block: &Value) -> Vec<Frame> {
    let mut opened = block.clone();
    let mut deltas = Vec::new();
    let text_of = |field: &str| block[field].as_str().unwrap_or_default();
    match block["type"].as_str() {
        Some("text") => {
            opened["text"] = json!("");
            deltas.extend(
                pieces(text_of("text"), TEXT_PIECE_CHARS)
                    .map(|text| json!({"type": "text_delta", "text": text})),
            );
        }
        Some("thinking") => {
            opened["thinking"] = json!("");
            opened["signature"] = json!("");
            deltas.extend(
                pieces(text_of("thinking"), TEXT_PIECE_CHARS)
                    .map(|text| json!({"type": "thinking_delta", "thinking": text})),
            );
            deltas.push(json!({"type": "signature_delta", "signature": text_of("signature")}));
        }
        _ => {
            opened["input"] = json!({});
            // The real service opens with an empty piece, and sends nothing else for an empty input.
            deltas.push(json!({"type": "input_json_delta", "partial_json": ""}));
            if block["input"] != json!({}) {
                let input = block["input"].to_string();
                deltas.extend(
                    pieces(&input, JSON_PIECE_CHARS)
                        .map(|piece| json!({"type": "input_json_delta", "partial_json": piece})),
                );
            }
        }
    }
    let mut frames =
        vec![Frame::new("content_block_start", json!({"index": index, "content_block": opened}))];
    frames.extend(
        deltas
            .into_iter()
            .map(|delta| Frame::new("content_block_delta", json!({"index": index, "delta": delta}))),
    );
    frames.push(Frame::new("content_block_stop", json!({ "index": index })));
    frames
}

pub(super) fn pieces(text: &str, chars: usize) -> impl Iterator<Item = String> {
    let letters: Vec<char> = text.chars().collect();
    let cut: Vec<String> = letters.chunks(chars).map(|piece| piece.iter().collect()).collect();
    cut.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(content: Value) -> Value {
        json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content,
            "stop_reason": "tool_use", "stop_sequence": null, "usage": {"input_tokens": 7, "output_tokens": 9},
        })
    }

    fn names(frames: &[Frame]) -> Vec<&'static str> {
        frames.iter().map(|frame| frame.name).collect()
    }

    #[test]
    fn frames_come_in_the_order_of_the_real_service() {
        let frames = frames(&message(json!([{"type": "text", "text": "short"}])));
        assert_eq!(
            names(&frames),
            [
                "message_start",
                "ping",
                "content_block_start",
                "content_block_delta",
                "content_block_stop",
                "message_delta",
                "message_stop"
            ]
        );
        assert_eq!(frames[0].data["message"]["content"], json!([]));
        assert_eq!(frames[0].data["message"]["stop_reason"], Value::Null);
        assert_eq!(frames[0].data["message"]["usage"], json!({"input_tokens": 7, "output_tokens": 1}));
        assert_eq!(frames[5].data["delta"]["stop_reason"], "tool_use");
        assert_eq!(frames[5].data["usage"]["output_tokens"], 9);
    }

    #[test]
    fn deltas_join_to_the_whole_content_and_never_split_a_character() {
        let text = "Grüße aus dem Sandkasten, häufig und ausführlich 🦀🦀🦀, und noch ein Stück dazu.";
        let input = json!({"command": "printf 'ä%.0s' {1..40}; echo 🦀", "n": 1});
        let content = json!([
            {"type": "thinking", "thinking": text, "signature": "sig"},
            {"type": "text", "text": text},
            {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": input},
        ]);
        let frames = frames(&message(content));
        let join = |index: usize, field: &str| -> String {
            frames
                .iter()
                .filter(|frame| frame.is_delta() && frame.data["index"] == index)
                .filter_map(|frame| frame.data["delta"][field].as_str())
                .collect()
        };
        assert_eq!(join(0, "thinking"), text);
        assert_eq!(join(0, "signature"), "sig");
        assert_eq!(join(1, "text"), text);
        assert_eq!(serde_json::from_str::<Value>(&join(2, "partial_json")).unwrap(), input);
        assert!(frames.iter().filter(|frame| frame.is_delta()).count() > 8);
    }

    #[test]
    fn an_empty_input_is_one_empty_piece() {
        let content = json!([{"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {}}]);
        let frames = frames(&message(content));
        let deltas: Vec<&Frame> = frames.iter().filter(|frame| frame.is_delta()).collect();
        assert_eq!(deltas.len(), 1);
        assert_eq!(deltas[0].data["delta"], json!({"type": "input_json_delta", "partial_json": ""}));
    }

    #[test]
    fn an_encoded_frame_is_two_lines_and_a_blank_one() {
        let frame = Frame::error("overloaded_error", "Overloaded\nnow");
        let text = frame.encode();
        assert!(text.starts_with("event: error\ndata: {"));
        assert!(text.ends_with("}\n\n"));
        assert_eq!(text.lines().count(), 3);
    }
}
