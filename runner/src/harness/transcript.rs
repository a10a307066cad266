//! The conversation as the log tells it: a fold over the session's events, the same for a live run and for a rebuilt one.
//! Pure. Nothing enters it that is not in the log, so that another runner rebuilds exactly the same conversation.

mod call;
mod render;

pub use call::{Answer, Call};

use checkfu_shared::{
    content::Block,
    event::{Body, Event, ModelUsage, SessionError},
    id::EventId,
    protocol::append::Appended,
};
use std::collections::HashMap;

/// The `session.error` type whose message the model reads too: its reply was cut at the output limit.
pub const OUTPUT_TRUNCATED: &str = "model_output_truncated";

/// What is known of a session's conversation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Transcript {
    /// What was said before the first reply.
    opening: Vec<Block>,
    exchanges: Vec<Exchange>,
    /// Where each call is: exchange and part.
    places: HashMap<EventId, (usize, usize)>,
    /// From an `agent.custom_tool_use` to its proposal.
    customs: HashMap<EventId, EventId>,
    /// Inputs in log order that no `session.input_processed` named yet.
    inputs: Vec<Input>,
    /// Whether the model has to speak next.
    owes_reply: bool,
    /// Whether the log knows of a sandbox.
    had_sandbox: bool,
    /// What the last whole reply and its request had, in tokens.
    counted_tokens: u64,
    /// Bytes of text that were added since.
    added_bytes: u64,
}

/// Bytes of text that count as one token until the provider counts them.
const BYTES_PER_TOKEN: u64 = 4;

/// One reply of the model and what was said after it.
#[derive(Debug, Clone, Default, PartialEq)]
struct Exchange {
    reply: Vec<Part>,
    is_complete: bool,
    after: Vec<Block>,
}

/// One part of a reply, in the order the model gave it.
#[derive(Debug, Clone, PartialEq)]
enum Part {
    Said(Vec<Block>),
    Called(Call),
}

/// An input that arrived.
#[derive(Debug, Clone, PartialEq)]
pub struct Input {
    /// Its event.
    pub id: EventId,
    /// What it is.
    pub kind: InputKind,
    /// Whether the control plane already counts it as processed.
    is_settled: bool,
}

/// What an input is, as far as the conversation cares.
#[derive(Debug, Clone, PartialEq)]
pub enum InputKind {
    /// Something said.
    Message(Vec<Block>),
    /// Stop.
    Interrupt,
    /// The answer to a call, already noted on the call itself.
    Answer,
}

