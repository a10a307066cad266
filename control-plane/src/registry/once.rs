//! Repetitions of a request. With an `Idempotency-Key` the first answer stands for 24 hours; without one, an SDK that says
//! it retries gets the first answer of the same request for a minute. Kept in the transaction of the change itself.

use crate::{
    engine::{Replay, Told, replay},
    http::auth::{Caller, Dialect},
    store,
};
use checkfu_shared::{protocol::append::sha256_hex, time::Timestamp};
use rusqlite::Connection;

/// How repetitions of one request are told; `None` when they are not.
#[derive(Debug, Clone)]
pub struct Once(Option<Replay>);

impl Once {
    /// A request that is made anew each time.
    pub const NEVER: Self = Self(None);

    /// How repetitions of this request are told.
    #[must_use]
    pub fn of(caller: &Caller, method: &str, path: &str, body_sha256: &str) -> Self {
        let body_digest = body_sha256.to_owned();
        match &caller.idempotency_key {
            Some(key) => {
                let (workspace, principal) = (caller.workspace_id, caller.principal_id);
                let scope_key = format!("{workspace} {principal} {method} {path} {key}");
                Self(Some(Replay { scope_key, body_digest, told: Told::ByScope }))
            }
            None if caller.dialect == Dialect::Sdk => {
                let request = format!("{} {method} {path} {body_sha256}", caller.key_id);
                let prefix = format!("sdk {} ", sha256_hex(request.as_bytes()));
                // Request ids sort by their arrival.
                let scope = format!("{prefix}{}", caller.request_id);
                Self(Some(if caller.repeated {
                    Replay { scope_key: scope + " retry", body_digest, told: Told::ByRetry { prefix } }
                } else {
                    Replay { scope_key: scope, body_digest, told: Told::ByOvertaker { prefix } }
                }))
            }
            None => Self::NEVER,
        }
    }

    /// The first answer, when there was one.
    ///
    /// # Errors
    /// `idempotency_conflict` when the key was used with another body; the database's own failures.
    pub fn find(&self, connection: &Connection, now: Timestamp) -> Result<Option<String>, store::Error> {
        self.0.as_ref().map_or(Ok(None), |replay| replay::text(connection, replay, now))
    }

    /// Keeps the first answer.
    ///
    /// # Errors
    /// The database's own failures.
    pub fn keep(&self, connection: &Connection, now: Timestamp, reply: &str) -> Result<(), store::Error> {
        self.0.as_ref().map_or(Ok(()), |replay| replay::keep_text(connection, replay, now, reply))
    }

    /// Whether this request says itself that it repeats another, or may be one by its key.
    #[must_use]
    pub const fn may_repeat(&self) -> bool {
        matches!(self.0, Some(Replay { told: Told::ByScope | Told::ByRetry { .. }, .. }))
    }

    /// What the engine is to do about repetitions.
    #[must_use]
    pub fn replay(self) -> Option<Replay> {
        self.0
    }
}
