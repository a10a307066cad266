//! What of a client's model request reaches the provider. Pure: a body in, a rebuilt body or a refusal out.
//! Only known members pass; the model and its effort come from the claim, never from the runner. Whatever would make
//! the provider act by itself (its own tools, MCP, containers, fetching addresses, stored files) is refused.

use super::wire::{
    Spoken, Wire,
    ask::{Ask, Error, Target},
};
use checkfu_shared::problem::{Code, Problem};
use serde_json::{Map, Value, json};

/// The members of each wire that pass; every other one is dropped.
const fn passed(wire: Wire) -> &'static [&'static str] {
    match wire {
        Wire::Messages => &MESSAGES,
        Wire::Chat => &CHAT,
        Wire::Responses => &RESPONSES,
    }
}

const CHAT: [&str; 13] = [
    "messages",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "max_tokens",
    "max_completion_tokens",
    "stop",
    "stream",
    "stream_options",
    "temperature",
    "top_p",
    "n",
    "response_format",
];

const RESPONSES: [&str; 13] = [
    "input",
    "instructions",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "max_output_tokens",
    "stream",
    "temperature",
    "top_p",
    "text",
    "previous_response_id",
    "conversation",
    "prompt",
];

const MESSAGES: [&str; 9] = [
    "messages",
    "system",
    "tools",
    "tool_choice",
    "max_tokens",
    "stop_sequences",
    "stream",
    "temperature",
    "cache_control",
];

/// The members whose presence is refused, since dropping them would silently change what is asked.
const REFUSED: [&str; 2] = ["mcp_servers", "container"];

/// The content blocks that pass.
const BLOCKS: [&str; 8] = [
    "text",
    "image",
    "document",
    "tool_use",
    "tool_result",
    "tool_reference",
    "thinking",
    "redacted_thinking",
];

/// The members of a tool that pass; the others need features that are not switched on.
const TOOL: [&str; 6] = ["name", "description", "input_schema", "type", "cache_control", "strict"];

/// A request that may be asked, without whatever is not passed.
#[derive(Debug)]
pub struct Given {
    wire: Wire,
    members: Map<String, Value>,
    /// The neutral form; a request of the Messages wire is read into it only when it must be translated.
    ask: Option<Ask>,
    dropped: Vec<String>,
}

impl Given {
    /// Reads and checks a body.
    ///
    /// # Errors
    /// A [`Problem`] that names the member and what to do, when it is no such request or asks for something refused.
    pub fn read(wire: Wire, body: &[u8]) -> Result<Self, Problem> {
        let mut given: Map<String, Value> = serde_json::from_slice(body).map_err(|error| {
            Problem::new(
                Code::InvalidJson,
                format!("The body is not a JSON object (line {}, column {}).", error.line(), error.column()),
            )
        })?;
        for name in REFUSED {
            if given.get(name).is_some_and(|value| !value.is_null()) {
                return Err(refused(name));
            }
        }
        let mut members = Map::new();
        for name in passed(wire) {
            if let Some(value) = given.remove(*name) {
                members.insert((*name).to_owned(), value);
            }
        }
        let ask = match wire {
            Wire::Messages => {
                check(&members)?;
                adapt(&mut members);
                None
            }
            Wire::Chat | Wire::Responses => Some(neutral(wire, &members)?),
        };
        // Every client names a model, and every client knows that the claim's is asked.
        given.remove("model");
        Ok(Self { wire, members, ask, dropped: given.into_iter().map(|(name, _)| name).collect() })
    }

    /// The wire that the client speaks.
    #[must_use]
    pub const fn wire(&self) -> Wire {
        self.wire
    }

    /// The members that are not passed on, by name: raw parameters of a provider, and what nobody knows.
    #[must_use]
    pub fn dropped(&self) -> &[String] {
        &self.dropped
    }

    /// Whether the reply of a provider that speaks `spoken` can pass to the client as it is.
    #[must_use]
    pub fn passes_unchanged(&self, spoken: Spoken) -> bool {
        // The provider is always asked for its usage; who did not ask for it may not expect it.
        let is_asked = self.ask.as_ref().is_none_or(|ask| !ask.is_stream || ask.wants_usage);
        spoken.agrees(self.wire) && is_asked
    }

    /// The request in neutral form.
    ///
    /// # Errors
    /// `unsupported` when no translation can carry it.
    pub fn neutral(&self) -> Result<Ask, Problem> {
        self.ask.clone().map_or_else(|| neutral(self.wire, &self.members), Ok)
    }

