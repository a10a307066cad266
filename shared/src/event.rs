//! The catalogue: one closed enum of event kinds, and the envelope that a log entry is read in.
//! The same form serves history, stream and export. Nothing here decides who may append what; see `protocol::append`.

mod agent;
mod approval;
mod run;
mod session;
mod user;

pub use agent::{AppendedToolUse, Bill, EvaluatedPermission, ModelUsage, ToolResult};
pub use approval::{ApprovalPending, ApprovalResolved, ApprovalStatus};
pub use run::{ExecutionPins, RunClaimed, RunSettled, SettledOutcome};
pub use session::{
    CacheCreation, CaptureStatus, Money, OutputCaptured, RetryStatus, ServerToolUse, SessionError,
    StopReason, Usage,
};
pub use user::{Confirmation, ToolConfirmation};

use crate::{
    content::Block,
    id::{EventId, PrincipalId, RunId, SessionId, ThreadId},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What happened. `type` on the wire is the variant's rename.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type")]
pub enum Body {
    /// An input: something a person or a program says.
    #[serde(rename = "user.message")]
    UserMessage {
        /// What was said; at least one block, no empty text.
        content: Vec<Block>,
    },
    /// An input: stop what is being done.
    #[serde(rename = "user.interrupt")]
    UserInterrupt {
        /// Only this thread; absent means all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session_thread_id: Option<ThreadId>,
    },
    /// An input: the answer to a tool call that asks.
    #[serde(rename = "user.tool_confirmation")]
    UserToolConfirmation(ToolConfirmation),
    /// An input: the result of a custom tool.
    #[serde(rename = "user.custom_tool_result")]
    UserCustomToolResult {
        /// The `agent.custom_tool_use` it answers.
        custom_tool_use_id: EventId,
        /// What came out.
        #[serde(default)]
        content: Vec<Block>,
        /// Whether it failed.
        #[serde(default)]
        is_error: bool,
    },
    /// What the model said.
    #[serde(rename = "agent.message")]
    AgentMessage {
        /// Text blocks.
        content: Vec<Block>,
    },
    /// The model thinks; carries nothing.
    #[serde(rename = "agent.thinking")]
    AgentThinking {},
    /// The model asks for a built-in tool. Its durable append is the request for permission.
    #[serde(rename = "agent.tool_use")]
    AgentToolUse(AppendedToolUse),
    /// The conversation so far was summed up; what follows goes on from the summary.
    #[serde(rename = "agent.thread_context_compacted")]
    AgentThreadContextCompacted {
        /// What stands in the place of everything before.
        #[serde(default)]
        summary: String,
        /// About how many tokens the conversation had.
        #[serde(default)]
        tokens_before: u64,
    },
    /// The one result of a tool call.
    #[serde(rename = "agent.tool_result")]
    AgentToolResult(ToolResult),
    /// A claim takes up a call that a former one left open; re-evaluated by the control plane.
    #[serde(rename = "agent.tool_resumed")]
    AgentToolResumed {
        /// The call.
        tool_use_id: EventId,
        /// SHA-256 of its arguments as logged, lowercase hexadecimal.
        arguments_sha256: String,
    },
    /// The model proposes a custom tool; the host application does not see it before it is allowed.
    #[serde(rename = "agent.tool_proposed")]
    AgentToolProposed {
        /// The tool's name.
        name: String,
        /// Its arguments.
        input: Value,
    },
    /// An allowed custom tool call, written by the control plane.
    #[serde(rename = "agent.custom_tool_use")]
    AgentCustomToolUse {
        /// The tool's name.
        name: String,
        /// Its arguments.
        input: Value,
        /// The proposal it stems from.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        proposed_id: Option<EventId>,
    },
    /// A tool call became an approval that somebody has to answer.
    #[serde(rename = "action_approval.pending")]
    ActionApprovalPending(ApprovalPending),
    /// An approval is answered, or past its time, or its run is over.
    #[serde(rename = "action_approval.resolved")]
    ActionApprovalResolved(ApprovalResolved),
    /// The session works.
    #[serde(rename = "session.status_running")]
    SessionStatusRunning {},
    /// The session waits for input.
    #[serde(rename = "session.status_idle")]
    SessionStatusIdle {
        /// Why it stopped.
        stop_reason: StopReason,
    },
    /// The session's runner was lost or gave the run back; the next free one will go on.
    #[serde(rename = "session.status_rescheduled")]
    SessionStatusRescheduled {
        /// The attempt that comes next; it grew when the loss counts.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attempt: Option<u32>,
    },
    /// The session is over for good.
    #[serde(rename = "session.status_terminated")]
    SessionStatusTerminated {},
    /// Something failed.
    #[serde(rename = "session.error")]
    SessionError {
        /// What.
        error: SessionError,
    },
    /// Members of the session that changed, as they are now.
    #[serde(rename = "session.updated")]
    SessionUpdated {
        /// Only what changed.
        #[serde(flatten)]
        changed: Map<String, Value>,
    },
    /// The usage so far; always directly before `session.status_idle`.
    #[serde(rename = "session.usage")]
    SessionUsage {
        /// The snapshot.
        usage: Usage,
        /// The budget, when there is one.
        budget: Option<Value>,
    },
    /// The last frame of a deleted session's stream; never stored.
    #[serde(rename = "session.deleted")]
    SessionDeleted {},
    /// The runner folded these inputs into the conversation at this place.
    #[serde(rename = "session.input_processed")]
    SessionInputProcessed {
        /// The inputs, in their order.
        event_ids: Vec<EventId>,
    },
    /// One file of `/mnt/session/outputs`, captured or not.
    #[serde(rename = "session.output_captured")]
    SessionOutputCaptured(OutputCaptured),
    /// A model request begins.
    #[serde(rename = "span.model_request_start")]
    SpanModelRequestStart {},
    /// A model request is over.
    #[serde(rename = "span.model_request_end")]
    SpanModelRequestEnd {
        /// The matching start.
        model_request_start_id: EventId,
        /// What it used, from the gateway's own meter.
        #[serde(default)]
        model_usage: ModelUsage,
        /// Whether it failed.
        #[serde(default)]
        is_error: bool,
        /// Who answered and what it cost, when the gateway knows; only the control plane writes it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bill: Option<Bill>,
    },
    /// A run was queued.
    #[serde(rename = "run.created")]
    RunCreated {
        /// What it is bound to.
        execution_pins: ExecutionPins,
    },
    /// A runner confirmed its claim of the run.
    #[serde(rename = "run.claimed")]
    RunClaimed(RunClaimed),
    /// The run waits for somebody; the same run goes on later with the next epoch.
    #[serde(rename = "run.suspended")]
    RunSuspended(RunSettled),
    /// The run is over.
    #[serde(rename = "run.settled")]
    RunSettled(RunSettled),
    /// A sandbox was made.
    #[serde(rename = "sandbox.created")]
    SandboxCreated {
        /// The image it was made of.
        image: String,
    },
    /// A stopped sandbox was started again; its files are kept.
    #[serde(rename = "sandbox.restarted")]
    SandboxRestarted {},
    /// A sandbox took the place of a lost one; its files are gone.
    #[serde(rename = "sandbox.replaced")]
    SandboxReplaced {
        /// Why.
        reason: String,
    },
    /// The sandbox is gone.
    #[serde(rename = "sandbox.lost")]
    SandboxLost {
        /// How it was noticed.
        reason: String,
    },
    /// The sandbox tried to reach what its policy does not allow.
    #[serde(rename = "sandbox.egress_denied")]
    SandboxEgressDenied {
        /// The host as asked for.
        host: String,
        /// The port.
        port: u16,
        /// Which rule refused it.
        reason: String,
        /// How many such refusals this event stands for.
        count: u32,
    },
    /// Droppable progress output was dropped.
    #[serde(rename = "stream.gap")]
    StreamGap {
        /// How many bytes.
        bytes: u64,
    },
}

/// One entry of a session's log, as every reader sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Its id.
    pub id: EventId,
    /// Its place in the session's log: 1, 2, 3, ...
    pub seq: u64,
    /// Whose log.
    pub session_id: SessionId,
    /// Which thread, when it belongs to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_thread_id: Option<ThreadId>,
    /// Which run, when it belongs to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// When it became durable.
    pub created_at: Timestamp,
    /// When it took effect; null while an input waits.
    pub processed_at: Option<Timestamp>,
    /// Who said it (inputs only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authored_by: Option<PrincipalId>,
    /// What made it happen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caused_by: Option<Cause>,
    /// What happened.
    #[serde(flatten)]
    pub body: Body,
}

