//! One decision in the making: a state, the events that were added to it, and what must be rewritten when it commits.
//! A refused decision is dropped whole; nothing of it leaves.

use super::{
    permission::Evaluated,
    policy::{self, ResourceKind},
    session::State,
};
use crate::record::RunRecord;
use checkfu_shared::{
    agent::Agent,
    event::{Body, Cause, EvaluatedPermission, Event, ExecutionPins},
    id::{ApprovalId, EventId, PrincipalId, RunId, SessionId, ThreadId},
    time::Timestamp,
};
use serde_json::Value;

/// What a decision must know of a session beside its state.
#[derive(Debug, Clone)]
pub struct Facts {
    /// Whose log.
    pub session_id: SessionId,
    /// The primary thread.
    pub thread_id: ThreadId,
    /// The agent as pinned.
    pub agent: Agent,
    /// What the next run is bound to.
    pub pins: ExecutionPins,
    /// The budget as given.
    pub budget: Option<Value>,
    /// What the workspace's policies say.
    pub policy: policy::Context,
    /// Why the acting principal may not start a run now; `None` when it may.
    pub barred: Option<String>,
}

/// Where the ids of new events and runs come from.
pub trait Mint {
    /// The id of an event.
    fn event(&mut self) -> EventId;
    /// The id of a run.
    fn run(&mut self) -> RunId;
    /// The id of an approval.
    fn approval(&mut self) -> ApprovalId;
}

/// Fresh ids of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct FreshIds;

impl Mint for FreshIds {
    fn event(&mut self) -> EventId {
        EventId::mint()
    }
    fn run(&mut self) -> RunId {
        RunId::mint()
    }
    fn approval(&mut self) -> ApprovalId {
        ApprovalId::mint()
    }
}

/// Who said an input, and why.
#[derive(Debug, Clone)]
pub struct Said {
    /// Who.
    pub authored_by: PrincipalId,
    /// Why.
    pub caused_by: Cause,
}

/// One decision in the making.
pub struct Draft<'a> {
    /// The state with everything added so far.
    pub state: State,
    /// What else is known.
    pub facts: &'a Facts,
    /// When it happens.
    pub now: Timestamp,
    mint: &'a mut dyn Mint,
    events: Vec<Event>,
    runs: Vec<RunRecord>,
    processed: Vec<u64>,
    noted: Vec<Noted>,
}

/// A decision on a tool call that the audit tells of: a denial, or the use of an approval that stands.
#[derive(Debug, Clone)]
pub struct Noted {
    /// What kind of tool.
    pub kind: ResourceKind,
    /// Its name.
    pub tool: String,
    /// SHA-256 of its arguments.
    pub arguments_sha256: String,
    /// What the rules said.
    pub evaluated: Evaluated,
}

impl std::fmt::Debug for Draft<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Draft")
            .field("state", &self.state)
            .field("events", &self.events)
            .finish_non_exhaustive()
    }
}

/// What a decision came to.
#[derive(Debug)]
pub struct Decided {
    /// The state after it.
    pub state: State,
    /// The events to append, in order.
    pub events: Vec<Event>,
    /// Runs that changed, as they are now.
    pub runs: Vec<RunRecord>,
    /// Places of inputs that are processed now.
    pub processed: Vec<u64>,
    /// Decisions that the audit tells of.
    pub noted: Vec<Noted>,
}

impl<'a> Draft<'a> {
    /// A decision that starts from `state`.
    pub fn new(state: State, facts: &'a Facts, now: Timestamp, mint: &'a mut dyn Mint) -> Self {
        Self {
            state,
            facts,
            now,
            mint,
            events: Vec::new(),
            runs: Vec::new(),
            processed: Vec::new(),
            noted: Vec::new(),
        }
    }

    /// What it came to.
    #[must_use]
    pub fn decided(self) -> Decided {
        let Self { state, events, runs, processed, noted, .. } = self;
        Decided { state, events, runs, processed, noted }
    }

    /// The id of a new approval.
    pub(super) fn mint_approval(&mut self) -> ApprovalId {
        self.mint.approval()
    }

    /// Notes what the audit has to tell of a decision.
    pub(super) fn note_decision(
        &mut self,
        kind: ResourceKind,
        tool: &str,
        arguments_sha256: &str,
        evaluated: &Evaluated,
    ) {
        let is_told = evaluated.permission == EvaluatedPermission::Deny || evaluated.standing().is_some();
        if is_told {
            self.noted.push(Noted {
                kind,
                tool: tool.to_owned(),
                arguments_sha256: arguments_sha256.to_owned(),
                evaluated: evaluated.clone(),
            });
        }
    }

    /// The events so far.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Adds an event of the server's own.
    pub fn emit(&mut self, body: Body) -> EventId {
        let id = self.mint.event();
        self.add(id, None, None, body);
        id
    }

    /// Adds an event that a runner minted.
    pub fn emit_appended(&mut self, id: EventId, thread: Option<ThreadId>, body: Body) {
        self.add(id, Some(thread.unwrap_or(self.facts.thread_id)), None, body);
    }

    /// Adds an input.
    pub fn emit_input(&mut self, body: Body, said: Said) -> EventId {
        let id = self.mint.event();
        self.add(id, Some(self.facts.thread_id), Some(said), body);
        id
    }

    /// Queues a new run.
    pub fn emit_run(&mut self) {
        let (id, run) = (self.mint.event(), self.mint.run());
        let body = Body::RunCreated { execution_pins: self.facts.pins.clone() };
        let mut event = self.event(id, None, None, body);
        event.run_id = Some(run);
        self.fold(event);
    }

    /// Marks waiting inputs as processed here.
    pub fn process_inputs(&mut self, event_ids: Vec<EventId>) {
        if !event_ids.is_empty() {
            self.emit(Body::SessionInputProcessed { event_ids });
        }
    }

    fn add(&mut self, id: EventId, thread: Option<ThreadId>, said: Option<Said>, body: Body) {
        let event = self.event(id, thread, said, body);
        self.fold(event);
    }

    fn event(&self, id: EventId, thread: Option<ThreadId>, said: Option<Said>, body: Body) -> Event {
        let waits = body.is_input() && !matches!(body, Body::UserToolConfirmation(_));
        let (authored_by, caused_by) = said.map(|said| (said.authored_by, said.caused_by)).unzip();
        Event {
            id,
            seq: self.state.seq + 1,
            session_id: self.facts.session_id,
            session_thread_id: thread,
            run_id: self.state.run.as_ref().map(|run| run.record.id),
            created_at: self.now,
            processed_at: (!waits).then_some(self.now),
            authored_by,
            caused_by,
            body,
        }
    }

    fn fold(&mut self, event: Event) {
        if let Body::SessionInputProcessed { event_ids } = &event.body {
            let waiting = self.state.waiting.iter().filter(|input| event_ids.contains(&input.id));
            let places: Vec<u64> = waiting.map(|input| input.seq).collect();
            for own in self.events.iter_mut().filter(|own| places.contains(&own.seq)) {
                own.processed_at = Some(self.now);
            }
            let first = self.events.first().map_or(event.seq, |first| first.seq);
            self.processed.extend(places.into_iter().filter(|&place| place < first));
        }
        if let Some(run) = self.state.apply(&event) {
            self.runs.retain(|known| known.id != run.id);
            self.runs.push(run);
        }
        self.events.push(event);
    }
}
