//! A reply in neutral form while it streams: the steps that every wire's events are read into and written from.
//! `sequence` makes sure that steps come in one order only, so what writes them need not check.

use super::fault::Fault;
use checkfu_shared::event::ModelUsage;

/// One step of a reply. The order: `Begin`, then blocks (`Open`, pieces, `Close`), then `Stop`, then `End`; a `Count` may
/// come anywhere between, and `Fail` may replace the rest at any point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The reply starts.
    Begin,
    /// A block starts.
    Open(Opening),
    /// More of the open block: words, or the JSON of a call's input.
    Piece(String),
    /// The proof of the open thought.
    Sign(String),
    /// The open block is whole.
    Close,
    /// The tokens counted so far.
    Count(ModelUsage),
    /// Why the model stopped.
    Stop(Stop),
    /// All of it was said.
    End,
    /// It broke off, or the provider says that it failed.
    Fail(Fault),
}

/// What kind of block starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opening {
    /// Words.
    Text,
    /// A thought.
    Thinking,
    /// A thought that only its provider can read.
    Redacted(String),
    /// A tool call.
    Call {
        /// Names the call.
        id: String,
        /// The tool.
        name: String,
    },
}

/// Why the model stopped.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Stop {
    /// It had said all.
    #[default]
    EndTurn,
    /// It waits for the results of its calls.
    ToolUse,
    /// The limit of the request was reached.
    MaxTokens,
    /// A text of the request that ends the reply.
    Sequence(Option<String>),
    /// It, or its provider, refuses to answer.
    Refusal,
    /// It wants to go on when asked again.
    Pause,
    /// The window of the model is full.
    ContextFull,
}
