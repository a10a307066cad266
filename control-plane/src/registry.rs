//! What people register: principals and their keys, agents and environments with every version they ever had.
//! Each change is one transaction of the store, together with the answer that a repetition of the request gets.

mod agent;
mod agents;
pub(crate) mod assignments;
mod deployments;
mod environment;
mod environments;
mod filter;
mod keys;
pub(crate) mod members;
mod once;
pub(crate) mod policies;
pub(crate) mod principals;
mod providers;
pub mod routes;

pub use agent::{AgentRecord, Definition};
pub use assignments::{AssignmentQuery, AssignmentRecord, NewAssignment};
pub use deployments::{DeploymentRecord, HARNESS, NewDeployment};
pub use environment::{Change as EnvironmentChange, EnvironmentRecord};
pub use filter::Filter;
pub use keys::{Authenticated, KeyRecord, NewKey};
pub use once::Once;
pub use policies::{NewPolicy, PolicyRecord};
pub use principals::{NewPrincipal, PrincipalKind, PrincipalRecord};
pub use providers::{NewProvider, ProviderPatch, ProviderRecord};
pub use routes::{RouteCandidate, RouteChange, RouteRecord};

use crate::{
    audit,
    seal::{self, Seals},
    store::{self, Store},
};
use checkfu_shared::{
    id::WorkspaceId,
    problem::{Code, Problem},
    protocol::append::sha256_hex,
    secret::Secret,
    time::Timestamp,
};
use rusqlite::{Row, Transaction};
use serde_json::Value;
use std::{
    collections::HashMap,
    path::Path,
    str::FromStr,
    sync::{Arc, Mutex},
};

