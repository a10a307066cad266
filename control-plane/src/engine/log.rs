//! Loading a session's state and committing a decision: events, state, runs and the queue move in one transaction.
//! The one place that writes events.

use super::{admission, budgets, governance};
use crate::{
    domain::{
        budget,
        draft::{Decided, Draft, Facts, FreshIds},
        session::State,
    },
    record::{RunStatus, SessionRecord},
    store,
};
use checkfu_shared::{
    agent::Agent,
    environment,
    event::{Event, ExecutionPins},
    id::{EnvironmentId, EventId, PrincipalId, RunnerId, SessionId, ThreadId, VaultId, WorkspaceId},
    problem::{Code, Problem},
    protocol::append::sha256_hex,
    time::Timestamp,
};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::str::FromStr;

/// What a session was made of.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Definition {
    pub(super) principal_id: PrincipalId,
    pub(super) agent: Agent,
    pub(super) environment_id: EnvironmentId,
    pub(super) environment_revision: u32,
    pub(super) environment: environment::Spec,
    pub(super) thread_id: ThreadId,
    pub(super) resources: Vec<Value>,
    pub(super) vault_ids: Vec<VaultId>,
    pub(super) instructions: Option<String>,
}

/// What an update changes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Changeable {
    pub(super) title: Option<String>,
    pub(super) metadata: Map<String, Value>,
}

/// A session as stored.
#[derive(Debug, Clone)]
pub(super) struct Loaded {
    pub(super) key: i64,
    pub(super) id: SessionId,
    pub(super) workspace_id: WorkspaceId,
    pub(super) created_at: Timestamp,
    pub(super) updated_at: Timestamp,
    pub(super) archived_at: Option<Timestamp>,
    pub(super) definition: Definition,
    pub(super) changeable: Changeable,
    pub(super) budgets: Vec<budgets::Standing>,
    pub(super) state: State,
    pub(super) epoch: u64,
    pub(super) sandbox_runner: Option<RunnerId>,
}

/// What to wake after a commit.
#[derive(Debug, Clone)]
pub(super) struct Hint {
    pub(super) session: SessionId,
    pub(super) head: u64,
    /// A run may be offered now, or an open poll has to look again.
    pub(super) queue: bool,
    /// Events whose previews are over.
    pub(super) durable: Vec<EventId>,
}

const COLUMNS: &str = "key, id, workspace_id, created_at, updated_at, archived_at, definition, facts, state, epoch, \
     sandbox_runner, (select json_group_array(json_object('metric', metric, 'amount', amount, 'paused', paused)) \
     from budgets where budgets.session = sessions.key)";

/// The session with this id.
pub(super) fn load(conn: &Connection, id: SessionId) -> Result<Option<Loaded>, store::Error> {
    let sql = format!("select {COLUMNS} from sessions where id = ?1");
    let row = conn.prepare_cached(&sql)?.query_row([id.to_string()], raw).optional()?;
    row.map(parse).transpose()
}

/// The session in this row.
pub(super) fn load_key(conn: &Connection, key: i64) -> Result<Loaded, store::Error> {
    let sql = format!("select {COLUMNS} from sessions where key = ?1");
    parse(conn.prepare_cached(&sql)?.query_row([key], raw)?)
}

/// The session with this id, when it is in this workspace.
pub(super) fn load_own(
    conn: &Connection,
    workspace: WorkspaceId,
    id: SessionId,
) -> Result<Loaded, store::Error> {
    let found = load(conn, id)?.filter(|loaded| loaded.workspace_id == workspace);
    found.ok_or_else(|| {
        Problem::new(Code::NotFound, format!("There is no session {id} in this workspace.")).into()
    })
}

type Raw =
    ((i64, String, String, i64, i64, Option<i64>), (String, String, String, i64, Option<String>, String));

/// Reads the columns of [`COLUMNS`] as they are.
fn raw(row: &Row<'_>) -> Result<Raw, rusqlite::Error> {
    Ok((
        (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?),
        (row.get(6)?, row.get(7)?, row.get(8)?, row.get(9)?, row.get(10)?, row.get(11)?),
    ))
}

