//! The scripted model's second wire: OpenAI Chat Completions, as strict as the real service.
//! It reads a conversation into the same view that the scripts know and writes the same replies in this wire's form; it
//! decides nothing itself.

pub(super) mod frames;
#[cfg(test)]
mod tests;

use super::request::{Block, Message, Refusal, Request, Role};
use serde_json::{Value, json};
use std::collections::HashSet;

const KNOWN_FIELDS: [&str; 22] = [
    "model",
    "messages",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "stream",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "stop",
    "temperature",
    "top_p",
    "n",
    "seed",
    "user",
    "store",
    "metadata",
    "reasoning_effort",
    "response_format",
    "prompt_cache_key",
    "presence_penalty",
    "frequency_penalty",
];

/// What of a request only this wire has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wishes {
    /// The stream ends with its usage.
    pub(super) wants_usage: bool,
}

/// Reads the body, or refuses it in the words of the real service. The rules between calls and their results are checked
/// here, because this wire has its own.
pub(super) fn read(body: &Value) -> Result<(Request<'_>, Wishes), Refusal> {
    let Some(fields) = body.as_object() else {
        return Err(Refusal::invalid("We could not parse the JSON body of your request."));
    };
    if let Some(unknown) = fields.keys().find(|key| !KNOWN_FIELDS.contains(&key.as_str())) {
        return Err(Refusal::invalid(format!("Unrecognized request argument supplied: {unknown}")));
    }
    let Some(model) = body["model"].as_str().filter(|model| !model.is_empty()) else {
        return Err(Refusal::invalid("you must provide a model parameter"));
    };
    for name in ["max_tokens", "max_completion_tokens"] {
        if fields.get(name).is_some_and(|value| value.as_u64().unwrap_or(0) == 0) {
            return Err(Refusal::invalid(format!("Invalid '{name}': integer below minimum value.")));
        }
    }
    let stream = body["stream"].as_bool().unwrap_or(false);
    if !stream && fields.contains_key("stream_options") {
        return Err(Refusal::invalid(
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
        ));
    }
    let tools = read_tools(&body["tools"])?;
    let messages = read_messages(&body["messages"], &tools)?;
    let wishes = Wishes { wants_usage: body["stream_options"]["include_usage"].as_bool().unwrap_or(false) };
    Ok((Request { model, stream, tools, messages }, wishes))
}

fn read_tools(tools: &Value) -> Result<HashSet<&str>, Refusal> {
    let tools = match tools {
        Value::Null => return Ok(HashSet::new()),
        Value::Array(tools) if tools.is_empty() => return Err(Refusal::invalid("[] is too short - 'tools'")),
        Value::Array(tools) => tools,
        _ => return Err(Refusal::invalid("Invalid type for 'tools': expected an array.")),
    };
    let mut names = HashSet::new();
    for (i, tool) in tools.iter().enumerate() {
        let function = &tool["function"];
        let name = function["name"].as_str().unwrap_or_default();
        let is_name = !name.is_empty()
            && name.len() <= 64
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
        if tool["type"] != "function" || !is_name {
            return Err(Refusal::invalid(format!("Invalid 'tools[{i}].function.name'.")));
        }
        if !function["parameters"].is_null() && function["parameters"]["type"] != "object" {
            return Err(Refusal::invalid(format!(
                "Invalid schema for function '{name}': schema must be of type 'object'."
            )));
        }
        if !names.insert(name) {
            return Err(Refusal::invalid(format!("Duplicate tool '{name}'.")));
        }
    }
    Ok(names)
}

fn read_messages<'a>(messages: &'a Value, tools: &HashSet<&str>) -> Result<Vec<Message<'a>>, Refusal> {
    let Some(messages) = messages.as_array().filter(|messages| !messages.is_empty()) else {
        return Err(Refusal::invalid("[] is too short - 'messages'"));
    };
    let mut merged: Vec<Message<'a>> = Vec::new();
    let mut waiting: Vec<&str> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        if role != "tool" && !waiting.is_empty() {
            return Err(unanswered(&waiting));
        }
        let (role, blocks) = match role {
            "system" | "developer" => {
                read_content(&message["content"], index)?;
                continue;
            }
            "user" => (Role::User, read_content(&message["content"], index)?),
            "tool" => (Role::User, vec![read_result(message, index, &mut waiting)?]),
            "assistant" => (Role::Assistant, read_assistant(message, index, tools, &mut waiting)?),
            role => {
                return Err(Refusal::invalid(format!(
                    "Invalid value: '{role}'. Supported values are: 'system', 'assistant', 'user', 'tool' and 'developer'."
                )));
            }
        };
        match merged.last_mut() {
            Some(last) if last.role == role => last.blocks.extend(blocks),
            _ => merged.push(Message { index, role, blocks }),
        }
    }
    if waiting.is_empty() { Ok(merged) } else { Err(unanswered(&waiting)) }
}

