//! A whole reply in neutral form, as its steps add up.

use super::{
    ask::Origins,
    fault::Fault,
    step::{Opening, Step, Stop},
};
use checkfu_shared::event::ModelUsage;

/// A reply, or as much of it as there is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reply {
    /// What the model said, in order.
    pub blocks: Vec<Block>,
    /// Why it stopped.
    pub stop: Stop,
    /// What it used.
    pub usage: ModelUsage,
    /// Why it is not whole.
    pub fault: Option<Fault>,
    /// Whether it ended well.
    pub is_complete: bool,
}

/// One thing the model said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Block {
    /// Words.
    Text(String),
    /// A thought.
    Thinking {
        /// The words.
        text: String,
        /// The proof, or where the thought came from.
        signature: String,
    },
    /// A thought that only its provider can read.
    Redacted(String),
    /// A tool call.
    Call {
        /// Names the call.
        id: String,
        /// The tool.
        name: String,
        /// JSON of its input, as the model wrote it.
        arguments: String,
    },
}

/// What a client sees on a reply beside what the model said.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Label {
    /// Names the reply; ids of its parts are made from it.
    pub id: String,
    /// The model's name towards the client.
    pub model: String,
    /// When it was made, in seconds of Unix time.
    pub created_s: u64,
    /// Whether a Chat stream ends with its usage.
    pub wants_usage: bool,
    /// What the tools are towards the client.
    pub origins: Origins,
}

impl Reply {
    /// Adds one step.
    pub fn take(&mut self, step: &Step) {
        match step {
            Step::Begin => {}
            Step::Open(opening) => self.blocks.push(Block::of(opening)),
            Step::Piece(piece) => self.last(|text, _| text.push_str(piece)),
            Step::Sign(proof) => self.last(|_, signature| signature.push_str(proof)),
            Step::Close => {}
            Step::Count(usage) => self.usage = *usage,
            Step::Stop(stop) => self.stop = stop.clone(),
            Step::End => self.is_complete = true,
            Step::Fail(fault) => self.fault = Some(fault.clone()),
        }
    }

    /// The reply that `steps` make.
    #[must_use]
    pub fn of<'a>(steps: impl IntoIterator<Item = &'a Step>) -> Self {
        let mut reply = Self::default();
        for step in steps {
            reply.take(step);
        }
        reply
    }

    fn last(&mut self, add: impl FnOnce(&mut String, &mut String)) {
        let mut none = String::new();
        match self.blocks.last_mut() {
            Some(Block::Text(text)) => add(text, &mut none),
            Some(Block::Thinking { text, signature }) => add(text, signature),
            Some(Block::Call { arguments, .. }) => add(arguments, &mut none),
            Some(Block::Redacted(_)) | None => {}
        }
    }
}

impl Block {
    fn of(opening: &Opening) -> Self {
        match opening {
            Opening::Text => Self::Text(String::new()),
            Opening::Thinking => Self::Thinking { text: String::new(), signature: String::new() },
            Opening::Redacted(data) => Self::Redacted(data.clone()),
            Opening::Call { id, name } => {
                Self::Call { id: id.clone(), name: name.clone(), arguments: String::new() }
            }
        }
    }
}
