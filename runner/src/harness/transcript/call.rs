//! One tool call as the log tells it: what was asked, what was said about it, and its one answer.

use checkfu_shared::{
    content::Block,
    event::{Body, Confirmation, EvaluatedPermission},
    id::EventId,
};
use serde_json::Value;

/// A tool call of the conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// Its `agent.tool_use` or `agent.tool_proposed`; the model knows the call by it.
    pub id: EventId,
    /// The tool.
    pub name: String,
    /// The arguments as logged.
    pub input: Value,
    /// Whether the host application runs it.
    pub is_custom: bool,
    /// What the policies said of it.
    pub permission: Option<EvaluatedPermission>,
    /// What somebody answered: yes, or no with what the model is told.
    pub confirmed: Option<Result<(), Option<String>>>,
    /// Whether a claim took it up again after it was confirmed.
    pub is_resumed: bool,
    /// The `agent.custom_tool_use` that the host application sees.
    pub taken_up: Option<EventId>,
    /// Whether its run was interrupted or over while it was open.
    pub is_interrupted: bool,
    /// Its one result.
    pub answer: Option<Answer>,
}

/// The result of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// What came out.
    pub content: Vec<Block>,
    /// Whether it failed.
    pub is_error: bool,
}

impl Call {
    /// The call that an event proposes, if it does.
    pub(super) fn of(id: EventId, body: &Body) -> Option<Self> {
        let (name, input, is_custom, permission) = match body {
            Body::AgentToolUse(call) => (&call.name, &call.input, false, call.evaluated_permission),
            Body::AgentToolProposed { name, input } => (name, input, true, None),
            _ => return None,
        };
        Some(Self {
            id,
            name: name.clone(),
            input: input.clone(),
            is_custom,
            permission,
            confirmed: None,
            is_resumed: false,
            taken_up: None,
            is_interrupted: false,
            answer: None,
        })
    }

    pub(super) fn confirm(&mut self, result: Confirmation, deny_message: Option<&str>) {
        if self.confirmed.is_some() {
            return;
        }
        // What was asked before the answer came cannot have been allowed by it.
        self.is_resumed = false;
        self.confirmed.get_or_insert_with(|| match result {
            Confirmation::Allow => Ok(()),
            Confirmation::Deny => Err(deny_message.map(str::to_owned)),
        });
    }
}
