//! Budgets of sessions: given, raised, paused and listed. A change that lets a session go on does so in its own transaction.

use super::{Cx, Engine, ledger, log};
use crate::{
    domain::{
        budget::{self, Limit, Metric, Spend},
        input,
    },
    http::path::not_found,
    store,
};
use checkfu_shared::{
    event::Body,
    id::{BudgetId, SessionId, WorkspaceId},
    problem::{Code, Problem},
    time::Timestamp,
};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// A budget of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetRecord {
    /// Its id.
    pub id: BudgetId,
    /// Whose.
    pub session_id: SessionId,
    /// What it allows.
    pub limit: Limit,
    /// It limits nothing while this is so.
    pub is_paused: bool,
    /// What of it was used.
    pub used: u64,
    /// When it was given.
    pub created_at: Timestamp,
    /// When it was changed last.
    pub updated_at: Timestamp,
}

impl BudgetRecord {
    /// The API's form of it.
    #[must_use]
    pub fn wire(&self) -> Value {
        let status = match (self.is_paused, self.used >= self.limit.amount) {
            (true, _) => "paused",
            (false, true) => "reached",
            (false, false) => "active",
        };
        json!({
            "id": self.id,
            "type": "budget",
            "session_id": self.session_id,
            "metric": self.limit.metric,
            "limit": self.limit.amount,
            "used": self.used,
            "status": status,
            "created_at": self.created_at,
            "updated_at": self.updated_at,
        })
    }
}

/// A budget as it stands beside its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) struct Standing {
    metric: Metric,
    amount: u64,
    paused: u8,
}

/// The limits that hold now.
pub(super) fn limits(standing: &[Standing]) -> Vec<Limit> {
    let active = standing.iter().filter(|budget| budget.paused == 0);
    active.map(|budget| Limit { metric: budget.metric, amount: budget.amount }).collect()
}

/// What a change does to a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BudgetChange {
    /// Another limit, above what was used; a paused one holds again.
    Raise(u64),
    /// It limits nothing for now.
    Pause,
    /// It holds again.
    Resume,
}

const COLUMNS: &str = "select b.id, s.id, b.metric, b.amount, b.paused, b.created_at, b.updated_at, \
     coalesce(u.micro_usd, 0), coalesce(u.tokens, 0) from budgets b join sessions s on s.key = b.session \
     left join spends u on u.session = b.session";

type Raw = (String, String, String, i64, bool, i64, i64, i64, i64);

fn raw(row: &Row<'_>) -> rusqlite::Result<Raw> {
    Ok((
        row.get(0)?,
        row.get(1)?,
        row.get(2)?,
        row.get(3)?,
        row.get(4)?,
        row.get(5)?,
        row.get(6)?,
        row.get(7)?,
        row.get(8)?,
    ))
}

fn parse(row: Raw) -> Result<BudgetRecord, store::Error> {
    let (id, session, metric, amount, is_paused, created, updated, micro_usd, tokens) = row;
    let metric: Metric = serde_json::from_value(metric.into())?;
    let spend = Spend { micro_usd: micro_usd.cast_unsigned(), tokens: tokens.cast_unsigned() };
    Ok(BudgetRecord {
        id: log::parsed(&id)?,
        session_id: log::parsed(&session)?,
        limit: Limit { metric, amount: amount.cast_unsigned() },
        is_paused,
        used: spend.of(metric),
        created_at: Timestamp::from_ms(created),
        updated_at: Timestamp::from_ms(updated),
    })
}

fn find(conn: &Connection, workspace: WorkspaceId, id: BudgetId) -> Result<BudgetRecord, store::Error> {
    let sql = format!("{COLUMNS} where b.workspace_id = ?1 and b.id = ?2");
    let row = conn
        .prepare_cached(&sql)?
        .query_row(params![workspace.to_string(), id.to_string()], raw)
        .optional()?;
    parse(row.ok_or_else(|| not_found("budget"))?)
}

/// Gives a session a budget, or changes the one it has for this metric.
pub(super) fn put(
    tx: &Connection,
    now: Timestamp,
    loaded: &log::Loaded,
    limit: Limit,
) -> Result<BudgetId, store::Error> {
    above(limit, ledger::spend(tx, loaded.key)?)?;
    let id: String = tx.query_row(
        "insert into budgets (id, session, workspace_id, metric, amount, created_at, updated_at) \
         values (?1, ?2, ?3, ?4, ?5, ?6, ?6) on conflict (session, metric) do update \
         set amount = excluded.amount, paused = 0, updated_at = excluded.updated_at returning id",
        params![
            BudgetId::mint().to_string(),
            loaded.key,
            loaded.workspace_id.to_string(),
            limit.metric.as_str(),
            stored(limit.amount)?,
            now.as_ms()
        ],
        |row| row.get(0),
    )?;
    log::parsed(&id)
}

/// Pauses all budgets of a session.
pub(super) fn pause_all(tx: &Connection, now: Timestamp, session: i64) -> Result<(), store::Error> {
    tx.execute(
        "update budgets set paused = 1, updated_at = ?2 where session = ?1 and paused = 0",
        params![session, now.as_ms()],
    )?;
    Ok(())
}

