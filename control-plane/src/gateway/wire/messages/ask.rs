//! Requests of the Messages wire.

use super::{
    super::ask::{
        Ask, Choice, Error, Image, Origin, Part, Role, Target, Tool, items, malformed, object, text, texts,
    },
    FROM_CHAT,
};
use checkfu_shared::agent::Effort;
use serde_json::{Map, Value, json};

/// This wire demands a limit; the others do not. What the largest clients of this wire ask for.
const MAX_TOKENS: u64 = 32_000;

pub(in super::super) fn read(body: &Value) -> Result<Ask, Error> {
    let mut ask = Ask {
        max_tokens: body["max_tokens"].as_u64(),
        temperature: body["temperature"].as_f64(),
        top_p: body["top_p"].as_f64(),
        is_stream: body["stream"].as_bool().unwrap_or(false),
        tools: items(body, "tools")?.iter().map(read_tool).collect::<Result<_, _>>()?,
        choice: read_choice(&body["tool_choice"])?,
        is_parallel: body["tool_choice"]["disable_parallel_tool_use"].as_bool().map(|is_off| !is_off),
        ..Ask::default()
    };
    for sequence in items(body, "stop_sequences")? {
        let sequence = sequence.as_str().ok_or_else(|| malformed("stop_sequences", "a list of texts"))?;
        ask.stop_sequences.push(sequence.to_owned());
    }
    ask.say(Role::System, read_content(&body["system"])?);
    for message in items(body, "messages")? {
        let role = match text(message, "role")? {
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "system" => Role::System,
            _ => return Err(malformed("role", "`user` or `assistant`")),
        };
        ask.say(role, read_content(&message["content"])?);
    }
    Ok(ask)
}

fn read_tool(tool: &Value) -> Result<Tool, Error> {
    match &tool["type"] {
        Value::Null => {}
        Value::String(kind) if kind == "custom" => {}
        kind => return Err(Error::Unsupported(format!("A tool of type {kind}"))),
    }
    Ok(Tool {
        name: text(tool, "name")?.to_owned(),
        description: tool["description"].as_str().map(str::to_owned),
        schema: tool["input_schema"].clone(),
        origin: Origin::Function,
    })
}

fn read_choice(choice: &Value) -> Result<Option<Choice>, Error> {
    Ok(Some(match choice["type"].as_str() {
        None => return Ok(None),
        Some("auto") => Choice::Auto,
        Some("none") => Choice::Never,
        Some("any") => Choice::Any,
        Some("tool") => Choice::Named(text(choice, "name")?.to_owned()),
        Some(_) => return Err(malformed("tool_choice", "`auto`, `any`, `none` or `tool`")),
    }))
}

fn read_content(content: &Value) -> Result<Vec<Part>, Error> {
    match content {
        Value::Null => Ok(Vec::new()),
        Value::String(text) => Ok(vec![Part::Text(text.clone())]),
        Value::Array(blocks) => blocks.iter().map(read_block).collect(),
        _ => Err(malformed("content", "a text or a list of blocks")),
    }
}

fn read_block(block: &Value) -> Result<Part, Error> {
    let owned = |name: &str| text(block, name).map(str::to_owned);
    Ok(match text(block, "type")? {
        "text" => Part::Text(owned("text")?),
        "image" => Part::Image(read_image(&block["source"])?),
        "document" if block["source"]["type"] == "text" => {
            Part::Text(text(&block["source"], "data")?.to_owned())
        }
        "thinking" => Part::Thinking {
            text: owned("thinking")?,
            signature: block["signature"].as_str().unwrap_or_default().to_owned(),
        },
        "redacted_thinking" => Part::Redacted(owned("data")?),
        "tool_use" => {
            Part::Call { id: owned("id")?, name: owned("name")?, arguments: block["input"].to_string() }
        }
        "tool_result" => Part::Result {
            id: owned("tool_use_id")?,
            parts: read_content(&block["content"])?,
            is_error: block["is_error"].as_bool().unwrap_or(false),
        },
        "tool_reference" => Part::Text(format!("The tool {} may be called.", text(block, "tool_name")?)),
        kind => return Err(Error::Unsupported(format!("A content block of type `{kind}`"))),
    })
}

fn read_image(source: &Value) -> Result<Image, Error> {
    if source["type"] != "base64" {
        return Err(Error::Unsupported("An image that is not base64 data in the request".to_owned()));
    }
    Ok(Image { media_type: text(source, "media_type")?.to_owned(), data: text(source, "data")?.to_owned() })
}

