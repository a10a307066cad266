//! The scripted forms of what a harness works with: a control plane, a sandbox and a model in memory. The model refuses a
//! request that a rebuilt conversation would not send; the sandbox refuses to run a call twice.

use super::super::*;
use crate::model::{Failure, Preview, Reply, messages};
use checkfu_shared::{
    content::Block,
    event::{Confirmation, EvaluatedPermission},
    id::SessionId,
    protocol::append::Disposition,
    time::Timestamp,
};
use serde_json::Value;
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};
use tokio::sync::Notify;

/// A control plane in memory: one log, and policies by tool name.
#[derive(Debug, Default)]
pub(super) struct World {
    pub(super) events: Vec<Event>,
    pub(super) asks: HashSet<String>,
    pub(super) denies: HashSet<String>,
    pub(super) decided: Vec<Decision>,
    /// Model replies still to come, and the request bodies that came.
    pub(super) replies: VecDeque<Scripted>,
    pub(super) asked: Vec<Value>,
    /// What each sandbox call does, by tool name.
    pub(super) outcomes: VecDeque<Result<Outcome, Trouble>>,
    pub(super) ran: Vec<EventId>,
    pub(super) opened: u32,
    pub(super) openings: VecDeque<Result<News, Trouble>>,
    pub(super) known: Option<Known>,
    pub(super) acknowledged: Vec<EventId>,
    pub(super) previews: Vec<(EventId, u64, String)>,
}

#[derive(Debug)]
pub(super) enum Scripted {
    Reply(Reply),
    Fails(Failure),
    /// Previews a text, then never ends.
    Hangs,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Scene {
    pub(super) world: Arc<Mutex<World>>,
    /// Told when a call or a request hangs.
    pub(super) reached: Arc<Notify>,
    /// Told by `cancel_all`.
    pub(super) cancelled: Arc<Notify>,
}

impl World {
    pub(super) fn log(&mut self, id: EventId, body: Body, is_processed: bool) {
        let seq = self.events.len() as u64 + 1;
        self.events.push(Event {
            id,
            seq,
            session_id: SessionId::from_bytes([0; 16]),
            session_thread_id: None,
            run_id: None,
            created_at: Timestamp::from_ms(0),
            processed_at: is_processed.then_some(Timestamp::from_ms(0)),
            authored_by: None,
            caused_by: None,
            body,
        });
    }

    pub(super) fn decide(&mut self, id: EventId, name: &str) -> EvaluatedPermission {
        let (disposition, permission) = if self.denies.contains(name) {
            (Disposition::Deny, EvaluatedPermission::Deny)
        } else if self.asks.contains(name) {
            (Disposition::Ask, EvaluatedPermission::Ask)
        } else {
            (Disposition::Allow, EvaluatedPermission::Allow)
        };
        self.decided.push(Decision {
            tool_use_id: id,
            disposition,
            approval_id: None,
            reason: "the policy says so".into(),
        });
        permission
    }

    pub(super) fn take(&mut self, appended: Appended) {
        let Appended { id, mut body, .. } = appended;
        match &mut body {
            Body::AgentToolUse(used) => used.evaluated_permission = Some(self.decide(id, &used.name.clone())),
            Body::AgentToolResumed { tool_use_id, .. } => {
                let call = *tool_use_id;
                let answer = self.events.iter().find_map(|event| match &event.body {
                    Body::UserToolConfirmation(answer) if answer.tool_use_id == call => Some(answer.result),
                    _ => None,
                });
                let disposition = match answer {
                    Some(Confirmation::Deny) => Disposition::Deny,
                    Some(Confirmation::Allow) => Disposition::Allow,
                    None if self.asks.is_empty() => Disposition::Allow,
                    None => Disposition::Ask,
                };
                self.decided.push(Decision {
                    tool_use_id: call,
                    disposition,
                    approval_id: None,
                    reason: "asked again".into(),
                });
            }
            Body::AgentToolProposed { name, input } => {
                let (name, input) = (name.clone(), input.clone());
                if self.decide(id, &name) == EvaluatedPermission::Allow {
                    self.log(id, body, true);
                    let shown = Body::AgentCustomToolUse { name, input, proposed_id: Some(id) };
                    self.log(EventId::mint(), shown, true);
                    return;
                }
            }
            _ => {}
        }
        self.log(id, body, true);
    }
}

impl Log for Scene {
    async fn append(&self, events: Vec<Appended>) -> Result<(), Halt> {
        let mut world = self.world.lock().unwrap();
        events.into_iter().for_each(|event| world.take(event));
        Ok(())
    }

    async fn decisions(&self, calls: &[EventId]) -> Result<Vec<Decision>, Halt> {
        let mut world = self.world.lock().unwrap();
        let decided = std::mem::take(&mut world.decided);
        let (wanted, rest) = decided.into_iter().partition(|decision| calls.contains(&decision.tool_use_id));
        world.decided = rest;
        Ok(wanted)
    }

    async fn history(&self, after_seq: u64) -> Result<Vec<Event>, Halt> {
        let world = self.world.lock().unwrap();
        Ok(world.events.iter().filter(|event| event.seq > after_seq).cloned().collect())
    }

    fn preview(&self, message: EventId, offset: u64, text: String) {
        self.world.lock().unwrap().previews.push((message, offset, text));
    }
}

impl Bench for Scene {
    async fn open(&self) -> Result<News, Trouble> {
        let mut world = self.world.lock().unwrap();
        world.opened += 1;
        world.openings.pop_front().unwrap_or_else(|| Ok(News::default()))
    }

