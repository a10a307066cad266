//! What the engine takes and gives: the records that the HTTP side shapes its replies from. No decision is made here.

use crate::domain::budget::Limit;
use checkfu_shared::{
    agent::Agent,
    environment,
    event::{Body, CaptureStatus, Cause, ExecutionPins, StopReason, Usage},
    id::{
        EnvironmentId, FileId, InstanceId, PairingId, PrincipalId, RunId, RunnerId, SessionId, ThreadId,
        VaultId, WorkspaceId,
    },
    protocol::pairing::Host,
    secret::Secret,
    time::Timestamp,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A session to be made. Everything in it was checked by the caller: the agent is resolved, the environment exists.
#[derive(Debug, Clone)]
pub struct NewSession {
    /// Whose workspace.
    pub workspace_id: WorkspaceId,
    /// Whose rights its runs have.
    pub principal_id: PrincipalId,
    /// The resolved agent.
    pub agent: Agent,
    /// Which environment.
    pub environment_id: EnvironmentId,
    /// Which revision of it.
    pub environment_revision: u32,
    /// Its compiled form.
    pub environment: environment::Spec,
    /// A title for people.
    pub title: Option<String>,
    /// Correlation pairs.
    pub metadata: Map<String, Value>,
    /// Resources, echoed as given.
    pub resources: Vec<Value>,
    /// Vaults, in the order searched.
    pub vault_ids: Vec<VaultId>,
    /// What it may spend on models.
    pub budget: Option<Limit>,
    /// Takes the place of the agent's system prompt for this session.
    pub instructions: Option<String>,
    /// What is said first; with any, the session is born running.
    pub initial: Vec<Input>,
    /// What made the session.
    pub caused_by: Cause,
}

/// One thing said to a session.
#[derive(Debug, Clone)]
pub struct Input {
    /// What: one of the `user.*` bodies.
    pub body: Body,
    /// Who said it.
    pub authored_by: PrincipalId,
    /// What made it happen.
    pub caused_by: Cause,
}

/// The idempotency of one request: the answer is stored in the same transaction as the change that it answers.
#[derive(Debug, Clone)]
pub struct Replay {
    /// Where the answer is kept: for a keyed request workspace, principal, method, path and key; else the request itself.
    pub scope_key: String,
    /// A digest of the request's body.
    pub body_digest: String,
    /// How the first answer is found.
    pub told: Told,
}

/// How a repetition is told from a new request.
#[derive(Debug, Clone)]
pub enum Told {
    /// Both have the same scope.
    ByScope,
    /// The SDK says that this is a retry: the last answer under this prefix is the first one's.
    ByRetry {
        /// What the scopes of the same request begin with.
        prefix: String,
    },
    /// This is a first try, which its own retry may have overtaken: that one's scope comes later under this prefix.
    ByOvertaker {
        /// What the scopes of the same request begin with.
        prefix: String,
    },
}

/// What a session is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Waiting for input.
    Idle,
    /// A run is queued or claimed.
    Running,
    /// Its runner was lost or gave the run back; the next free one will go on.
    Rescheduling,
    /// Over for good.
    Terminated,
}

impl Status {
    /// The wire's text.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Running => "running",
            Self::Rescheduling => "rescheduling",
            Self::Terminated => "terminated",
        }
    }
}