fn stored(amount: u64) -> Result<i64, Problem> {
    i64::try_from(amount).ok().filter(|amount| *amount <= 1 << 52).ok_or_else(|| {
        Problem::new(Code::InvalidRequest, "The budget is larger than any budget can be. Give less.")
            .with("field", "limit")
    })
}

fn above(limit: Limit, spend: Spend) -> Result<(), Problem> {
    let used = spend.of(limit.metric);
    if limit.amount > used {
        return Ok(());
    }
    Err(Problem::new(
        Code::InvalidRequest,
        format!("The budget must be more than the {used} that the session used already. Give more."),
    )
    .with("field", "budget")
    .with("reason", "budget_not_raised"))
}

/// The session as loaded anew after its budgets changed: its log tells the new budget, and it goes on when it may.
pub(super) fn settle(
    tx: &Connection,
    cx: &mut Cx,
    before: &log::Loaded,
) -> Result<log::Loaded, store::Error> {
    let mut loaded = log::load_key(tx, before.key)?;
    let (was, is) = (limits(&before.budgets), limits(&loaded.budgets));
    if was == is {
        return Ok(loaded);
    }
    let changed: Map<String, Value> =
        [("budget".to_owned(), budget::member(&is).unwrap_or_default())].into_iter().collect();
    let goes_on = budget::admits(is, ledger::spend(tx, loaded.key)?).is_ok();
    let ((), _, hint) = loaded.decide(tx, cx.now, |draft| {
        draft.emit(Body::SessionUpdated { changed });
        if goes_on {
            input::resume_after_budget(draft);
        }
        Ok(())
    })?;
    cx.hints.push(hint);
    Ok(loaded)
}

impl Engine {
    /// Gives a session a budget.
    ///
    /// # Errors
    /// [`Code::NotFound`], [`Code::Archived`], [`Code::Conflict`] when it has one for the metric, or
    /// [`Code::InvalidRequest`] when the limit is spent already.
    pub async fn create_budget(
        &self,
        workspace: WorkspaceId,
        session: SessionId,
        limit: Limit,
    ) -> Result<BudgetRecord, Problem> {
        self.change(move |tx, cx| {
            let loaded = log::load_own(tx, workspace, session)?;
            if loaded.archived_at.is_some() {
                return Err(
                    Problem::new(Code::Archived, "The session is archived and takes no budget.").into()
                );
            }
            if loaded.budgets.iter().any(|budget| budget.metric == limit.metric) {
                let message = "The session has a budget for this metric already. Change that one.";
                return Err(Problem::new(Code::Conflict, message).with("field", "metric").into());
            }
            let id = put(tx, cx.now, &loaded, limit)?;
            settle(tx, cx, &loaded)?;
            find(tx, workspace, id)
        })
        .await
    }

    /// Changes a budget; a session that waited for it goes on by itself when it may.
    ///
    /// # Errors
    /// [`Code::NotFound`], or [`Code::InvalidRequest`] when the new limit is spent already.
    pub async fn change_budget(
        &self,
        workspace: WorkspaceId,
        id: BudgetId,
        change: BudgetChange,
    ) -> Result<BudgetRecord, Problem> {
        self.change(move |tx, cx| {
            let found = find(tx, workspace, id)?;
            let loaded = log::load_own(tx, workspace, found.session_id)?;
            match change {
                BudgetChange::Raise(amount) => {
                    put(tx, cx.now, &loaded, Limit { amount, ..found.limit })?;
                }
                BudgetChange::Pause | BudgetChange::Resume => {
                    let paused = change == BudgetChange::Pause;
                    tx.execute(
                        "update budgets set paused = ?2, updated_at = ?3 where id = ?1 and paused <> ?2",
                        params![id.to_string(), paused, cx.now.as_ms()],
                    )?;
                }
            }
            settle(tx, cx, &loaded)?;
            find(tx, workspace, id)
        })
        .await
    }

    /// One budget.
    ///
    /// # Errors
    /// [`Code::NotFound`]; when the store cannot be read.
    pub async fn budget(&self, workspace: WorkspaceId, id: BudgetId) -> Result<BudgetRecord, Problem> {
        Ok(self.store().read(move |conn| find(conn, workspace, id)).await?)
    }

    /// Budgets, newest first: all of a workspace, or those of one session; only ids before `before`.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn budgets(
        &self,
        workspace: WorkspaceId,
        session: Option<SessionId>,
        before: Option<String>,
        rows: i64,
    ) -> Result<Vec<BudgetRecord>, Problem> {
        let read = move |conn: &Connection| {
            let mut statement = conn.prepare_cached(&format!(
                "{COLUMNS} where b.workspace_id = ?1 and (?2 is null or s.id = ?2) and (?3 is null or b.id < ?3) \
                 order by b.id desc limit ?4"
            ))?;
            let session = session.map(|id| id.to_string());
            let found = statement
                .query_map(params![workspace.to_string(), session, before, rows], raw)?
                .collect::<Result<Vec<_>, _>>()?;
            found.into_iter().map(parse).collect()
        };
        Ok(self.store().read(read).await?)
    }
}