    async fn run(&self, permit: Permit, tool: Tool) -> Result<Outcome, Trouble> {
        let outcome = {
            let mut world = self.world.lock().unwrap();
            assert!(!world.ran.contains(&permit.call()), "a call ran twice");
            world.ran.push(permit.call());
            world.outcomes.pop_front().unwrap_or_else(|| Ok(Outcome::text("done")))
        };
        if matches!(&tool, Tool::Bash(bash) if bash.command.as_deref() == Some("hang")) {
            self.reached.notify_one();
            self.cancelled.notified().await;
            return Ok(Outcome { cancelled: true, ..Outcome::error("partial") });
        }
        outcome
    }

    async fn known(&self, _call: EventId) -> Result<Known, Trouble> {
        Ok(self.world.lock().unwrap().known.unwrap_or(Known::Unclear))
    }

    async fn collect(&self, _call: EventId, _tool: Tool) -> Result<Outcome, Trouble> {
        Ok(Outcome::text("collected"))
    }

    async fn cancel_all(&self) {
        self.cancelled.notify_waiters();
    }

    async fn acknowledge(&self, call: EventId) {
        self.world.lock().unwrap().acknowledged.push(call);
    }

    fn denials(&self) -> Vec<Body> {
        Vec::new()
    }
}

impl Provider for Scene {
    async fn ask(
        &self,
        body: bytes::Bytes,
        seen: &mut (dyn FnMut(Preview) + Send),
    ) -> Result<Reply, Failure> {
        let scripted = {
            let mut world = self.world.lock().unwrap();
            let body: Value = serde_json::from_slice(&body).unwrap();
            let rebuilt = Transcript::rebuild(&world.events);
            let frame = frame();
            let offered: HashSet<&str> = frame.tools.iter().map(|tool| tool.name.as_str()).collect();
            let expected = messages::body(&frame, &rebuilt.messages(&offered)).unwrap();
            // Who has to sum up is asked for that, too.
            if !body.to_string().contains("about to be shortened") {
                assert_eq!(
                    body,
                    serde_json::from_slice::<Value>(&expected).unwrap(),
                    "live and rebuilt differ"
                );
            }
            world.asked.push(body);
            world.replies.pop_front().expect("the model was asked more often than scripted")
        };
        match scripted {
            Scripted::Reply(reply) => Ok(reply),
            Scripted::Fails(failure) => Err(failure),
            Scripted::Hangs => {
                seen(Preview::Began { request_id: "mreq".into() });
                seen(Preview::Text { block: 0, offset: 0, text: "par".into() });
                self.reached.notify_one();
                std::future::pending().await
            }
        }
    }
}

pub(super) fn frame() -> Frame {
    let agent = crate::tools::tests::agent();
    Frame { model: agent.model.id.clone(), system: agent.system.clone(), tools: tools::offered(&agent) }
}

/// A session under test: its world, its orders, and how to start a claim on it.
pub(super) struct Stage {
    pub(super) scene: Scene,
    pub(super) orders: watch::Sender<Orders>,
    pub(super) held: watch::Sender<State>,
    pub(super) lease: watch::Receiver<State>,
    pub(super) context: ContextLimits,
}

impl Stage {
    pub(super) fn new(replies: Vec<Scripted>) -> Self {
        let far = BootInstant::now().plus_ms(3_600_000);
        let (held, lease) = watch::channel(State::Held { until: far, ends: far });
        let scene = Scene::default();
        scene.world.lock().unwrap().replies = replies.into();
        Self {
            scene,
            orders: watch::Sender::new(Orders::default()),
            held,
            lease,
            context: ContextLimits::default(),
        }
    }

    pub(super) fn world(&self) -> std::sync::MutexGuard<'_, World> {
        self.scene.world.lock().unwrap()
    }

    pub(super) fn input(&self, body: Body) -> EventId {
        let id = EventId::mint();
        self.world().log(id, body, false);
        self.orders.send_modify(|orders| orders.inputs += 1);
        id
    }

    pub(super) fn say(&self, text: &str) -> EventId {
        self.input(Body::UserMessage { content: vec![Block::text(text)] })
    }

    pub(super) fn interrupt(&self) {
        self.input(Body::UserInterrupt { session_thread_id: None });
        self.orders.send_modify(|orders| orders.is_interrupted = true);
    }

    /// One claim, from rebuilding to its outcome.
    pub(super) async fn claim(&self) -> Result<SettledOutcome, Halt> {
        let scene = || self.scene.clone();
        let agent = crate::tools::tests::agent();
        let mut harness =
            Harness::new(scene(), scene(), scene(), agent, self.orders.subscribe(), self.lease.clone())
                .with_context(self.context);
        harness.rebuild().await?;
        harness.drive().await
    }

    pub(super) fn kinds(&self) -> Vec<&'static str> {
        self.world().events.iter().map(|event| event.body.kind()).collect()
    }

    /// The results in log order: text and whether it is an error.
    pub(super) fn results(&self) -> Vec<(String, bool)> {
        let world = self.world();
        let results = world.events.iter().filter_map(|event| match &event.body {
            Body::AgentToolResult(result) => Some(result),
            _ => None,
        });
        results
            .map(|result| {
                let texts = result.content.iter().map(|block| match block {
                    Block::Text { text } => text.as_str(),
                    _ => "attachment",
                });
                (texts.collect::<Vec<_>>().join("|"), result.is_error)
            })
            .collect()
    }

    pub(super) fn errors(&self) -> Vec<(String, RetryStatus)> {
        let world = self.world();
        let errors = world.events.iter().filter_map(|event| match &event.body {
            Body::SessionError { error } => Some((error.kind.clone(), error.retry_status)),
            _ => None,
        });
        errors.collect()
    }
}