/// All that the wire's Session needs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// Its id.
    pub id: SessionId,
    /// Whose workspace.
    pub workspace_id: WorkspaceId,
    /// Whose rights its runs have.
    pub principal_id: PrincipalId,
    /// The agent as pinned.
    pub agent: Agent,
    /// Which environment.
    pub environment_id: EnvironmentId,
    /// Which revision of it.
    pub environment_revision: u32,
    /// Its primary thread.
    pub thread_id: ThreadId,
    /// A title for people.
    pub title: Option<String>,
    /// Correlation pairs.
    pub metadata: Map<String, Value>,
    /// Resources, echoed as given.
    pub resources: Vec<Value>,
    /// Vaults, in the order searched.
    pub vault_ids: Vec<VaultId>,
    /// The budget that holds, as the wire shows it.
    pub budget: Option<Value>,
    /// What it is doing.
    pub status: Status,
    /// Why it stopped last; `None` while it runs or before its first run.
    pub stop_reason: Option<StopReason>,
    /// What it used so far.
    pub usage: Usage,
    /// Seconds in which a run was claimed.
    pub active_seconds: u64,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it changed last.
    pub updated_at: Timestamp,
    /// When it was archived.
    pub archived_at: Option<Timestamp>,
    /// The log's last `seq`; 0 when it is empty.
    pub last_seq: u64,
}

/// What an update changes; `None` leaves a member as it is.
#[derive(Debug, Clone, Default)]
pub struct SessionPatch {
    /// The new title; `Some(None)` takes it away.
    pub title: Option<Option<String>>,
    /// Pairs to set, or to take away with null.
    pub metadata: Option<Map<String, Value>>,
    /// The new budget; `Some(None)` pauses what there is.
    pub budget: Option<Option<Limit>>,
    /// The new pinned agent; refused while a run is going on.
    pub agent: Option<Agent>,
}

/// Which sessions to list, newest first unless `ascending`.
#[derive(Debug, Clone, Default)]
pub struct SessionQuery {
    /// Only sessions of this agent.
    pub agent_id: Option<String>,
    /// Only these statuses; empty means all.
    pub statuses: Vec<Status>,
    /// Archived ones too.
    pub include_archived: bool,
    /// Not before.
    pub created_from: Option<Timestamp>,
    /// Not after.
    pub created_to: Option<Timestamp>,
    /// Oldest first.
    pub ascending: bool,
    /// Continue after this id.
    pub after: Option<SessionId>,
    /// How many at most.
    pub limit: u32,
}

/// One page of a list.
#[derive(Debug, Clone)]
pub struct Page<T> {
    /// The page.
    pub data: Vec<T>,
    /// Whether more follow.
    pub has_more: bool,
}

/// Which events to read.
#[derive(Debug, Clone, Default)]
pub struct EventQuery {
    /// Only later than this `seq`.
    pub after_seq: Option<u64>,
    /// Only earlier than this `seq`.
    pub before_seq: Option<u64>,
    /// Latest first.
    pub descending: bool,
    /// Only these types; empty means all.
    pub types: Vec<String>,
    /// How many at most.
    pub limit: u32,
}

/// An event as stored: `json` is its whole envelope, so that reading copies bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawEvent {
    /// Its place in the log.
    pub seq: u64,
    /// Its `type`.
    pub kind: String,
    /// The envelope.
    pub json: String,
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// It waits for a runner.
    Queued,
    /// A runner works on it.
    Claimed,
    /// It waits for somebody.
    Suspended,
    /// It is over.
    Settled,
}

/// Why a queued or suspended run waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitingReason {
    /// No runner carries all labels that the environment asks for.
    NoRunnerMatchesLabels,
    /// Runners carry the labels, but the principal of none may claim runs of the environment.
    NoRunnerMayClaim,
    /// Every fitting runner is offline.
    AllRunnersOffline,
    /// Every fitting runner ends what it has and takes no more.
    AllRunnersDraining,
    /// A fitting runner is online and has nothing to do, but does not ask for work: it starts, or its status says what it
    /// lacks, such as Docker or disk space.
    NoRunnerReady,
    /// Every fitting runner is busy.
    AllSlotsBusy,
    /// It is kept for the runner that has its sandbox.
    Affinity,
    /// Somebody has to answer a tool call.
    ApprovalPending,
    /// The budget is spent.
    BudgetReached,
    /// It was offered and is about to be confirmed.
    Offered,
}

