//! The verbs of the public API on sessions: create, say something, change, archive, delete.

use super::{
    Engine, admission, approvals, budgets,
    log::{self, Changeable, Definition, Loaded},
    replay,
};
use crate::{
    domain::{input, session::State},
    record::{Input, NewSession, Replay, RunStatus, SessionPatch, SessionRecord, Status},
    store,
};
use checkfu_shared::{
    agent::Agent,
    event::{Body, Event},
    id::{SessionId, ThreadId, WorkspaceId},
    problem::{Code, Problem},
    protocol::append::sha256_hex,
    time::Timestamp,
};
use rusqlite::{Connection, params};
use serde_json::{Map, Value, json};

impl Engine {
    /// Makes a session; with `replay`, a repetition gets the first answer.
    ///
    /// # Errors
    /// [`Code::IdempotencyConflict`] when the key was used with another body; an input's own refusal.
    pub async fn create_session(
        &self,
        new: NewSession,
        replay: Option<Replay>,
    ) -> Result<SessionRecord, Problem> {
        self.change(move |tx, cx| {
            if let Some(answer) = replay::find(tx, replay.as_ref(), cx.now)? {
                return Ok(answer);
            }
            let (agent, environment) = (new.agent.id, new.environment_id);
            admission::check(tx, new.workspace_id, new.principal_id, agent, environment, cx.now)??;
            let (mut loaded, initial) = insert(tx, cx.now, new)?;
            if !initial.is_empty() {
                let ((), _, hint) = loaded.decide(tx, cx.now, |draft| input::send(draft, initial))?;
                cx.hints.push(hint);
            }
            let record = loaded.record();
            replay::keep(tx, replay.as_ref(), cx.now, &record)?;
            Ok(record)
        })
        .await
    }

    /// Says something to a session: all of it or nothing. The reply holds the echoes as logged.
    ///
    /// # Errors
    /// [`Code::NotFound`], [`Code::Archived`], or the refusal of one input.
    pub async fn send(
        &self,
        workspace: WorkspaceId,
        session: SessionId,
        inputs: Vec<Input>,
        replay: Option<Replay>,
    ) -> Result<Vec<Event>, Problem> {
        self.change(move |tx, cx| {
            if let Some(answer) = replay::find(tx, replay.as_ref(), cx.now)? {
                return Ok(answer);
            }
            let mut loaded = log::load_own(tx, workspace, session)?;
            for input in &inputs {
                if let Body::UserToolConfirmation(answer) = &input.body {
                    approvals::check_confirmation(tx, &loaded, answer, input.authored_by, cx.now)?;
                }
            }
            let ((), events, hint) = loaded.decide(tx, cx.now, |draft| input::send(draft, inputs))?;
            cx.hints.push(hint);
            let echoes: Vec<Event> = events.into_iter().filter(|event| event.body.is_input()).collect();
            replay::keep(tx, replay.as_ref(), cx.now, &echoes)?;
            Ok(echoes)
        })
        .await
    }

    /// Changes members of a session; the change is logged as `session.updated`.
    ///
    /// # Errors
    /// [`Code::NotFound`], [`Code::Archived`], or [`Code::InvalidState`] for an agent's change while a run goes on.
    pub async fn update_session(
        &self,
        workspace: WorkspaceId,
        session: SessionId,
        patch: SessionPatch,
    ) -> Result<SessionRecord, Problem> {
        self.change(move |tx, cx| {
            let mut loaded = log::load_own(tx, workspace, session)?;
            let budget = patch.budget;
            let changed = apply(&mut loaded, patch)?;
            if !changed.is_empty() {
                store_members(tx, &loaded)?;
                let ((), _, hint) = loaded.decide(tx, cx.now, |draft| {
                    draft.emit(Body::SessionUpdated { changed });
                    Ok(())
                })?;
                cx.hints.push(hint);
            }
            match budget {
                None => return Ok(loaded.record()),
                Some(None) => budgets::pause_all(tx, cx.now, loaded.key)?,
                Some(Some(limit)) => {
                    budgets::put(tx, cx.now, &loaded, limit)?;
                }
            }
            Ok(budgets::settle(tx, cx, &loaded)?.record())
        })
        .await
    }

