//! Idempotency: an answer stored in the same transaction as the change it answers, good for a day.

use crate::{record::Replay, store};
use checkfu_shared::{
    problem::{Code, Problem},
    time::Timestamp,
};
use rusqlite::{Connection, OptionalExtension, params};
use serde::{Serialize, de::DeserializeOwned};

/// How long an answer is repeated.
const KEPT_MS: i64 = 24 * 60 * 60 * 1_000;

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
    let row: Option<(String, String)> = tx
        .prepare_cached("select body_digest, reply from replays where scope = ?1 and at > ?2")?
        .query_row(params![replay.scope_key, now.as_ms() - KEPT_MS], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((digest, reply)) = row else { return Ok(None) };
    if digest != replay.body_digest {
        return Err(Problem::new(
            Code::IdempotencyConflict,
            "This Idempotency-Key was used with another body. Use a new key for a new request.",
        )
        .into());
    }
    Ok(Some(serde_json::from_str(&reply)?))
}

/// Keeps the answer.
pub(super) fn keep<T: Serialize>(
    tx: &Connection,
    replay: Option<&Replay>,
    now: Timestamp,
    answer: &T,
) -> Result<(), store::Error> {
    let Some(replay) = replay else { return Ok(()) };
    tx.prepare_cached(
        "insert or replace into replays (scope, body_digest, reply, at) values (?1, ?2, ?3, ?4)",
    )?
    .execute(params![
        replay.scope_key,
        replay.body_digest,
        serde_json::to_string(answer)?,
        now.as_ms()
    ])?;
    Ok(())
}

/// Forgets answers past their time.
pub(super) fn sweep(tx: &Connection, now: Timestamp) -> Result<usize, store::Error> {
    Ok(tx.execute("delete from replays where at <= ?1", [now.as_ms() - KEPT_MS])?)
}
