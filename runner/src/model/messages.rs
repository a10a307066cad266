//! The body of a request on the Anthropic Messages wire. Pure. The gateway puts in the model that the session pins.

use super::{Content, Definition, Message, Role};
use bytes::Bytes;
use checkfu_shared::content::Block;
use serde_json::{Value, json};

/// How many tokens a reply may have.
pub const OUTPUT_TOKENS_MAX: u32 = 16_000;
/// A request may have at most this many bytes; the provider takes no more either.
pub const BODY_BYTES_MAX: usize = 30 << 20;

/// The conversation is too large to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the conversation has {bytes} bytes, and a model request holds at most {BODY_BYTES_MAX}")]
pub struct TooLarge {
    /// Its size.
    pub bytes: usize,
}

/// What stays the same from request to request.
#[derive(Debug, Clone)]
pub struct Frame {
    /// The model's id.
    pub model: String,
    /// The system prompt.
    pub system: Option<String>,
    /// What may be called.
    pub tools: Vec<Definition>,
}

/// The body that asks for the next reply of `messages`, streamed. Prompt caching is asked for up to the system prompt and
/// up to the end of the last message and of the user message before it.
///
/// # Errors
/// [`TooLarge`].
pub fn body(frame: &Frame, messages: &[Message]) -> Result<Bytes, TooLarge> {
    let mut wire: Vec<Value> = messages.iter().map(message).collect();
    let users = messages.iter().enumerate().filter(|(_, message)| message.role == Role::User);
    for (at, _) in users.rev().take(2) {
        cache_up_to(wire.get_mut(at).and_then(|message| message["content"].as_array_mut()));
    }
    let mut tools: Vec<Value> = frame.tools.iter().map(tool).collect();
    let mut body = json!({
        "model": frame.model,
        "max_tokens": OUTPUT_TOKENS_MAX,
        "stream": true,
        "messages": wire,
    });
    let system = frame.system.as_deref().filter(|system| !system.trim().is_empty());
    if let Some(system) = system {
        body["system"] = json!([{"type": "text", "text": system, "cache_control": {"type": "ephemeral"}}]);
    } else {
        cache_up_to(Some(&mut tools));
    }
    if !tools.is_empty() {
        body["tools"] = tools.into();
    }
    let bytes = serde_json::to_vec(&body).unwrap_or_default();
    if bytes.len() > BODY_BYTES_MAX {
        return Err(TooLarge { bytes: bytes.len() });
    }
    Ok(bytes.into())
}

fn cache_up_to(blocks: Option<&mut Vec<Value>>) {
    if let Some(last) = blocks.and_then(|blocks| blocks.last_mut()) {
        last["cache_control"] = json!({"type": "ephemeral"});
    }
}

fn tool(tool: &Definition) -> Value {
    json!({"name": tool.name, "description": tool.description, "input_schema": tool.input_schema})
}

fn message(message: &Message) -> Value {
    let role = match message.role {
        Role::User => "user",
        Role::Assistant => "assistant",
    };
    json!({"role": role, "content": message.content.iter().map(content).collect::<Vec<_>>()})
}

fn content(content: &Content) -> Value {
    match content {
        Content::Block(block) => wire_block(block),
        Content::Call { id, name, input } => {
            json!({"type": "tool_use", "id": id, "name": name, "input": input})
        }
        Content::Result { id, content, is_error } => {
            let content: Vec<Value> = content.iter().map(wire_block).collect();
            let mut result = json!({"type": "tool_result", "tool_use_id": id, "content": content});
            if *is_error {
                result["is_error"] = true.into();
            }
            result
        }
    }
}