    /// Gives a session that has no run another choice of its release's tools; admitted anew, and logged as
    /// `session.updated` with the digest of the release before and after.
    ///
    /// # Errors
    /// [`Code::NotFound`], [`Code::Archived`], [`Code::InvalidState`] while it has a run, [`Code::PermissionDenied`].
    pub async fn select(
        &self,
        workspace: WorkspaceId,
        session: SessionId,
        agent: Agent,
    ) -> Result<SessionRecord, Problem> {
        self.change(move |tx, cx| {
            let mut loaded = log::load_own(tx, workspace, session)?;
            if loaded.archived_at.is_some() {
                return Err(Problem::new(Code::Archived, "The session is archived and takes no changes.").into());
            }
            if loaded.state.run.is_some() {
                let message = "The session has a run that is not over. Let it end, or interrupt it, before choosing tools.";
                return Err(Problem::new(Code::InvalidState, message).into());
            }
            if let Some(reason) = admission::barred(tx, &loaded, cx.now)? {
                return Err(Problem::new(Code::PermissionDenied, reason).into());
            }
            let (before, after) = (release(&loaded.definition.agent)?, release(&agent)?);
            let mut changed = Map::new();
            changed.insert("agent".to_owned(), serde_json::to_value(&agent)?);
            changed.insert("release".to_owned(), json!({"before_sha256": before, "after_sha256": after}));
            loaded.definition.agent = agent;
            store_members(tx, &loaded)?;
            let ((), _, hint) = loaded.decide(tx, cx.now, |draft| {
                draft.emit(Body::SessionUpdated { changed });
                Ok(())
            })?;
            cx.hints.push(hint);
            Ok(loaded.record())
        })
        .await
    }

    /// Archives a session that does not run: it is `terminated` then and takes no more input.
    ///
    /// # Errors
    /// [`Code::NotFound`], or [`Code::InvalidState`] while it runs.
    pub async fn archive_session(
        &self,
        workspace: WorkspaceId,
        session: SessionId,
    ) -> Result<SessionRecord, Problem> {
        self.change(move |tx, cx| {
            let mut loaded = log::load_own(tx, workspace, session)?;
            if loaded.archived_at.is_none() {
                refuse_running(&loaded, "archived")?;
                let ((), _, hint) = loaded.decide(tx, cx.now, |draft| {
                    draft.emit(Body::SessionStatusTerminated {});
                    Ok(())
                })?;
                let queue = dispose(tx, &loaded)?;
                cx.hints.push(log::Hint { queue: hint.queue || queue, ..hint });
                loaded.archived_at = Some(cx.now);
                tx.execute(
                    "update sessions set archived_at = ?2 where key = ?1",
                    params![loaded.key, cx.now.as_ms()],
                )?;
            }
            Ok(loaded.record())
        })
        .await
    }

    /// Deletes a session that does not run, with its log and its files; with `replay`, a repetition finds it deleted.
    ///
    /// # Errors
    /// [`Code::NotFound`], or [`Code::InvalidState`] while it runs.
    pub async fn delete_session(
        &self,
        workspace: WorkspaceId,
        session: SessionId,
        replay: Option<Replay>,
    ) -> Result<(), Problem> {
        self.change(move |tx, cx| {
            if replay::find::<Value>(tx, replay.as_ref(), cx.now)?.is_some() {
                return Ok(());
            }
            let loaded = log::load_own(tx, workspace, session)?;
            refuse_running(&loaded, "deleted")?;
            tx.execute(
                "insert or ignore into garbage (stored) select stored from files \
                 where session = ?1 and stored is not null",
                [loaded.key],
            )?;
            let queue = dispose(tx, &loaded)?;
            tx.execute("delete from sessions where key = ?1", [loaded.key])?;
            cx.hints.push(log::Hint { session, head: loaded.state.seq + 1, queue, durable: Vec::new() });
            replay::keep(tx, replay.as_ref(), cx.now, &session)
        })
        .await
    }
}

/// The digest by which two releases are told apart.
fn release(agent: &Agent) -> Result<String, store::Error> {
    Ok(sha256_hex(&serde_json::to_vec(agent)?))
}

