//! Reads a Messages request into a borrowed view of its conversation, refusing what the wire does not allow.
//! Shapes only; the rules that relate blocks to each other live in `rules`.

use std::collections::HashSet;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

/// An answer that is an error of the API: status, its `type`, and the public sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub status: u16,
    pub kind: &'static str,
    pub message: String,
}

impl Refusal {
    /// A 400, the answer to every malformed request.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self { status: 400, kind: "invalid_request_error", message: message.into() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.status, self.kind, self.message)
    }
}

/// Who speaks in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    User,
    Assistant,
}

/// One content block, as far as the rules and the scripts look at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Block<'a> {
    Text(&'a str),
    ToolUse { id: &'a str, name: &'a str },
    ToolResult { id: &'a str, text: String, is_error: bool },
    Thinking { text: &'a str, signature: &'a str },
    Opaque,
}

/// Consecutive messages of one role, merged as the service merges them; `index` is that of the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message<'a> {
    pub index: usize,
    pub role: Role,
    pub blocks: Vec<Block<'a>>,
}

/// The view of one well-shaped request.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    pub model: &'a str,
    pub stream: bool,
    pub tools: HashSet<&'a str>,
    pub messages: Vec<Message<'a>>,
}

const KNOWN_FIELDS: [&str; 19] = [
    "model",
    "max_tokens",
    "messages",
    "system",
    "tools",
    "tool_choice",
    "stream",
    "metadata",
    "temperature",
    "top_p",
    "top_k",
    "stop_sequences",
    "thinking",
    "output_config",
    "context_management",
    "service_tier",
    "container",
    "mcp_servers",
    "cache_control",
];

const MAX_CACHE_BREAKPOINTS: usize = 4;

impl<'a> Request<'a> {
    /// Reads the body, or says which field is wrong in the words of the real API.
    pub fn read(body: &'a Value) -> Result<Self, Refusal> {
        let Some(fields) = body.as_object() else {
            return Err(Refusal::invalid("Input should be a valid dictionary"));
        };
        if let Some(unknown) = fields.keys().find(|key| !KNOWN_FIELDS.contains(&key.as_str())) {
            return Err(Refusal::invalid(format!("{unknown}: Extra inputs are not permitted")));
        }
        let model = text_field(fields, "model")?;
        check_numbers(fields)?;
        let stream = match fields.get("stream") {
            None => false,
            Some(Value::Bool(stream)) => *stream,
            Some(_) => return Err(Refusal::invalid("stream: Input should be a valid boolean")),
        };
        read_system(fields.get("system"))?;
        let tools = read_tools(fields.get("tools"))?;
        let messages = read_messages(fields.get("messages"))?;
        let breakpoints = count_cache_breakpoints(body);
        if breakpoints > MAX_CACHE_BREAKPOINTS {
            return Err(Refusal::invalid(format!(
                "A maximum of 4 blocks with cache_control may be provided. Found {breakpoints}."
            )));
        }
        Ok(Self { model, stream, tools, messages })
    }
}

fn text_field<'a>(fields: &'a Map<String, Value>, name: &str) -> Result<&'a str, Refusal> {
    match fields.get(name) {
        None => Err(Refusal::invalid(format!("{name}: Field required"))),
        Some(Value::String(text)) if text.is_empty() => {
            Err(Refusal::invalid(format!("{name}: String should have at least 1 character")))
        }
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(Refusal::invalid(format!("{name}: Input should be a valid string"))),
    }
}

fn check_numbers(fields: &Map<String, Value>) -> Result<(), Refusal> {
    match fields.get("max_tokens") {
        None => return Err(Refusal::invalid("max_tokens: Field required")),
        Some(value) if value.as_i64().is_none() => {
            return Err(Refusal::invalid("max_tokens: Input should be a valid integer"));
        }
        Some(value) if value.as_i64() < Some(1) => {
            return Err(Refusal::invalid("max_tokens: Input should be greater than or equal to 1"));
        }
        Some(_) => {}
    }
    if let Some(value) = fields.get("temperature") {
        match value.as_f64() {
            Some(degree) if (0.0..=1.0).contains(&degree) => {}
            _ => return Err(Refusal::invalid("temperature: range: 0..1")),
        }
    }
    Ok(())
}

fn read_system(system: Option<&Value>) -> Result<(), Refusal> {
    match system {
        None | Some(Value::String(_)) => Ok(()),
        Some(Value::Array(blocks)) => {
            for (i, block) in blocks.iter().enumerate() {
                if block["type"] != "text" {
                    return Err(Refusal::invalid(format!("system.{i}.type: Input should be 'text'")));
                }
                read_text(block, "system")?;
            }
            Ok(())
        }
        Some(_) => Err(Refusal::invalid("system: Input should be a valid string or a list of text blocks")),
    }
}

