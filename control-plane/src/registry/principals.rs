//! Principals: as whom calls are made and sessions act. The first start makes a workspace and its owner.

use super::{Filter, Once, Registry, archived, assignments, instant, maybe_instant, parsed};
use crate::{domain::grant::Role, http::path::not_found, store};
use checkfu_shared::{
    id::{PrincipalId, WorkspaceId},
    problem::{Code, Problem},
    time::Timestamp,
};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What a principal is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PrincipalKind {
    /// A person.
    User,
    /// A program.
    Service,
    /// An agent.
    Agent,
    /// A group of principals; no key acts as one.
    Group,
}

impl PrincipalKind {
    const ALL: [Self; 4] = [Self::User, Self::Service, Self::Agent, Self::Group];

    const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Service => "service",
            Self::Agent => "agent",
            Self::Group => "group",
        }
    }

    /// The kind with this text.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// A principal to be made.
#[derive(Debug, Clone)]
pub struct NewPrincipal {
    /// A name, unique in the workspace.
    pub name: String,
    /// What it is.
    pub kind: PrincipalKind,
    /// What it may do.
    pub role: Role,
}

/// A principal as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrincipalRecord {
    /// Its id.
    pub id: PrincipalId,
    /// A name, unique in the workspace.
    pub name: String,
    /// What it is.
    pub kind: PrincipalKind,
    /// The role that its first assignments were compiled from; later ones are rows of their own.
    pub role: Role,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was archived; its keys are no good from then on.
    pub archived_at: Option<Timestamp>,
}

impl PrincipalRecord {
    /// The API's form of it.
    #[must_use]
    pub fn wire(&self) -> Value {
        json!({
            "id": self.id,
            "type": "principal",
            "name": self.name,
            "kind": self.kind,
            "role": self.role,
            "created_at": self.created_at,
            "archived_at": self.archived_at,
        })
    }
}

const COLUMNS: &str = "select id, name, kind, role, created_at, archived_at from principals";

fn record(row: &Row<'_>) -> rusqlite::Result<PrincipalRecord> {
    let (kind, role): (String, String) = (row.get(2)?, row.get(3)?);
    Ok(PrincipalRecord {
        id: parsed(row, 0)?,
        name: row.get(1)?,
        kind: PrincipalKind::from_text(&kind).ok_or(rusqlite::Error::InvalidQuery)?,
        role: Role::from_text(&role).ok_or(rusqlite::Error::InvalidQuery)?,
        created_at: instant(row, 4)?,
        archived_at: maybe_instant(row, 5)?,
    })
}

/// Reads one principal.
pub(super) fn find(
    connection: &Connection,
    workspace: WorkspaceId,
    id: PrincipalId,
) -> Result<Option<PrincipalRecord>, store::Error> {
    let mut statement =
        connection.prepare_cached(&format!("{COLUMNS} where workspace_id = ?1 and id = ?2"))?;
    Ok(statement.query_row(params![workspace.to_string(), id.to_string()], record).optional()?)
}

/// Makes a principal.
pub(super) fn insert(
    connection: &Connection,
    workspace: WorkspaceId,
    new: NewPrincipal,
    made_by: Option<PrincipalId>,
    now: Timestamp,
) -> Result<PrincipalRecord, store::Error> {
    let taken = connection
        .prepare_cached("select 1 from principals where workspace_id = ?1 and name = ?2")?
        .exists(params![workspace.to_string(), new.name])?;
    if taken {
        let message = format!("A principal named `{}` exists already. Choose another name.", new.name);
        return Err(Problem::new(Code::Conflict, message).with("field", "name").into());
    }
    let NewPrincipal { name, kind, role } = new;
    let made =
        PrincipalRecord { id: PrincipalId::mint(), name, kind, role, created_at: now, archived_at: None };
    connection.execute(
        "insert into principals (id, workspace_id, name, kind, role, created_at) values (?1, ?2, ?3, ?4, ?5, ?6)",
        params![
            made.id.to_string(),
            workspace.to_string(),
            made.name,
            made.kind.as_str(),
            made.role.as_str(),
            now.as_ms()
        ],
    )?;
    assignments::compile(connection, workspace, made.id, made.role, made_by.unwrap_or(made.id), now)?;
    Ok(made)
}

/// A principal that a change names, fit to act.
///
/// # Errors
/// `unknown_reference` when it does not exist, `archived` when it is archived.
pub(super) fn fit(
    connection: &Connection,
    workspace: WorkspaceId,
    id: PrincipalId,
) -> Result<PrincipalRecord, store::Error> {
    let found = find(connection, workspace, id)?.ok_or_else(|| {
        Problem::new(Code::UnknownReference, format!("There is no principal {id} in this workspace."))
    })?;
    if found.archived_at.is_some() {
        return Err(archived("principal").into());
    }
    Ok(found)
}

/// Archives a principal; its keys are no good from then on. Who governs last stays.
///
/// # Errors
/// `not_found`; `invalid_state` when nobody would be left who governs.
pub(crate) fn archive(
    tx: &Connection,
    workspace: WorkspaceId,
    id: PrincipalId,
    now: Timestamp,
) -> Result<PrincipalRecord, store::Error> {
    let mut principal = find(tx, workspace, id)?.ok_or_else(|| not_found("principal"))?;
    if principal.archived_at.is_none() {
        principal.archived_at = Some(now);
        tx.execute(
            "update principals set archived_at = ?2 where id = ?1",
            params![id.to_string(), now.as_ms()],
        )?;
        assignments::somebody_governs(tx, workspace, now)?;
    }
    Ok(principal)
}

impl Registry {
    /// Makes a principal; the answer is its wire form.
    ///
    /// # Errors
    /// `conflict` when the name is taken; `idempotency_conflict`.
    pub async fn create_principal(
        &self,
        workspace: WorkspaceId,
        new: NewPrincipal,
        made_by: PrincipalId,
        once: Once,
        now: Timestamp,
    ) -> Result<String, Problem> {
        self.change(once, now, move |tx| Ok(insert(tx, workspace, new, Some(made_by), now)?.wire())).await
    }

    /// One principal.
    ///
    /// # Errors
    /// The store's own failures.
    pub async fn principal(
        &self,
        workspace: WorkspaceId,
        id: PrincipalId,
    ) -> Result<Option<PrincipalRecord>, Problem> {
        Ok(self.store.read(move |connection| find(connection, workspace, id)).await?)
    }

    /// A principal that a request names, fit to act.
    ///
    /// # Errors
    /// `unknown_reference` when it does not exist, `archived` when it is archived.
    pub async fn acting_principal(
        &self,
        workspace: WorkspaceId,
        id: PrincipalId,
    ) -> Result<PrincipalRecord, Problem> {
        Ok(self.store.read(move |connection| fit(connection, workspace, id)).await?)
    }

    /// Principals, newest first.
    ///
    /// # Errors
    /// The store's own failures.
    pub async fn principals(
        &self,
        workspace: WorkspaceId,
        filter: Filter,
    ) -> Result<Vec<PrincipalRecord>, Problem> {
        self.listed(COLUMNS, "archived_at", workspace, filter, record).await
    }
}
