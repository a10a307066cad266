//! Claims: how a runner asks for work and what it is given.

use super::Tempo;
use crate::{
    agent::Agent,
    environment,
    event::Event,
    id::{ClaimId, ClaimRequestId, EnvironmentId, InstanceId, RunId, SessionId, ThreadId},
};
use serde::{Deserialize, Serialize};

/// `POST /v1/runner/claims`. Sent only with a free slot; one in flight per runner.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClaimRequest {
    /// This start of the runner.
    pub instance_id: InstanceId,
    /// Repeated unchanged after a lost reply, so that the same claim comes back.
    pub request_id: ClaimRequestId,
    /// How many more sessions fit.
    pub free_slots: u32,
    /// What this runner calls itself.
    pub labels: Vec<String>,
    /// How long to hang, at most.
    pub wait_ms: u64,
}

/// The answer to [`ClaimRequest`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClaimReply {
    /// The offered claim; nothing is created before its first successful renewal.
    pub claim: Option<Claim>,
    /// The request id's offer lapsed; ask again with a new one.
    #[serde(default)]
    pub lapsed: bool,
    /// What else to do.
    #[serde(default)]
    pub notices: Vec<Notice>,
    /// How fast to go from now on.
    #[serde(default)]
    pub tempo: Tempo,
}

/// What else a runner should do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Notice {
    /// Take no more work.
    Drain,
    /// The session's sandbox is not needed any more.
    Dispose {
        /// Whose.
        session_id: SessionId,
    },
}

/// One runner's hold on a run, and all that is needed to start anywhere.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// Its id.
    pub id: ClaimId,
    /// Its fencing token; it only grows per session.
    pub epoch: u64,
    /// From 1; grows only when infrastructure was lost.
    pub attempt: u32,
    /// How long the lease lasts, counted by the runner from sending its renewal.
    pub lease_ms: u64,
    /// Whose run.
    pub session_id: SessionId,
    /// The session's primary thread.
    pub thread_id: ThreadId,
    /// The run.
    pub run_id: RunId,
    /// The agent as pinned by the session.
    pub agent: Agent,
    /// Which environment.
    pub environment_id: EnvironmentId,
    /// Which revision of it.
    pub environment_revision: u32,
    /// What the sandbox is made of.
    pub environment: environment::Spec,
    /// The log's last `seq` at the offer.
    pub last_seq: u64,
    /// What the settlement may carry.
    pub settlement: SettlementLimits,
    /// How much the model reads at once.
    #[serde(default)]
    pub context: ContextLimits,
}

/// How much a model reads at once, and when a conversation is summed up for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextLimits {
    /// How many tokens a request and its reply may have together.
    pub window_tokens: u64,
    /// The share of the window, in percent, at which the conversation is summed up; 0 means never.
    pub compact_at_percent: u8,
}

impl Default for ContextLimits {
    fn default() -> Self {
        Self { window_tokens: 200_000, compact_at_percent: 80 }
    }
}

/// What a settlement may carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettlementLimits {
    /// Bytes of one file.
    pub file_bytes: u64,
    /// Bytes of all files.
    pub total_bytes: u64,
    /// Number of files.
    pub files: u32,
}

impl Default for SettlementLimits {
    fn default() -> Self {
        Self { file_bytes: 64 << 20, total_bytes: 256 << 20, files: 64 }
    }
}

/// `GET /v1/runner/claims/{id}/history?epoch&after_seq&limit`: the log in order, to rebuild the conversation from.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct History {
    /// The page.
    pub events: Vec<Event>,
    /// Whether more follow.
    pub has_more: bool,
}

/// `POST /v1/runner/close`: this instance takes no more work; its open poll ends empty.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Close {
    /// This start of the runner.
    pub instance_id: InstanceId,
}