fn parse(row: Raw) -> Result<Loaded, store::Error> {
    let (
        (key, id, workspace, created, updated, archived),
        (definition, facts, state, epoch, runner, budgets),
    ) = row;
    Ok(Loaded {
        key,
        id: parsed(&id)?,
        workspace_id: parsed(&workspace)?,
        created_at: Timestamp::from_ms(created),
        updated_at: Timestamp::from_ms(updated),
        archived_at: archived.map(Timestamp::from_ms),
        definition: serde_json::from_str(&definition)?,
        changeable: serde_json::from_str(&facts)?,
        budgets: serde_json::from_str(&budgets)?,
        state: serde_json::from_str(&state)?,
        epoch: epoch.cast_unsigned(),
        sandbox_runner: runner.as_deref().map(parsed).transpose()?,
    })
}

/// Reads back an id that this program stored.
pub(super) fn parsed<T: FromStr>(text: &str) -> Result<T, store::Error>
where
    T::Err: std::fmt::Display,
{
    text.parse().map_err(|error: T::Err| store::Error::Damaged(serde::de::Error::custom(error)))
}

/// All sessions of a query over `sessions`, whose text after `from sessions` is `rest`.
pub(super) fn select(
    conn: &Connection,
    rest: &str,
    arguments: &[&dyn rusqlite::ToSql],
) -> Result<Vec<Loaded>, store::Error> {
    let mut statement = conn.prepare_cached(&format!("select {COLUMNS} from sessions {rest}"))?;
    let rows = statement.query_map(arguments, raw)?.collect::<Result<Vec<_>, _>>()?;
    rows.into_iter().map(parse).collect()
}

impl Loaded {
    /// What the domain must know beside the state.
    pub(super) fn facts(&self, conn: &Connection, now: Timestamp) -> Result<Facts, store::Error> {
        let definition = &self.definition;
        Ok(Facts {
            session_id: self.id,
            thread_id: definition.thread_id,
            agent: definition.agent.clone(),
            pins: ExecutionPins {
                principal_id: definition.principal_id,
                agent_id: definition.agent.id,
                agent_version: definition.agent.version,
                environment_id: definition.environment_id,
                environment_revision: definition.environment_revision,
                harness: "checkfu".to_owned(),
                model_route: definition.agent.model.id.clone(),
                instructions_sha256: definition.instructions.as_ref().map(|text| sha256_hex(text.as_bytes())),
            },
            budget: budget::member(&budgets::limits(&self.budgets)),
            policy: governance::context(conn, self, now)?,
            barred: admission::barred(conn, self, now)?,
        })
    }

    /// The record that readers see.
    pub(super) fn record(&self) -> SessionRecord {
        let (definition, changeable, state) = (&self.definition, &self.changeable, &self.state);
        SessionRecord {
            id: self.id,
            workspace_id: self.workspace_id,
            principal_id: definition.principal_id,
            agent: definition.agent.clone(),
            environment_id: definition.environment_id,
            environment_revision: definition.environment_revision,
            thread_id: definition.thread_id,
            title: changeable.title.clone(),
            metadata: changeable.metadata.clone(),
            resources: definition.resources.clone(),
            vault_ids: definition.vault_ids.clone(),
            budget: budget::member(&budgets::limits(&self.budgets)),
            status: state.status,
            stop_reason: state.stop_reason.clone(),
            usage: state.usage.clone(),
            active_seconds: state.active_ms / 1_000,
            created_at: self.created_at,
            updated_at: self.updated_at,
            archived_at: self.archived_at,
            last_seq: state.seq,
        }
    }

