//! Renewal keeps a lease and answers at once; directives hang and extend nothing.

use crate::{
    id::{EventId, ThreadId},
    secret::Secret,
};
use serde::{Deserialize, Serialize};

/// `POST /v1/runner/claims/{id}/renew`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Renew {
    /// The claim's fencing token.
    pub epoch: u64,
}

/// The answer to [`Renew`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Renewed {
    /// How long the lease lasts from the sending of the request.
    pub lease_ms: u64,
    /// How to reach the model.
    pub gateway: Gateway,
    /// Whether somebody watches the session live.
    pub watched: bool,
}

/// How a claim reaches the model: a capability that dies with the claim.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Gateway {
    /// The path of the gateway below the control plane's address, such as `/v1/gateway`.
    pub base_path: String,
    /// The capability, sent as `x-api-key`.
    pub token: Secret,
    /// How long it is good for.
    pub expires_in_ms: u64,
}

/// `POST /v1/runner/claims/{id}/directives`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DirectivesRequest {
    /// The claim's fencing token.
    pub epoch: u64,
    /// The cursor of the last answer, or 0: only spares repetition.
    pub after: u64,
    /// How long to hang, at most.
    pub wait_ms: u64,
}

/// The answer to [`DirectivesRequest`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Directives {
    /// What to do, possibly nothing.
    pub directives: Vec<Directive>,
    /// The cursor for the next request.
    pub after: u64,
}

/// One thing a claim's holder has to do; derived from unprocessed inputs, so a lost one comes again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Directive {
    /// Inputs wait; their bodies are in the history.
    Inputs {
        /// Which.
        event_ids: Vec<EventId>,
    },
    /// Stop what is being done and settle; the inputs stay waiting until processed.
    Interrupt {
        /// Only this thread.
        thread_id: Option<ThreadId>,
    },
    /// The session is over (archived, deleted, revoked): stop without settling as success.
    Cancel {
        /// Why.
        reason: String,
    },
}
