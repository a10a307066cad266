//! Agents in the store: a head that names the newest version, and every version whole.

use super::{
    AgentRecord, Definition, Filter, Once, Registry, archived, document, instant, maybe_instant, parsed,
};
use crate::{http::path::not_found, store};
use checkfu_shared::{
    id::{AgentId, WorkspaceId},
    problem::{Code, Problem},
    time::Timestamp,
};
use rusqlite::{Connection, OptionalExtension, Row, params};

const COLUMNS: &str = "select a.id, v.version, v.definition, a.created_at, v.created_at, a.archived_at
    from agents a join agent_versions v on v.agent_id = a.id";

fn record(row: &Row<'_>) -> rusqlite::Result<AgentRecord> {
    Ok(AgentRecord {
        id: parsed(row, 0)?,
        version: row.get(1)?,
        definition: document(row, 2)?,
        created_at: instant(row, 3)?,
        updated_at: instant(row, 4)?,
        archived_at: maybe_instant(row, 5)?,
    })
}

/// Reads one version, the newest by default.
pub(super) fn find(
    connection: &Connection,
    workspace: WorkspaceId,
    id: AgentId,
    version: Option<u32>,
) -> Result<Option<AgentRecord>, store::Error> {
    let sql =
        format!("{COLUMNS} where a.workspace_id = ?1 and a.id = ?2 and v.version = coalesce(?3, a.version)");
    let mut statement = connection.prepare_cached(&sql)?;
    Ok(statement.query_row(params![workspace.to_string(), id.to_string(), version], record).optional()?)
}

fn insert_version(connection: &Connection, agent: &AgentRecord) -> Result<(), store::Error> {
    connection.execute(
        "insert into agent_versions (agent_id, version, created_at, definition) values (?1, ?2, ?3, ?4)",
        params![
            agent.id.to_string(),
            agent.version,
            agent.updated_at.as_ms(),
            serde_json::to_string(&agent.definition)?
        ],
    )?;
    Ok(())
}

impl Registry {
    /// Makes an agent; the answer is its wire form.
    ///
    /// # Errors
    /// `idempotency_conflict`; the store's own failures.
    pub async fn create_agent(
        &self,
        workspace: WorkspaceId,
        definition: Definition,
        once: Once,
        now: Timestamp,
    ) -> Result<String, Problem> {
        self.change(once, now, move |tx| {
            let id = AgentId::mint();
            let agent = AgentRecord {
                id,
                version: 1,
                definition,
                created_at: now,
                updated_at: now,
                archived_at: None,
            };
            tx.execute(
                "insert into agents (id, workspace_id, version, created_at) values (?1, ?2, 1, ?3)",
                params![id.to_string(), workspace.to_string(), now.as_ms()],
            )?;
            insert_version(tx, &agent)?;
            Ok(agent.wire())
        })
        .await
    }

    /// Makes a new version unless `apply` changes nothing; the answer is the newest version's wire form.
    ///
    /// # Errors
    /// `not_found`, `archived`, `conflict` when `expected` is not the newest version, or the refusal of `apply`.
    pub async fn update_agent<F>(
        &self,
        workspace: WorkspaceId,
        id: AgentId,
        expected: Option<u32>,
        apply: F,
        once: Once,
        now: Timestamp,
    ) -> Result<String, Problem>
    where
        F: FnOnce(Definition) -> Result<Definition, Problem> + Send + 'static,
    {
        self.change(once, now, move |tx| {
            let mut agent = find(tx, workspace, id, None)?.ok_or_else(|| not_found("agent"))?;
            if agent.archived_at.is_some() {
                return Err(archived("agent").into());
            }
            if let Some(expected) = expected.filter(|expected| *expected != agent.version) {
                let current = agent.version;
                let message = format!(
                    "The agent has version {current}, the update is meant for version {expected}. Read the agent and apply the change to what it says now."
                );
                return Err(Problem::new(Code::Conflict, message).with("current_version", current).into());
            }
            let definition = apply(agent.definition.clone())?;
            if definition != agent.definition {
                agent.definition = definition;
                agent.version += 1;
                agent.updated_at = now;
                insert_version(tx, &agent)?;
                tx.execute(
                    "update agents set version = ?2 where id = ?1",
                    params![id.to_string(), agent.version],
                )?;
            }
            Ok(agent.wire())
        })
        .await
    }

    /// Archives an agent for good; a second time changes nothing.
    ///
    /// # Errors
    /// `not_found`; the store's own failures.
    pub async fn archive_agent(
        &self,
        workspace: WorkspaceId,
        id: AgentId,
        now: Timestamp,
    ) -> Result<String, Problem> {
        self.change(Once::NEVER, now, move |tx| {
            let mut agent = find(tx, workspace, id, None)?.ok_or_else(|| not_found("agent"))?;
            if agent.archived_at.is_none() {
                agent.archived_at = Some(now);
                tx.execute(
                    "update agents set archived_at = ?2 where id = ?1",
                    params![id.to_string(), now.as_ms()],
                )?;
            }
            Ok(agent.wire())
        })
        .await
    }

    /// One version of an agent, the newest by default.
    ///
    /// # Errors
    /// The store's own failures.
    pub async fn agent(
        &self,
        workspace: WorkspaceId,
        id: AgentId,
        version: Option<u32>,
    ) -> Result<Option<AgentRecord>, Problem> {
        Ok(self.store.read(move |connection| find(connection, workspace, id, version)).await?)
    }

    /// Agents in their newest version, newest agent first.
    ///
    /// # Errors
    /// The store's own failures.
    pub async fn agents(&self, workspace: WorkspaceId, filter: Filter) -> Result<Vec<AgentRecord>, Problem> {
        let work = move |connection: &Connection| {
            let sql = format!(
                "{COLUMNS} where v.version = a.version and a.workspace_id = ?1 and (?2 or a.archived_at is null)
                   and (?3 is null or a.id < ?3) and a.created_at >= ?4 and a.created_at < ?5
                 order by a.id desc limit ?6"
            );
            let mut statement = connection.prepare_cached(&sql)?;
            let rows = statement.query_map(
                params![
                    workspace.to_string(),
                    filter.include_archived,
                    filter.before_id,
                    filter.created_from_ms,
                    filter.created_before_ms,
                    filter.rows
                ],
                record,
            )?;
            Ok(rows.collect::<Result<_, _>>()?)
        };
        Ok(self.store.read(work).await?)
    }

    /// The versions of an agent, newest first, older than `before`.
    ///
    /// # Errors
    /// `not_found`; the store's own failures.
    pub async fn agent_versions(
        &self,
        workspace: WorkspaceId,
        id: AgentId,
        before: Option<u32>,
        rows: usize,
    ) -> Result<Vec<AgentRecord>, Problem> {
        let work = move |connection: &Connection| {
            find(connection, workspace, id, None)?.ok_or_else(|| not_found("agent"))?;
            let sql = format!(
                "{COLUMNS} where a.id = ?1 and v.version < coalesce(?2, 4294967296) order by v.version desc limit ?3"
            );
            let mut statement = connection.prepare_cached(&sql)?;
            let rows = i64::try_from(rows).unwrap_or(i64::MAX);
            let rows = statement.query_map(params![id.to_string(), before, rows], record)?;
            Ok(rows.collect::<Result<_, _>>()?)
        };
        Ok(self.store.read(work).await?)
    }
}
