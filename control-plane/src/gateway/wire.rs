//! The wires that model clients and providers speak, and the translation between them. Pure: no I/O, no clock, no key.
//! Each wire is read into one neutral form (`ask`, `step`, `reply`) and written from it, so three wires need no pairs.
//! A provider is asked in Messages or in Chat; a client may speak any of the three.
//!
//! Written here because no crate fits: `switchyard-translation` covers these wires, but needs a newer compiler than the
//! workspace's, switches on `preserve_order` for everybody's JSON, and ends a cut stream as if it were whole;
//! `anyllm_translate` re-serialises typed structs and has no Responses streams.

pub mod ask;
mod chat;
pub mod fault;
mod messages;
pub mod reply;
mod responses;
mod sequence;
pub mod step;
pub mod stream;

use ask::{Ask, Target};
use checkfu_shared::{agent::Effort, event::ModelUsage};
use fault::Fault;
use reply::{Label, Reply};
use serde_json::Value;

/// A language of model requests and replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// Anthropic Messages.
    Messages,
    /// OpenAI Chat Completions.
    Chat,
    /// OpenAI Responses. Only clients speak it; a provider that is asked for it is asked in Chat.
    Responses,
}

/// What a provider speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spoken {
    /// Anthropic Messages.
    Messages,
    /// OpenAI Chat Completions.
    Chat,
}

impl Wire {
    /// Reads a client's request.
    ///
    /// # Errors
    /// [`ask::Error`] names the member that is malformed, or that no translation can carry.
    pub fn read_ask(self, body: &Value) -> Result<Ask, ask::Error> {
        match self {
            Self::Messages => messages::ask::read(body),
            Self::Chat => chat::ask::read(body),
            Self::Responses => responses::ask::read(body),
        }
    }

    /// Writes a whole reply for a client.
    #[must_use]
    pub fn write_reply(self, reply: &Reply, label: &Label) -> Value {
        match self {
            Self::Messages => messages::reply::write(reply, label),
            Self::Chat => chat::reply::write(reply, label),
            Self::Responses => responses::reply::write(reply, label),
        }
    }

    /// Writes the event that stands in the place of the rest of a stream that passes unchanged.
    #[must_use]
    pub fn write_break(self, fault: &Fault, id: &str) -> String {
        let mut out = String::new();
        let label = Label { id: id.to_owned(), ..Label::default() };
        match self {
            Self::Messages => messages::stream::fail(fault, &label, &mut out),
            // No provider is asked in Responses, so no stream of it passes unchanged.
            Self::Chat | Self::Responses => chat::stream::fail(fault, &mut out),
        }
        out
    }

    /// Writes a fault as the JSON body of an error reply.
    #[must_use]
    pub fn write_fault(self, fault: &Fault, request_id: &str) -> Value {
        match self {
            Self::Messages => fault.messages(request_id),
            Self::Chat | Self::Responses => fault.openai(),
        }
    }
}

impl Spoken {
    /// Writes a request for a provider.
    #[must_use]
    pub fn write_ask(self, ask: &Ask, target: &Target<'_>) -> Value {
        match self {
            Self::Messages => messages::ask::write(ask, target),
            Self::Chat => chat::ask::write(ask, target),
        }
    }

    /// Reads a provider's whole reply; ids that it lacks are made from `base`.
    ///
    /// # Errors
    /// A [`Fault`] when the body is no reply of this wire.
    pub fn read_reply(self, body: &Value, base: &str) -> Result<Reply, Fault> {
        match self {
            Self::Messages => messages::reply::read(body),
            Self::Chat => chat::reply::read(body, base),
        }
    }

    /// The usage that a provider's numbers tell; `None` when they tell nothing.
    #[must_use]
    pub fn usage(self, usage: &Value) -> Option<ModelUsage> {
        match self {
            Self::Messages => messages::usage(usage),
            Self::Chat => chat::usage(usage),
        }
    }

    /// The word for an effort level on this wire's scale.
    #[must_use]
    pub const fn effort(self, effort: Effort) -> &'static str {
        match self {
            Self::Messages => messages::ask::write_effort(effort),
            Self::Chat => chat::ask::write_effort(effort),
        }
    }

    /// Whether replies pass to a client of `wire` as they are.
    #[must_use]
    pub const fn agrees(self, wire: Wire) -> bool {
        matches!((self, wire), (Self::Messages, Wire::Messages) | (Self::Chat, Wire::Chat))
    }
}

#[cfg(test)]
mod tests;
