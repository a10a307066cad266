//! Environments in the store. A changed configuration is a new revision; sessions keep the one they were made with.

use super::{
    EnvironmentChange, EnvironmentRecord, Filter, Once, Registry, document, instant, maybe_instant, parsed,
};
use crate::{http::path::not_found, store};
use checkfu_shared::{
    id::{EnvironmentId, WorkspaceId},
    problem::{Code, Problem},
    time::Timestamp,
};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::json;

const COLUMNS: &str = "select e.id, e.name, e.description, e.metadata, r.revision, r.config, r.spec,
      e.created_at, e.updated_at, e.archived_at
    from environments e join environment_revisions r on r.environment_id = e.id";

fn record(row: &Row<'_>) -> rusqlite::Result<EnvironmentRecord> {
    Ok(EnvironmentRecord {
        id: parsed(row, 0)?,
        name: row.get(1)?,
        description: row.get(2)?,
        metadata: document(row, 3)?,
        revision: row.get(4)?,
        config: document(row, 5)?,
        spec: document(row, 6)?,
        created_at: instant(row, 7)?,
        updated_at: instant(row, 8)?,
        archived_at: maybe_instant(row, 9)?,
    })
}

/// Reads one revision, the newest by default.
pub(super) fn find(
    connection: &Connection,
    workspace: WorkspaceId,
    id: EnvironmentId,
    revision: Option<u32>,
) -> Result<Option<EnvironmentRecord>, store::Error> {
    let mut statement = connection.prepare_cached(&format!(
        "{COLUMNS} where e.workspace_id = ?1 and e.id = ?2 and e.deleted_at is null and r.revision = coalesce(?3, e.revision)"
    ))?;
    Ok(statement.query_row(params![workspace.to_string(), id.to_string(), revision], record).optional()?)
}

fn insert_revision(connection: &Connection, environment: &EnvironmentRecord) -> Result<(), store::Error> {
    connection.execute(
        "insert into environment_revisions (environment_id, revision, created_at, config, spec)
         values (?1, ?2, ?3, ?4, ?5)",
        params![
            environment.id.to_string(),
            environment.revision,
            environment.updated_at.as_ms(),
            environment.config.to_string(),
            serde_json::to_string(&environment.spec)?
        ],
    )?;
    Ok(())
}

fn name_is_free(
    connection: &Connection,
    workspace: WorkspaceId,
    name: &str,
    but: EnvironmentId,
) -> Result<(), store::Error> {
    let taken = connection
        .prepare_cached(
            "select 1 from environments where workspace_id = ?1 and name = ?2 and id <> ?3
               and deleted_at is null and archived_at is null",
        )?
        .exists(params![workspace.to_string(), name, but.to_string()])?;
    if taken {
        let message = format!("An environment named `{name}` exists already. Choose another name.");
        return Err(Problem::new(Code::Conflict, message).with("field", "name").into());
    }
    Ok(())
}

impl Registry {
    /// Makes an environment; the answer is its wire form.
    ///
    /// # Errors
    /// `conflict` when the name is taken; `idempotency_conflict`.
    pub async fn create_environment(
        &self,
        workspace: WorkspaceId,
        new: EnvironmentChange,
        once: Once,
        now: Timestamp,
    ) -> Result<String, Problem> {
        self.change(once, now, move |tx| {
            let id = EnvironmentId::mint();
            name_is_free(tx, workspace, &new.name, id)?;
            let (config, spec) = new.config;
            let made = EnvironmentRecord {
                id,
                name: new.name,
                description: new.description,
                metadata: new.metadata,
                revision: 1,
                config,
                spec,
                created_at: now,
                updated_at: now,
                archived_at: None,
            };
            tx.execute(
                "insert into environments (id, workspace_id, name, description, metadata, revision, created_at, updated_at)
                 values (?1, ?2, ?3, ?4, ?5, 1, ?6, ?6)",
                params![
                    id.to_string(),
                    workspace.to_string(),
                    made.name,
                    made.description,
                    serde_json::to_string(&made.metadata)?,
                    now.as_ms()
                ],
            )?;
            insert_revision(tx, &made)?;
            Ok(made.wire())
        })
        .await
    }

