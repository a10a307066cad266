//! Members of groups: a member holds what its groups hold, from the next request on and only as long as it is one.

use super::{Once, PrincipalKind, PrincipalRecord, Registry, principals};
use crate::{http::path::not_found, store};
use checkfu_shared::{
    id::{PrincipalId, WorkspaceId},
    problem::{Code, Problem},
    time::Timestamp,
};
use rusqlite::{Connection, params};
use serde_json::{Value, json};

fn group(
    connection: &Connection,
    workspace: WorkspaceId,
    id: PrincipalId,
) -> Result<PrincipalRecord, store::Error> {
    let found = principals::find(connection, workspace, id)?.ok_or_else(|| not_found("principal"))?;
    if found.kind == PrincipalKind::Group {
        return Ok(found);
    }
    Err(Problem::new(Code::InvalidState, "Only a principal of the kind `group` has members.").into())
}

fn wire(group: PrincipalId, member: PrincipalId) -> Value {
    json!({"type": "group_member", "group": group, "principal": member})
}

impl Registry {
    /// Adds a member; a second time changes nothing. A group is no member, so that nothing is inherited in circles.
    ///
    /// # Errors
    /// `not_found`, `invalid_state` when it is no group, `unknown_reference`, `archived`.
    pub async fn add_member(
        &self,
        workspace: WorkspaceId,
        group_id: PrincipalId,
        member: PrincipalId,
        once: Once,
        now: Timestamp,
    ) -> Result<String, Problem> {
        self.change(once, now, move |tx| {
            group(tx, workspace, group_id)?;
            if principals::fit(tx, workspace, member)?.kind == PrincipalKind::Group {
                return Err(Problem::new(Code::InvalidState, "A group cannot be a member of a group.").into());
            }
            tx.execute(
                "insert or ignore into group_members (group_id, member_id, added_at) values (?1, ?2, ?3)",
                params![group_id.to_string(), member.to_string(), now.as_ms()],
            )?;
            Ok(wire(group_id, member))
        })
        .await
    }

    /// The members of a group by id.
    ///
    /// # Errors
    /// `not_found`, `invalid_state` when it is no group.
    pub async fn members(
        &self,
        workspace: WorkspaceId,
        group_id: PrincipalId,
    ) -> Result<Vec<Value>, Problem> {
        let work = move |connection: &Connection| {
            group(connection, workspace, group_id)?;
            members(connection, group_id)?.into_iter().map(|member| Ok(wire(group_id, member))).collect()
        };
        Ok(self.store.read(work).await?)
    }
}

fn members(connection: &Connection, group: PrincipalId) -> Result<Vec<PrincipalId>, store::Error> {
    let mut statement = connection
        .prepare_cached("select member_id from group_members where group_id = ?1 order by member_id")?;
    let rows = statement.query_map([group.to_string()], |row| super::parsed(row, 0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Takes a member out.
///
/// # Errors
/// `not_found` when it is not in; `invalid_state` when it is no group.
pub(crate) fn remove(
    connection: &Connection,
    workspace: WorkspaceId,
    group_id: PrincipalId,
    member: PrincipalId,
) -> Result<Value, store::Error> {
    group(connection, workspace, group_id)?;
    let gone = connection.execute(
        "delete from group_members where group_id = ?1 and member_id = ?2",
        params![group_id.to_string(), member.to_string()],
    )?;
    if gone == 0 {
        return Err(not_found("member").into());
    }
    Ok(wire(group_id, member))
}
/// The groups that a principal is in.
///
/// # Errors
/// The database's own failures.
pub(crate) fn groups(connection: &Connection, member: PrincipalId) -> Result<Vec<PrincipalId>, store::Error> {
    let mut statement = connection.prepare_cached(
        "select group_id from group_members m join principals p on p.id = m.group_id
          where m.member_id = ?1 and p.archived_at is null order by group_id",
    )?;
    let rows = statement.query_map([member.to_string()], |row| super::parsed(row, 0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}