impl Transcript {
    /// The conversation of a whole log, in order.
    #[must_use]
    pub fn rebuild<'a>(events: impl IntoIterator<Item = &'a Event>) -> Self {
        let mut transcript = Self::default();
        for event in events {
            transcript.read(event);
        }
        transcript
    }

    /// Takes the next event of the log.
    pub fn read(&mut self, event: &Event) {
        self.take(event.id, &event.body, event.processed_at.is_some());
    }

    /// Takes an event that this runner just appended.
    pub fn wrote(&mut self, event: &Appended) {
        self.take(event.id, &event.body, false);
    }

    fn take(&mut self, id: EventId, body: &Body, is_settled: bool) {
        match body {
            Body::UserMessage { content } => self.arrive(id, InputKind::Message(content.clone()), is_settled),
            Body::UserInterrupt { .. } => {
                if is_settled {
                    self.interrupt_open_calls();
                }
                self.arrive(id, InputKind::Interrupt, is_settled);
            }
            Body::UserToolConfirmation(answer) => {
                if let Some(call) = self.call_mut(answer.tool_use_id) {
                    call.confirm(answer.result, answer.deny_message.as_deref());
                }
                self.arrive(id, InputKind::Answer, is_settled);
            }
            Body::UserCustomToolResult { custom_tool_use_id, content, is_error } => {
                let call = self.customs.get(custom_tool_use_id).copied().unwrap_or(*custom_tool_use_id);
                self.answer(call, content, *is_error);
                self.arrive(id, InputKind::Answer, is_settled);
            }
            Body::SessionInputProcessed { event_ids } => self.process(event_ids),
            Body::SpanModelRequestStart {} => {
                self.finish_reply();
                self.exchanges.push(Exchange::default());
            }
            Body::SpanModelRequestEnd { is_error, model_usage, .. } => {
                self.end_request(*is_error);
                self.count(*is_error, *model_usage);
            }
            Body::AgentThreadContextCompacted { summary, .. } => self.compact(summary),
            Body::AgentMessage { content } => self.reply(Part::Said(content.clone())),
            Body::AgentToolUse(_) | Body::AgentToolProposed { .. } => {
                if let Some(call) = Call::of(id, body) {
                    self.propose(call);
                }
            }
            Body::AgentCustomToolUse { proposed_id, .. } => self.take_up(id, *proposed_id),
            Body::AgentToolResumed { tool_use_id, .. } => {
                if let Some(call) = self.call_mut(*tool_use_id) {
                    call.is_resumed = true;
                }
            }
            Body::AgentToolResult(result) => {
                self.grow(&result.content);
                self.answer(result.tool_use_id, &result.content, result.is_error);
            }
            Body::RunSettled(_) => self.interrupt_open_calls(),
            Body::SessionError { error } => self.note_error(error),
            Body::SandboxCreated { .. } | Body::SandboxRestarted {} | Body::SandboxReplaced { .. } => {
                self.had_sandbox = true;
            }
            _ => {}
        }
    }

    fn arrive(&mut self, id: EventId, kind: InputKind, is_settled: bool) {
        if self.inputs.iter().all(|input| input.id != id) {
            self.inputs.push(Input { id, kind, is_settled });
        }
    }

    /// The named inputs enter the conversation here; unknown and repeated ids change nothing.
    fn process(&mut self, ids: &[EventId]) {
        for id in ids {
            let Some(at) = self.inputs.iter().position(|input| input.id == *id) else { continue };
            match self.inputs.remove(at).kind {
                InputKind::Message(content) => {
                    self.say(content);
                    self.owes_reply = true;
                }
                InputKind::Interrupt => {
                    self.interrupt_open_calls();
                    self.say(vec![Block::text("[The user interrupted the work here.]")]);
                    self.owes_reply = false;
                }
                InputKind::Answer => {}
            }
        }
    }

    /// What was said since the last reply stays as it was said; everything before it is told by the summary.
    fn compact(&mut self, summary: &str) {
        self.finish_reply();
        // The request for the summary is no exchange of the conversation.
        self.exchanges.pop_if(|last| last.reply.is_empty() && last.after.is_empty());
        let said = match self.exchanges.last_mut() {
            Some(last) => std::mem::take(&mut last.after),
            None => std::mem::take(&mut self.opening),
        };
        self.exchanges.clear();
        self.places.clear();
        self.customs.clear();
        self.opening = vec![Block::text(format!("[What was said and done before, summed up:]\n{summary}"))];
        self.opening.extend(said);
        self.owes_reply = true;
        self.counted_tokens = 0;
        self.added_bytes = 0;
        let opening = std::mem::take(&mut self.opening);
        self.grow(&opening);
        self.opening = opening;
    }

    fn count(&mut self, is_error: bool, usage: ModelUsage) {
        let tokens = usage.input_tokens
            + usage.output_tokens
            + usage.cache_read_input_tokens
            + usage.cache_creation_input_tokens;
        if !is_error && tokens > 0 {
            self.counted_tokens = tokens;
            self.added_bytes = 0;
        }
    }

    fn grow(&mut self, content: &[Block]) {
        let bytes = content.iter().map(|block| match block {
            Block::Text { text } => text.len() as u64,
            // Providers count a picture by its area, about this much at most.
            Block::Image { .. } | Block::Document { .. } => 1_600 * BYTES_PER_TOKEN,
        });
        self.added_bytes += bytes.sum::<u64>();
    }

    /// About how many tokens the next request has: the provider's last count, and an estimate of what came after it.
    #[must_use]
    pub const fn context_tokens(&self) -> u64 {
        self.counted_tokens + self.added_bytes / BYTES_PER_TOKEN
    }

    fn say(&mut self, content: Vec<Block>) {
        self.grow(&content);
        self.finish_reply();
        match self.exchanges.last_mut() {
            Some(exchange) => exchange.after.extend(content),
            None => self.opening.extend(content),
        }
    }

    /// A reply whose request never ended is none, unless it holds calls: those may have had effects.
    fn finish_reply(&mut self) {
        let Some(last) = self.exchanges.last_mut() else { return };
        if last.is_complete {
            return;
        }
        if last.has_calls() {
            last.is_complete = true;
        } else {
            self.exchanges.pop();
        }
    }

    fn end_request(&mut self, is_error: bool) {
        let Some(last) = self.exchanges.last_mut().filter(|last| !last.is_complete) else { return };
        let has_calls = last.has_calls();
        if is_error && !has_calls {
            self.exchanges.pop();
            return;
        }
        last.is_complete = true;
        self.owes_reply = has_calls;
    }

    fn reply(&mut self, part: Part) {
        if self.exchanges.last().is_none_or(|last| last.is_complete) {
            self.exchanges.push(Exchange::default());
        }
        if let Some(last) = self.exchanges.last_mut() {
            last.reply.push(part);
        }
    }

    fn propose(&mut self, call: Call) {
        if self.places.contains_key(&call.id) {
            return;
        }
        let id = call.id;
        self.reply(Part::Called(call));
        self.owes_reply = true;
        let exchange = self.exchanges.len() - 1;
        let part = self.exchanges[exchange].reply.len() - 1;
        self.places.insert(id, (exchange, part));
    }

    fn take_up(&mut self, id: EventId, proposed: Option<EventId>) {
        let Some(proposed) = proposed else { return };
        if let Some(call) = self.call_mut(proposed) {
            call.taken_up.get_or_insert(id);
            self.customs.insert(id, proposed);
        }
    }

    fn answer(&mut self, call: EventId, content: &[Block], is_error: bool) {
        if let Some(call) = self.call_mut(call) {
            call.answer.get_or_insert_with(|| Answer { content: content.to_vec(), is_error });
        }
    }

    fn note_error(&mut self, error: &SessionError) {
        if error.kind == OUTPUT_TRUNCATED {
            self.say(vec![Block::text(format!("[{}]", error.message))]);
            self.owes_reply = true;
        }
    }

    fn interrupt_open_calls(&mut self) {
        let parts = self.exchanges.iter_mut().flat_map(|exchange| &mut exchange.reply);
        for part in parts {
            if let Part::Called(call) = part
                && call.answer.is_none()
            {
                call.is_interrupted = true;
            }
        }
    }

    fn call_mut(&mut self, id: EventId) -> Option<&mut Call> {
        let &(exchange, part) = self.places.get(&id)?;
        match self.exchanges.get_mut(exchange)?.reply.get_mut(part)? {
            Part::Called(call) => Some(call),
            Part::Said(_) => None,
        }
    }

    /// The call with this id.
    #[must_use]
    pub fn call(&self, id: EventId) -> Option<&Call> {
        let &(exchange, part) = self.places.get(&id)?;
        match self.exchanges.get(exchange)?.reply.get(part)? {
            Part::Called(call) => Some(call),
            Part::Said(_) => None,
        }
    }

    /// The calls without a result, in log order.
    pub fn open_calls(&self) -> impl Iterator<Item = &Call> {
        let parts = self.exchanges.iter().flat_map(|exchange| &exchange.reply);
        parts.filter_map(|part| match part {
            Part::Called(call) if call.answer.is_none() => Some(call),
            Part::Called(_) | Part::Said(_) => None,
        })
    }

    /// The inputs that wait to be folded in, in log order.
    pub fn waiting(&self) -> impl Iterator<Item = &Input> {
        self.inputs.iter().filter(|input| !input.is_settled)
    }

    /// Whether the model has to speak next, once no call is open.
    #[must_use]
    pub const fn owes_reply(&self) -> bool {
        self.owes_reply
    }

    /// Whether the model said anything since the beginning or the last summary.
    #[must_use]
    pub const fn has_replies(&self) -> bool {
        !self.exchanges.is_empty()
    }

    /// Whether the log tells of a sandbox of this session.
    #[must_use]
    pub const fn had_sandbox(&self) -> bool {
        self.had_sandbox
    }
}

impl Exchange {
    fn has_calls(&self) -> bool {
        self.reply.iter().any(|part| matches!(part, Part::Called(_)))
    }
}

#[cfg(test)]
mod tests;
