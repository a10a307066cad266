//! The parts of a session's state as its log tells it.

use crate::id::EventId;
use serde::{Deserialize, Serialize};

/// Why a session stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum StopReason {
    /// The model ended its turn, or an interrupt was applied.
    EndTurn,
    /// These tool calls wait for an answer.
    RequiresAction {
        /// The calls, in log order.
        event_ids: Vec<EventId>,
    },
    /// Retries did not help.
    RetriesExhausted,
    /// The budget is spent.
    BudgetReached,
    /// The model refused.
    Refusal,
}

impl StopReason {
    /// Whether the run goes on later instead of being over.
    #[must_use]
    pub const fn suspends(&self) -> bool {
        matches!(self, Self::RequiresAction { .. } | Self::BudgetReached)
    }
}

/// Something that failed, as a session shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionError {
    /// Such as `model_overloaded_error`, `sandbox_error`, `unknown_error`.
    #[serde(rename = "type")]
    pub kind: String,
    /// What failed, why and what to do.
    pub message: String,
    /// What happens next.
    pub retry_status: RetryStatus,
}

/// What happens after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum RetryStatus {
    /// It is tried again.
    Retrying,
    /// The turn is over.
    Exhausted,
    /// The session will terminate.
    Terminal,
}

/// One file found in `/mnt/session/outputs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputCaptured {
    /// Its path below the outputs directory, percent-encoded where it is not plain: the key of the files API.
    pub path: String,
    /// What became of it.
    pub status: CaptureStatus,
    /// Its size in bytes, as far as known.
    pub size_bytes: u64,
    /// SHA-256 of its bytes, lowercase hexadecimal, when captured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// What became of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CaptureStatus {
    /// Its bytes are in custody.
    Captured,
    /// Larger than 64 MiB.
    TooLarge,
    /// It did not fit into the settlement's count, bytes or quota.
    OverCapacity,
    /// It could not be read.
    Unreadable,
    /// No regular file.
    Special,
}

/// What a session used so far.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Seconds in which a run was claimed.
    pub active_seconds: u64,
    /// Put into the provider's cache.
    pub cache_creation: CacheCreation,
    /// Taken from the provider's cache.
    pub cache_read_input_tokens: u64,
    /// Read afresh.
    pub input_tokens: u64,
    /// What it cost by the price list.
    pub list_cost: Money,
    /// Written.
    pub output_tokens: u64,
    /// Tools that the provider ran.
    pub server_tool_use: ServerToolUse,
}

/// Tokens put into the provider's cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheCreation {
    /// For an hour.
    pub ephemeral_1h_input_tokens: u64,
    /// For five minutes.
    pub ephemeral_5m_input_tokens: u64,
}

/// An amount of money: whole cents as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Money {
    /// Whole cents.
    pub amount: String,
    /// `USD`.
    pub currency: String,
}

impl Default for Money {
    fn default() -> Self {
        Self { amount: "0".to_owned(), currency: "USD".to_owned() }
    }
}

/// Tools that the provider ran.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerToolUse {
    /// Fetches.
    pub web_fetch_requests: u64,
    /// Searches.
    pub web_search_requests: u64,
}