    /// Lets the domain decide and writes what it decided; the events as logged.
    pub(super) fn decide<T>(
        &mut self,
        tx: &Connection,
        now: Timestamp,
        verb: impl FnOnce(&mut Draft<'_>) -> Result<T, Problem>,
    ) -> Result<(T, Vec<Event>, Hint), store::Error> {
        let (facts, mut mint) = (self.facts(tx, now)?, FreshIds);
        let mut draft = Draft::new(self.state.clone(), &facts, now, &mut mint);
        let value = verb(&mut draft)?;
        let decided = draft.decided();
        let hint = self.commit(tx, now, &decided)?;
        Ok((value, decided.events, hint))
    }

    fn commit(&mut self, tx: &Connection, now: Timestamp, decided: &Decided) -> Result<Hint, store::Error> {
        let run_before = self.state.run.as_ref().map(|run| run.record.id);
        append(tx, self.key, &decided.events)?;
        governance::record(tx, self, now, decided)?;
        stamp_processed(tx, self.key, now, &decided.processed)?;
        for run in &decided.runs {
            tx.prepare_cached(
                "insert into runs (id, session, created_at, record) values (?1, ?2, ?3, ?4) \
                 on conflict (id) do update set record = excluded.record",
            )?
            .execute(params![
                run.id.to_string(),
                self.key,
                run.created_at.as_ms(),
                serde_json::to_string(run)?
            ])?;
        }
        self.state = decided.state.clone();
        self.updated_at = now;
        tx.prepare_cached("update sessions set state = ?2, status = ?3, updated_at = ?4 where key = ?1")?
            .execute(params![
                self.key,
                serde_json::to_string(&self.state)?,
                self.state.status.as_str(),
                now.as_ms()
            ])?;
        let queue = self.sync_queue(tx, now, run_before.map(|id| id.to_string()))?;
        let durable = decided.events.iter().map(|event| event.id).collect();
        Ok(Hint { session: self.id, head: self.state.seq, queue, durable })
    }

    /// Keeps the queue equal to the runs that wait; whether something may be offered now.
    fn sync_queue(
        &self,
        tx: &Connection,
        now: Timestamp,
        run_before: Option<String>,
    ) -> Result<bool, store::Error> {
        let run = self.state.run.as_ref().map(|run| run.record.id.to_string());
        let queued = self.state.phase() == Some(RunStatus::Queued);
        if run != run_before || !queued {
            tx.prepare_cached("delete from queue where session = ?1")?.execute([self.key])?;
        }
        if run != run_before {
            tx.prepare_cached(
                "update claims set state = 'returned' where session = ?1 and state = 'offered' and run_id is not ?2",
            )?
            .execute(params![self.key, run])?;
        }
        if !queued {
            return Ok(false);
        }
        let labels = serde_json::to_string(&self.definition.environment.placement_labels)?;
        let added = tx
            .prepare_cached(
                "insert into queue (session, workspace_id, queued_at, labels) values (?1, ?2, ?3, ?4) \
                 on conflict (session) do nothing",
            )?
            .execute(params![self.key, self.workspace_id.to_string(), now.as_ms(), labels])?;
        Ok(added > 0)
    }
}

fn append(tx: &Connection, key: i64, events: &[Event]) -> Result<(), store::Error> {
    let mut insert =
        tx.prepare_cached("insert into events (session, seq, kind, body) values (?1, ?2, ?3, ?4)")?;
    for event in events {
        let body = serde_json::to_string(event)?;
        insert.execute(params![key, event.seq.cast_signed(), event.body.kind(), body])?;
    }
    Ok(())
}

/// Inputs were folded in: readers of the log see since when.
fn stamp_processed(tx: &Connection, key: i64, now: Timestamp, places: &[u64]) -> Result<(), store::Error> {
    for &place in places {
        let at = params![key, place.cast_signed()];
        let body: String = tx
            .prepare_cached("select body from events where session = ?1 and seq = ?2")?
            .query_row(at, |row| row.get(0))?;
        let mut event: Event = serde_json::from_str(&body)?;
        event.processed_at = Some(now);
        tx.prepare_cached("update events set body = ?3 where session = ?1 and seq = ?2")?
            .execute(params![key, place.cast_signed(), serde_json::to_string(&event)?])?;
    }
    Ok(())
}