pub(in super::super) fn write(ask: &Ask, target: &Target<'_>) -> Value {
    let mut body = Map::new();
    let (system, turns) = ask.split();
    body.insert("model".to_owned(), target.model.into());
    body.insert("max_tokens".to_owned(), ask.max_tokens.unwrap_or(MAX_TOKENS).into());
    body.insert("stream".to_owned(), ask.is_stream.into());
    // The clients of other wires know no breakpoints; without one every turn would be read afresh.
    body.insert("cache_control".to_owned(), json!({"type": "ephemeral"}));
    let system: Vec<String> = system.iter().map(|turn| texts(&turn.parts, "\n\n")).collect();
    if !system.concat().trim().is_empty() {
        body.insert("system".to_owned(), system.join("\n\n").into());
    }
    body.insert("messages".to_owned(), write_turns(turns).into());
    if !ask.tools.is_empty() {
        body.insert("tools".to_owned(), ask.tools.iter().map(write_tool).collect());
        if let Some(choice) = write_choice(ask) {
            body.insert("tool_choice".to_owned(), choice);
        }
    }
    if !ask.stop_sequences.is_empty() {
        body.insert("stop_sequences".to_owned(), ask.stop_sequences.clone().into());
    }
    if let Some(temperature) = ask.temperature {
        body.insert("temperature".to_owned(), temperature.clamp(0.0, 1.0).into());
    } else if let Some(top_p) = ask.top_p {
        body.insert("top_p".to_owned(), top_p.clamp(0.0, 1.0).into());
    }
    if let Some(effort) = target.effort {
        body.insert("output_config".to_owned(), json!({"effort": write_effort(effort)}));
    }
    Value::Object(body)
}

/// The scale of this wire has nothing below `low`.
pub(in super::super) const fn write_effort(effort: Effort) -> &'static str {
    match effort {
        Effort::Minimal | Effort::Low => "low",
        Effort::Medium => "medium",
        Effort::High => "high",
        Effort::Max => "max",
    }
}

fn write_tool(tool: &Tool) -> Value {
    let mut written = json!({"name": tool.name, "input_schema": tool.schema});
    if !tool.schema.is_object() {
        written["input_schema"] = json!({});
    }
    if tool.schema["type"] != "object" {
        written["input_schema"]["type"] = "object".into();
    }
    if let Some(description) = &tool.description {
        written["description"] = description.as_str().into();
    }
    written
}

fn write_choice(ask: &Ask) -> Option<Value> {
    let mut choice = match &ask.choice {
        None if ask.is_parallel.is_none() => return None,
        None | Some(Choice::Auto) => json!({"type": "auto"}),
        Some(Choice::Never) => return Some(json!({"type": "none"})),
        Some(Choice::Any) => json!({"type": "any"}),
        Some(Choice::Named(name)) => json!({"type": "tool", "name": name}),
    };
    if let Some(is_parallel) = ask.is_parallel {
        choice["disable_parallel_tool_use"] = (!is_parallel).into();
    }
    Some(choice)
}

fn write_turns(turns: &[super::super::ask::Turn]) -> Vec<Value> {
    let mut messages: Vec<(&str, Vec<Value>)> = Vec::new();
    for turn in turns {
        // Instructions in the middle of a conversation have no place of their own here.
        let role = if turn.role == Role::Assistant { "assistant" } else { "user" };
        let blocks: Vec<Value> = turn.parts.iter().filter_map(write_part).collect();
        match messages.last_mut() {
            Some((last, held)) if *last == role => held.extend(blocks),
            _ if blocks.is_empty() => {}
            _ => messages.push((role, blocks)),
        }
    }
    let written = messages.into_iter().map(|(role, mut blocks)| {
        // Results come first in their message; the sort is stable.
        blocks.sort_by_key(|block| block["type"] != "tool_result");
        json!({"role": role, "content": blocks})
    });
    written.collect()
}

fn write_part(part: &Part) -> Option<Value> {
    Some(match part {
        // This wire refuses empty texts.
        Part::Text(text) if text.trim().is_empty() => return None,
        Part::Text(text) => json!({"type": "text", "text": text}),
        Part::Image(Image { media_type, data }) => {
            json!({"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}})
        }
        Part::Thinking { signature, .. } if signature.is_empty() || signature.starts_with(FROM_CHAT) => {
            return None;
        }
        Part::Thinking { text, signature } => {
            json!({"type": "thinking", "thinking": text, "signature": signature})
        }
        Part::Redacted(data) => json!({"type": "redacted_thinking", "data": data}),
        Part::Call { id, name, arguments } => {
            json!({"type": "tool_use", "id": write_id(id), "name": name, "input": object(arguments)})
        }
        Part::Result { id, parts, is_error } => {
            let mut result = json!({"type": "tool_result", "tool_use_id": write_id(id)});
            let content: Vec<Value> = parts.iter().filter_map(write_part).collect();
            if !content.is_empty() {
                result["content"] = content.into();
            }
            // An error must say something here.
            if *is_error && result.get("content").is_some() {
                result["is_error"] = true.into();
            }
            result
        }
    })
}

/// This wire takes letters, digits, `_` and `-` in the ids of calls; some providers use more.
fn write_id(id: &str) -> String {
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
    let written: String = id.chars().map(|letter| if allowed(letter) { letter } else { '_' }).collect();
    if written.is_empty() { "_".to_owned() } else { written }
}