/// Has the runner that holds the session's sandbox told to remove it; whether there is one to tell.
fn dispose(tx: &Connection, loaded: &Loaded) -> Result<bool, store::Error> {
    let Some(runner) = loaded.sandbox_runner else { return Ok(false) };
    tx.execute(
        "insert or ignore into disposals (runner_id, session_id) values (?1, ?2)",
        params![runner.to_string(), loaded.id.to_string()],
    )?;
    Ok(true)
}

fn insert(tx: &Connection, now: Timestamp, new: NewSession) -> Result<(Loaded, Vec<Input>), store::Error> {
    let definition = Definition {
        principal_id: new.principal_id,
        agent: new.agent,
        environment_id: new.environment_id,
        environment_revision: new.environment_revision,
        environment: new.environment,
        thread_id: ThreadId::mint(),
        resources: new.resources,
        vault_ids: new.vault_ids,
        instructions: new.instructions,
    };
    let changeable = Changeable { title: new.title, metadata: new.metadata };
    let (id, state) = (SessionId::mint(), State::default());
    tx.prepare_cached(
        "insert into sessions (id, workspace_id, created_at, updated_at, agent_id, status, definition, facts, state) \
         values (?1, ?2, ?3, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?
    .execute(params![
        id.to_string(),
        new.workspace_id.to_string(),
        now.as_ms(),
        definition.agent.id.to_string(),
        state.status.as_str(),
        serde_json::to_string(&definition)?,
        serde_json::to_string(&changeable)?,
        serde_json::to_string(&state)?,
    ])?;
    let key = tx.last_insert_rowid();
    let mut loaded = Loaded {
        key,
        id,
        workspace_id: new.workspace_id,
        created_at: now,
        updated_at: now,
        archived_at: None,
        definition,
        changeable,
        budgets: Vec::new(),
        state,
        epoch: 0,
        sandbox_runner: None,
    };
    if let Some(limit) = new.budget {
        budgets::put(tx, now, &loaded, limit)?;
        loaded.budgets = log::load_key(tx, key)?.budgets;
    }
    Ok((loaded, new.initial))
}

/// Changes the loaded members; what changed, as `session.updated` shows it.
fn apply(loaded: &mut Loaded, patch: SessionPatch) -> Result<Map<String, Value>, store::Error> {
    if loaded.archived_at.is_some() {
        return Err(Problem::new(Code::Archived, "The session is archived and takes no changes.").into());
    }
    let mut changed = Map::new();
    let members = &mut loaded.changeable;
    if let Some(title) = patch.title.filter(|title| *title != members.title) {
        members.title = title;
        changed.insert("title".to_owned(), serde_json::to_value(&members.title)?);
    }
    if let Some(pairs) = patch.metadata {
        let before = members.metadata.clone();
        for (name, value) in pairs {
            if value.is_null() {
                members.metadata.remove(&name);
            } else {
                members.metadata.insert(name, value);
            }
        }
        if members.metadata != before {
            changed.insert("metadata".to_owned(), Value::Object(members.metadata.clone()));
        }
    }
    if let Some(agent) = patch.agent.filter(|agent| *agent != loaded.definition.agent) {
        refuse_running(loaded, "given another agent")?;
        changed.insert("agent".to_owned(), serde_json::to_value(&agent)?);
        loaded.definition.agent = agent;
    }
    Ok(changed)
}

fn store_members(tx: &Connection, loaded: &Loaded) -> Result<(), store::Error> {
    tx.execute(
        "update sessions set definition = ?2, facts = ?3, agent_id = ?4 where key = ?1",
        params![
            loaded.key,
            serde_json::to_string(&loaded.definition)?,
            serde_json::to_string(&loaded.changeable)?,
            loaded.definition.agent.id.to_string()
        ],
    )?;
    Ok(())
}

fn refuse_running(loaded: &Loaded, what: &str) -> Result<(), Problem> {
    let runs = matches!(loaded.state.phase(), Some(RunStatus::Queued | RunStatus::Claimed))
        || matches!(loaded.state.status, Status::Running | Status::Rescheduling);
    if runs {
        return Err(Problem::new(
            Code::InvalidState,
            format!(
                "The session is running and cannot be {what}. Send `user.interrupt` alone, wait for it to be idle, then try again."
            ),
        ));
    }
    Ok(())
}
