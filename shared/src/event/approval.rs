//! The parts of an approval's life: frozen when a call asks, resolved once.

use crate::{
    id::{ApprovalId, EventId, PrincipalId},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

/// A tool call that waits for an answer; the call's own event holds its arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalPending {
    /// The approval.
    pub approval_id: ApprovalId,
    /// The `agent.tool_use` or `agent.tool_proposed` that asks.
    pub tool_use_id: EventId,
    /// `tool` or `custom_tool`.
    pub resource_kind: String,
    /// The tool's name.
    pub tool: String,
    /// SHA-256 of the arguments as logged, lowercase hexadecimal.
    pub arguments_sha256: String,
    /// Which rule asks, in a sentence.
    pub reason: String,
    /// Whether the session's acting principal may not answer it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub other_responder: bool,
    /// From then on it counts as denied.
    pub expires_at: Timestamp,
}

/// How far an approval is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalStatus {
    /// Somebody has to answer.
    Pending,
    /// Somebody said yes.
    Approved,
    /// Somebody said no.
    Denied,
    /// Nobody answered in time.
    Expired,
    /// The run was over before anybody answered.
    Invalidated,
}

impl ApprovalStatus {
    /// The wire's text.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::Invalidated => "invalidated",
        }
    }
}

/// The one end of an approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalResolved {
    /// The approval.
    pub approval_id: ApprovalId,
    /// The call that asked.
    pub tool_use_id: EventId,
    /// How it ended.
    pub status: ApprovalStatus,
    /// Who answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub responder: Option<PrincipalId>,
    /// What was said beside the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}
