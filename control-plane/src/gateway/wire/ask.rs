//! A model request in neutral form: turns of parts, tools, and the few settings that every wire knows.
//! What cannot be carried is refused by name, never dropped: the model must not be asked something else.

use checkfu_shared::agent::Effort;
use serde_json::{Map, Value};
use std::collections::HashMap;

/// A request, as far as it can be carried from wire to wire.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ask {
    /// What was said, oldest first; leading turns of [`Role::System`] are the system prompt.
    pub turns: Vec<Turn>,
    /// The tools on offer.
    pub tools: Vec<Tool>,
    /// Which of them the model must or may call.
    pub choice: Option<Choice>,
    /// Whether several calls may come at once; `None` leaves it to the provider.
    pub is_parallel: Option<bool>,
    /// The longest wanted reply in tokens.
    pub max_tokens: Option<u64>,
    /// Texts that end the reply.
    pub stop_sequences: Vec<String>,
    /// How freely to sample; Chat's scale reaches 2, that of Messages 1.
    pub temperature: Option<f64>,
    /// The share of probability to sample from.
    pub top_p: Option<f64>,
    /// Whether the reply is wanted as a stream.
    pub is_stream: bool,
    /// Whether a Chat stream ends with its usage, as `stream_options.include_usage` asks.
    pub wants_usage: bool,
}

/// What one side said at once.
#[derive(Debug, Clone, PartialEq)]
pub struct Turn {
    /// Who.
    pub role: Role,
    /// What, in order.
    pub parts: Vec<Part>,
}

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The instructions, also those given in the middle of a conversation.
    System,
    /// The user, and the results of tools.
    User,
    /// The model.
    Assistant,
}

/// One part of a turn.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// Words.
    Text(String),
    /// A picture.
    Image(Image),
    /// A thought of the model, with what proves it to the provider that wrote it.
    Thinking {
        /// The words.
        text: String,
        /// The proof, or where the thought came from.
        signature: String,
    },
    /// A thought that only its provider can read.
    Redacted(String),
    /// The model calls a tool.
    Call {
        /// Names the call.
        id: String,
        /// The tool.
        name: String,
        /// JSON of its input.
        arguments: String,
    },
    /// What a tool answered.
    Result {
        /// The call that is answered.
        id: String,
        /// Texts and images.
        parts: Vec<Part>,
        /// Whether the tool failed.
        is_error: bool,
    },
}

/// A picture in the request itself; addresses are refused, because the provider would fetch them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Such as `image/png`.
    pub media_type: String,
    /// Its bytes in base64.
    pub data: String,
}

/// A tool on offer.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// Its name towards the provider.
    pub name: String,
    /// What it does.
    pub description: Option<String>,
    /// The JSON schema of its input.
    pub schema: Value,
    /// What it is towards the client.
    pub origin: Origin,
}

/// What a tool is towards the client: the Responses wire has more kinds than the others.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Origin {
    /// A function with a schema.
    #[default]
    Function,
    /// A tool whose input is one free text.
    Custom,
    /// A function inside a namespace.
    Member {
        /// The namespace.
        namespace: String,
        /// The function's name inside it.
        name: String,
    },
}

/// What every tool is towards the client, by its name towards the provider; plain functions are left out.
pub type Origins = HashMap<String, Origin>;

/// Which tool to call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// As the model likes.
    Auto,
    /// None.
    Never,
    /// At least one.
    Any,
    /// This one.
    Named(String),
}

/// For whom a request is written.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// The provider's own name of the model.
    pub model: &'a str,
    /// The effort that the claim names; what a client asks for does not count.
    pub effort: Option<Effort>,
    /// The member of a Chat request that limits the reply: newer models of OpenAI refuse the older `max_tokens`,
    /// which is all that some compatible servers know.
    pub limit_member: &'static str,
}

