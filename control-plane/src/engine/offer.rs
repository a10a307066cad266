//! Which queued run goes to which runner, read from the store and judged by the domain.

use super::{admission, log};
use crate::{
    domain::claim::{self, Candidate, Queued},
    record::{RunRecord, RunStatus, WaitingReason},
    registry::assignments,
    store,
};
use checkfu_shared::{
    event::StopReason,
    id::{PrincipalId, RunnerId, SessionId, WorkspaceId},
    protocol::Tempo,
    time::Timestamp,
};
use rusqlite::{Connection, OptionalExtension, Row, params};

const CANDIDATE: &str = "select id, labels, said_labels, draining, revoked_at, last_seen, max_sessions, \
     (select count(*) from claims where runner_id = runners.id and state in ('offered', 'live')), workspace_id, \
     principal_id from runners";

/// Whose workspace a runner is in, and whose rights it has.
pub(super) type Owner = (WorkspaceId, PrincipalId);

/// One runner as an offer sees it, with its owner.
pub(super) fn candidate(
    conn: &Connection,
    runner: RunnerId,
) -> Result<Option<(Candidate, Owner)>, store::Error> {
    let mut statement = conn.prepare_cached(&format!("{CANDIDATE} where id = ?1"))?;
    statement.query_row([runner.to_string()], raw).optional()?.map(parse).transpose()
}

fn candidates(conn: &Connection, workspace: WorkspaceId) -> Result<Vec<(Candidate, Owner)>, store::Error> {
    let mut statement = conn.prepare_cached(&format!("{CANDIDATE} where workspace_id = ?1"))?;
    let rows = statement.query_map([workspace.to_string()], raw)?.collect::<Result<Vec<_>, _>>()?;
    rows.into_iter().map(parse).collect()
}

type Raw = ((String, String, String), (bool, Option<i64>, i64), (Option<u32>, u32, String, String));

fn raw(row: &Row<'_>) -> Result<Raw, rusqlite::Error> {
    Ok((
        (row.get(0)?, row.get(1)?, row.get(2)?),
        (row.get(3)?, row.get(4)?, row.get(5)?),
        (row.get(6)?, row.get(7)?, row.get(8)?, row.get(9)?),
    ))
}

fn parse(row: Raw) -> Result<(Candidate, Owner), store::Error> {
    let ((id, given, said), (draining, revoked, seen), (max_sessions, held, workspace, principal)) = row;
    let mut labels: Vec<String> = serde_json::from_str(&given)?;
    labels.extend(serde_json::from_str::<Vec<String>>(&said)?);
    let candidate = Candidate {
        id: log::parsed(&id)?,
        labels,
        revoked: revoked.is_some(),
        draining,
        last_seen: Timestamp::from_ms(seen),
        held,
        max_sessions,
    };
    Ok((candidate, (log::parsed(&workspace)?, log::parsed(&principal)?)))
}

type RawQueued = (i64, i64, String, Option<String>, Option<String>, String);

fn queued_of(row: &Row<'_>) -> Result<RawQueued, rusqlite::Error> {
    Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?))
}

fn queued(row: RawQueued) -> Result<(i64, Queued), store::Error> {
    let (session, at, labels, home, claim, _) = row;
    let queued = Queued {
        queued_at: Timestamp::from_ms(at),
        labels: serde_json::from_str(&labels)?,
        sandbox_runner: home.as_deref().map(log::parsed).transpose()?,
        offered: claim.is_some(),
    };
    Ok((session, queued))
}

const QUEUED: &str = "select queue.session, queued_at, labels, sandbox_runner, claim, \
     definition ->> '$.environment_id' from queue \
     join sessions on sessions.key = queue.session";

/// The session whose queued run this runner gets next: its own first, then the oldest.
pub(super) fn pick(
    conn: &Connection,
    runner: &Candidate,
    (workspace, principal): Owner,
    tempo: &Tempo,
    now: Timestamp,
) -> Result<Option<i64>, store::Error> {
    if runner.is_barred() || !runner.has_room() {
        return Ok(None);
    }
    let grants = assignments::grants(conn, workspace, principal, now)?;
    let mut statement = conn.prepare_cached(&format!(
        "{QUEUED} where queue.workspace_id = ?1 and claim is null \
         order by sandbox_runner is not ?2, queued_at, queue.session"
    ))?;
    let rows = statement.query_map(params![workspace.to_string(), runner.id.to_string()], queued_of)?;
    for row in rows {
        let row = row?;
        let environment = row.5.clone();
        let may = admission::may_claim(&grants, &environment);
        let (session, run) = queued(row)?;
        if !may || !runner.carries(&run.labels) {
            continue;
        }
        let home = match run.sandbox_runner {
            Some(home) if home != runner.id => entitled(conn, home, &environment, now)?,
            _ => None,
        };
        if claim::kept_for(&run, home.as_ref(), tempo, now).is_none() {
            return Ok(Some(session));
        }
    }
    Ok(None)
}

/// The runner, unless it may not have runs in this environment any more: then nothing is kept for it.
fn entitled(
    conn: &Connection,
    id: RunnerId,
    environment: &str,
    now: Timestamp,
) -> Result<Option<Candidate>, store::Error> {
    let Some((home, (workspace, principal))) = candidate(conn, id)? else { return Ok(None) };
    let grants = assignments::grants(conn, workspace, principal, now)?;
    Ok(admission::may_claim(&grants, environment).then_some(home))
}

/// Whether anything waits that was not offered, so that pollers should look again as time passes.
pub(super) fn anything_waits(conn: &Connection) -> Result<bool, store::Error> {
    let sql = "select exists (select 1 from queue where claim is null)";
    Ok(conn.prepare_cached(sql)?.query_row([], |row| row.get(0))?)
}

/// Why this run waits now, when it does.
pub(super) fn waiting_reason(
    conn: &Connection,
    session: SessionId,
    run: &RunRecord,
    tempo: &Tempo,
    now: Timestamp,
) -> Result<Option<WaitingReason>, store::Error> {
    match (run.status, &run.stop_reason) {
        (RunStatus::Suspended, Some(StopReason::BudgetReached)) => {
            return Ok(Some(WaitingReason::BudgetReached));
        }
        (RunStatus::Suspended, _) => return Ok(Some(WaitingReason::ApprovalPending)),
        (RunStatus::Queued, _) => {}
        (RunStatus::Claimed | RunStatus::Settled, _) => return Ok(None),
    }
    let Some(loaded) = log::load(conn, session)? else { return Ok(None) };
    let row = conn
        .prepare_cached(&format!("{QUEUED} where queue.session = ?1"))?
        .query_row([loaded.key], queued_of)
        .optional()?;
    let Some(row) = row else { return Ok(None) };
    let environment = row.5.clone();
    let (_, waiting) = queued(row)?;
    let (mut may, mut may_not) = (Vec::new(), Vec::new());
    for (runner, (workspace, principal)) in candidates(conn, loaded.workspace_id)? {
        let grants = assignments::grants(conn, workspace, principal, now)?;
        if admission::may_claim(&grants, &environment) { may.push(runner) } else { may_not.push(runner) }
    }
    Ok(Some(match claim::waiting_reason(&waiting, &may, tempo, now) {
        WaitingReason::NoRunnerMatchesLabels
            if may_not.iter().any(|runner| !runner.revoked && runner.carries(&waiting.labels)) =>
        {
            WaitingReason::NoRunnerMayClaim
        }
        reason => reason,
    }))
}
