//! What an agent is: its definition, which every version holds whole, and the head that says which version is newest.

use checkfu_shared::{
    agent::{Agent, Kind, Model, Tool},
    id::AgentId,
    time::Timestamp,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What a version of an agent says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Definition {
    /// A name for people.
    pub name: String,
    /// What it is for.
    pub description: Option<String>,
    /// The system prompt.
    pub system: Option<String>,
    /// The model it asks.
    pub model: Model,
    /// What it may call, resolved.
    pub tools: Vec<Tool>,
    /// MCP servers.
    pub mcp_servers: Vec<Value>,
    /// Skills.
    pub skills: Vec<Value>,
    /// The owner's own pairs.
    pub metadata: BTreeMap<String, String>,
}

/// One version of an agent as stored.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentRecord {
    /// Its id.
    pub id: AgentId,
    /// Which version this is, from 1.
    pub version: u32,
    /// What it says.
    pub definition: Definition,
    /// When the agent was created.
    pub created_at: Timestamp,
    /// When this version was.
    pub updated_at: Timestamp,
    /// When the agent was archived.
    pub archived_at: Option<Timestamp>,
}

impl AgentRecord {
    /// The agents API's form of it.
    #[must_use]
    pub fn wire(&self) -> Value {
        let definition = &self.definition;
        json!({
            "id": self.id,
            "type": "agent",
            "version": self.version,
            "name": definition.name,
            "description": definition.description,
            "system": definition.system,
            "model": definition.model,
            "tools": definition.tools,
            "mcp_servers": definition.mcp_servers,
            "skills": definition.skills,
            "multiagent": null,
            "execution_identity": {"type": "service_account"},
            "metadata": definition.metadata,
            "created_at": self.created_at,
            "updated_at": self.updated_at,
            "archived_at": self.archived_at,
        })
    }

    /// The copy that a session pins.
    #[must_use]
    pub fn snapshot(&self) -> Agent {
        let definition = self.definition.clone();
        Agent {
            id: self.id,
            kind: Kind::Agent,
            version: self.version,
            name: definition.name,
            description: definition.description,
            system: definition.system,
            model: definition.model,
            tools: definition.tools,
            mcp_servers: definition.mcp_servers,
            skills: definition.skills,
            multiagent: None,
        }
    }
}
