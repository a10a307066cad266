//! Requests of the Chat wire.

use super::{
    super::ask::{
        Ask, Choice, Error, Image, Origin, Part, Role, Target, Tool, Turn, items, malformed, text, texts,
    },
    member_of, signature, thought,
};
use checkfu_shared::agent::Effort;
use serde_json::{Map, Value, json};

pub(in super::super) fn read(body: &Value) -> Result<Ask, Error> {
    if body["n"].as_u64().is_some_and(|count| count != 1) {
        return Err(Error::Unsupported("More than one choice (`n`)".to_owned()));
    }
    if !matches!(body["response_format"]["type"].as_str(), None | Some("text")) {
        return Err(Error::Unsupported("A `response_format` other than text".to_owned()));
    }
    let mut ask = Ask {
        max_tokens: body["max_completion_tokens"].as_u64().or_else(|| body["max_tokens"].as_u64()),
        temperature: body["temperature"].as_f64(),
        top_p: body["top_p"].as_f64(),
        is_stream: body["stream"].as_bool().unwrap_or(false),
        wants_usage: body["stream_options"]["include_usage"].as_bool().unwrap_or(false),
        tools: items(body, "tools")?.iter().map(read_tool).collect::<Result<_, _>>()?,
        choice: read_choice(&body["tool_choice"])?,
        is_parallel: body["parallel_tool_calls"].as_bool(),
        stop_sequences: read_stops(&body["stop"])?,
        ..Ask::default()
    };
    for message in items(body, "messages")? {
        read_message(message, &mut ask)?;
    }
    Ok(ask)
}

fn read_stops(stop: &Value) -> Result<Vec<String>, Error> {
    let owned = |value: &Value| value.as_str().map(str::to_owned);
    match stop {
        Value::Null => Some(Vec::new()),
        Value::Array(stops) => stops.iter().map(owned).collect(),
        stop => owned(stop).map(|stop| vec![stop]),
    }
    .ok_or_else(|| malformed("stop", "a text or a list of texts"))
}

fn read_tool(tool: &Value) -> Result<Tool, Error> {
    if tool["type"] != "function" {
        return Err(Error::Unsupported(format!("A tool of type {}", tool["type"])));
    }
    let function = &tool["function"];
    Ok(Tool {
        name: text(function, "name")?.to_owned(),
        description: function["description"].as_str().map(str::to_owned),
        schema: function["parameters"].clone(),
        origin: Origin::Function,
    })
}

fn read_choice(choice: &Value) -> Result<Option<Choice>, Error> {
    Ok(Some(match choice {
        Value::Null => return Ok(None),
        Value::String(word) if word == "auto" => Choice::Auto,
        Value::String(word) if word == "none" => Choice::Never,
        Value::String(word) if word == "required" => Choice::Any,
        Value::Object(_) => Choice::Named(text(&choice["function"], "name")?.to_owned()),
        _ => return Err(malformed("tool_choice", "`auto`, `none`, `required` or a function")),
    }))
}

fn read_message(message: &Value, ask: &mut Ask) -> Result<(), Error> {
    let content = || read_content(&message["content"]);
    match text(message, "role")? {
        "system" | "developer" => ask.say(Role::System, content()?),
        "user" => ask.say(Role::User, content()?),
        "tool" => {
            let id = text(message, "tool_call_id")?.to_owned();
            ask.say(Role::User, vec![Part::Result { id, parts: content()?, is_error: false }]);
        }
        "assistant" => {
            let mut parts = Vec::new();
            if let Some((member, text)) = thought(message) {
                parts.push(Part::Thinking { text: text.to_owned(), signature: signature(member) });
            }
            parts.extend(content()?);
            for call in items(message, "tool_calls")? {
                let function = &call["function"];
                parts.push(Part::Call {
                    id: text(call, "id")?.to_owned(),
                    name: text(function, "name")?.to_owned(),
                    arguments: text(function, "arguments")?.to_owned(),
                });
            }
            ask.say(Role::Assistant, parts);
        }
        _ => return Err(malformed("role", "`system`, `developer`, `user`, `assistant` or `tool`")),
    }
    Ok(())
}

fn read_content(content: &Value) -> Result<Vec<Part>, Error> {
    match content {
        Value::Null => Ok(Vec::new()),
        Value::String(text) if text.is_empty() => Ok(Vec::new()),
        Value::String(text) => Ok(vec![Part::Text(text.clone())]),
        Value::Array(parts) => parts.iter().map(read_part).collect(),
        _ => Err(malformed("content", "a text or a list of parts")),
    }
}

fn read_part(part: &Value) -> Result<Part, Error> {
    Ok(match text(part, "type")? {
        "text" => Part::Text(text(part, "text")?.to_owned()),
        "refusal" => Part::Text(text(part, "refusal")?.to_owned()),
        "image_url" => Part::Image(Image::of_url(text(&part["image_url"], "url")?)?),
        kind => return Err(Error::Unsupported(format!("A content part of type `{kind}`"))),
    })
}

