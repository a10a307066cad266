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

pub use agent::{AgentRecord, Definition};
pub use assignments::{AssignmentQuery, AssignmentRecord, NewAssignment};
pub use deployments::{DeploymentRecord, HARNESS, NewDeployment};
pub use environment::{Change as EnvironmentChange, EnvironmentRecord};
pub use filter::Filter;
pub use keys::{Authenticated, KeyRecord, NewKey};
pub use once::Once;
pub use policies::{NewPolicy, PolicyRecord};
pub use principals::{NewPrincipal, PrincipalKind, PrincipalRecord};

use crate::{
    audit,
    store::{self, Store},
};
use checkfu_shared::{
    problem::{Code, Problem},
    protocol::append::sha256_hex,
    time::Timestamp,
};
use rusqlite::{Row, Transaction};
use serde_json::Value;
use std::{
    collections::HashMap,
    str::FromStr,
    sync::{Arc, Mutex},
};

/// A handle on the registry; clones share it.
#[derive(Debug, Clone)]
pub struct Registry {
    store: Store,
    last_used: Arc<Mutex<HashMap<checkfu_shared::id::KeyId, Timestamp>>>,
}

impl Registry {
    /// A registry over an open store.
    #[must_use]
    pub fn new(store: Store) -> Self {
        Self { store, last_used: Arc::default() }
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