    /// Changes an environment; a changed configuration makes a new revision.
    ///
    /// # Errors
    /// `not_found`, `archived`, `conflict` when the name is taken, or the refusal of `apply`.
    pub async fn update_environment<F>(
        &self,
        workspace: WorkspaceId,
        id: EnvironmentId,
        apply: F,
        once: Once,
        now: Timestamp,
    ) -> Result<String, Problem>
    where
        F: FnOnce(&EnvironmentRecord) -> Result<EnvironmentChange, Problem> + Send + 'static,
    {
        self.change(once, now, move |tx| {
            let mut environment =
                find(tx, workspace, id, None)?.ok_or_else(|| not_found("environment"))?;
            if environment.archived_at.is_some() {
                return Err(environment_archived().into());
            }
            let change = apply(&environment)?;
            if change == environment.unchanged() {
                return Ok(environment.wire());
            }
            name_is_free(tx, workspace, &change.name, id)?;
            let (config, spec) = change.config;
            let revised = (&config, &spec) != (&environment.config, &environment.spec);
            environment.name = change.name;
            environment.description = change.description;
            environment.metadata = change.metadata;
            (environment.config, environment.spec) = (config, spec);
            environment.updated_at = now;
            if revised {
                environment.revision += 1;
                insert_revision(tx, &environment)?;
            }
            tx.execute(
                "update environments set name = ?2, description = ?3, metadata = ?4, revision = ?5, updated_at = ?6
                 where id = ?1",
                params![
                    id.to_string(),
                    environment.name,
                    environment.description,
                    serde_json::to_string(&environment.metadata)?,
                    environment.revision,
                    now.as_ms()
                ],
            )?;
            Ok(environment.wire())
        })
        .await
    }

    /// Archives an environment for good; a second time changes nothing.
    ///
    /// # Errors
    /// `not_found`; the store's own failures.
    pub async fn archive_environment(
        &self,
        workspace: WorkspaceId,
        id: EnvironmentId,
        now: Timestamp,
    ) -> Result<String, Problem> {
        self.change(Once::NEVER, now, move |tx| {
            let mut environment = find(tx, workspace, id, None)?.ok_or_else(|| not_found("environment"))?;
            if environment.archived_at.is_none() {
                environment.archived_at = Some(now);
                environment.updated_at = now;
                tx.execute(
                    "update environments set archived_at = ?2, updated_at = ?2 where id = ?1",
                    params![id.to_string(), now.as_ms()],
                )?;
            }
            Ok(environment.wire())
        })
        .await
    }

    /// Deletes an environment; sessions made with it keep the revision they have.
    ///
    /// # Errors
    /// `not_found`; the store's own failures.
    pub async fn delete_environment(
        &self,
        workspace: WorkspaceId,
        id: EnvironmentId,
        once: Once,
        now: Timestamp,
    ) -> Result<String, Problem> {
        self.change(once, now, move |tx| {
            find(tx, workspace, id, None)?.ok_or_else(|| not_found("environment"))?;
            tx.execute(
                "update environments set deleted_at = ?2 where id = ?1",
                params![id.to_string(), now.as_ms()],
            )?;
            Ok(json!({"id": id, "type": "environment_deleted"}))
        })
        .await
    }

    /// One environment with one revision, the newest by default.
    ///
    /// # Errors
    /// The store's own failures.
    pub async fn environment(
        &self,
        workspace: WorkspaceId,
        id: EnvironmentId,
        revision: Option<u32>,
    ) -> Result<Option<EnvironmentRecord>, Problem> {
        Ok(self.store.read(move |connection| find(connection, workspace, id, revision)).await?)
    }

    /// Environments with their newest revisions, newest first.
    ///
    /// # Errors
    /// The store's own failures.
    pub async fn environments(
        &self,
        workspace: WorkspaceId,
        filter: Filter,
    ) -> Result<Vec<EnvironmentRecord>, Problem> {
        let work = move |connection: &Connection| {
            let mut statement = connection.prepare_cached(&format!(
                "{COLUMNS} where r.revision = e.revision and e.workspace_id = ?1 and e.deleted_at is null
                   and (?2 or e.archived_at is null) and (?3 is null or e.id < ?3)
                   and e.created_at >= ?4 and e.created_at < ?5 order by e.id desc limit ?6"
            ))?;
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
}

fn environment_archived() -> Problem {
    Problem::new(
        Code::EnvironmentArchived,
        "This environment is archived and takes neither changes nor sessions. Create another one.",
    )
}
