//! The only writer of session logs: it loads a session's state, lets the domain decide, commits events and state in one
//! transaction, then wakes whoever waits. Nothing is visible before it is durable.

mod record;

pub use record::*;

use crate::{fanout::Fanout, store::Store};
use checkfu_shared::{
    event::Event,
    id::{RunnerId, SessionId, WorkspaceId},
    problem::{Code, Problem},
    protocol::Tempo,
    time::Clock,
};
use std::{path::PathBuf, sync::Arc};

/// What an engine is made of.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where files in custody, staging and the server key live.
    pub data_dir: PathBuf,
    /// How fast runners go.
    pub tempo: Tempo,
}

/// A handle on the engine; clones share it.
#[derive(Debug, Clone)]
pub struct Engine(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Store,
    clock: Arc<dyn Clock>,
    settings: Settings,
    fanout: Fanout,
}

impl Engine {
    /// An engine over an open store.
    ///
    /// # Errors
    /// When the data directory cannot be used.
    pub async fn open(store: Store, clock: Arc<dyn Clock>, settings: Settings) -> Result<Self, Problem> {
        Ok(Self(Arc::new(Inner { store, clock, settings, fanout: Fanout::default() })))
    }

    /// The hints to waiting readers.
    #[must_use]
    pub fn fanout(&self) -> &Fanout {
        &self.0.fanout
    }

    /// Makes a session; with `replay`, a repetition gets the first answer.
    ///
    /// # Errors
    /// [`Code::IdempotencyConflict`] when the key was used with another body; an input's own refusal.
    pub async fn create_session(
        &self,
        _new: NewSession,
        _replay: Option<Replay>,
    ) -> Result<SessionRecord, Problem> {
        Err(pending())
    }

    /// Says something to a session: all of it or nothing. The reply holds the events as logged.
    ///
    /// # Errors
    /// [`Code::NotFound`], [`Code::Archived`], or the refusal of one input.
    pub async fn send(
        &self,
        _workspace: WorkspaceId,
        _session: SessionId,
        _inputs: Vec<Input>,
        _replay: Option<Replay>,
    ) -> Result<Vec<Event>, Problem> {
        Err(pending())
    }

    /// Changes members of a session; the change is logged as `session.updated`.
    ///
    /// # Errors
    /// [`Code::NotFound`], [`Code::Archived`], or [`Code::InvalidState`] for an agent's change while a run goes on.
    pub async fn update_session(
        &self,
        _workspace: WorkspaceId,
        _session: SessionId,
        _patch: SessionPatch,
    ) -> Result<SessionRecord, Problem> {
        Err(pending())
    }

    /// Archives a session that does not run: it is `terminated` then and takes no more input.
    ///
    /// # Errors
    /// [`Code::NotFound`], or [`Code::InvalidState`] while it runs.
    pub async fn archive_session(
        &self,
        _workspace: WorkspaceId,
        _session: SessionId,
    ) -> Result<SessionRecord, Problem> {
        Err(pending())
    }

    /// Deletes a session that does not run, with its log and its files.
    ///
    /// # Errors
    /// [`Code::NotFound`], or [`Code::InvalidState`] while it runs.
    pub async fn delete_session(&self, _workspace: WorkspaceId, _session: SessionId) -> Result<(), Problem> {
        Err(pending())
    }

    /// One session, when it is in this workspace.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn session(
        &self,
        _workspace: WorkspaceId,
        _session: SessionId,
    ) -> Result<Option<SessionRecord>, Problem> {
        Err(pending())
    }

    /// A page of sessions.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn sessions(
        &self,
        _workspace: WorkspaceId,
        _query: SessionQuery,
    ) -> Result<Page<SessionRecord>, Problem> {
        Err(pending())
    }

    /// A page of a session's log; the caller checked that the session is its own.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn events(&self, _session: SessionId, _query: EventQuery) -> Result<Vec<RawEvent>, Problem> {
        Err(pending())
    }

    /// A session's runs, oldest first; the caller checked that the session is its own.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn runs(&self, _session: SessionId) -> Result<Vec<RunRecord>, Problem> {
        Err(pending())
    }

    /// A session's files by path; the caller checked that the session is its own.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn files(&self, _session: SessionId) -> Result<Vec<FileRecord>, Problem> {
        Err(pending())
    }

    /// Mints a pairing code.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub async fn mint_pairing(&self, _new: NewPairing) -> Result<MintedPairing, Problem> {
        Err(pending())
    }

    /// All runners of a workspace, oldest first.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn runners(&self, _workspace: WorkspaceId) -> Result<Vec<RunnerRecord>, Problem> {
        Err(pending())
    }

    /// One runner, when it is in this workspace.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn runner(
        &self,
        _workspace: WorkspaceId,
        _runner: RunnerId,
    ) -> Result<Option<RunnerRecord>, Problem> {
        Err(pending())
    }

    /// Revokes a runner at once; its runs are rescheduled without counting an attempt.
    ///
    /// # Errors
    /// [`Code::NotFound`].
    pub async fn revoke_runner(
        &self,
        _workspace: WorkspaceId,
        _runner: RunnerId,
        _reason: String,
    ) -> Result<RunnerRecord, Problem> {
        Err(pending())
    }

    /// Lets a runner finish what it holds and gives it no more.
    ///
    /// # Errors
    /// [`Code::NotFound`].
    pub async fn drain_runner(
        &self,
        _workspace: WorkspaceId,
        _runner: RunnerId,
    ) -> Result<RunnerRecord, Problem> {
        Err(pending())
    }
}

/// The answer of verbs that are not written yet.
fn pending() -> Problem {
    Problem::new(Code::Unsupported, "This part of the engine is not written yet.")
}