/// Why a request cannot be carried.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It is not a request of its wire.
    #[error("`{place}` must be {wanted}")]
    Malformed {
        /// The member.
        place: String,
        /// What it should be.
        wanted: &'static str,
    },
    /// It asks for something that the gateway does not pass.
    #[error("{0} cannot be passed on to the model")]
    Unsupported(String),
}

impl Ask {
    /// What each tool is towards the client.
    #[must_use]
    pub fn origins(&self) -> Origins {
        let special = self.tools.iter().filter(|tool| tool.origin != Origin::Function);
        special.map(|tool| (tool.name.clone(), tool.origin.clone())).collect()
    }

    /// About how many tokens the request has, for want of the provider's own count: four characters each, and a middling
    /// picture's worth for a picture.
    #[must_use]
    pub fn estimated_tokens(&self) -> usize {
        let turns = self.turns.iter().flat_map(|turn| &turn.parts).map(characters).sum::<usize>();
        let tools = self.tools.iter().map(|tool| {
            let description = tool.description.as_ref().map_or(0, String::len);
            tool.name.len() + description + tool.schema.to_string().len()
        });
        (turns + tools.sum::<usize>()).div_ceil(4).max(1)
    }

    /// Adds parts to the last turn when it is of the same role, otherwise as a new one.
    pub(super) fn say(&mut self, role: Role, parts: Vec<Part>) {
        if parts.is_empty() {
            return;
        }
        match self.turns.last_mut() {
            Some(last) if last.role == role => last.parts.extend(parts),
            _ => self.turns.push(Turn { role, parts }),
        }
    }

    /// The system prompt and the turns that follow it.
    pub(super) fn split(&self) -> (&[Turn], &[Turn]) {
        let leading = self.turns.iter().take_while(|turn| turn.role == Role::System).count();
        self.turns.split_at(leading)
    }
}

impl Image {
    /// Reads a `data:` address.
    pub(super) fn of_url(url: &str) -> Result<Self, Error> {
        let data = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
        let (media_type, data) = data.ok_or_else(|| {
            Error::Unsupported("an image that is not base64 data in the request".to_owned())
        })?;
        Ok(Self { media_type: media_type.to_owned(), data: data.to_owned() })
    }

    /// Writes a `data:` address.
    pub(super) fn url(&self) -> String {
        format!("data:{};base64,{}", self.media_type, self.data)
    }
}

fn characters(part: &Part) -> usize {
    const OF_A_PICTURE: usize = 6_400;
    match part {
        Part::Text(text) | Part::Redacted(text) | Part::Thinking { text, .. } => text.chars().count(),
        Part::Image(_) => OF_A_PICTURE,
        Part::Call { name, arguments, .. } => name.len() + arguments.chars().count(),
        Part::Result { parts, .. } => parts.iter().map(characters).sum(),
    }
}

/// The texts among `parts`, joined by `with`.
pub(super) fn texts(parts: &[Part], with: &str) -> String {
    let texts = parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join(with)
}

/// The object that a call's arguments are. What is no object keeps its text under a name that no tool knows, so that
/// the tool's own check refuses it in words the model can act on.
pub(super) fn object(arguments: &str) -> Map<String, Value> {
    if arguments.trim().is_empty() {
        return Map::new();
    }
    serde_json::from_str(arguments)
        .unwrap_or_else(|_| Map::from_iter([("not_a_json_object".to_owned(), arguments.into())]))
}

pub(super) fn malformed(place: impl Into<String>, wanted: &'static str) -> Error {
    Error::Malformed { place: place.into(), wanted }
}

/// A text that must be there.
pub(super) fn text<'a>(value: &'a Value, name: &str) -> Result<&'a str, Error> {
    value[name].as_str().ok_or_else(|| malformed(name, "a text"))
}

/// The items of a list; `null` has none.
pub(super) fn items<'a>(value: &'a Value, name: &str) -> Result<&'a [Value], Error> {
    match &value[name] {
        Value::Null => Ok(&[]),
        Value::Array(items) => Ok(items),
        _ => Err(malformed(name, "a list")),
    }
}