fn unanswered(waiting: &[&str]) -> Refusal {
    Refusal::invalid(format!(
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: {}",
        waiting.join(", ")
    ))
}

fn read_result<'a>(message: &'a Value, index: usize, waiting: &mut Vec<&str>) -> Result<Block<'a>, Refusal> {
    let id = message["tool_call_id"].as_str().unwrap_or_default();
    let Some(at) = waiting.iter().position(|waits| *waits == id) else {
        return Err(Refusal::invalid(format!(
            "Invalid parameter: messages[{index}] with role 'tool' must be a response to a preceding message with 'tool_calls' ('{id}' is not waited for)."
        )));
    };
    waiting.remove(at);
    let text = match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) if parts.iter().all(|part| part["type"] == "text") => {
            parts.iter().filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n")
        }
        _ => return Err(Refusal::invalid(format!("Invalid 'messages[{index}].content': expected text."))),
    };
    Ok(Block::ToolResult { id, text, is_error: false })
}

fn read_assistant<'a>(
    message: &'a Value,
    index: usize,
    tools: &HashSet<&str>,
    waiting: &mut Vec<&'a str>,
) -> Result<Vec<Block<'a>>, Refusal> {
    let calls = match &message["tool_calls"] {
        Value::Null => &[][..],
        Value::Array(calls) if !calls.is_empty() => calls,
        _ => {
            return Err(Refusal::invalid(format!("Invalid 'messages[{index}].tool_calls': empty array.")));
        }
    };
    if message["content"].is_null() && calls.is_empty() {
        return Err(Refusal::invalid(format!(
            "Invalid value for 'messages[{index}].content': expected a string, got null."
        )));
    }
    let mut blocks = match &message["content"] {
        Value::Null => Vec::new(),
        content => read_content(content, index)?,
    };
    for (i, call) in calls.iter().enumerate() {
        let place = format!("messages[{index}].tool_calls[{i}]");
        let function = &call["function"];
        let (Some(id), Some(name)) = (call["id"].as_str(), function["name"].as_str()) else {
            return Err(Refusal::invalid(format!("Missing required parameter: '{place}.id'.")));
        };
        let arguments = function["arguments"].as_str().unwrap_or_default();
        if call["type"] != "function" || serde_json::from_str::<Value>(arguments).is_err() {
            return Err(Refusal::invalid(format!("Invalid '{place}.function.arguments'.")));
        }
        if !tools.contains(name) {
            return Err(Refusal::invalid(format!("{place}: the tool '{name}' is not among 'tools'.")));
        }
        if waiting.contains(&id) {
            return Err(Refusal::invalid(format!("Duplicate value for 'tool_call_id' of '{id}'.")));
        }
        waiting.push(id);
        blocks.push(Block::ToolUse { id, name });
    }
    Ok(blocks)
}

fn read_content(content: &Value, index: usize) -> Result<Vec<Block<'_>>, Refusal> {
    match content {
        Value::String(text) => Ok(vec![Block::Text(text)]),
        Value::Array(parts) if !parts.is_empty() => parts.iter().map(|part| read_part(part, index)).collect(),
        _ => Err(Refusal::invalid(format!(
            "Invalid type for 'messages[{index}].content': expected a text or a list of parts."
        ))),
    }
}

fn read_part(part: &Value, index: usize) -> Result<Block<'_>, Refusal> {
    let url = part["image_url"]["url"].as_str().unwrap_or_default();
    match (part["type"].as_str().unwrap_or_default(), part["text"].as_str()) {
        ("text", Some(text)) => Ok(Block::Text(text)),
        ("image_url", _) if url.starts_with("data:image/") && url.contains(";base64,") => Ok(Block::Opaque),
        (kind, _) => Err(Refusal::invalid(format!(
            "Invalid value: '{kind}' in messages[{index}].content. Supported values are: 'text' and 'image_url'."
        ))),
    }
}

/// The body of an error reply.
pub(super) fn error(status: u16, kind: &str, message: &str) -> Value {
    let (kind, code) = match status {
        401 => ("invalid_request_error", Some("invalid_api_key")),
        429 => ("requests", Some("rate_limit_exceeded")),
        500.. => ("server_error", None),
        _ if message.starts_with("prompt is too long") => {
            ("invalid_request_error", Some("context_length_exceeded"))
        }
        _ => (kind, None),
    };
    json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
}