/// What made an event happen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// The kind of cause.
    #[serde(rename = "type")]
    pub kind: CauseKind,
    /// Which one.
    pub id: String,
}

/// The kinds of causes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CauseKind {
    /// A request to the API.
    ApiRequest,
    /// An earlier event.
    Event,
    /// An automation.
    Automation,
    /// A webhook.
    Webhook,
}

impl Body {
    /// The wire's `type`.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::UserMessage { .. } => "user.message",
            Self::UserInterrupt { .. } => "user.interrupt",
            Self::UserToolConfirmation(_) => "user.tool_confirmation",
            Self::UserCustomToolResult { .. } => "user.custom_tool_result",
            Self::AgentMessage { .. } => "agent.message",
            Self::AgentThinking {} => "agent.thinking",
            Self::AgentToolUse(_) => "agent.tool_use",
            Self::AgentThreadContextCompacted { .. } => "agent.thread_context_compacted",
            Self::AgentToolResult(_) => "agent.tool_result",
            Self::AgentToolResumed { .. } => "agent.tool_resumed",
            Self::AgentToolProposed { .. } => "agent.tool_proposed",
            Self::AgentCustomToolUse { .. } => "agent.custom_tool_use",
            Self::ActionApprovalPending(_) => "action_approval.pending",
            Self::ActionApprovalResolved(_) => "action_approval.resolved",
            Self::SessionStatusRunning {} => "session.status_running",
            Self::SessionStatusIdle { .. } => "session.status_idle",
            Self::SessionStatusRescheduled { .. } => "session.status_rescheduled",
            Self::SessionStatusTerminated {} => "session.status_terminated",
            Self::SessionError { .. } => "session.error",
            Self::SessionUpdated { .. } => "session.updated",
            Self::SessionUsage { .. } => "session.usage",
            Self::SessionDeleted {} => "session.deleted",
            Self::SessionInputProcessed { .. } => "session.input_processed",
            Self::SessionOutputCaptured(_) => "session.output_captured",
            Self::SpanModelRequestStart {} => "span.model_request_start",
            Self::SpanModelRequestEnd { .. } => "span.model_request_end",
            Self::RunCreated { .. } => "run.created",
            Self::RunClaimed(_) => "run.claimed",
            Self::RunSuspended(_) => "run.suspended",
            Self::RunSettled(_) => "run.settled",
            Self::SandboxCreated { .. } => "sandbox.created",
            Self::SandboxRestarted {} => "sandbox.restarted",
            Self::SandboxReplaced { .. } => "sandbox.replaced",
            Self::SandboxLost { .. } => "sandbox.lost",
            Self::SandboxEgressDenied { .. } => "sandbox.egress_denied",
            Self::StreamGap { .. } => "stream.gap",
        }
    }

    /// Whether it is something said to the session, waiting to be processed.
    #[must_use]
    pub const fn is_input(&self) -> bool {
        matches!(
            self,
            Self::UserMessage { .. }
                | Self::UserInterrupt { .. }
                | Self::UserToolConfirmation(_)
                | Self::UserCustomToolResult { .. }
        )
    }
}

#[cfg(test)]
mod tests;
