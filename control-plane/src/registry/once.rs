//! Repetitions of a request. With an `Idempotency-Key` the first answer stands for 24 hours; without one, an SDK that says
//! it retries gets the first answer of the same request for a minute. Kept in the transaction of the change itself.

use crate::{
    engine::Replay,
    http::auth::{Caller, Dialect},
    store,
};
use checkfu_shared::{
    problem::{Code, Problem},
    protocol::append::sha256_hex,
    time::Timestamp,
};
use rusqlite::{Connection, OptionalExtension, params};

const KEYED_MS: i64 = 24 * 3_600_000;
const RETRY_MS: i64 = 60_000;

/// How repetitions of one request are told.
#[derive(Debug, Clone)]
pub enum Once {
    /// They are not.
    Never,
    /// By the caller's key.
    Keyed {
        /// Workspace, principal, method, path and key.
        scope: String,
        /// The digest of the body.
        body_sha256: String,
    },
    /// By the SDK's own word.
    Retried {
        /// Key, method, path and body.
        prefix: String,
        /// The prefix and this request's own id.
        scope: String,
        /// Whether this request is a retry.
        repeated: bool,
        /// The digest of the body.
        body_sha256: String,
    },
}

impl Once {
    /// How repetitions of this request are told.
    #[must_use]
    pub fn of(caller: &Caller, method: &str, path: &str, body_sha256: &str) -> Self {
        let body_sha256 = body_sha256.to_owned();
        match &caller.idempotency_key {
            Some(key) => {
                let (workspace, principal) = (caller.workspace_id, caller.principal_id);
                Self::Keyed { scope: format!("{workspace} {principal} {method} {path} {key}"), body_sha256 }
            }
            None if caller.dialect == Dialect::Sdk => {
                let request = format!("{} {method} {path} {body_sha256}", caller.key_id);
                let prefix = format!("sdk {} ", sha256_hex(request.as_bytes()));
                let scope = format!("{prefix}{}", caller.request_id);
                Self::Retried { prefix, scope, repeated: caller.repeated, body_sha256 }
            }
            None => Self::Never,
        }
    }

    /// The first answer, when there was one.
    ///
    /// # Errors
    /// `idempotency_conflict` when the key was used with another body; the database's own failures.
    pub fn find(&self, connection: &Connection, now: Timestamp) -> Result<Option<String>, store::Error> {
        match self {
            Self::Never | Self::Retried { repeated: false, .. } => Ok(None),
            Self::Keyed { scope, body_sha256 } => {
                let mut statement = connection
                    .prepare_cached("select body_digest, reply from replays where scope = ?1 and at > ?2")?;
                let row = statement.query_row(params![scope, now.as_ms() - KEYED_MS], |row| {
                    Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
                });
                match row.optional()? {
                    Some((digest, _)) if digest != *body_sha256 => Err(other_body().into()),
                    found => Ok(found.map(|(_, reply)| reply)),
                }
            }
            Self::Retried { prefix, .. } => {
                // Request ids are hexadecimal, so `g` sorts after all of them.
                let mut statement = connection.prepare_cached(
                    "select reply from replays where scope > ?1 and scope < ?2 and at > ?3 order by scope desc limit 1",
                )?;
                let window = params![prefix, format!("{prefix}req_g"), now.as_ms() - RETRY_MS];
                Ok(statement.query_row(window, |row| row.get(0)).optional()?)
            }
        }
    }

    /// Keeps the first answer.
    ///
    /// # Errors
    /// The database's own failures.
    pub fn keep(&self, connection: &Connection, now: Timestamp, reply: &str) -> Result<(), store::Error> {
        if let Self::Keyed { scope, body_sha256 } | Self::Retried { scope, body_sha256, .. } = self {
            let mut statement = connection.prepare_cached(
                "insert or replace into replays (scope, body_digest, reply, at) values (?1, ?2, ?3, ?4)",
            )?;
            statement.execute(params![scope, body_sha256, reply, now.as_ms()])?;
        }
        Ok(())
    }

    /// Whether only the SDK's word can tell a repetition, which the engine does not know about.
    #[must_use]
    pub const fn is_retry(&self) -> bool {
        matches!(self, Self::Retried { repeated: true, .. })
    }

    /// What the engine is to do about repetitions.
    #[must_use]
    pub fn replay(&self) -> Option<Replay> {
        match self {
            Self::Never => None,
            Self::Keyed { scope, body_sha256 } | Self::Retried { scope, body_sha256, .. } => {
                Some(Replay { scope_key: scope.clone(), body_digest: body_sha256.clone() })
            }
        }
    }
}

fn other_body() -> Problem {
    Problem::new(
        Code::IdempotencyConflict,
        "This `Idempotency-Key` was used with another body before. Use a new key for a new request.",
    )
}