fn read_tools(tools: Option<&Value>) -> Result<HashSet<&str>, Refusal> {
    let tools = match tools {
        None => return Ok(HashSet::new()),
        Some(Value::Array(tools)) => tools,
        Some(_) => return Err(Refusal::invalid("tools: Input should be a valid list")),
    };
    let mut names = HashSet::new();
    for (i, tool) in tools.iter().enumerate() {
        let Some(name) = tool["name"].as_str() else {
            return Err(Refusal::invalid(format!("tools.{i}.custom.name: Field required")));
        };
        if !is_identifier(name, 128) {
            return Err(Refusal::invalid(format!(
                "tools.{i}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
            )));
        }
        // A tool of the provider's own is named by a dated type and brings no schema.
        let is_custom = tool.get("type").is_none_or(|kind| kind == "custom");
        if is_custom && tool["input_schema"]["type"] != "object" {
            return Err(Refusal::invalid(format!(
                "tools.{i}.custom.input_schema.type: Input should be 'object'"
            )));
        }
        if !names.insert(name) {
            return Err(Refusal::invalid("tools: Tool names must be unique."));
        }
    }
    Ok(names)
}

fn read_messages(messages: Option<&Value>) -> Result<Vec<Message<'_>>, Refusal> {
    let messages = match messages {
        None => return Err(Refusal::invalid("messages: Field required")),
        Some(Value::Array(messages)) => messages,
        Some(_) => return Err(Refusal::invalid("messages: Input should be a valid list")),
    };
    let mut merged: Vec<Message<'_>> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let role = match message["role"].as_str() {
            Some("user") => Role::User,
            Some("assistant") => Role::Assistant,
            _ => {
                return Err(Refusal::invalid(format!(
                    "messages.{index}.role: Input should be 'user' or 'assistant'"
                )));
            }
        };
        let blocks = read_content(&message["content"], role, index)?;
        match merged.last_mut() {
            Some(last) if last.role == role => last.blocks.extend(blocks),
            _ => merged.push(Message { index, role, blocks }),
        }
    }
    Ok(merged)
}

fn read_content(content: &Value, role: Role, index: usize) -> Result<Vec<Block<'_>>, Refusal> {
    match content {
        Value::String(text) if text.is_empty() => Err(empty_message(index)),
        Value::String(text) if text.trim().is_empty() => Err(blank_text("messages")),
        Value::String(text) => Ok(vec![Block::Text(text)]),
        Value::Array(blocks) if blocks.is_empty() => Err(empty_message(index)),
        Value::Array(blocks) => blocks
            .iter()
            .enumerate()
            .map(|(i, block)| read_block(block, role, &format!("messages.{index}.content.{i}")))
            .collect(),
        _ => {
            Err(Refusal::invalid(format!("messages.{index}.content: Input should be a valid string or list")))
        }
    }
}

fn empty_message(index: usize) -> Refusal {
    Refusal::invalid(format!("messages.{index}: all messages must have non-empty content"))
}

fn blank_text(place: &str) -> Refusal {
    Refusal::invalid(format!("{place}: text content blocks must contain non-whitespace text"))
}

fn read_block<'a>(block: &'a Value, role: Role, place: &str) -> Result<Block<'a>, Refusal> {
    let kind = block["type"].as_str().unwrap_or_default();
    match (role, kind) {
        (_, "text") => Ok(Block::Text(read_text(block, "messages")?)),
        (Role::User, "image") => read_image(block, place).map(|()| Block::Opaque),
        (Role::User, "document" | "search_result") | (Role::Assistant, "redacted_thinking") => {
            Ok(Block::Opaque)
        }
        (Role::User, "tool_result") => read_tool_result(block, place),
        (Role::Assistant, "tool_use") => read_tool_use(block, place),
        (Role::Assistant, "thinking") => match (block["thinking"].as_str(), block["signature"].as_str()) {
            (Some(text), Some(signature)) => Ok(Block::Thinking { text, signature }),
            _ => Err(Refusal::invalid(format!("{place}.thinking.signature: Field required"))),
        },
        (Role::User, _) => Err(Refusal::invalid(format!(
            "{place}: Input tag '{kind}' found using 'type' does not match any of the expected tags: 'document', 'image', 'search_result', 'text', 'tool_result'"
        ))),
        (Role::Assistant, _) => Err(Refusal::invalid(format!(
            "{place}: Input tag '{kind}' found using 'type' does not match any of the expected tags: 'redacted_thinking', 'text', 'thinking', 'tool_use'"
        ))),
    }
}

