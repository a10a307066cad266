//! Requests of the Responses wire.

use super::{
    super::ask::{Ask, Choice, Error, Image, Origin, Part, Role, Tool, items, malformed, text},
    INPUT, MEMBER,
};
use serde_json::{Value, json};

pub(in super::super) fn read(body: &Value) -> Result<Ask, Error> {
    for name in ["previous_response_id", "conversation", "prompt"] {
        if !body[name].is_null() {
            return Err(Error::Unsupported(format!("`{name}`, since nothing is stored here: it")));
        }
    }
    if !matches!(body["text"]["format"]["type"].as_str(), None | Some("text")) {
        return Err(Error::Unsupported("A `text.format` other than text".to_owned()));
    }
    let mut ask = Ask {
        max_tokens: body["max_output_tokens"].as_u64(),
        temperature: body["temperature"].as_f64(),
        top_p: body["top_p"].as_f64(),
        is_stream: body["stream"].as_bool().unwrap_or(false),
        choice: read_choice(&body["tool_choice"])?,
        is_parallel: body["parallel_tool_calls"].as_bool(),
        ..Ask::default()
    };
    for tool in items(body, "tools")? {
        read_tool(tool, &mut ask.tools)?;
    }
    if let Some(instructions) = body["instructions"].as_str() {
        ask.say(Role::System, vec![Part::Text(instructions.to_owned())]);
    }
    match &body["input"] {
        Value::String(text) => ask.say(Role::User, vec![Part::Text(text.clone())]),
        Value::Array(input) => input.iter().try_for_each(|item| read_item(item, &mut ask))?,
        _ => return Err(malformed("input", "a text or a list of items")),
    }
    Ok(ask)
}

fn read_tool(tool: &Value, tools: &mut Vec<Tool>) -> Result<(), Error> {
    let owned = |name: &str| text(tool, name).map(str::to_owned);
    let description = tool["description"].as_str().map(str::to_owned);
    match text(tool, "type")? {
        "function" => {
            let schema = tool["parameters"].clone();
            tools.push(Tool { name: owned("name")?, description, schema, origin: Origin::Function });
        }
        "custom" => {
            let grammar = tool["format"]["definition"].as_str();
            let grammar = grammar.map(|grammar| format!("\n\nThe input follows this grammar:\n{grammar}"));
            let description = description.unwrap_or_default() + &grammar.unwrap_or_default();
            let schema =
                json!({"type": "object", "properties": {INPUT: {"type": "string"}}, "required": [INPUT]});
            let origin = Origin::Custom;
            tools.push(Tool { name: owned("name")?, description: Some(description), schema, origin });
        }
        "namespace" => {
            let namespace = owned("name")?;
            let from = tools.len();
            items(tool, "tools")?.iter().try_for_each(|member| read_tool(member, tools))?;
            for member in tools.iter_mut().skip(from) {
                let name = member.name.clone();
                member.name = member_name(&namespace, &name);
                member.origin = Origin::Member { namespace: namespace.clone(), name };
            }
        }
        kind => return Err(Error::Unsupported(format!("A tool of type `{kind}`"))),
    }
    Ok(())
}

fn member_name(namespace: &str, name: &str) -> String {
    format!("{namespace}{MEMBER}{name}")
}

fn read_choice(choice: &Value) -> Result<Option<Choice>, Error> {
    Ok(Some(match choice {
        Value::Null => return Ok(None),
        Value::String(word) if word == "auto" => Choice::Auto,
        Value::String(word) if word == "none" => Choice::Never,
        Value::String(word) if word == "required" => Choice::Any,
        Value::Object(_) if matches!(choice["type"].as_str(), Some("function" | "custom")) => {
            Choice::Named(text(choice, "name")?.to_owned())
        }
        _ => return Err(malformed("tool_choice", "`auto`, `none`, `required` or a function")),
    }))
}

fn read_item(item: &Value, ask: &mut Ask) -> Result<(), Error> {
    let owned = |name: &str| text(item, name).map(str::to_owned);
    match item["type"].as_str().unwrap_or("message") {
        "message" => {
            let role = match text(item, "role")? {
                "user" => Role::User,
                "assistant" => Role::Assistant,
                "system" | "developer" => Role::System,
                _ => return Err(malformed("role", "`user`, `assistant`, `developer` or `system`")),
            };
            ask.say(role, read_content(&item["content"])?);
        }
        "reasoning" => ask.say(Role::Assistant, read_thought(item)),
        "function_call" => {
            let name = match item["namespace"].as_str() {
                Some(namespace) => member_name(namespace, text(item, "name")?),
                None => owned("name")?,
            };
            let (id, arguments) = (owned("call_id")?, owned("arguments")?);
            ask.say(Role::Assistant, vec![Part::Call { id, name, arguments }]);
        }
        "custom_tool_call" => {
            let arguments = json!({INPUT: text(item, INPUT)?}).to_string();
            let (id, name) = (owned("call_id")?, owned("name")?);
            ask.say(Role::Assistant, vec![Part::Call { id, name, arguments }]);
        }
        "function_call_output" | "custom_tool_call_output" => {
            let (id, parts) = (owned("call_id")?, read_content(&item["output"])?);
            ask.say(Role::User, vec![Part::Result { id, parts, is_error: false }]);
        }
        kind => return Err(Error::Unsupported(format!("An input item of type `{kind}`"))),
    }
    Ok(())
}

/// A thought comes back as it was given out: whole, in the member that only its writer reads. Others are dropped,
/// since no provider here could check them.
fn read_thought(item: &Value) -> Vec<Part> {
    let held = item["encrypted_content"].as_str().unwrap_or_default();
    let Ok(block) = serde_json::from_str::<Value>(held) else { return Vec::new() };
    let owned = |name: &str| block[name].as_str().map(str::to_owned);
    match (owned("thinking"), owned("signature"), owned("data")) {
        (Some(text), Some(signature), _) => vec![Part::Thinking { text, signature }],
        (_, _, Some(data)) => vec![Part::Redacted(data)],
        _ => Vec::new(),
    }
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
        "input_text" | "output_text" | "text" => Part::Text(text(part, "text")?.to_owned()),
        "refusal" => Part::Text(text(part, "refusal")?.to_owned()),
        "input_image" => Part::Image(Image::of_url(text(part, "image_url")?)?),
        kind => return Err(Error::Unsupported(format!("A content part of type `{kind}`"))),
    })
}