pub(in super::super) fn write(ask: &Ask, target: &Target<'_>) -> Value {
    let mut body = Map::new();
    body.insert("model".to_owned(), target.model.into());
    body.insert("messages".to_owned(), ask.turns.iter().flat_map(write_turn).collect());
    if let Some(max_tokens) = ask.max_tokens {
        body.insert(target.limit_member.to_owned(), max_tokens.into());
    }
    if !ask.tools.is_empty() {
        body.insert("tools".to_owned(), ask.tools.iter().map(write_tool).collect());
        if let Some(choice) = &ask.choice {
            body.insert("tool_choice".to_owned(), write_choice(choice));
        }
        if let Some(is_parallel) = ask.is_parallel {
            body.insert("parallel_tool_calls".to_owned(), is_parallel.into());
        }
    }
    if !ask.stop_sequences.is_empty() {
        body.insert("stop".to_owned(), ask.stop_sequences.clone().into());
    }
    for (name, degree) in [("temperature", ask.temperature), ("top_p", ask.top_p)] {
        if let Some(degree) = degree {
            body.insert(name.to_owned(), degree.into());
        }
    }
    if let Some(effort) = target.effort {
        body.insert("reasoning_effort".to_owned(), write_effort(effort).into());
    }
    if ask.is_stream {
        body.insert("stream".to_owned(), true.into());
        // Without it nothing would be counted.
        body.insert("stream_options".to_owned(), json!({"include_usage": true}));
    }
    Value::Object(body)
}

/// The scale that servers of this wire share has nothing above `high`.
pub(in super::super) const fn write_effort(effort: Effort) -> &'static str {
    match effort {
        Effort::Minimal => "minimal",
        Effort::Low => "low",
        Effort::Medium => "medium",
        Effort::High | Effort::Max => "high",
    }
}

fn write_tool(tool: &Tool) -> Value {
    let mut function = json!({"name": tool.name});
    if let Some(description) = &tool.description {
        function["description"] = description.as_str().into();
    }
    function["parameters"] = match &tool.schema {
        Value::Object(_) => tool.schema.clone(),
        _ => json!({"type": "object", "properties": {}}),
    };
    json!({"type": "function", "function": function})
}

fn write_choice(choice: &Choice) -> Value {
    match choice {
        Choice::Auto => "auto".into(),
        Choice::Never => "none".into(),
        Choice::Any => "required".into(),
        Choice::Named(name) => json!({"type": "function", "function": {"name": name}}),
    }
}

fn write_turn(turn: &Turn) -> Vec<Value> {
    match turn.role {
        Role::System => match texts(&turn.parts, "\n\n") {
            text if text.is_empty() => Vec::new(),
            text => vec![json!({"role": "system", "content": text})],
        },
        Role::Assistant => write_assistant(&turn.parts).into_iter().collect(),
        Role::User => write_user(&turn.parts),
    }
}

fn write_assistant(parts: &[Part]) -> Option<Value> {
    let said = texts(parts, "\n");
    let calls: Vec<Value> = parts.iter().filter_map(write_call).collect();
    if said.is_empty() && calls.is_empty() {
        return None;
    }
    let mut message = json!({"role": "assistant", "content": null});
    if !said.is_empty() {
        message["content"] = said.into();
    }
    for part in parts {
        // A thought goes back only to where such thoughts come from; other servers might refuse the member.
        if let Part::Thinking { text, signature } = part
            && let Some(member) = member_of(signature)
        {
            let held = message[member].as_str().unwrap_or_default();
            message[member] = format!("{held}{text}").into();
        }
    }
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    Some(message)
}

fn write_call(part: &Part) -> Option<Value> {
    let Part::Call { id, name, arguments } = part else { return None };
    Some(json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}))
}

/// Results first, since they must follow their calls at once; a result here is text, so its images follow as the user's.
fn write_user(parts: &[Part]) -> Vec<Value> {
    let mut messages = Vec::new();
    let mut said = Vec::new();
    for part in parts {
        if let Part::Result { id, parts, is_error } = part {
            let mut content = texts(parts, "\n");
            let images = parts.iter().filter_map(write_part).filter(|part| part["type"] == "image_url");
            let held = said.len();
            said.extend(images);
            if said.len() > held {
                content.push_str(if content.is_empty() { "" } else { "\n" });
                content.push_str("[Its images follow in the next message.]");
            }
            if *is_error {
                content.insert_str(0, "[The tool failed.] ");
            }
            messages.push(json!({"role": "tool", "tool_call_id": id, "content": content}));
        }
    }
    said.extend(parts.iter().filter_map(write_part));
    match said.as_slice() {
        [] => {}
        [only] if only["type"] == "text" => messages.push(json!({"role": "user", "content": only["text"]})),
        _ => messages.push(json!({"role": "user", "content": said})),
    }
    messages
}

fn write_part(part: &Part) -> Option<Value> {
    match part {
        Part::Text(text) if text.is_empty() => None,
        Part::Text(text) => Some(json!({"type": "text", "text": text})),
        Part::Image(image) => Some(json!({"type": "image_url", "image_url": {"url": image.url()}})),
        _ => None,
    }
}
