//! After a restart: what a runner still holds, and what the server says to each.

use crate::id::{ClaimId, InstanceId, SessionId};
use serde::{Deserialize, Serialize};

/// `POST /v1/runner/recover`. Live claims of this runner that it does not list are released at once.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Recover {
    /// This start of the runner.
    pub instance_id: InstanceId,
    /// What it finds on its disk.
    pub claims: Vec<HeldClaim>,
}

/// One claim a runner finds on its disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldClaim {
    /// Its id.
    pub id: ClaimId,
    /// Its fencing token.
    pub epoch: u64,
    /// The next index its spool would use.
    pub next_index: u64,
}

/// The answer to [`Recover`], in the order asked.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Recovered {
    /// One for each held claim.
    pub claims: Vec<Verdict>,
}

/// What becomes of a held claim.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Verdict {
    /// Go on: the spool is replayed from `acked`.
    Resume {
        /// The next index the log expects.
        acked: u64,
        /// The claim as it would be offered.
        claim: Box<super::claim::Claim>,
    },
    /// It was settled; the spool can go.
    Settled,
    /// A newer epoch exists, or the session is gone.
    Fenced {
        /// What becomes of the sandbox.
        sandbox: SandboxFate,
    },
}

/// What becomes of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxFate {
    /// It may still be wanted here.
    Keep,
    /// Nobody wants it any more.
    Remove,
}

/// `POST /v1/runner/inventory`, every five minutes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Inventory {
    /// This start of the runner.
    pub instance_id: InstanceId,
    /// Sessions that have a sandbox here.
    pub sandboxes: Vec<SessionId>,
}

/// The answer to [`Inventory`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct InventoryReply {
    /// Sandboxes nobody wants any more.
    pub remove: Vec<SessionId>,
}
