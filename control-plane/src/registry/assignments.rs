//! Permission assignments: who may do what to which resources, as rows. A role is compiled to rows when its principal is
//! made. Every request reads the rows anew, so a revocation holds from the next one on.

use super::{Once, Registry, maybe_instant, parsed, principals};
use crate::{
    domain::grant::{Grant, Grants, Kind, Permission, Role},
    http::path::not_found,
    store,
};
use checkfu_shared::{
    id::{AssignmentId, PrincipalId, WorkspaceId},
    problem::{Code, Problem},
    time::Timestamp,
};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::{Value, json};

/// An assignment to be made.
#[derive(Debug, Clone)]
pub struct NewAssignment {
    /// Whose: a principal or a group.
    pub subject: PrincipalId,
    /// What it may do.
    pub permission: Permission,
    /// To what.
    pub kind: Kind,
    /// To which of them.
    pub id_glob: String,
    /// When it ends by itself.
    pub expires_at: Option<Timestamp>,
}

/// An assignment as stored.
#[derive(Debug, Clone)]
pub struct AssignmentRecord {
    /// Its id.
    pub id: AssignmentId,
    /// What it says.
    pub says: NewAssignment,
    /// The role that it was compiled from.
    pub role: Option<String>,
    /// Who made it.
    pub granted_by: PrincipalId,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
    /// Who revoked it.
    pub revoked_by: Option<PrincipalId>,
}

impl AssignmentRecord {
    /// The API's form of it.
    #[must_use]
    pub fn wire(&self) -> Value {
        json!({
            "id": self.id,
            "type": "permission_assignment",
            "subject": self.says.subject,
            "permission": self.says.permission,
            "resource": {"kind": self.says.kind, "id_glob": self.says.id_glob},
            "role": self.role,
            "granted_by": self.granted_by,
            "created_at": self.created_at,
            "expires_at": self.says.expires_at,
            "revoked_at": self.revoked_at,
            "revoked_by": self.revoked_by,
        })
    }
}

/// Which assignments to list, newest first.
#[derive(Debug, Clone, Default)]
pub struct AssignmentQuery {
    /// Only those of this subject.
    pub subject: Option<PrincipalId>,
    /// Revoked ones too.
    pub include_revoked: bool,
    /// Only ids that sort before this one.
    pub before_id: Option<String>,
    /// How many rows.
    pub rows: i64,
}

const COLUMNS: &str = "select id, subject_id, permission, resource_kind, id_glob, expires_at, role, granted_by, \
    created_at, revoked_at, revoked_by from permission_assignments";

fn record(row: &Row<'_>) -> rusqlite::Result<AssignmentRecord> {
    let (permission, kind): (String, String) = (row.get(2)?, row.get(3)?);
    Ok(AssignmentRecord {
        id: parsed(row, 0)?,
        says: NewAssignment {
            subject: parsed(row, 1)?,
            permission: Permission::from_text(&permission).ok_or(rusqlite::Error::InvalidQuery)?,
            kind: Kind::from_text(&kind).ok_or(rusqlite::Error::InvalidQuery)?,
            id_glob: row.get(4)?,
            expires_at: maybe_instant(row, 5)?,
        },
        role: row.get(6)?,
        granted_by: parsed(row, 7)?,
        created_at: super::instant(row, 8)?,
        revoked_at: maybe_instant(row, 9)?,
        revoked_by: row.get::<_, Option<String>>(10)?.map(|_| parsed(row, 10)).transpose()?,
    })
}

/// Everything that this principal may do now, by itself and by its groups.
///
/// # Errors
/// The database's own failures.
pub(crate) fn grants(
    connection: &Connection,
    workspace: WorkspaceId,
    principal: PrincipalId,
    now: Timestamp,
) -> Result<Grants, store::Error> {
    let mut statement = connection.prepare_cached(
        "select permission, resource_kind, id_glob from permission_assignments a join principals p on p.id = a.subject_id
          where a.workspace_id = ?1 and a.revoked_at is null and (a.expires_at is null or a.expires_at > ?3)
            and p.archived_at is null
            and a.subject_id in (select ?2 union select group_id from group_members where member_id = ?2)
            and exists (select 1 from principals where id = ?2 and workspace_id = ?1 and archived_at is null)",
    )?;
    let rows = statement
        .query_map(params![workspace.to_string(), principal.to_string(), now.as_ms()], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get(2)?))
        })?;
    let mut grants = Vec::new();
    for row in rows {
        let (permission, kind, id_glob) = row?;
        // A row that a newer program wrote grants nothing here.
        if let (Some(permission), Some(kind)) = (Permission::from_text(&permission), Kind::from_text(&kind)) {
            grants.push(Grant { permission, kind, id_glob });
        }
    }
    Ok(Grants(grants))
}

/// Compiles a role to rows.
pub(super) fn compile(
    connection: &Connection,
    workspace: WorkspaceId,
    subject: PrincipalId,
    role: Role,
    granted_by: PrincipalId,
    now: Timestamp,
) -> Result<(), store::Error> {
    for grant in Grants::of_role(role).0 {
        let says = NewAssignment {
            subject,
            permission: grant.permission,
            kind: grant.kind,
            id_glob: grant.id_glob,
            expires_at: None,
        };
        insert(connection, workspace, says, Some(role.as_str()), granted_by, now)?;
    }
    Ok(())
}

