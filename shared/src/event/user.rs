//! The parts of what is said to a session.

use crate::id::EventId;
use serde::{Deserialize, Serialize};

/// The answer to a tool call that asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolConfirmation {
    /// The call it answers.
    pub tool_use_id: EventId,
    /// Yes or no.
    pub result: Confirmation,
    /// What the model is told on a denial; at most 10,000 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deny_message: Option<String>,
}

/// Yes or no.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confirmation {
    /// It may run.
    Allow,
    /// It may not.
    Deny,
}
