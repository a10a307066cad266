//! Builds a reply from the events of the Anthropic Messages stream. Pure: data in, previews and a whole reply out.
//! Without `message_stop` and a stop reason there is no reply, whatever came before.

use super::{Failure, Part, Preview, Reply, Stop, failure};
use checkfu_shared::event::ModelUsage;
use serde::Deserialize;
use serde_json::Value;

/// All content of one reply may have at most this many bytes.
const REPLY_BYTES_MAX: usize = 16 << 20;

/// A reply under construction.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    blocks: Vec<Building>,
    stop: Option<String>,
    is_over: bool,
    bytes: usize,
    usage: ModelUsage,
}

#[derive(Debug)]
enum Building {
    Text(String),
    Call { name: String, json: String, is_closed: bool },
    Thinking,
    Other,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Frame {
    ContentBlockStart {
        index: usize,
        content_block: Opened,
    },
    ContentBlockDelta {
        index: usize,
        delta: Delta,
    },
    ContentBlockStop {
        index: usize,
    },
    MessageStart {
        #[serde(default)]
        message: Started,
    },
    MessageDelta {
        delta: MessageDelta,
        #[serde(default)]
        usage: Counted,
    },
    MessageStop {},
    Error {
        error: Value,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Opened {
    Text {
        #[serde(default)]
        text: String,
    },
    ToolUse {
        name: String,
    },
    Thinking {},
    RedactedThinking {},
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Delta {
    #[serde(rename = "text_delta")]
    Text { text: String },
    #[serde(rename = "input_json_delta")]
    Arguments { partial_json: String },
    #[serde(other)]
    Other,
}

#[derive(Default, Deserialize)]
struct Started {
    #[serde(default)]
    usage: Counted,
}

/// The provider's counts so far; each may be absent or null.
#[derive(Default, Deserialize)]
struct Counted {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct MessageDelta {
    #[serde(default)]
    stop_reason: Option<String>,
}

impl Assembly {
    /// Takes the data of one event; what became visible goes to `seen`.
    ///
    /// # Errors
    /// [`Failure`] when the provider reports an error or the stream makes no sense.
    pub(super) fn take(&mut self, data: &str, seen: &mut (dyn FnMut(Preview) + Send)) -> Result<(), Failure> {
        let frame: Frame = serde_json::from_str(data)
            .map_err(|_| failure::broken("the stream holds something unreadable"))?;
        match frame {
            Frame::ContentBlockStart { index, content_block } => {
                if index != self.blocks.len() {
                    return Err(failure::broken("the stream skips a content block"));
                }
                self.open(index, content_block, seen);
                Ok(())
            }
            Frame::ContentBlockDelta { index, delta } => self.grow(index, delta, seen),
            Frame::ContentBlockStop { index } => {
                if let Some(Building::Call { is_closed, .. }) = self.blocks.get_mut(index) {
                    *is_closed = true;
                }
                Ok(())
            }
            Frame::MessageStart { message } => {
                self.count(&message.usage);
                Ok(())
            }
            Frame::MessageDelta { delta, usage } => {
                self.count(&usage);
                self.stop = delta.stop_reason.or_else(|| self.stop.take());
                Ok(())
            }
            Frame::MessageStop {} => {
                self.is_over = true;
                Ok(())
            }
            Frame::Error { error } => Err(failure::of_stream(&error)),
            Frame::Other => Ok(()),
        }
    }

    /// Counts only grow, so the largest is the latest.
    fn count(&mut self, counted: &Counted) {
        let usage = &mut self.usage;
        for (held, new) in [
            (&mut usage.input_tokens, counted.input_tokens),
            (&mut usage.output_tokens, counted.output_tokens),
            (&mut usage.cache_creation_input_tokens, counted.cache_creation_input_tokens),
            (&mut usage.cache_read_input_tokens, counted.cache_read_input_tokens),
        ] {
            *held = (*held).max(new.unwrap_or(0));
        }
    }

    fn open(&mut self, index: usize, opened: Opened, seen: &mut (dyn FnMut(Preview) + Send)) {
        self.blocks.push(match opened {
            Opened::Text { text } => {
                if !text.is_empty() {
                    seen(Preview::Text { block: index, offset: 0, text: text.clone() });
                }
                Building::Text(text)
            }
            Opened::ToolUse { name } => Building::Call { name, json: String::new(), is_closed: false },
            Opened::Thinking {} | Opened::RedactedThinking {} => Building::Thinking,
            Opened::Other => Building::Other,
        });
    }

    fn grow(
        &mut self,
        index: usize,
        delta: Delta,
        seen: &mut (dyn FnMut(Preview) + Send),
    ) -> Result<(), Failure> {
        let block = self
            .blocks
            .get_mut(index)
            .ok_or_else(|| failure::broken("the stream adds to no content block"))?;
        match (block, delta) {
            (Building::Text(whole), Delta::Text { text }) => {
                self.bytes += text.len();
                let offset = whole.len() as u64;
                whole.push_str(&text);
                if !text.is_empty() {
                    seen(Preview::Text { block: index, offset, text });
                }
            }
            (Building::Call { json, .. }, Delta::Arguments { partial_json }) => {
                self.bytes += partial_json.len();
                json.push_str(&partial_json);
            }
            _ => {}
        }
        if self.bytes > REPLY_BYTES_MAX {
            return Err(failure::broken("the reply is longer than any reply may be"));
        }
        Ok(())
    }

    /// Whether the last event has come.
    pub(super) const fn is_over(&self) -> bool {
        self.is_over
    }

    /// The whole reply.
    ///
    /// # Errors
    /// [`Failure`] when the stream ended before its last event.
    pub(super) fn finish(self, request_id: Option<String>) -> Result<Reply, Failure> {
        let stop = self.stop.filter(|_| self.is_over);
        let Some(stop) = stop else {
            return Err(failure::broken("the stream was cut before the reply was whole"));
        };
        let stop = match stop.as_str() {
            "max_tokens" => Stop::OutputLimit,
            "model_context_window_exceeded" => Stop::ContextLimit,
            "refusal" => Stop::Refusal,
            _ => Stop::Done,
        };
        let last = self.blocks.len().saturating_sub(1);
        let parts = self.blocks.into_iter().enumerate().filter_map(|(block, built)| match built {
            Building::Text(text) => (!text.trim().is_empty()).then_some(Part::Text { block, text }),
            // At the output limit the last block is cut even when its JSON happens to be whole.
            Building::Call { name, json, is_closed } => {
                Some(call(name, &json, is_closed && !(stop == Stop::OutputLimit && block == last)))
            }
            Building::Thinking => Some(Part::Thinking),
            Building::Other => None,
        });
        Ok(Reply { parts: parts.collect(), stop, request_id, usage: self.usage })
    }
}

fn call(name: String, json: &str, is_whole: bool) -> Part {
    let input = if json.trim().is_empty() {
        Some(Value::Object(serde_json::Map::new()))
    } else {
        serde_json::from_str(json).ok().filter(Value::is_object)
    };
    match input {
        Some(input) if is_whole => Part::Call { name, input },
        _ => Part::Broken { name },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn assemble(frames: &[Value]) -> (Result<Reply, Failure>, Vec<Preview>) {
        let (mut assembly, mut previews) = (Assembly::default(), Vec::new());
        for frame in frames {
            if let Err(failure) = assembly.take(&frame.to_string(), &mut |preview| previews.push(preview)) {
                return (Err(failure), previews);
            }
        }
        (assembly.finish(Some("mreq".into())), previews)
    }

    fn start(index: usize, block: Value) -> Value {
        json!({"type": "content_block_start", "index": index, "content_block": block})
    }

    fn text(index: usize, text: &str) -> Value {
        json!({"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": text}})
    }

    fn arguments(index: usize, json: &str) -> Value {
        json!({"type": "content_block_delta", "index": index, "delta": {"type": "input_json_delta", "partial_json": json}})
    }

    fn stop(index: usize) -> Value {
        json!({"type": "content_block_stop", "index": index})
    }

    fn end(reason: &str) -> [Value; 2] {
        [
            json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 3}}),
            json!({"type": "message_stop"}),
        ]
    }

    fn reply() -> Vec<Value> {
        vec![
            json!({"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 9, "output_tokens": 1, "cache_read_input_tokens": null}}}),
            json!({"type": "ping"}),
            start(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
            stop(0),
            start(1, json!({"type": "text", "text": ""})),
            text(1, "grü"),
            text(1, "ße"),
            stop(1),
            start(2, json!({"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {}})),
            arguments(2, ""),
            arguments(2, "{\"command\":"),
            arguments(2, "\"ls\"}"),
            stop(2),
            start(3, json!({"type": "tool_use", "id": "toolu_2", "name": "look", "input": {}})),
            stop(3),
        ]
    }

    #[test]
    fn a_reply_is_put_together_in_order_with_previews_on_the_way() {
        let (got, previews) = assemble(&[reply(), end("tool_use").to_vec()].concat());
        assert_eq!(
            got.unwrap(),
            Reply {
                parts: vec![
                    Part::Thinking,
                    Part::Text { block: 1, text: "grüße".into() },
                    Part::Call { name: "bash".into(), input: json!({"command": "ls"}) },
                    Part::Call { name: "look".into(), input: json!({}) },
                ],
                stop: Stop::Done,
                request_id: Some("mreq".into()),
                usage: ModelUsage { input_tokens: 9, output_tokens: 3, ..ModelUsage::default() },
            }
        );
        assert_eq!(
            previews,
            [
                Preview::Text { block: 1, offset: 0, text: "grü".into() },
                Preview::Text { block: 1, offset: 4, text: "ße".into() },
            ]
        );
    }

    #[test]
    fn a_stream_cut_anywhere_gives_no_reply() {
        let whole = [reply(), end("tool_use").to_vec()].concat();
        for cut in 0..whole.len() {
            assert!(assemble(&whole[..cut]).0.is_err(), "cut after {cut}");
        }
    }

    #[test]
    fn the_call_that_the_output_limit_cut_is_broken() {
        for json in ["{\"command\":\"rm -rf /tmp/", "{\"command\":\"ls\"}", ""] {
            let mut frames = reply();
            frames.extend([
                start(4, json!({"type": "tool_use", "id": "t", "name": "write", "input": {}})),
                arguments(4, json),
                stop(4),
            ]);
            frames.extend(end("max_tokens"));
            let reply = assemble(&frames).0.unwrap();
            assert_eq!(reply.stop, Stop::OutputLimit);
            assert_eq!(reply.parts.last(), Some(&Part::Broken { name: "write".into() }));
            assert_eq!(reply.parts.iter().filter(|part| matches!(part, Part::Call { .. })).count(), 2);
        }
    }

    #[test]
    fn an_error_replaces_the_rest_of_the_stream() {
        let error = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
        let failure = assemble(&[reply(), vec![error]].concat()).0.unwrap_err();
        assert!(matches!(failure, Failure::Retry { .. }), "{failure:?}");
    }
}
