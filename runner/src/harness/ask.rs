//! One model request with its retries. A reply is logged whole or not at all: a cut or interrupted stream leaves only the
//! end of its request behind.

use super::{Bench, Halt, Harness, Log, Step, turn};
use crate::model::{Failure, Message, Preview, Provider, Reply, failure, limits, messages};
use checkfu_shared::{
    event::{Body, ModelUsage, RetryStatus, SettledOutcome},
    id::EventId,
    protocol::append::Appended,
};
use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};
use turn::After;

/// What came of sending a request once.
pub(super) enum Sent {
    Whole(Reply),
    Failed(Failure),
    BrokenOff,
}

/// One request under way.
pub(super) struct Request {
    pub(super) start: EventId,
    /// The ids that the texts of the reply are previewed under.
    previewed: HashMap<usize, EventId>,
    gateway_id: Option<String>,
    /// Nobody sees the reply while it streams.
    is_hidden: bool,
}

impl Request {
    fn shown(start: EventId) -> Self {
        Self { start, previewed: HashMap::new(), gateway_id: None, is_hidden: false }
    }

    /// A request whose reply is no message.
    pub(super) fn hidden(start: EventId) -> Self {
        Self { is_hidden: true, ..Self::shown(start) }
    }
}

impl<L: Log, B: Bench, P: Provider> Harness<L, B, P> {
    pub(super) async fn ask(&mut self) -> Result<Step, Halt> {
        let body = match self.request_body() {
            Ok(body) => body,
            Err(_) => {
                self.is_full = true;
                return Ok(Step::Go);
            }
        };
        self.gate().await?;
        let mut request = Request::shown(EventId::mint());
        self.say(vec![turn::appended(request.start, Body::SpanModelRequestStart {})]).await?;
        match self.send(body, &mut request).await {
            Sent::Whole(reply) => self.take(reply, &request).await,
            Sent::BrokenOff => {
                self.end_failed(&request, None).await?;
                Ok(Step::Go)
            }
            Sent::Failed(failure) => {
                self.failures += 1;
                self.after_failure(failure, &request).await
            }
        }
    }

    fn request_body(&self) -> Result<bytes::Bytes, messages::TooLarge> {
        messages::body(&self.frame, &self.conversation())
    }

    /// The conversation within the limits of a request.
    pub(super) fn conversation(&self) -> Vec<Message> {
        let offered: HashSet<&str> = self.frame.tools.iter().map(|tool| tool.name.as_str()).collect();
        let mut messages = self.transcript.messages(&offered);
        limits::within(&mut messages);
        messages
    }

    pub(super) async fn send(&self, body: bytes::Bytes, request: &mut Request) -> Sent {
        let broken_off = self.broken_off();
        let log = &self.log;
        let mut seen = |preview| match preview {
            Preview::Began { request_id } => request.gateway_id = Some(request_id),
            Preview::Text { .. } if request.is_hidden => {}
            Preview::Text { block, offset, text } => {
                let message = *request.previewed.entry(block).or_insert_with(EventId::mint);
                log.preview(message, offset, text);
            }
        };
        tokio::select! {
            biased;
            () = broken_off => Sent::BrokenOff,
            reply = self.provider.ask(body, &mut seen) => match reply {
                Ok(reply) => Sent::Whole(reply),
                Err(failure) => Sent::Failed(failure),
            },
        }
    }

    /// Logs the end of a request that gave no reply, with the error that is shown.
    pub(super) async fn end_failed(
        &mut self,
        request: &Request,
        error: Option<Appended>,
    ) -> Result<(), Halt> {
        let mut end = turn::fresh(Body::SpanModelRequestEnd {
            model_request_start_id: request.start,
            model_usage: ModelUsage::default(),
            is_error: true,
            bill: None,
        });
        end.model_request_id.clone_from(&request.gateway_id);
        self.say(std::iter::once(end).chain(error).collect()).await
    }

    /// Says what failed, and waits a while when the request is worth repeating.
    pub(super) async fn after_failure(&mut self, failure: Failure, request: &Request) -> Result<Step, Halt> {
        let attempt = self.failures;
        let (kind, message, after_ms) = match failure {
            Failure::Fenced => return Err(Halt::Lost),
            Failure::Budget => {
                self.end_failed(request, None).await?;
                return Ok(Step::Over(SettledOutcome::BudgetReached));
            }
            Failure::TooLong if self.is_full => {
                let message =
                    "The conversation is too long for the model, even summed up. Start a new session.";
                return self.exhausted(request, "model_request_failed_error", message.to_owned()).await;
            }
            Failure::TooLong => {
                self.is_full = true;
                self.end_failed(request, None).await?;
                return Ok(Step::Go);
            }
            Failure::Fatal { kind, message } => return self.exhausted(request, kind, message).await,
            Failure::Retry { kind, message, .. } if attempt >= failure::ATTEMPTS_MAX => {
                let message =
                    format!("{message} It was tried {attempt} times. Send a message to try again later.");
                return self.exhausted(request, kind, message).await;
            }
            Failure::Retry { kind, message, after_ms } => (kind, message, after_ms),
        };
        let error = turn::error(kind, message, RetryStatus::Retrying);
        self.end_failed(request, Some(error)).await?;
        let wait = self.backoff.next(after_ms.map(Duration::from_millis));
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = self.broken_off() => {}
        }
        Ok(Step::Go)
    }

    async fn exhausted(&mut self, request: &Request, kind: &str, message: String) -> Result<Step, Halt> {
        let error = turn::error(kind, message, RetryStatus::Exhausted);
        self.end_failed(request, Some(error)).await?;
        Ok(Step::Over(SettledOutcome::RetriesExhausted))
    }

    async fn take(&mut self, reply: Reply, request: &Request) -> Result<Step, Halt> {
        self.failures = 0;
        self.backoff.reset();
        let agent = &self.agent;
        let logged = turn::log_reply(reply, request.start, &request.previewed, |name| agent.has_custom(name));
        self.undecided = logged.calls;
        self.say(logged.events).await?;
        match logged.next {
            After::Go => self.cut_replies = 0,
            After::Refusal => return Ok(Step::Over(SettledOutcome::Refusal)),
            After::Full => self.is_full = true,
            After::Cut => {
                self.cut_replies += 1;
                if self.cut_replies > turn::CUT_REPLIES_MAX {
                    let message =
                        format!("{} replies in a row were cut at the output limit.", self.cut_replies);
                    return self.give_up(message).await;
                }
            }
        }
        Ok(Step::Go)
    }

    pub(super) async fn give_up(&mut self, message: String) -> Result<Step, Halt> {
        self.fail("model_request_failed_error", message, SettledOutcome::RetriesExhausted).await
    }
}
