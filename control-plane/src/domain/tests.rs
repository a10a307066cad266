//! Random command sequences against the domain, with its invariants checked after every step.

use checkfu_shared::{
    agent::{Agent, Kind, Model, Tool},
    id::AgentId,
};

pub(crate) fn agent(tools: Vec<Tool>) -> Agent {
    Agent {
        id: AgentId::from_bytes([1; 16]),
        kind: Kind::Agent,
        version: 1,
        name: "tester".to_owned(),
        description: None,
        system: None,
        model: Model { id: "scripted".to_owned(), effort: None, inference_geo: None, speed: None },
        tools,
        mcp_servers: Vec::new(),
        skills: Vec::new(),
        multiagent: None,
    }
}
