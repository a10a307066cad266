//! Compaction: before the model's window is full, the conversation is told anew as a summary. The summary is an event of the
//! log, so that any runner goes on from it. It is a model request like any other, but for what is shown and what it leaves.

use super::{Bench, Halt, Harness, Log, Step, ask::Request, turn};
use crate::model::{Content, Failure, Message, Part, Provider, Reply, Role, messages};
use checkfu_shared::{content::Block, event::Body, id::EventId, protocol::claim::ContextLimits};

/// What the model is told when it has to sum up.
const INSTRUCTION: &str = "[The conversation is about to be shortened: everything above will be replaced by what you write now. \
Write a summary from which the work can go on without the rest. Keep: what the user wants, in their own words where the words \
matter; every decision and its reason; what was done, with names of files, commands and values; what failed and why; what is \
still to be done, and the very next step. Do not call any tool. Answer with the summary alone.]";

/// How much of a result is shown to a model that has to sum up a conversation larger than its window.
const SHORT_RESULT_CHARS: usize = 1_000;
/// The longest summary, so that it fits an event however it is escaped.
const SUMMARY_BYTES_MAX: usize = 80 << 10;

/// Whether a conversation of so many tokens has to be summed up before the model is asked again.
#[must_use]
pub(super) fn is_due(context_tokens: u64, limits: ContextLimits) -> bool {
    let share = u128::from(limits.window_tokens) * u128::from(limits.compact_at_percent.min(100)) / 100;
    limits.compact_at_percent > 0 && u128::from(context_tokens) >= share.max(1)
}

/// The conversation with pictures named and long results cut, for when it does not fit as it is.
#[must_use]
pub(super) fn shortened(messages: Vec<Message>) -> Vec<Message> {
    let short = |content: Content| match content {
        Content::Block(block) => Content::Block(short_block(block)),
        Content::Result { id, content, is_error } => {
            Content::Result { id, content: content.into_iter().map(short_block).collect(), is_error }
        }
        call @ Content::Call { .. } => call,
    };
    messages
        .into_iter()
        .map(|Message { role, content }| Message { role, content: content.into_iter().map(short).collect() })
        .collect()
}

fn short_block(block: Block) -> Block {
    match block {
        Block::Text { text } => match text.char_indices().nth(SHORT_RESULT_CHARS) {
            Some((cut, _)) => Block::text(format!("{}\n[... shortened]", &text[..cut])),
            None => Block::Text { text },
        },
        Block::Image { .. } => Block::text("[a picture]"),
        Block::Document { .. } => Block::text("[a document]"),
    }
}

/// The summary in a reply, when there is one.
fn summary_of(reply: &Reply) -> Option<String> {
    let texts = reply.parts.iter().filter_map(|part| match part {
        Part::Text { text, .. } => Some(text.as_str()),
        _ => None,
    });
    let mut summary = texts.collect::<Vec<_>>().join("\n").trim().to_owned();
    let mut cut = summary.len().min(SUMMARY_BYTES_MAX);
    while !summary.is_char_boundary(cut) {
        cut -= 1;
    }
    summary.truncate(cut);
    (!summary.is_empty()).then_some(summary)
}

impl<L: Log, B: Bench, P: Provider> Harness<L, B, P> {
    pub(super) fn is_compaction_due(&self) -> bool {
        let due = || is_due(self.transcript.context_tokens(), self.context);
        self.is_full || (self.transcript.has_replies() && due())
    }

    /// Has the model sum the conversation up, and goes on from that.
    pub(super) async fn compact(&mut self) -> Result<Step, Halt> {
        if !self.transcript.has_replies() {
            let message = "The message is too long for the model. Start a new session with a shorter one, or put it into files.";
            return self.give_up(message.to_owned()).await;
        }
        let Ok(body) = self.summary_body() else {
            let message = "The conversation is too large to be summed up. Start a new session.";
            return self.give_up(message.to_owned()).await;
        };
        self.gate().await?;
        let mut request = Request::hidden(EventId::mint());
        self.say(vec![turn::appended(request.start, Body::SpanModelRequestStart {})]).await?;
        match self.send(body, &mut request).await {
            super::ask::Sent::Whole(reply) => self.take_summary(&reply, &request).await,
            super::ask::Sent::BrokenOff => {
                self.end_failed(&request, None).await?;
                Ok(Step::Go)
            }
            super::ask::Sent::Failed(Failure::TooLong) if !self.is_full => {
                self.is_full = true;
                self.end_failed(&request, None).await?;
                Ok(Step::Go)
            }
            super::ask::Sent::Failed(failure) => {
                self.failures += 1;
                self.after_failure(failure, &request).await
            }
        }
    }

    fn summary_body(&self) -> Result<bytes::Bytes, messages::TooLarge> {
        let mut messages = self.conversation();
        if self.is_full {
            messages = shortened(messages);
        }
        let instruction = Content::Block(Block::text(INSTRUCTION));
        match messages.last_mut().filter(|last| last.role == Role::User) {
            Some(last) => last.content.push(instruction),
            None => messages.push(Message { role: Role::User, content: vec![instruction] }),
        }
        messages::body(&self.frame, &messages)
    }

    async fn take_summary(&mut self, reply: &Reply, request: &Request) -> Result<Step, Halt> {
        let Some(summary) = summary_of(reply) else {
            self.end_failed(request, None).await?;
            let message =
                "The conversation is too long for the model, which did not sum it up. Start a new session.";
            return self.give_up(message.to_owned()).await;
        };
        self.failures = 0;
        self.backoff.reset();
        self.is_full = false;
        let tokens_before = self.transcript.context_tokens();
        let compacted = turn::fresh(Body::AgentThreadContextCompacted { summary, tokens_before });
        let mut end = turn::fresh(Body::SpanModelRequestEnd {
            model_request_start_id: request.start,
            model_usage: reply.usage,
            is_error: false,
            bill: None,
        });
        end.model_request_id.clone_from(&reply.request_id);
        // The end comes first, so that what it tells of the old conversation does not count for the new one.
        self.say(vec![end, compacted]).await?;
        Ok(Step::Go)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use checkfu_shared::content::Source;

    #[test]
    fn it_is_due_at_the_configured_share_of_the_window() {
        let limits = |compact_at_percent| ContextLimits { window_tokens: 1_000, compact_at_percent };
        for (tokens, percent, want) in [
            (799, 80, false),
            (800, 80, true),
            (5_000, 80, true),
            (0, 80, false),
            (5_000, 0, false),
            (999, 200, false),
        ] {
            assert_eq!(is_due(tokens, limits(percent)), want, "{tokens} of 1000 at {percent} %");
        }
    }

    #[test]
    fn pictures_are_named_and_long_results_are_cut_at_a_character() {
        let image =
            Block::Image { source: Source::Base64 { media_type: "image/png".into(), data: "eA==".into() } };
        let messages = vec![Message {
            role: Role::User,
            content: vec![
                Content::Block(image.clone()),
                Content::Result {
                    id: "c".into(),
                    content: vec![Block::text("é".repeat(2_000)), image],
                    is_error: false,
                },
            ],
        }];
        let short = shortened(messages);
        let Content::Result { content, .. } = &short[0].content[1] else { panic!("{short:?}") };
        assert_eq!(content[0], Block::text(format!("{}\n[... shortened]", "é".repeat(1_000))));
        assert_eq!(content[1], Block::text("[a picture]"));
        assert_eq!(short[0].content[0], Content::Block(Block::text("[a picture]")));
    }
}