/// Why a registry cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The database cannot be used.
    #[error("the database cannot be used")]
    Store(#[from] Problem),
    /// The master key cannot be used.
    #[error("the master key cannot be used")]
    Key(#[from] std::io::Error),
}

/// A handle on the registry; clones share it.
#[derive(Debug, Clone)]
pub struct Registry {
    store: Store,
    seals: Seals,
    data_dir: Arc<Path>,
    last_used: Arc<Mutex<HashMap<checkfu_shared::id::KeyId, Timestamp>>>,
}

impl Registry {
    /// A registry over an open store, with the master keys given or the one of the data directory. Secrets that are sealed
    /// under an older key of these are sealed anew.
    ///
    /// # Errors
    /// [`OpenError`] when the database or the master key cannot be used.
    pub async fn open(store: Store, dir: &Path, master_keys: &[Secret]) -> Result<Self, OpenError> {
        let read = |connection: &rusqlite::Connection| providers::sealed_keys(connection);
        let sealed: Vec<String> =
            store.read(read).await.map_err(Problem::from)?.into_iter().map(|(_, sealed)| sealed).collect();
        let seals = seal::open(dir, master_keys, &sealed)?;
        let registry = Self { store, seals, data_dir: dir.into(), last_used: Arc::default() };
        let strange = sealed.iter().filter(|sealed| !registry.seals.knows(sealed)).count();
        if strange > 0 {
            // Everything else still works; the providers concerned say so when they are asked.
            tracing::error!(
                count = strange,
                "providers' keys are sealed under a master key that is not here"
            );
        } else {
            registry.reseal().await?;
        }
        Ok(registry)
    }

    /// Puts a fresh master key in the place of the data directory's and seals everything with it; how many secrets were.
    ///
    /// # Errors
    /// `invalid_state` when the master key comes from the environment; `internal` when a file cannot be written.
    pub async fn rotate_master_key(&self, from_environment: bool) -> Result<u64, Problem> {
        if from_environment {
            return Err(Problem::new(
                Code::InvalidState,
                "The master key comes from the environment. Start the server with the new one in CHECKFU_MASTER_KEY and the present one in CHECKFU_MASTER_KEY_PREVIOUS; the start seals everything anew.",
            ));
        }
        let mut count = 0;
        let rotated = seal::rotate(&self.data_dir, &self.seals, async || {
            count = self.reseal().await?;
            Ok(())
        });
        match rotated.await {
            Ok(()) => Ok(count),
            Err(OpenError::Store(problem)) => Err(problem),
            Err(OpenError::Key(error)) => Err(crate::http::reply::internal(&error)),
        }
    }

    /// The answer that a repetition gets again, as the engine kept it. Asked before a request is prepared, because what it
    /// names may be gone by now; the change itself asks once more.
    ///
    /// # Errors
    /// The store's own failures.
    pub async fn earlier<T>(&self, once: &Once, now: Timestamp) -> Result<Option<T>, Problem>
    where
        T: serde::de::DeserializeOwned + Send + 'static,
    {
        if !once.may_repeat() {
            return Ok(None);
        }
        let once = once.clone();
        let work = move |connection: &rusqlite::Connection| {
            once.find(connection, now)?.map(|reply| Ok(serde_json::from_str(&reply)?)).transpose()
        };
        Ok(self.store.read(work).await?)
    }

    /// The first answer of a request that was told apart in any way, without the change itself.
    ///
    /// # Errors
    /// `idempotency_conflict`; the store's own failures.
    pub async fn answered(&self, once: &Once, now: Timestamp) -> Result<Option<Value>, Problem> {
        let once = once.clone();
        let work = move |connection: &rusqlite::Connection| {
            once.find(connection, now)?.map(|reply| Ok(serde_json::from_str(&reply)?)).transpose()
        };
        Ok(self.store.read(work).await?)
    }

    /// Keeps the answer of a change that was made elsewhere.
    ///
    /// # Errors
    /// The store's own failures.
    pub async fn remember(&self, once: &Once, now: Timestamp, reply: &Value) -> Result<(), Problem> {
        let (once, reply) = (once.clone(), reply.to_string());
        Ok(self.store.write(move |tx| once.keep(tx, now, &reply)).await?)
    }

    /// Rows of a workspace, newest first. `columns` selects without a condition, from a table whose column `ended` says when a
    /// row was put out of force.
    async fn listed<T: Send + 'static>(
        &self,
        columns: &'static str,
        ended: &'static str,
        workspace: WorkspaceId,
        filter: Filter,
        record: fn(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, Problem> {
        let work = move |connection: &rusqlite::Connection| {
            let mut statement = connection.prepare_cached(&format!(
                "{columns} where workspace_id = ?1 and (?2 or {ended} is null) and (?3 is null or id < ?3)
                   and created_at >= ?4 and created_at < ?5 order by id desc limit ?6"
            ))?;
            let rows = statement.query_map(
                rusqlite::params![
                    workspace.to_string(),
                    filter.include_archived,
                    filter.before_id,
                    filter.created_from_ms,
                    filter.created_before_ms,
                    filter.rows
                ],
                record,
            )?;
            Ok(rows.collect::<Result<_, _>>()?)
        };
        Ok(self.store.read(work).await?)
    }

    /// Makes a change unless this request made it before; the reply's text is the same both times.
    async fn change<F>(&self, once: Once, now: Timestamp, job: F) -> Result<String, Problem>
    where
        F: FnOnce(&Transaction<'_>) -> Result<Value, store::Error> + Send + 'static,
    {
        let act = audit::current();
        let work = move |tx: &Transaction<'_>| {
            if let Some(reply) = once.find(tx, now)? {
                return Ok(reply);
            }
            let reply = job(tx)?.to_string();
            audit::note(tx, act.as_ref(), now, Some(sha256_hex(reply.as_bytes())))?;
            once.keep(tx, now, &reply)?;
            Ok(reply)
        };
        Ok(self.store.write(work).await?)
    }
}

fn archived(what: &str) -> Problem {
    Problem::new(Code::Archived, format!("This {what} is archived and takes no changes. Create another one."))
}

/// A column that holds an id or another text of ours.
fn parsed<T: FromStr<Err: std::error::Error + Send + Sync + 'static>>(
    row: &Row<'_>,
    at: usize,
) -> rusqlite::Result<T> {
    row.get::<_, String>(at)?.parse().map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(at, rusqlite::types::Type::Text, Box::new(error))
    })
}

/// A column that holds JSON.
fn document<T: serde::de::DeserializeOwned>(row: &Row<'_>, at: usize) -> rusqlite::Result<T> {
    serde_json::from_str(&row.get::<_, String>(at)?).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(at, rusqlite::types::Type::Text, Box::new(error))
    })
}

fn instant(row: &Row<'_>, at: usize) -> rusqlite::Result<Timestamp> {
    row.get(at).map(Timestamp::from_ms)
}

fn maybe_instant(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<Timestamp>> {
    row.get::<_, Option<i64>>(at).map(|ms| ms.map(Timestamp::from_ms))
}
