//! What an environment is: a head with its name, and immutable revisions of its configuration with their compiled form.

use checkfu_shared::{environment::Spec, id::EnvironmentId, time::Timestamp};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// An environment with one of its revisions.
#[derive(Debug, Clone, PartialEq)]
pub struct EnvironmentRecord {
    /// Its id.
    pub id: EnvironmentId,
    /// Its name, unique among those in use.
    pub name: String,
    /// What it is for.
    pub description: Option<String>,
    /// The owner's own pairs.
    pub metadata: BTreeMap<String, String>,
    /// Which revision this is, from 1.
    pub revision: u32,
    /// The configuration as read back: every host spelled out.
    pub config: Value,
    /// The same, compiled for a runner.
    pub spec: Spec,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it changed last.
    pub updated_at: Timestamp,
    /// When it was archived.
    pub archived_at: Option<Timestamp>,
}

/// What an update makes of an environment.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The name afterwards.
    pub name: String,
    /// The description afterwards.
    pub description: Option<String>,
    /// The pairs afterwards.
    pub metadata: BTreeMap<String, String>,
    /// The configuration afterwards, with its compiled form.
    pub config: (Value, Spec),
}

impl EnvironmentRecord {
    /// The environments API's form of it.
    #[must_use]
    pub fn wire(&self) -> Value {
        json!({
            "id": self.id,
            "type": "environment",
            "name": self.name,
            "description": self.description,
            "config": self.config,
            "metadata": self.metadata,
            "revision": self.revision,
            "state": if self.archived_at.is_some() { "archived" } else { "active" },
            "created_at": self.created_at,
            "updated_at": self.updated_at,
            "archived_at": self.archived_at,
        })
    }

    /// The present state as an update would write it.
    #[must_use]
    pub fn unchanged(&self) -> Change {
        Change {
            name: self.name.clone(),
            description: self.description.clone(),
            metadata: self.metadata.clone(),
            config: (self.config.clone(), self.spec.clone()),
        }
    }
}