    /// The body that asks a provider that speaks `spoken`.
    ///
    /// # Errors
    /// `unsupported` when the request has to be translated and cannot be.
    pub fn body(&self, spoken: Spoken, target: &Target<'_>) -> Result<Value, Problem> {
        if !spoken.agrees(self.wire) {
            return Ok(spoken.write_ask(&self.neutral()?, target));
        }
        let mut members = self.members.clone();
        members.insert("model".to_owned(), target.model.into());
        match (spoken, target.effort) {
            (_, None) => {}
            (Spoken::Messages, Some(effort)) => {
                members.insert("output_config".to_owned(), json!({"effort": spoken.effort(effort)}));
            }
            (Spoken::Chat, Some(effort)) => {
                members.insert("reasoning_effort".to_owned(), spoken.effort(effort).into());
            }
        }
        if spoken == Spoken::Chat && self.ask.as_ref().is_some_and(|ask| ask.is_stream) {
            members.insert("stream_options".to_owned(), json!({"include_usage": true}));
        }
        Ok(Value::Object(members))
    }
}

fn neutral(wire: Wire, members: &Map<String, Value>) -> Result<Ask, Problem> {
    wire.read_ask(&Value::Object(members.clone())).map_err(|error| match error {
        Error::Malformed { .. } => invalid(&format!("{error}.")),
        Error::Unsupported(_) => Problem::new(
            Code::Unsupported,
            format!("{error}. Remove it, or use a model of another provider."),
        ),
    })
}

/// Leaves out what only works with features that are not switched on here: further members of tools, and instructions
/// in the middle of the conversation, which become the user's.
fn adapt(members: &mut Map<String, Value>) {
    for tool in members.get_mut("tools").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(tool) = tool.as_object_mut() {
            tool.retain(|name, _| TOOL.contains(&name.as_str()));
        }
    }
    for message in members.get_mut("messages").and_then(Value::as_array_mut).into_iter().flatten() {
        if message["role"] == "system" {
            message["role"] = "user".into();
        }
    }
}

fn check(body: &Map<String, Value>) -> Result<(), Problem> {
    if body.get("max_tokens").and_then(Value::as_u64).unwrap_or(0) == 0 {
        return Err(invalid("`max_tokens` must be a positive integer."));
    }
    let Some(Value::Array(messages)) = body.get("messages") else {
        return Err(invalid("`messages` must be a list."));
    };
    for message in messages {
        check_content(message.get("content"))?;
    }
    check_content(body.get("system"))?;
    match body.get("tools") {
        None | Some(Value::Null) => Ok(()),
        Some(Value::Array(tools)) => tools.iter().try_for_each(check_tool),
        Some(_) => Err(invalid("`tools` must be a list.")),
    }
}

fn check_tool(tool: &Value) -> Result<(), Problem> {
    match tool.get("type") {
        None => Ok(()),
        Some(Value::String(kind)) if kind == "custom" => Ok(()),
        Some(kind) => Err(refused(&format!("a tool of type {kind}"))),
    }
}

fn check_content(content: Option<&Value>) -> Result<(), Problem> {
    match content {
        None | Some(Value::Null | Value::String(_)) => Ok(()),
        Some(Value::Array(blocks)) => blocks.iter().try_for_each(check_block),
        Some(_) => Err(invalid("`content` must be a text or a list of blocks.")),
    }
}

fn check_block(block: &Value) -> Result<(), Problem> {
    let kind = block.get("type").and_then(Value::as_str).unwrap_or_default();
    if !BLOCKS.contains(&kind) {
        return Err(refused(&format!("a content block of type {}", Value::from(kind))));
    }
    if matches!(kind, "image" | "document") {
        check_source(block.get("source"))?;
    }
    // The input of a tool call is the model's own text; nothing in it makes the provider act.
    if kind == "tool_result" { check_content(block.get("content")) } else { Ok(()) }
}

fn check_source(source: Option<&Value>) -> Result<(), Problem> {
    let kind = source.and_then(|source| source.get("type")).and_then(Value::as_str).unwrap_or_default();
    match kind {
        "base64" | "text" => Ok(()),
        "content" => check_content(source.and_then(|source| source.get("content"))),
        _ => Err(refused(&format!("a source of type {}", Value::from(kind)))),
    }
}

fn invalid(message: &str) -> Problem {
    Problem::new(Code::InvalidRequest, message)
}

