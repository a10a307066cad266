//! Whether a session's acting principal may have it run, and a runner's principal may hold it: asked when a session is made,
//! at each new run, and for everything under way as soon as a permission is withdrawn.

use super::{Cx, Engine, lease, log};
use crate::{
    domain::{
        grant::{Grants, Kind, Permission},
        settlement,
    },
    registry::assignments,
    store,
};
use checkfu_shared::{
    id::{AgentId, EnvironmentId, PrincipalId, WorkspaceId},
    problem::Problem,
    time::Timestamp,
};
use rusqlite::Connection;

/// Whether these grants let their principal run this agent in this environment.
///
/// # Errors
/// [`checkfu_shared::problem::Code::PermissionDenied`] naming what is missing.
fn may_run(grants: &Grants, agent: AgentId, environment: EnvironmentId) -> Result<(), Problem> {
    grants.check(Permission::Invoke, Kind::Agent, &agent.to_string())?;
    grants.check(Permission::UseEnvironment, Kind::Environment, &environment.to_string())
}

/// Whether this principal may have a session of this agent in this environment run now.
pub(super) fn check(
    conn: &Connection,
    workspace: WorkspaceId,
    principal: PrincipalId,
    agent: AgentId,
    environment: EnvironmentId,
    now: Timestamp,
) -> Result<Result<(), Problem>, store::Error> {
    Ok(may_run(&assignments::grants(conn, workspace, principal, now)?, agent, environment))
}

/// Why the session may not start a run now; `None` when it may.
pub(super) fn barred(
    conn: &Connection,
    loaded: &log::Loaded,
    now: Timestamp,
) -> Result<Option<String>, store::Error> {
    let definition = &loaded.definition;
    let (agent, environment) = (definition.agent.id, definition.environment_id);
    let checked = check(conn, loaded.workspace_id, definition.principal_id, agent, environment, now)?;
    Ok(checked.err().map(|problem| problem.message))
}

/// Whether a runner of this principal may hold a run in this environment.
pub(super) fn may_claim(grants: &Grants, environment: &str) -> bool {
    grants.covers(Permission::Claim, Kind::Environment, environment)
}

impl Engine {
    /// Withdraws something that permissions rest on, and stops what may not go on without it, in one transaction.
    ///
    /// # Errors
    /// The refusal of `job`; when the store cannot be written.
    pub async fn withdraw<T, F>(&self, workspace: WorkspaceId, job: F) -> Result<T, Problem>
    where
        T: Send + 'static,
        F: FnOnce(&Connection, Timestamp) -> Result<T, store::Error> + Send + 'static,
    {
        let value = self
            .change(move |tx, cx| {
                let value = job(tx, cx.now)?;
                enforce(tx, cx, workspace)?;
                Ok(value)
            })
            .await?;
        self.0.wakes.look_again();
        Ok(value)
    }

    /// Stops what may not go on because a permission ended by its own time.
    ///
    /// # Errors
    /// When the store cannot be used.
    pub async fn expire_permissions(&self) -> Result<(), Problem> {
        let workspaces = self
            .store()
            .read(|conn| {
                let mut statement = conn.prepare_cached(
                    "select distinct workspace_id from sessions where status in ('running', 'rescheduling')",
                )?;
                let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
                rows.map(|row| log::parsed(&row?)).collect::<Result<Vec<WorkspaceId>, _>>()
            })
            .await?;
        for workspace in workspaces {
            self.withdraw(workspace, |_, _| Ok(())).await?;
        }
        Ok(())
    }
}

/// Ends the runs and the claims of this workspace that nobody may have any more.
fn enforce(tx: &Connection, cx: &mut Cx, workspace: WorkspaceId) -> Result<(), store::Error> {
    let rest = "where claims.state in ('offered', 'live') and exists (select 1 from runners \
                where runners.id = claims.runner_id and runners.workspace_id = ?1)";
    for held in lease::select(tx, rest, &[&workspace.to_string()])? {
        let principal: String = tx
            .prepare_cached("select principal_id from runners where id = ?1")?
            .query_row([held.runner_id.to_string()], |row| row.get(0))?;
        let grants = assignments::grants(tx, workspace, log::parsed(&principal)?, cx.now)?;
        let loaded = log::load_key(tx, held.session)?;
        if may_claim(&grants, &loaded.definition.environment_id.to_string()) {
            continue;
        }
        match held.hold {
            lease::Hold::Offered => lease::take_back(tx, cx, &held)?,
            _ => lease::lose(tx, cx, &held, lease::Loss::Unentitled)?,
        }
    }
    let rest = "where workspace_id = ?1 and (status in ('running', 'rescheduling') \
                or (status = 'idle' and json_extract(state, '$.run') is not null))";
    for mut loaded in log::select(tx, rest, &[&workspace.to_string()])? {
        if let Some(reason) = barred(tx, &loaded, cx.now)? {
            stop(tx, cx, &mut loaded, reason)?;
        }
    }
    Ok(())
}

/// Ends a run whose acting principal may not have it any more; its claim is fenced.
fn stop(tx: &Connection, cx: &mut Cx, loaded: &mut log::Loaded, reason: String) -> Result<(), store::Error> {
    let rest = "where session = ?1 and state in ('offered', 'live', 'lost')";
    for held in lease::select(tx, rest, &[&loaded.key])? {
        lease::set_hold(tx, held.id, lease::Hold::Fenced)?;
    }
    let ((), _, hint) = loaded.decide(tx, cx.now, |draft| {
        let epoch = draft.state.run.as_ref().map_or(0, |run| run.record.epoch);
        settlement::bar(draft, epoch, reason);
        Ok(())
    })?;
    cx.hints.push(hint);
    Ok(())
}

#[cfg(test)]
impl Engine {
    /// Makes a workspace with one owner, for tests that start below the API.
    pub(crate) async fn seat_owner(&self, workspace: WorkspaceId, principal: PrincipalId) {
        self.change(move |tx, cx| assignments::seat_owner(tx, workspace, principal, cx.now)).await.unwrap();
    }
}