fn read_text<'a>(block: &'a Value, place: &str) -> Result<&'a str, Refusal> {
    match block["text"].as_str() {
        None => Err(Refusal::invalid(format!("{place}: text: Field required"))),
        Some("") => Err(Refusal::invalid(format!("{place}: text content blocks must be non-empty"))),
        Some(text) if text.trim().is_empty() => Err(blank_text(place)),
        Some(text) => Ok(text),
    }
}

fn read_tool_use<'a>(block: &'a Value, place: &str) -> Result<Block<'a>, Refusal> {
    let (Some(id), Some(name)) = (block["id"].as_str(), block["name"].as_str()) else {
        return Err(Refusal::invalid(format!("{place}.tool_use: id and name: Field required")));
    };
    if !is_identifier(id, 256) {
        return Err(Refusal::invalid(format!(
            "{place}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
        )));
    }
    if !block["input"].is_object() {
        return Err(Refusal::invalid(format!("{place}.tool_use.input: Input should be a valid dictionary")));
    }
    Ok(Block::ToolUse { id, name })
}

fn read_tool_result<'a>(block: &'a Value, place: &str) -> Result<Block<'a>, Refusal> {
    let Some(id) = block["tool_use_id"].as_str() else {
        return Err(Refusal::invalid(format!("{place}.tool_result.tool_use_id: Field required")));
    };
    let text = match &block["content"] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(parts) => read_result_parts(parts, place)?,
        _ => {
            return Err(Refusal::invalid(format!(
                "{place}.tool_result.content: Input should be a valid string or list"
            )));
        }
    };
    let is_error = match block.get("is_error") {
        None => false,
        Some(Value::Bool(is_error)) => *is_error,
        Some(_) => {
            return Err(Refusal::invalid(format!(
                "{place}.tool_result.is_error: Input should be a valid boolean"
            )));
        }
    };
    if is_error && text.is_empty() {
        return Err(Refusal::invalid(format!(
            "{place}.tool_result: content cannot be empty if `is_error` is true"
        )));
    }
    Ok(Block::ToolResult { id, text, is_error })
}

fn read_result_parts(parts: &[Value], place: &str) -> Result<String, Refusal> {
    let mut text = String::new();
    for part in parts {
        match part["type"].as_str() {
            Some("text") => {
                if !text.is_empty() {
                    text.push('\n');
                }
                text.push_str(read_text(part, "messages")?);
            }
            Some("image") => read_image(part, place)?,
            Some("document" | "search_result") => {}
            _ => {
                return Err(Refusal::invalid(format!(
                    "{place}.tool_result.content: Input tag does not match any of the expected tags: 'document', 'image', 'search_result', 'text'"
                )));
            }
        }
    }
    Ok(text)
}

fn read_image(block: &Value, place: &str) -> Result<(), Refusal> {
    const MAX_ENCODED_BYTES: usize = 5 * 1024 * 1024;
    let source = &block["source"];
    if source["type"] != "base64" {
        return Ok(());
    }
    let is_known = matches!(
        source["media_type"].as_str(),
        Some("image/jpeg" | "image/png" | "image/gif" | "image/webp")
    );
    if !is_known {
        return Err(Refusal::invalid(format!(
            "{place}.image.source.base64.media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'"
        )));
    }
    let data = source["data"].as_str().unwrap_or_default();
    if data.len() > MAX_ENCODED_BYTES {
        return Err(Refusal::invalid(format!(
            "{place}.image.source.base64: image exceeds 5 MB maximum: {} bytes > {MAX_ENCODED_BYTES} bytes",
            data.len()
        )));
    }
    if data.is_empty() || STANDARD.decode(data).is_err() {
        return Err(Refusal::invalid(format!("{place}.image.source.base64.data: Invalid base64 data")));
    }
    Ok(())
}

fn is_identifier(text: &str, longest: usize) -> bool {
    !text.is_empty()
        && text.len() <= longest
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

fn count_cache_breakpoints(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(count_cache_breakpoints).sum(),
        Value::Object(fields) => fields
            .iter()
            // What a tool call was given is data, even when it happens to use the word.
            .filter(|(key, _)| *key != "input" && *key != "input_schema")
            .map(|(key, inner)| {
                usize::from(key == "cache_control" && !inner.is_null()) + count_cache_breakpoints(inner)
            })
            .sum(),
        _ => 0,
    }
}
