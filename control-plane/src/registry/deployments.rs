//! Deployments: an agent's version, an environment's revision, a harness and a model route that were reviewed together. None of
//! it ever changes; another choice is another deployment.

use super::{Filter, Once, Registry, agents, environments, instant, maybe_instant, parsed};
use crate::{http::path::not_found, store};
use checkfu_shared::{
    id::{AgentId, DeploymentId, EnvironmentId, WorkspaceId},
    problem::{Code, Problem},
    time::Timestamp,
};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::{Value, json};

/// The harness that drives every session so far.
pub const HARNESS: &str = "checkfu";

/// A deployment to be made; what is left out is pinned to what is newest now.
#[derive(Debug, Clone)]
pub struct NewDeployment {
    /// A name, unique among those in force.
    pub name: String,
    /// Which agent.
    pub agent_id: AgentId,
    /// Which version of it.
    pub agent_version: Option<u32>,
    /// Which environment.
    pub environment_id: EnvironmentId,
    /// Which revision of it.
    pub environment_revision: Option<u32>,
}

/// A deployment as stored.
#[derive(Debug, Clone)]
pub struct DeploymentRecord {
    /// Its id.
    pub id: DeploymentId,
    /// A name, unique among those in force.
    pub name: String,
    /// Which agent.
    pub agent_id: AgentId,
    /// Which version of it.
    pub agent_version: u32,
    /// Which environment.
    pub environment_id: EnvironmentId,
    /// Which revision of it.
    pub environment_revision: u32,
    /// Which harness drives it.
    pub harness: String,
    /// Which model route it asks.
    pub model_route: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was put out of force.
    pub archived_at: Option<Timestamp>,
}

impl DeploymentRecord {
    /// The API's form of it.
    #[must_use]
    pub fn wire(&self) -> Value {
        json!({
            "id": self.id,
            "type": "agent_deployment",
            "name": self.name,
            "agent": {"type": "agent", "id": self.agent_id, "version": self.agent_version},
            "environment_id": self.environment_id,
            "environment_revision": self.environment_revision,
            "harness": self.harness,
            "model_route": self.model_route,
            "created_at": self.created_at,
            "archived_at": self.archived_at,
        })
    }
}

const COLUMNS: &str = "select id, name, agent_id, agent_version, environment_id, environment_revision, harness, model_route, \
    created_at, archived_at from agent_deployments";

fn record(row: &Row<'_>) -> rusqlite::Result<DeploymentRecord> {
    Ok(DeploymentRecord {
        id: parsed(row, 0)?,
        name: row.get(1)?,
        agent_id: parsed(row, 2)?,
        agent_version: row.get(3)?,
        environment_id: parsed(row, 4)?,
        environment_revision: row.get(5)?,
        harness: row.get(6)?,
        model_route: row.get(7)?,
        created_at: instant(row, 8)?,
        archived_at: maybe_instant(row, 9)?,
    })
}

fn find(
    connection: &Connection,
    workspace: WorkspaceId,
    id: DeploymentId,
) -> Result<Option<DeploymentRecord>, store::Error> {
    let mut statement =
        connection.prepare_cached(&format!("{COLUMNS} where workspace_id = ?1 and id = ?2"))?;
    Ok(statement.query_row(params![workspace.to_string(), id.to_string()], record).optional()?)
}

fn unknown(what: &str, field: &str) -> Problem {
    let message = format!("There is no such {what} in force in this workspace. Check `{field}`.");
    Problem::new(Code::UnknownReference, message).with("field", field)
}

impl Registry {
    /// Makes a deployment; the answer is its wire form.
    ///
    /// # Errors
    /// `unknown_reference` for an agent or an environment that is not in force, `conflict` when the name is taken.
    pub async fn create_deployment(
        &self,
        workspace: WorkspaceId,
        new: NewDeployment,
        once: Once,
        now: Timestamp,
    ) -> Result<String, Problem> {
        self.change(once, now, move |tx| {
            let agent = agents::find(tx, workspace, new.agent_id, new.agent_version)?
                .filter(|agent| agent.archived_at.is_none())
                .ok_or_else(|| unknown("agent", "agent"))?;
            let environment = environments::find(tx, workspace, new.environment_id, new.environment_revision)?
                .filter(|environment| environment.archived_at.is_none())
                .ok_or_else(|| unknown("environment", "environment_id"))?;
            let taken = tx
                .prepare_cached(
                    "select 1 from agent_deployments where workspace_id = ?1 and name = ?2 and archived_at is null",
                )?
                .exists(params![workspace.to_string(), new.name])?;
            if taken {
                let message = format!("A deployment named `{}` is in force already. Choose another name.", new.name);
                return Err(Problem::new(Code::Conflict, message).with("field", "name").into());
            }
            let made = DeploymentRecord {
                id: DeploymentId::mint(),
                name: new.name,
                agent_id: agent.id,
                agent_version: agent.version,
                environment_id: new.environment_id,
                environment_revision: environment.revision,
                harness: HARNESS.to_owned(),
                model_route: agent.definition.model.id,
                created_at: now,
                archived_at: None,
            };
            tx.execute(
                "insert into agent_deployments (id, workspace_id, name, agent_id, agent_version, environment_id,
                   environment_revision, harness, model_route, created_at) values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
                params![
                    made.id.to_string(),
                    workspace.to_string(),
                    made.name,
                    made.agent_id.to_string(),
                    made.agent_version,
                    made.environment_id.to_string(),
                    made.environment_revision,
                    made.harness,
                    made.model_route,
                    now.as_ms()
                ],
            )?;
            Ok(made.wire())
        })
        .await
    }

    /// Puts a deployment out of force; a second time changes nothing. Its sessions go on.
    ///
    /// # Errors
    /// `not_found`.
    pub async fn archive_deployment(
        &self,
        workspace: WorkspaceId,
        id: DeploymentId,
        now: Timestamp,
    ) -> Result<String, Problem> {
        self.change(Once::NEVER, now, move |tx| {
            tx.execute(
                "update agent_deployments set archived_at = coalesce(archived_at, ?3) where workspace_id = ?1 and id = ?2",
                params![workspace.to_string(), id.to_string(), now.as_ms()],
            )?;
            Ok(find(tx, workspace, id)?.ok_or_else(|| not_found("deployment"))?.wire())
        })
        .await
    }

    /// One deployment.
    ///
    /// # Errors
    /// The store's own failures.
    pub async fn deployment(
        &self,
        workspace: WorkspaceId,
        id: DeploymentId,
    ) -> Result<Option<DeploymentRecord>, Problem> {
        Ok(self.store.read(move |connection| find(connection, workspace, id)).await?)
    }

    /// Deployments, newest first.
    ///
    /// # Errors
    /// The store's own failures.
    pub async fn deployments(
        &self,
        workspace: WorkspaceId,
        filter: Filter,
    ) -> Result<Vec<DeploymentRecord>, Problem> {
        self.listed(COLUMNS, "archived_at", workspace, filter, record).await
    }
}
