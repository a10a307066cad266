//! A session's state, and the fold that makes it of the log. Nothing else changes a state.

use super::budget::MICRO_USD_PER_CENT;
use crate::record::{RunRecord, RunStatus, Status};
use checkfu_shared::{
    event::{
        ApprovalPending, ApprovalResolved, ApprovalStatus, Body, Confirmation, EvaluatedPermission, Event,
        ModelUsage, StopReason, Usage,
    },
    id::{ApprovalId, EventId},
    protocol::append::sha256_hex,
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

/// What the log says of a session now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The last event's place.
    pub seq: u64,
    /// What the session is doing.
    pub status: Status,
    /// Why it stopped last.
    pub stop_reason: Option<StopReason>,
    /// The run that is not over.
    pub run: Option<Run>,
    /// Inputs that were not folded into the conversation yet, in log order.
    pub waiting: Vec<Waiting>,
    /// Tool calls without a result, in log order.
    pub calls: Vec<Call>,
    /// What it used so far.
    pub usage: Usage,
    /// What that cost by the price list, in micro-USD.
    #[serde(default)]
    pub spent_micro_usd: u64,
    /// The last model request that began.
    #[serde(default)]
    pub last_request: Option<EventId>,
    /// Milliseconds in which a run was claimed.
    pub active_ms: u64,
    /// The last epoch that settled.
    pub settled_epoch: u64,
}

/// A run that is not over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The record as readers see it.
    pub record: RunRecord,
    /// The place of its last `run.claimed`; 0 before the first.
    pub claimed_seq: u64,
    /// Since when it is claimed, while it is.
    pub claimed_since: Option<Timestamp>,
    /// An interrupt was processed in it.
    pub interrupted: bool,
}

/// An input that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// The event.
    pub id: EventId,
    /// Its place.
    pub seq: u64,
    /// What it is.
    pub kind: InputKind,
}

/// What an input that waits is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputKind {
    /// A message.
    Message,
    /// An interrupt.
    Interrupt,
    /// The result of a custom tool.
    Result,
}

/// A tool call without a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// The event that an answer must name.
    pub id: EventId,
    /// The proposal it stems from, for a custom tool.
    pub proposed_id: Option<EventId>,
    /// The tool's name.
    pub name: String,
    /// SHA-256 of its arguments as logged.
    pub arguments_sha256: String,
    /// Whether the host application runs it.
    #[serde(default)]
    pub is_custom: bool,
    /// The approval that was made of it, when it asked.
    #[serde(default)]
    pub approval_id: Option<ApprovalId>,
    /// How far it is.
    pub stage: Stage,
}

/// How far an open call is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Stage {
    /// Somebody has to answer.
    Pending,
    /// Somebody said yes; not consumed yet.
    Approved,
    /// It may run, and perhaps did.
    Started,
    /// It may not run.
    Denied {
        /// What the model is told, when somebody said so.
        message: Option<String>,
    },
    /// The run ended before anybody answered.
    Invalidated,
    /// A custom tool: the host application owes the result.
    Awaiting,
    /// A custom tool: the result is there and waits to be folded in.
    Answered {
        /// The `user.custom_tool_result`.
        result_id: EventId,
    },
}

impl Call {
    /// Whether somebody outside has to do something before the run can go on.
    #[must_use]
    pub const fn is_open_ask(&self) -> bool {
        matches!(self.stage, Stage::Pending | Stage::Awaiting)
    }

    fn is_named(&self, id: EventId) -> bool {
        self.id == id || self.proposed_id == Some(id)
    }
}

impl Default for State {
    fn default() -> Self {
        Self {
            seq: 0,
            status: Status::Idle,
            stop_reason: None,
            run: None,
            waiting: Vec::new(),
            calls: Vec::new(),
            usage: Usage::default(),
            spent_micro_usd: 0,
            last_request: None,
            active_ms: 0,
            settled_epoch: 0,
        }
    }
}

impl State {
    /// The open call with this id, or with this proposal.
    #[must_use]
    pub fn call(&self, id: EventId) -> Option<&Call> {
        self.calls.iter().find(|call| call.is_named(id))
    }

    /// The calls that wait for somebody, in log order.
    #[must_use]
    pub fn open_asks(&self) -> Vec<EventId> {
        self.calls.iter().filter(|call| call.is_open_ask()).map(|call| call.id).collect()
    }

    /// How far the run is, when there is one.
    #[must_use]
    pub fn phase(&self) -> Option<RunStatus> {
        self.run.as_ref().map(|run| run.record.status)
    }

    /// The inputs of this kind that wait.
    pub fn waiting_of(&self, kind: InputKind) -> impl Iterator<Item = &Waiting> {
        self.waiting.iter().filter(move |input| input.kind == kind)
    }