fn insert(
    connection: &Connection,
    workspace: WorkspaceId,
    says: NewAssignment,
    role: Option<&str>,
    granted_by: PrincipalId,
    now: Timestamp,
) -> Result<AssignmentRecord, store::Error> {
    let id = AssignmentId::mint();
    connection
        .prepare_cached(
            "insert into permission_assignments (id, workspace_id, subject_id, permission, resource_kind, id_glob, role,
               granted_by, created_at, expires_at) values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        )?
        .execute(params![
            id.to_string(),
            workspace.to_string(),
            says.subject.to_string(),
            says.permission.as_str(),
            says.kind.as_str(),
            says.id_glob,
            role,
            granted_by.to_string(),
            now.as_ms(),
            says.expires_at.map(Timestamp::as_ms),
        ])?;
    Ok(AssignmentRecord {
        id,
        says,
        role: role.map(str::to_owned),
        granted_by,
        created_at: now,
        revoked_at: None,
        revoked_by: None,
    })
}

/// One assignment of this workspace.
pub(crate) fn find(
    connection: &Connection,
    workspace: WorkspaceId,
    id: AssignmentId,
) -> Result<Option<AssignmentRecord>, store::Error> {
    let mut statement =
        connection.prepare_cached(&format!("{COLUMNS} where workspace_id = ?1 and id = ?2"))?;
    Ok(statement.query_row(params![workspace.to_string(), id.to_string()], record).optional()?)
}

/// Revokes an assignment; a second time changes nothing. Somebody must stay who governs.
///
/// # Errors
/// `not_found`; `invalid_state` when nobody would be left with `admin`.
pub(crate) fn revoke(
    connection: &Connection,
    workspace: WorkspaceId,
    id: AssignmentId,
    by: PrincipalId,
    now: Timestamp,
) -> Result<AssignmentRecord, store::Error> {
    connection.execute(
        "update permission_assignments set revoked_at = ?3, revoked_by = ?4
          where workspace_id = ?1 and id = ?2 and revoked_at is null",
        params![workspace.to_string(), id.to_string(), now.as_ms(), by.to_string()],
    )?;
    let found = find(connection, workspace, id)?.ok_or_else(|| not_found("assignment"))?;
    somebody_governs(connection, workspace, now)?;
    Ok(found)
}

/// Refuses a change after which nobody could govern the workspace any more.
pub(super) fn somebody_governs(
    connection: &Connection,
    workspace: WorkspaceId,
    now: Timestamp,
) -> Result<(), store::Error> {
    // A group governs through its members only.
    let left = connection
        .prepare_cached(
            "select 1 from permission_assignments a join principals p on p.id = a.subject_id
              where a.workspace_id = ?1 and a.permission = 'admin' and a.id_glob = '*' and a.resource_kind in ('*', 'workspace')
                and a.revoked_at is null and (a.expires_at is null or a.expires_at > ?2)
                and p.archived_at is null and p.kind <> 'group'",
        )?
        .exists(params![workspace.to_string(), now.as_ms()])?;
    if left {
        return Ok(());
    }
    let message = "Nobody would be left who governs this workspace. Give `admin` to another principal first.";
    Err(Problem::new(Code::InvalidState, message).into())
}

impl Registry {
    /// Makes an assignment; the answer is its wire form.
    ///
    /// # Errors
    /// `unknown_reference` for a subject that does not exist, `archived` for one that is archived.
    pub async fn create_assignment(
        &self,
        workspace: WorkspaceId,
        says: NewAssignment,
        granted_by: PrincipalId,
        once: Once,
        now: Timestamp,
    ) -> Result<String, Problem> {
        self.change(once, now, move |tx| {
            principals::fit(tx, workspace, says.subject)?;
            Ok(insert(tx, workspace, says, None, granted_by, now)?.wire())
        })
        .await
    }

    /// One assignment.
    ///
    /// # Errors
    /// The store's own failures.
    pub async fn assignment(
        &self,
        workspace: WorkspaceId,
        id: AssignmentId,
    ) -> Result<Option<AssignmentRecord>, Problem> {
        Ok(self.store.read(move |connection| find(connection, workspace, id)).await?)
    }

    /// Assignments, newest first.
    ///
    /// # Errors
    /// The store's own failures.
    pub async fn assignments(
        &self,
        workspace: WorkspaceId,
        query: AssignmentQuery,
    ) -> Result<Vec<AssignmentRecord>, Problem> {
        let work = move |connection: &Connection| {
            let mut statement = connection.prepare_cached(&format!(
                "{COLUMNS} where workspace_id = ?1 and (?2 is null or subject_id = ?2) and (?3 or revoked_at is null)
                   and (?4 is null or id < ?4) order by id desc limit ?5"
            ))?;
            let rows = statement.query_map(
                params![
                    workspace.to_string(),
                    query.subject.map(|id| id.to_string()),
                    query.include_revoked,
                    query.before_id,
                    query.rows
                ],
                record,
            )?;
            Ok(rows.collect::<Result<_, _>>()?)
        };
        Ok(self.store.read(work).await?)
    }
}

/// Makes a workspace with one owner, for tests that start below the API.
#[cfg(test)]
pub(crate) fn seat_owner(
    connection: &Connection,
    workspace: WorkspaceId,
    principal: PrincipalId,
    now: Timestamp,
) -> Result<(), store::Error> {
    connection.execute(
        "insert into workspaces (id, name, created_at) values (?1, ?1, ?2)",
        params![workspace.to_string(), now.as_ms()],
    )?;
    connection.execute(
        "insert into principals (id, workspace_id, name, kind, role, created_at) values (?1, ?2, 'admin', 'user', 'owner', ?3)",
        params![principal.to_string(), workspace.to_string(), now.as_ms()],
    )?;
    compile(connection, workspace, principal, Role::Owner, principal, now)
}
