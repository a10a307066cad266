//! Standing approvals: made only beside an approval's answer, good for one exact call of one agent for one principal, capped in
//! time and uses, revocable. Each use is told to the audit.

use super::{Engine, log};
use crate::{
    domain::{
        approval::STANDING_SECONDS_MAX,
        policy::{ResourceKind, Standing},
    },
    http::path::not_found,
    store,
};
use checkfu_shared::{
    id::{AgentId, PrincipalId, StandingId, WorkspaceId},
    problem::{Code, Problem},
    time::Timestamp,
};
use rusqlite::{Connection, Row, params};
use serde_json::{Value, json};

/// What an answer asks to stand.
#[derive(Debug, Clone, Copy)]
pub struct StandingWish {
    /// How long.
    pub ttl_seconds: u32,
    /// How often at most.
    pub max_uses: Option<u32>,
}

/// The approvals that stand for this principal and this agent now.
pub(super) fn of(
    conn: &Connection,
    workspace: WorkspaceId,
    principal: PrincipalId,
    agent: AgentId,
    now: Timestamp,
) -> Result<Vec<Standing>, store::Error> {
    let mut statement = conn.prepare_cached(
        "select id, resource_kind, tool, arguments_sha256 from standing_approvals
          where workspace_id = ?1 and principal_id = ?2 and agent_id = ?3 and revoked_at is null and expires_at > ?4
            and (max_uses is null or uses < max_uses) order by id",
    )?;
    let rows = statement.query_map(
        params![workspace.to_string(), principal.to_string(), agent.to_string(), now.as_ms()],
        |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get(2)?, row.get(3)?)),
    )?;
    let mut standing = Vec::new();
    for row in rows {
        let (id, kind, tool, arguments_sha256) = row?;
        if let Some(kind) = ResourceKind::from_text(&kind) {
            standing.push(Standing { id: log::parsed(&id)?, kind, tool, arguments_sha256 });
        }
    }
    Ok(standing)
}

/// Counts one use.
pub(super) fn use_one(tx: &Connection, id: StandingId) -> Result<(), store::Error> {
    tx.prepare_cached("update standing_approvals set uses = uses + 1 where id = ?1")?
        .execute([id.to_string()])?;
    Ok(())
}

/// Lets the call of an approval that was just given stand.
pub(super) fn mint(
    tx: &Connection,
    approval: &str,
    by: PrincipalId,
    wish: StandingWish,
    now: Timestamp,
) -> Result<StandingId, store::Error> {
    if !(1..=STANDING_SECONDS_MAX).contains(&wish.ttl_seconds) || wish.max_uses == Some(0) {
        let message = format!(
            "A standing approval lasts 1 to {STANDING_SECONDS_MAX} seconds and is used at least once."
        );
        return Err(Problem::new(Code::InvalidRequest, message).with("field", "standing").into());
    }
    let id = StandingId::mint();
    tx.execute(
        "insert into standing_approvals (id, workspace_id, principal_id, agent_id, resource_kind, tool, arguments_sha256,
           approval_id, created_by, created_at, expires_at, max_uses)
         select ?1, workspace_id, principal_id, agent_id, resource_kind, tool, arguments_sha256, id, ?3, ?4, ?5, ?6
           from action_approvals where id = ?2",
        params![
            id.to_string(),
            approval,
            by.to_string(),
            now.as_ms(),
            now.plus_ms(i64::from(wish.ttl_seconds) * 1_000).as_ms(),
            wish.max_uses
        ],
    )?;
    Ok(id)
}

const COLUMNS: &str = "select id, principal_id, agent_id, resource_kind, tool, arguments_sha256, approval_id, created_by, \
    created_at, expires_at, max_uses, uses, revoked_at, revoked_by from standing_approvals";

fn wire(row: &Row<'_>) -> rusqlite::Result<(String, Value)> {
    let text = |at: usize| row.get::<_, Option<String>>(at);
    let at = |at: usize| row.get::<_, Option<i64>>(at).map(|ms| ms.map(Timestamp::from_ms));
    let id: String = row.get(0)?;
    let wire = json!({
        "id": id,
        "type": "standing_approval",
        "principal_id": text(1)?,
        "agent_id": text(2)?,
        "resource_kind": text(3)?,
        "tool": text(4)?,
        "arguments_sha256": text(5)?,
        "approval_id": text(6)?,
        "created_by": text(7)?,
        "created_at": at(8)?,
        "expires_at": at(9)?,
        "max_uses": row.get::<_, Option<u32>>(10)?,
        "uses": row.get::<_, u32>(11)?,
        "revoked_at": at(12)?,
        "revoked_by": text(13)?,
    });
    Ok((id, wire))
}

impl Engine {
    /// One standing approval, or all from before an id on, newest first, each with its id.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn standing_approvals(
        &self,
        workspace: WorkspaceId,
        only: Option<StandingId>,
        before: Option<String>,
        rows: i64,
    ) -> Result<Vec<(String, Value)>, Problem> {
        let read = move |conn: &Connection| {
            let mut statement = conn.prepare_cached(&format!(
                "{COLUMNS} where workspace_id = ?1 and (?2 is null or id = ?2) and (?3 is null or id < ?3) order by id desc limit ?4"
            ))?;
            let only = only.map(|id| id.to_string());
            let found = statement.query_map(params![workspace.to_string(), only, before, rows], wire)?;
            Ok(found.collect::<Result<_, _>>()?)
        };
        Ok(self.store().read(read).await?)
    }

    /// Revokes a standing approval; from the next call on it stands no more. A second time changes nothing.
    ///
    /// # Errors
    /// [`Code::NotFound`].
    pub async fn revoke_standing(
        &self,
        workspace: WorkspaceId,
        id: StandingId,
        by: PrincipalId,
    ) -> Result<Value, Problem> {
        self.change(move |tx, cx| {
            tx.execute(
                "update standing_approvals set revoked_at = ?3, revoked_by = ?4
                  where workspace_id = ?1 and id = ?2 and revoked_at is null",
                params![workspace.to_string(), id.to_string(), cx.now.as_ms(), by.to_string()],
            )?;
            let mut statement =
                tx.prepare_cached(&format!("{COLUMNS} where workspace_id = ?1 and id = ?2"))?;
            let mut rows = statement.query_map(params![workspace.to_string(), id.to_string()], wire)?;
            let (_, found) = rows.next().transpose()?.ok_or_else(|| not_found("standing approval"))?;
            Ok(found)
        })
        .await
    }
}
