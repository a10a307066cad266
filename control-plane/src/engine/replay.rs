//! Answers to repeated requests, kept with the change that they answer. Looked up in the writer's own transaction, so that a
//! repetition finds the answer however close behind the first request it comes.

use crate::{
    record::{Replay, Told},
    store,
};
use checkfu_shared::{
    problem::{Code, Problem},
    time::Timestamp,
};
use rusqlite::{Connection, OptionalExtension, params};
use serde::{Serialize, de::DeserializeOwned};

/// How long the answer to a keyed request is repeated.
const KEPT_MS: i64 = 24 * 60 * 60 * 1_000;
/// How long an SDK's own retries are told.
const RETRY_MS: i64 = 60_000;

/// The first answer, when this request was made before.
///
/// # Errors
/// [`Code::IdempotencyConflict`] when the key was used with another body.
pub(super) fn find<T: DeserializeOwned>(
    tx: &Connection,
    replay: Option<&Replay>,
    now: Timestamp,
) -> Result<Option<T>, store::Error> {
    let Some(replay) = replay else { return Ok(None) };
    text(tx, replay, now)?.map(|reply| Ok(serde_json::from_str(&reply)?)).transpose()
}

/// As [`find`], the answer as it was kept.
///
/// # Errors
/// As [`find`].
pub fn text(conn: &Connection, replay: &Replay, now: Timestamp) -> Result<Option<String>, store::Error> {
    match &replay.told {
        Told::ByScope => by_scope(conn, replay, now),
        Told::ByRetry { prefix } => last(conn, "scope > ?1 and scope < ?2 and at > ?3", prefix, prefix, now),
        // Only a retry overtakes; an equal request of somebody else is none.
        Told::ByOvertaker { prefix } => last(
            conn,
            "scope > ?1 and scope < ?2 and at > ?3 and scope like '% retry'",
            &replay.scope_key,
            prefix,
            now,
        ),
    }
}

fn by_scope(conn: &Connection, replay: &Replay, now: Timestamp) -> Result<Option<String>, store::Error> {
    let row: Option<(String, String)> = conn
        .prepare_cached("select body_digest, reply from replays where scope = ?1 and at > ?2")?
        .query_row(params![replay.scope_key, now.as_ms() - KEPT_MS], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    match row {
        Some((digest, _)) if digest != replay.body_digest => Err(Problem::new(
            Code::IdempotencyConflict,
            "This `Idempotency-Key` was used with another body before. Use a new key for a new request.",
        )
        .into()),
        found => Ok(found.map(|(_, reply)| reply)),
    }
}

/// The answer under the greatest scope that follows `after` and begins with `prefix`.
fn last(
    conn: &Connection,
    clause: &str,
    after: &str,
    prefix: &str,
    now: Timestamp,
) -> Result<Option<String>, store::Error> {
    // Request ids are hexadecimal, so `g` sorts after all of them.
    let window = params![after, format!("{prefix}req_g"), now.as_ms() - RETRY_MS];
    let sql = format!("select reply from replays where {clause} order by scope desc limit 1");
    Ok(conn.prepare_cached(&sql)?.query_row(window, |row| row.get(0)).optional()?)
}

/// Keeps the answer.
pub(super) fn keep<T: Serialize>(
    tx: &Connection,
    replay: Option<&Replay>,
    now: Timestamp,
    answer: &T,
) -> Result<(), store::Error> {
    let Some(replay) = replay else { return Ok(()) };
    keep_text(tx, replay, now, &serde_json::to_string(answer)?)
}

/// As [`keep`], an answer that is text already.
///
/// # Errors
/// The database's own failures.
pub fn keep_text(tx: &Connection, replay: &Replay, now: Timestamp, answer: &str) -> Result<(), store::Error> {
    tx.prepare_cached(
        "insert or replace into replays (scope, body_digest, reply, at) values (?1, ?2, ?3, ?4)",
    )?
    .execute(params![replay.scope_key, replay.body_digest, answer, now.as_ms()])?;
    Ok(())
}

/// Forgets answers past their time.
pub(super) fn sweep(tx: &Connection, now: Timestamp) -> Result<usize, store::Error> {
    Ok(tx.execute("delete from replays where at <= ?1", [now.as_ms() - KEPT_MS])?)
}