fn wire_block(block: &Block) -> Value {
    // The log's blocks are the wire's.
    serde_json::to_value(block).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(role: Role, text: &str) -> Message {
        Message { role, content: vec![Content::Block(Block::text(text))] }
    }

    fn frame(system: Option<&str>) -> Frame {
        let tool = Definition {
            name: "bash".into(),
            description: "runs".into(),
            input_schema: json!({"type": "object"}),
        };
        Frame { model: "m".into(), system: system.map(str::to_owned), tools: vec![tool] }
    }

    #[test]
    fn the_body_is_the_wires_with_few_cache_marks() {
        let messages = [
            said(Role::User, "a"),
            Message {
                role: Role::Assistant,
                content: vec![Content::Call { id: "c".into(), name: "bash".into(), input: json!({"x": 1}) }],
            },
            Message {
                role: Role::User,
                content: vec![Content::Result {
                    id: "c".into(),
                    content: vec![Block::text("r")],
                    is_error: true,
                }],
            },
        ];
        let body: Value = serde_json::from_slice(&body(&frame(Some("s")), &messages).unwrap()).unwrap();
        let cached = json!({"type": "ephemeral"});
        assert_eq!(
            body,
            json!({
                "model": "m", "max_tokens": 16000, "stream": true,
                "system": [{"type": "text", "text": "s", "cache_control": cached}],
                "tools": [{"name": "bash", "description": "runs", "input_schema": {"type": "object"}}],
                "messages": [
                    {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": cached}]},
                    {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "bash", "input": {"x": 1}}]},
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "is_error": true,
                        "content": [{"type": "text", "text": "r"}], "cache_control": cached}]},
                ],
            })
        );
    }

    /// A request without its cache marks, which wander, in the order in which providers read it.
    fn prefix(body: &Bytes) -> Vec<String> {
        fn unmark(value: &mut Value) {
            match value {
                Value::Object(members) => {
                    members.remove("cache_control");
                    members.values_mut().for_each(unmark);
                }
                Value::Array(entries) => entries.iter_mut().for_each(unmark),
                _ => {}
            }
        }
        let mut body: Value = serde_json::from_slice(body).unwrap();
        unmark(&mut body);
        let messages = body["messages"].as_array().unwrap().iter();
        [&body["tools"], &body["system"]].into_iter().chain(messages).map(Value::to_string).collect()
    }

    #[test]
    fn over_the_turns_each_request_starts_with_the_bytes_of_the_one_before() {
        let call = |n: usize| Message {
            role: Role::Assistant,
            content: vec![Content::Call {
                id: format!("c{n}"),
                name: "bash".into(),
                input: json!({"z": n, "a": [n]}),
            }],
        };
        let result = |n: usize| Message {
            role: Role::User,
            content: vec![Content::Result {
                id: format!("c{n}"),
                content: vec![Block::text(format!("result {n}"))],
                is_error: n.is_multiple_of(2),
            }],
        };
        let mut messages = vec![said(Role::User, "go")];
        let mut before = prefix(&body(&frame(Some("s")), &messages).unwrap());
        for turn in 0..20 {
            messages.extend([call(turn), result(turn)]);
            let sent = body(&frame(Some("s")), &messages).unwrap();
            let now = prefix(&sent);
            assert_eq!(now[..before.len()], before, "turn {turn}");
            // Within the provider's limit of four marks, and the mark of the request before is marked again.
            let wire: Value = serde_json::from_slice(&sent).unwrap();
            let marks = wire.to_string().matches("cache_control").count();
            assert_eq!(marks, 3, "turn {turn}");
            let users = wire["messages"].as_array().unwrap().iter().rev().step_by(2).take(2);
            for message in users {
                assert_eq!(message["content"][0]["cache_control"]["type"], "ephemeral", "turn {turn}");
            }
            before = now;
        }
    }

    #[test]
    fn without_a_system_prompt_the_tools_are_cached() {
        for system in [None, Some(" ")] {
            let body: Value =
                serde_json::from_slice(&body(&frame(system), &[said(Role::User, "a")]).unwrap()).unwrap();
            assert!(body.get("system").is_none());
            assert_eq!(body["tools"][0]["cache_control"]["type"], "ephemeral");
        }
    }

    #[test]
    fn a_conversation_too_large_for_a_request_is_refused_with_its_size() {
        let error = body(&frame(None), &[said(Role::User, &"x".repeat(BODY_BYTES_MAX))]).unwrap_err();
        assert!(error.bytes > BODY_BYTES_MAX);
    }
}