fn refused(what: &str) -> Problem {
    Problem::new(
        Code::Unsupported,
        format!(
            "The model gateway does not pass {what}: the provider would act outside this session's policies. Remove it."
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use checkfu_shared::agent::Effort;

    fn of(body: &Value) -> Result<Value, Problem> {
        let given = Given::read(Wire::Messages, &serde_json::to_vec(body).unwrap())?;
        given.body(Spoken::Messages, &target(None))
    }

    fn target(effort: Option<Effort>) -> Target<'static> {
        Target { model: "pinned", effort, limit_member: "max_tokens" }
    }

    #[test]
    fn unknown_members_are_dropped_and_the_model_is_the_claims() {
        let rebuilt = of(&json!({
            "model": "dearer", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}], "stream": true,
            "thinking": {"type": "enabled"}, "service_tier": "priority", "output_config": {"effort": "max"}, "betas": ["x"],
        }))
        .unwrap();
        assert_eq!(
            rebuilt,
            json!({"model": "pinned", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}], "stream": true})
        );
        let given =
            Given::read(Wire::Messages, br#"{"model": "m", "max_tokens": 1, "messages": [], "top_k": 3}"#)
                .unwrap();
        assert_eq!(given.dropped(), ["top_k"]);
    }

    #[test]
    fn ordinary_content_passes_unchanged() {
        let body = json!({
            "max_tokens": 5, "temperature": 0.5, "tool_choice": {"type": "auto"}, "stop_sequences": ["x"],
            "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
            "tools": [{"name": "bash", "input_schema": {}}, {"type": "custom", "name": "own", "input_schema": {}}],
            "messages": [
                {"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}]},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "", "signature": ""},
                    {"type": "tool_use", "id": "t", "name": "bash", "input": {"source": {"type": "url", "url": "http://x"}}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "x"}]}]},
            ],
        });
        let mut want = body.clone();
        want["model"] = "pinned".into();
        assert_eq!(of(&body).unwrap(), want);
    }

    #[test]
    fn what_makes_the_provider_act_is_refused() {
        let with = |name: &str, value: Value| {
            let mut body = json!({"max_tokens": 5, "messages": []});
            body[name] = value;
            body
        };
        let said = |block: Value| with("messages", json!([{"role": "user", "content": [block]}]));
        for body in [
            with("mcp_servers", json!([])),
            with("container", json!("c")),
            with("tools", json!([{"type": "web_search_20250305", "name": "web_search"}])),
            with("tools", json!([{"type": 3}])),
            said(json!({"type": "image", "source": {"type": "url", "url": "https://x"}})),
            said(json!({"type": "document", "source": {"type": "file", "file_id": "f"}})),
            said(json!({"type": "document"})),
            said(json!({"type": "document", "source": {"type": "content", "content": [
                {"type": "image", "source": {"type": "url", "url": "https://x"}}]}})),
            said(json!({"type": "tool_result", "tool_use_id": "t", "content": [
                {"type": "image", "source": {"type": "url", "url": "https://x"}}]})),
            said(json!({"type": "server_tool_use", "id": "t", "name": "web_search", "input": {}})),
            said(json!({"type": "container_upload", "file_id": "f"})),
            with("system", json!([{"type": "mcp_tool_use"}])),
        ] {
            assert_eq!(of(&body).unwrap_err().code, Code::Unsupported, "{body}");
        }
    }

    #[test]
    fn a_malformed_body_is_refused_with_what_is_wrong() {
        assert_eq!(Given::read(Wire::Messages, b"[]").unwrap_err().code, Code::InvalidJson);
        assert_eq!(Given::read(Wire::Messages, b"{\"a\"").unwrap_err().code, Code::InvalidJson);
        for body in [
            json!({"messages": []}),
            json!({"messages": [], "max_tokens": 0}),
            json!({"messages": [], "max_tokens": -3}),
            json!({"max_tokens": 3}),
            json!({"max_tokens": 3, "messages": [{"content": 3}]}),
            json!({"max_tokens": 3, "messages": [], "tools": {}}),
        ] {
            assert_eq!(of(&body).unwrap_err().code, Code::InvalidRequest, "{body}");
        }
    }

    #[test]
    fn effort_is_translated_to_the_providers_scale() {
        for (level, want) in [
            (Effort::Minimal, "low"),
            (Effort::Low, "low"),
            (Effort::Medium, "medium"),
            (Effort::High, "high"),
            (Effort::Max, "max"),
        ] {
            let given = Given::read(Wire::Messages, br#"{"max_tokens": 1, "messages": []}"#).unwrap();
            let body = given.body(Spoken::Messages, &target(Some(level))).unwrap();
            assert_eq!(body["output_config"], json!({"effort": want}));
        }
    }
}