/// One run of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Its id.
    pub id: RunId,
    /// Whose run.
    pub session_id: SessionId,
    /// How far it is.
    pub status: RunStatus,
    /// What it is bound to.
    pub execution_pins: ExecutionPins,
    /// When it was queued first.
    pub created_at: Timestamp,
    /// When a runner confirmed it last.
    pub claimed_at: Option<Timestamp>,
    /// When it was over.
    pub settled_at: Option<Timestamp>,
    /// The runner that confirmed it last.
    pub runner_id: Option<RunnerId>,
    /// The epoch of the last confirmed claim; 0 before the first.
    pub epoch: u64,
    /// From 1; grows only when infrastructure was lost.
    pub attempt: u32,
    /// Why it stopped or is suspended.
    pub stop_reason: Option<StopReason>,
    /// Computed when read: why it waits now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_reason: Option<WaitingReason>,
}

/// One file found in a session's outputs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// Its id.
    pub id: FileId,
    /// Whose file.
    pub session_id: SessionId,
    /// Its path below the outputs directory, percent-encoded where it is not plain.
    pub path: String,
    /// The raw bytes of the path, in base64.
    pub path_b64: String,
    /// What became of it.
    pub status: CaptureStatus,
    /// Bytes, as far as known.
    pub size_bytes: u64,
    /// Lowercase hexadecimal, when captured.
    pub sha256: Option<String>,
    /// The name of its bytes in custody, when captured.
    pub stored: Option<String>,
    /// When it was captured.
    pub captured_at: Timestamp,
}

/// A pairing to be minted.
#[derive(Debug, Clone)]
pub struct NewPairing {
    /// Whose workspace.
    pub workspace_id: WorkspaceId,
    /// Whose rights the runner has.
    pub principal_id: PrincipalId,
    /// Who asked for it.
    pub created_by: PrincipalId,
    /// The runner's name, when it may not choose its own.
    pub name: Option<String>,
    /// The runner's labels.
    pub labels: Vec<String>,
    /// How many sessions it may run at once.
    pub max_sessions: Option<u32>,
    /// The runner goes when it is offline for long.
    pub ephemeral: bool,
    /// How long the code is good for, 1 to 3600 seconds.
    pub ttl_seconds: u32,
}

/// A minted pairing; the code is shown this once.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MintedPairing {
    /// Its row.
    pub id: PairingId,
    /// The code to type; a repetition does not show it again.
    #[serde(skip)]
    pub code: Option<Secret>,
    /// When it was minted.
    pub created_at: Timestamp,
    /// When it stops being good.
    pub expires_at: Timestamp,
}

/// How a runner is reachable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Presence {
    /// Heard within 45 s.
    Online,
    /// Not heard for 45 s.
    Offline,
    /// Not heard for 3 min.
    Lost,
    /// It may not come back.
    Revoked,
}

/// A paired runner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnerRecord {
    /// Its id.
    pub id: RunnerId,
    /// Whose workspace.
    pub workspace_id: WorkspaceId,
    /// Whose rights it has.
    pub principal_id: PrincipalId,
    /// The pairing it came by.
    pub pairing_id: PairingId,
    /// Its name.
    pub name: String,
    /// The labels its pairing gave it.
    pub labels: Vec<String>,
    /// How many sessions it may run at once.
    pub max_sessions: Option<u32>,
    /// It goes when it is offline for long.
    pub ephemeral: bool,
    /// What machine it is.
    pub host: Host,
    /// Its newest start.
    pub instance_id: InstanceId,
    /// When it was paired.
    pub created_at: Timestamp,
    /// When it was heard last.
    pub last_seen_at: Timestamp,
    /// It takes no more work.
    pub draining: bool,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
    /// Why it was revoked.
    pub revoked_reason: Option<String>,
    /// Computed when read.
    pub presence: Presence,
    /// Computed when read: the sessions it holds now.
    pub sessions: Vec<SessionId>,
}
