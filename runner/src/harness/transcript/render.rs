//! The conversation in the form a model is asked with. Whatever the log holds, what comes out is valid: it starts and ends
//! with the user, alternates, has no blank text, and each call has exactly one result in the very next message.

use super::{Answer, Call, Exchange, Part, Transcript};
use crate::{
    model::{Content, Message, Role},
    tools::bounds,
};
use checkfu_shared::content::{Block, Source};
use std::collections::HashSet;

impl Transcript {
    /// The messages to ask a model with that is offered the tools `offered`. Calls of other tools are told in words.
    #[must_use]
    pub fn messages(&self, offered: &HashSet<&str>) -> Vec<Message> {
        let mut messages = Messages::default();
        messages.add(Role::User, blocks(&self.opening));
        let last = self.exchanges.len().saturating_sub(1);
        for (at, exchange) in self.exchanges.iter().enumerate() {
            // The reply being received is no part of what is asked.
            if at == last && !exchange.is_complete && !exchange.has_calls() {
                continue;
            }
            messages.add_exchange(exchange, offered);
        }
        messages.finish()
    }
}

#[derive(Default)]
struct Messages(Vec<Message>);

impl Messages {
    fn add(&mut self, role: Role, content: Vec<Content>) {
        if content.is_empty() {
            return;
        }
        if self.0.is_empty() && role == Role::Assistant {
            self.0.push(text_message(Role::User, "(nothing was said)"));
        }
        match self.0.last_mut().filter(|last| last.role == role) {
            Some(last) => last.content.extend(content),
            None => self.0.push(Message { role, content }),
        }
    }

    fn add_exchange(&mut self, exchange: &Exchange, offered: &HashSet<&str>) {
        let (mut said, mut results, mut told) = (Vec::new(), Vec::new(), Vec::new());
        for part in &exchange.reply {
            match part {
                Part::Said(content) => said.extend(blocks(content)),
                Part::Called(call) if offered.contains(call.name.as_str()) => {
                    said.push(call_content(call));
                    let (content, is_error) = result_of(call.answer.as_ref());
                    results.push(Content::Result { id: call.id.to_string(), content, is_error });
                }
                Part::Called(call) => {
                    said.push(text(format!("[call of {}] {}", call.name, call.input)));
                    let (content, _) = result_of(call.answer.as_ref());
                    told.push(text(format!("[result of {}]", call.name)));
                    told.extend(content.into_iter().map(Content::Block));
                }
            }
        }
        self.add(Role::Assistant, said);
        results.extend(told);
        results.extend(blocks(&exchange.after));
        self.add(Role::User, results);
    }

    fn finish(mut self) -> Vec<Message> {
        if self.0.last().is_none_or(|last| last.role == Role::Assistant) {
            self.0.push(text_message(Role::User, "Continue."));
        }
        self.0
    }
}

fn call_content(call: &Call) -> Content {
    let input =
        if call.input.is_object() { call.input.clone() } else { serde_json::json!({"input": call.input}) };
    Content::Call { id: call.id.to_string(), name: call.name.clone(), input }
}

fn result_of(answer: Option<&Answer>) -> (Vec<Block>, bool) {
    match answer {
        None => (vec![Block::text("no result of this call was recorded")], true),
        Some(answer) => {
            let content = bounds::bounded(answer.content.clone());
            (content.into_iter().map(presentable).collect(), answer.is_error)
        }
    }
}

/// Blocks of a message; blank texts are left out, since providers refuse them.
fn blocks(content: &[Block]) -> Vec<Content> {
    let spoken = content.iter().filter(|block| !is_blank(block));
    spoken.map(|block| Content::Block(presentable(block.clone()))).collect()
}

fn is_blank(block: &Block) -> bool {
    matches!(block, Block::Text { text } if text.trim().is_empty())
}

/// What a provider can take: bytes it would have to fetch are named instead.
fn presentable(block: Block) -> Block {
    let source = match &block {
        Block::Text { text } if text.trim().is_empty() => return Block::text("(only white space)"),
        Block::Text { .. } => return block,
        Block::Image { source } | Block::Document { source, .. } => source,
    };
    match source {
        Source::Base64 { .. } | Source::Text { .. } => block,
        Source::Url { url } => Block::text(format!("(attachment at {url}, not loaded)")),
        Source::File { file_id } => Block::text(format!("(attached file {file_id}, not loaded)")),
    }
}

fn text(text: String) -> Content {
    Content::Block(Block::Text { text })
}

fn text_message(role: Role, said: &str) -> Message {
    Message { role, content: vec![text(said.to_owned())] }
}
