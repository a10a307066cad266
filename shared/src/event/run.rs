//! The parts of a run's life.

use super::session::StopReason;
use crate::id::{AgentId, ClaimId, EnvironmentId, PrincipalId, RunnerId};
use serde::{Deserialize, Serialize};

/// What a run is bound to from its creation on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutionPins {
    /// Whose rights it has.
    pub principal_id: PrincipalId,
    /// Which agent.
    pub agent_id: AgentId,
    /// Which version of it.
    pub agent_version: u32,
    /// Which environment.
    pub environment_id: EnvironmentId,
    /// Which revision of it.
    pub environment_revision: u32,
    /// Which harness drives it.
    pub harness: String,
    /// Which model route it asks.
    pub model_route: String,
    /// SHA-256 of the instructions, when the session overrides them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions_sha256: Option<String>,
}

/// A confirmed claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunClaimed {
    /// By whom.
    pub runner_id: RunnerId,
    /// The claim.
    pub claim_id: ClaimId,
    /// Its fencing token.
    pub epoch: u64,
    /// How often infrastructure was lost before, plus one.
    pub attempt: u32,
}

/// The end of a claim's work on a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSettled {
    /// Which epoch settled; 0 when no claim existed.
    pub epoch: u64,
    /// Why it stopped.
    pub stop_reason: StopReason,
}

/// How a runner says its claim ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SettledOutcome {
    /// The model ended its turn, or an interrupt was applied.
    EndTurn,
    /// Tool calls ask; the control plane names those still open.
    RequiresAction,
    /// The gateway refused: the budget is spent.
    BudgetReached,
    /// Retries did not help.
    RetriesExhausted,
    /// The model refused.
    Refusal,
    /// The runner gives the run back unfinished, such as when it drains; it is queued again.
    Released {
        /// Why.
        reason: String,
        /// Whether it counts as an attempt.
        counts_as_attempt: bool,
    },
    /// Going on is of no use, such as an image that does not exist.
    Failed {
        /// What failed, why and what to do.
        message: String,
    },
}
