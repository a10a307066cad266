//! Asking a model: the provider-neutral request, reply and failure, and the trait that a provider fulfils.
//! A reply is given whole or not at all; what streams meanwhile is preview only.

mod assemble;
pub mod failure;
pub mod gateway;
pub mod limits;
pub mod messages;
mod sse;

pub use failure::Failure;

use bytes::Bytes;
use checkfu_shared::{content::Block, event::ModelUsage};
use serde_json::Value;

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The user, and the results of calls.
    User,
    /// The model.
    Assistant,
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said; never empty.
    pub content: Vec<Content>,
}

/// One part of a message.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// Text, a picture or a document.
    Block(Block),
    /// The model calls a tool.
    Call {
        /// Names the call.
        id: String,
        /// The tool.
        name: String,
        /// Its arguments, an object.
        input: Value,
    },
    /// The result of a call of the message before.
    Result {
        /// Which call.
        id: String,
        /// What came out; never empty.
        content: Vec<Block>,
        /// Whether it failed.
        is_error: bool,
    },
}

/// A tool that a model may call.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// JSON Schema of its arguments.
    pub input_schema: Value,
}

/// A whole reply.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// What it consists of, in order.
    pub parts: Vec<Part>,
    /// Why it ended.
    pub stop: Stop,
    /// The gateway's id of the request, by which the control plane finds its usage.
    pub request_id: Option<String>,
    /// What the provider counted, as far as it said so; what is billed is the gateway's own count.
    pub usage: ModelUsage,
}

/// One part of a reply.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// Text; `block` is the number that its previews carried.
    Text {
        /// The number.
        block: usize,
        /// The text.
        text: String,
    },
    /// A call with its whole arguments, an object.
    Call {
        /// The tool.
        name: String,
        /// The arguments.
        input: Value,
    },
    /// A call whose arguments were cut off or are no JSON object; it cannot be run.
    Broken {
        /// The tool.
        name: String,
    },
    /// The model thought; nothing of it is kept.
    Thinking,
}

/// Why a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The model is done, or wants the results of its calls.
    Done,
    /// It reached the output limit.
    OutputLimit,
    /// The conversation is too long for the model.
    ContextLimit,
    /// It refuses.
    Refusal,
}

/// What is seen of a reply while it streams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Preview {
    /// The request was accepted; by this id the control plane finds its usage.
    Began {
        /// The gateway's id of it.
        request_id: String,
    },
    /// More of a text.
    Text {
        /// Which text of the reply.
        block: usize,
        /// How many bytes of it came before.
        offset: u64,
        /// The next part.
        text: String,
    },
}

/// Whoever answers model requests.
pub trait Provider: Send + Sync {
    /// Sends one request body and waits for the whole reply; previews go to `seen` meanwhile.
    ///
    /// Dropping the future cancels the request.
    ///
    /// # Errors
    /// [`Failure`]; nothing of a failed reply may be used.
    fn ask(
        &self,
        body: Bytes,
        seen: &mut (dyn FnMut(Preview) + Send),
    ) -> impl Future<Output = Result<Reply, Failure>> + Send;
}