    /// Folds one event in; the run as it is after it, when the event concerns the run.
    pub fn apply(&mut self, event: &Event) -> Option<RunRecord> {
        self.seq = event.seq;
        match &event.body {
            Body::UserMessage { .. } => self.wait(event, InputKind::Message),
            Body::UserInterrupt { .. } => self.wait(event, InputKind::Interrupt),
            Body::UserCustomToolResult { custom_tool_use_id, .. } => {
                self.wait(event, InputKind::Result);
                self.set_stage(*custom_tool_use_id, Stage::Answered { result_id: event.id });
            }
            Body::UserToolConfirmation(answer) => {
                let stage = match answer.result {
                    Confirmation::Allow => Stage::Approved,
                    Confirmation::Deny => Stage::Denied { message: answer.deny_message.clone() },
                };
                self.set_stage(answer.tool_use_id, stage);
            }
            Body::SessionInputProcessed { event_ids } => self.process(event_ids),
            Body::SessionStatusRunning {} => {
                self.status = Status::Running;
                self.stop_reason = None;
                return self.requeue();
            }
            Body::SessionStatusIdle { stop_reason } => {
                self.status = Status::Idle;
                self.stop_reason = Some(stop_reason.clone());
            }
            Body::SessionStatusTerminated {} => self.status = Status::Terminated,
            Body::SessionUsage { usage, .. } => self.usage = usage.clone(),
            Body::SpanModelRequestStart {} => self.last_request = Some(event.id),
            Body::SpanModelRequestEnd { model_usage, is_error, bill, .. } => {
                let cost = bill.as_ref().and_then(|bill| bill.list_cost_micro_usd);
                return self.meter(*model_usage, cost.unwrap_or(0), *is_error);
            }
            Body::RunCreated { .. }
            | Body::RunClaimed(_)
            | Body::RunSuspended(_)
            | Body::RunSettled(_)
            | Body::SessionStatusRescheduled { .. } => return self.apply_run(event),
            _ => self.apply_call(event),
        }
        None
    }

    fn apply_call(&mut self, event: &Event) {
        match &event.body {
            Body::ActionApprovalPending(asked) => self.ask(asked),
            Body::ActionApprovalResolved(end) => self.end_approval(end),
            Body::AgentToolUse(call) => {
                let stage = match call.evaluated_permission {
                    Some(EvaluatedPermission::Allow) => Stage::Started,
                    Some(EvaluatedPermission::Ask) => Stage::Pending,
                    Some(EvaluatedPermission::Deny) | None => Stage::Denied { message: None },
                };
                self.open(event.id, None, (&call.name, &call.input), false, stage);
            }
            Body::AgentToolProposed { name, input } => {
                self.open(event.id, None, (name, input), true, Stage::Denied { message: None });
            }
            Body::AgentCustomToolUse { name, input, proposed_id } => {
                self.calls.retain(|call| Some(call.id) != *proposed_id);
                self.open(event.id, *proposed_id, (name, input), true, Stage::Awaiting);
            }
            Body::AgentToolResumed { tool_use_id, .. } => self.consume(*tool_use_id),
            Body::AgentToolResult(result) => self.calls.retain(|call| !call.is_named(result.tool_use_id)),
            _ => {}
        }
    }

    fn apply_run(&mut self, event: &Event) -> Option<RunRecord> {
        match &event.body {
            Body::RunCreated { execution_pins } => {
                self.run = event.run_id.map(|id| Run {
                    record: RunRecord {
                        id,
                        session_id: event.session_id,
                        status: RunStatus::Queued,
                        execution_pins: execution_pins.clone(),
                        created_at: event.created_at,
                        claimed_at: None,
                        settled_at: None,
                        runner_id: None,
                        epoch: 0,
                        attempt: 1,
                        stop_reason: None,
                        waiting_reason: None,
                    },
                    claimed_seq: 0,
                    claimed_since: None,
                    interrupted: false,
                });
            }
            Body::RunClaimed(claimed) => {
                let run = self.run.as_mut()?;
                run.record.status = RunStatus::Claimed;
                run.record.runner_id = Some(claimed.runner_id);
                run.record.epoch = claimed.epoch;
                run.record.attempt = claimed.attempt;
                run.record.claimed_at = Some(event.created_at);
                run.record.stop_reason = None;
                run.claimed_since = Some(event.created_at);
                run.claimed_seq = event.seq;
            }
            Body::SessionStatusRescheduled { attempt } => {
                self.status = Status::Rescheduling;
                self.stop_clock(event.created_at);
                let run = self.run.as_mut()?;
                run.record.status = RunStatus::Queued;
                run.record.attempt = attempt.unwrap_or(run.record.attempt);
            }
            Body::RunSuspended(end) => {
                self.stop_clock(event.created_at);
                self.settled_epoch = self.settled_epoch.max(end.epoch);
                let run = self.run.as_mut()?;
                run.record.status = RunStatus::Suspended;
                run.record.stop_reason = Some(end.stop_reason.clone());
            }
            Body::RunSettled(end) => {
                self.stop_clock(event.created_at);
                self.settled_epoch = self.settled_epoch.max(end.epoch);
                self.invalidate();
                let mut over = self.run.take()?.record;
                over.status = RunStatus::Settled;
                over.settled_at = Some(event.created_at);
                over.stop_reason = Some(end.stop_reason.clone());
                return Some(over);
            }
            _ => {}
        }
        self.run.as_ref().map(|run| run.record.clone())
    }

