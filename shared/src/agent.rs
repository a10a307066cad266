//! An agent as a session pins it: the resolved copy of one version, in the exact members of the Session's `agent`.

use crate::{id::AgentId, tool};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The resolved copy of one agent version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Agent {
    /// The agent's id.
    pub id: AgentId,
    /// Always `agent`.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// Which version this is, from 1.
    pub version: u32,
    /// A name for people.
    pub name: String,
    /// What it is for.
    pub description: Option<String>,
    /// The system prompt.
    pub system: Option<String>,
    /// The model it asks.
    pub model: Model,
    /// What it may call.
    pub tools: Vec<Tool>,
    /// MCP servers, echoed as given.
    pub mcp_servers: Vec<Value>,
    /// Skills, echoed as given.
    pub skills: Vec<Value>,
    /// The roster of a coordinator, echoed as given.
    pub multiagent: Option<Value>,
}

/// The constant `type` of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The one value.
    Agent,
}

/// A model and how it is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Model {
    /// The provider's id of it.
    pub id: String,
    /// How hard it thinks.
    #[serde(default)]
    pub effort: Option<EffortSetting>,
    /// Where inference may happen.
    #[serde(default)]
    pub inference_geo: Option<String>,
    /// `standard` or `fast`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed: Option<String>,
}

/// The wire's wrapping of an effort level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffortSetting {
    /// The level.
    #[serde(rename = "type")]
    pub level: Effort,
}

/// The effort scale, translated per provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effort {
    /// As little as the provider can.
    Minimal,
    /// Little.
    Low,
    /// The provider's middle.
    Medium,
    /// Much.
    High,
    /// All there is.
    Max,
}

/// One entry of an agent's `tools`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type")]
pub enum Tool {
    /// The built-in toolset with its switches.
    #[serde(rename = "agent_toolset_20260401")]
    Toolset {
        /// Exceptions by tool.
        #[serde(default)]
        configs: Vec<ToolConfig>,
        /// What holds for every tool without an exception.
        default_config: ToolSwitch,
    },
    /// A tool the host application runs.
    #[serde(rename = "custom")]
    Custom {
        /// Its name.
        name: String,
        /// What it does.
        description: String,
        /// JSON Schema of its input.
        input_schema: Value,
    },
    /// The tools of an MCP server, echoed as given.
    #[serde(rename = "mcp_toolset")]
    Mcp {
        /// Which server.
        mcp_server_name: String,
        /// The remaining members.
        #[serde(flatten)]
        rest: serde_json::Map<String, Value>,
    },
}

/// The switch of one built-in tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolConfig {
    /// The tool's name.
    pub name: String,
    /// The tool's type, equal to its name.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Whether it is offered at all.
    pub enabled: bool,
    /// When it may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission_policy: Option<PermissionPolicy>,
}

/// What holds for built-in tools without an exception.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolSwitch {
    /// Whether they are offered at all.
    pub enabled: bool,
    /// When they may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission_policy: Option<PermissionPolicy>,
}

/// An agent's own rule for a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum PermissionPolicy {
    /// Runs without asking.
    AlwaysAllow,
    /// Asks each time.
    AlwaysAsk,
}

impl Agent {
    /// Whether the built-in tool is offered, and the agent's own rule for it.
    #[must_use]
    pub fn built_in(&self, name: tool::Name) -> Option<Option<PermissionPolicy>> {
        self.tools.iter().find_map(|entry| match entry {
            Tool::Toolset { configs, default_config } => {
                let config = configs.iter().find(|config| config.name == name.as_str());
                let enabled = config.map_or(default_config.enabled, |config| config.enabled);
                let policy =
                    config.and_then(|config| config.permission_policy).or(default_config.permission_policy);
                enabled.then_some(policy)
            }
            Tool::Custom { .. } | Tool::Mcp { .. } => None,
        })
    }

    /// Whether `name` is one of the agent's custom tools.
    #[must_use]
    pub fn has_custom(&self, name: &str) -> bool {
        self.tools.iter().any(|entry| matches!(entry, Tool::Custom { name: custom, .. } if custom == name))
    }
}
