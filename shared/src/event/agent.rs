//! The parts of what the agent does.

use crate::{
    content::Block,
    id::{EventId, ProviderId},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A built-in tool call. `evaluated_permission` is absent when a runner appends it and stamped by the control plane.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AppendedToolUse {
    /// The tool's name as the model wrote it.
    pub name: String,
    /// Its arguments as the model wrote them.
    pub input: Value,
    /// What the policies say of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluated_permission: Option<EvaluatedPermission>,
}

/// What the policies say of a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EvaluatedPermission {
    /// It may run.
    Allow,
    /// Somebody has to answer first.
    Ask,
    /// It may not run.
    Deny,
}

/// The one result of a tool call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The call it answers: an `agent.tool_use`, or an `agent.tool_proposed` that was denied.
    pub tool_use_id: EventId,
    /// What came out; never empty, no empty text.
    pub content: Vec<Block>,
    /// Whether it failed.
    #[serde(default)]
    pub is_error: bool,
}

/// Who answered one model request and what it cost, as the gateway put it on record.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bill {
    /// The provider's own name of the model that answered.
    pub model: String,
    /// Who answered; absent for the provider that the server was started with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<ProviderId>,
    /// By the price list, in micro-USD; absent when nobody knows the model's price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list_cost_micro_usd: Option<u64>,
    /// The reply was cut: what was seen of it is billed, and what the provider did not count is an estimate.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_cut: bool,
    /// Members of the request that were not passed on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<String>,
    /// The provider's own name of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_request_id: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// What one model request used, in tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelUsage {
    /// Read afresh.
    pub input_tokens: u64,
    /// Written.
    pub output_tokens: u64,
    /// Put into the provider's cache.
    #[serde(default)]
    pub cache_creation_input_tokens: u64,
    /// Taken from the provider's cache.
    #[serde(default)]
    pub cache_read_input_tokens: u64,
}