    fn wait(&mut self, event: &Event, kind: InputKind) {
        self.waiting.push(Waiting { id: event.id, seq: event.seq, kind });
    }

    fn set_stage(&mut self, id: EventId, stage: Stage) {
        if let Some(call) = self.calls.iter_mut().find(|call| call.is_named(id)) {
            call.stage = stage;
        }
    }

    /// An approval counts once.
    fn consume(&mut self, id: EventId) {
        if self.call(id).is_some_and(|call| call.stage == Stage::Approved) {
            self.set_stage(id, Stage::Started);
        }
    }

    fn open(
        &mut self,
        id: EventId,
        proposed_id: Option<EventId>,
        (name, input): (&str, &serde_json::Value),
        is_custom: bool,
        stage: Stage,
    ) {
        let arguments_sha256 = sha256_hex(&serde_json::to_vec(input).unwrap_or_default());
        let (name, approval_id) = (name.to_owned(), None);
        self.calls.push(Call { id, proposed_id, name, arguments_sha256, is_custom, approval_id, stage });
    }

    fn ask(&mut self, asked: &ApprovalPending) {
        if let Some(call) = self.calls.iter_mut().find(|call| call.id == asked.tool_use_id) {
            call.approval_id = Some(asked.approval_id);
            call.stage = Stage::Pending;
        }
    }

    fn end_approval(&mut self, end: &ApprovalResolved) {
        match end.status {
            ApprovalStatus::Expired => {
                let message = Some(super::approval::EXPIRED.to_owned());
                self.set_stage(end.tool_use_id, Stage::Denied { message });
            }
            ApprovalStatus::Invalidated => self.set_stage(end.tool_use_id, Stage::Invalidated),
            // The answer itself is an event of its own, directly before.
            ApprovalStatus::Pending | ApprovalStatus::Approved | ApprovalStatus::Denied => {}
        }
    }

    fn process(&mut self, ids: &[EventId]) {
        let interrupted = self.waiting_of(InputKind::Interrupt).any(|input| ids.contains(&input.id));
        self.waiting.retain(|input| !ids.contains(&input.id));
        self.calls
            .retain(|call| !matches!(call.stage, Stage::Answered { result_id } if ids.contains(&result_id)));
        if let Some(run) = &mut self.run {
            run.interrupted |= interrupted;
        }
    }

    fn requeue(&mut self) -> Option<RunRecord> {
        let run = self.run.as_mut().filter(|run| run.record.status == RunStatus::Suspended)?;
        run.record.status = RunStatus::Queued;
        run.record.stop_reason = None;
        Some(run.record.clone())
    }

    fn meter(&mut self, used: ModelUsage, cost_micro_usd: u64, is_error: bool) -> Option<RunRecord> {
        let usage = &mut self.usage;
        usage.input_tokens += used.input_tokens;
        usage.output_tokens += used.output_tokens;
        usage.cache_read_input_tokens += used.cache_read_input_tokens;
        usage.cache_creation.ephemeral_5m_input_tokens += used.cache_creation_input_tokens;
        self.spent_micro_usd = self.spent_micro_usd.saturating_add(cost_micro_usd);
        usage.list_cost.amount = (self.spent_micro_usd / MICRO_USD_PER_CENT).to_string();
        let run = self.run.as_mut().filter(|run| !is_error && run.record.attempt != 1)?;
        run.record.attempt = 1;
        Some(run.record.clone())
    }

    fn stop_clock(&mut self, now: Timestamp) {
        if let Some(since) = self.run.as_mut().and_then(|run| run.claimed_since.take()) {
            self.active_ms += u64::try_from(now.since_ms(since)).unwrap_or(0);
            self.usage.active_seconds = self.active_ms / 1_000;
        }
    }

    fn invalidate(&mut self) {
        for call in &mut self.calls {
            if matches!(call.stage, Stage::Pending | Stage::Approved | Stage::Awaiting) {
                call.stage = Stage::Invalidated;
            }
        }
    }
}

/// The state that this log makes.
#[must_use]
pub fn fold<'a>(log: impl IntoIterator<Item = &'a Event>) -> State {
    let mut state = State::default();
    for event in log {
        state.apply(event);
    }
    state
}
