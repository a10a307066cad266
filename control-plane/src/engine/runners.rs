//! The verbs of the public API on runners: list, get, revoke, drain.

use super::{Engine, lease, log};
use crate::{
    domain::claim::{LOST_MS, OFFLINE_MS},
    record::{Presence, RunnerRecord},
    store,
};
use checkfu_shared::{
    id::{RunnerId, SessionId, WorkspaceId},
    problem::{Code, Problem},
    time::Timestamp,
};
use rusqlite::{Connection, Row, params};

impl Engine {
    /// All runners of a workspace, oldest first.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn runners(&self, workspace: WorkspaceId) -> Result<Vec<RunnerRecord>, Problem> {
        let now = self.now();
        Ok(self.store().read(move |conn| list(conn, workspace, None, now)).await?)
    }

    /// One runner, when it is in this workspace.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn runner(
        &self,
        workspace: WorkspaceId,
        runner: RunnerId,
    ) -> Result<Option<RunnerRecord>, Problem> {
        let now = self.now();
        Ok(self.store().read(move |conn| list(conn, workspace, Some(runner), now)).await?.pop())
    }

    /// Revokes a runner at once; its runs are rescheduled without counting an attempt.
    ///
    /// # Errors
    /// [`Code::NotFound`].
    pub async fn revoke_runner(
        &self,
        workspace: WorkspaceId,
        runner: RunnerId,
        reason: String,
    ) -> Result<RunnerRecord, Problem> {
        let record = self
            .change(move |tx, cx| {
                let mut record = one(tx, workspace, runner, cx.now)?;
                if record.revoked_at.is_none() {
                    tx.execute(
                        "update runners set revoked_at = ?2, revoked_reason = ?3 where id = ?1",
                        params![runner.to_string(), cx.now.as_ms(), reason],
                    )?;
                    tx.execute(
                        "update sessions set sandbox_runner = null where sandbox_runner = ?1",
                        [runner.to_string()],
                    )?;
                    lease::release_all(tx, cx, runner, &[], lease::Loss::Revoked)?;
                    record = one(tx, workspace, runner, cx.now)?;
                }
                Ok(record)
            })
            .await?;
        self.0.wakes.look_again();
        Ok(record)
    }

    /// Lets a runner finish what it holds and gives it no more.
    ///
    /// # Errors
    /// [`Code::NotFound`].
    pub async fn drain_runner(
        &self,
        workspace: WorkspaceId,
        runner: RunnerId,
    ) -> Result<RunnerRecord, Problem> {
        let record = self
            .change(move |tx, cx| {
                one(tx, workspace, runner, cx.now)?;
                tx.execute("update runners set draining = 1 where id = ?1", [runner.to_string()])?;
                one(tx, workspace, runner, cx.now)
            })
            .await?;
        self.0.wakes.look_again();
        Ok(record)
    }
}

fn one(
    conn: &Connection,
    workspace: WorkspaceId,
    runner: RunnerId,
    now: Timestamp,
) -> Result<RunnerRecord, store::Error> {
    list(conn, workspace, Some(runner), now)?.pop().ok_or_else(|| {
        Problem::new(Code::NotFound, format!("There is no runner {runner} in this workspace.")).into()
    })
}

fn list(
    conn: &Connection,
    workspace: WorkspaceId,
    runner: Option<RunnerId>,
    now: Timestamp,
) -> Result<Vec<RunnerRecord>, store::Error> {
    let mut statement = conn.prepare_cached(
        "select id, workspace_id, principal_id, pairing_id, instance_id, name, labels, max_sessions, ephemeral, host, \
         created_at, last_seen, draining, revoked_at, revoked_reason from runners \
         where workspace_id = ?1 and (?2 is null or id = ?2) order by id",
    )?;
    let only = runner.map(|id| id.to_string());
    let rows = statement.query_map(params![workspace.to_string(), only], raw)?;
    rows.map(|row| parse(conn, row?, now)).collect()
}

type Raw = (
    (String, String, String, String, String),
    (String, String, Option<u32>, bool, String),
    (i64, i64, bool, Option<i64>, Option<String>),
);

fn raw(row: &Row<'_>) -> Result<Raw, rusqlite::Error> {
    Ok((
        (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?),
        (row.get(5)?, row.get(6)?, row.get(7)?, row.get(8)?, row.get(9)?),
        (row.get(10)?, row.get(11)?, row.get(12)?, row.get(13)?, row.get(14)?),
    ))
}

fn parse(conn: &Connection, row: Raw, now: Timestamp) -> Result<RunnerRecord, store::Error> {
    let ((id, workspace, principal, pairing, instance), facts, times) = row;
    let (name, labels, max_sessions, ephemeral, host) = facts;
    let (created, seen, draining, revoked, revoked_reason) = times;
    let silent = now.as_ms() - seen;
    let presence = if revoked.is_some() {
        Presence::Revoked
    } else if silent < OFFLINE_MS {
        Presence::Online
    } else if silent < LOST_MS {
        Presence::Offline
    } else {
        Presence::Lost
    };
    Ok(RunnerRecord {
        sessions: held_sessions(conn, &id)?,
        id: log::parsed(&id)?,
        workspace_id: log::parsed(&workspace)?,
        principal_id: log::parsed(&principal)?,
        pairing_id: log::parsed(&pairing)?,
        name,
        labels: serde_json::from_str(&labels)?,
        max_sessions,
        ephemeral,
        host: serde_json::from_str(&host)?,
        instance_id: log::parsed(&instance)?,
        created_at: Timestamp::from_ms(created),
        last_seen_at: Timestamp::from_ms(seen),
        draining,
        revoked_at: revoked.map(Timestamp::from_ms),
        revoked_reason,
        presence,
    })
}

fn held_sessions(conn: &Connection, runner: &str) -> Result<Vec<SessionId>, store::Error> {
    let mut statement = conn.prepare_cached(
        "select sessions.id from claims join sessions on sessions.key = claims.session \
         where runner_id = ?1 and claims.state = 'live' order by claims.id",
    )?;
    let rows = statement.query_map([runner], |row| row.get::<_, String>(0))?;
    rows.map(|id| log::parsed(&id?)).collect()
}
