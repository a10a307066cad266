//! The audit: one row for every act of governance and every denial, each bound to the one before by its hash. A row is
//! written in the transaction of the act it tells of, is never changed, and holds ids and digests only: no secret, code or
//! token, no text that a caller wrote.

use crate::store;
use checkfu_shared::{
    id::{PrincipalId, RequestId, WorkspaceId},
    protocol::append::sha256_hex,
    time::Timestamp,
};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};

/// The hash before the first row.
pub const GENESIS: &str = "0000000000000000000000000000000000000000000000000000000000000000";
/// The longest text of a row; whatever is longer is cut before it is hashed.
const TEXT_CHARS_MAX: usize = 200;

/// Who does what, from the request that a guard let in.
#[derive(Debug, Clone)]
pub struct Act {
    /// Whose workspace.
    pub workspace: WorkspaceId,
    /// As whom.
    pub actor: PrincipalId,
    /// Method and pattern of the route.
    pub action: String,
    /// The path that was asked for.
    pub resource: String,
    /// The request.
    pub request: RequestId,
}

tokio::task_local! {
    /// The act that the request at work stands for, when it changes something.
    pub static ACT: Act;
}

/// The act of the request at work, if there is one.
#[must_use]
pub fn current() -> Option<Act> {
    ACT.try_with(Clone::clone).ok()
}

/// How an act ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It was done.
    Done,
    /// It was refused.
    Denied,
}

/// A row to be written.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Who.
    pub actor: PrincipalId,
    /// What.
    pub action: String,
    /// To what.
    pub resource: String,
    /// How it ended.
    pub outcome: Outcome,
    /// SHA-256 of what was there before, when something was.
    pub before_sha256: Option<String>,
    /// SHA-256 of what is there after.
    pub after_sha256: Option<String>,
    /// The request, when one asked for it.
    pub request_id: Option<RequestId>,
}

impl Act {
    /// The row of this act.
    #[must_use]
    pub fn entry(&self, outcome: Outcome, after_sha256: Option<String>) -> Entry {
        Entry {
            actor: self.actor,
            action: self.action.clone(),
            resource: self.resource.clone(),
            outcome,
            before_sha256: None,
            after_sha256,
            request_id: Some(self.request),
        }
    }
}

/// A row as stored; its members in this order are what is hashed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Whose workspace.
    pub workspace_id: WorkspaceId,
    /// Its place: 1, 2, 3, ...
    pub seq: u64,
    /// When.
    pub at: Timestamp,
    /// Who.
    pub actor: String,
    /// What.
    pub action: String,
    /// To what.
    pub resource: String,
    /// How it ended.
    pub outcome: Outcome,
    /// SHA-256 of what was there before.
    pub before_sha256: Option<String>,
    /// SHA-256 of what is there after.
    pub after_sha256: Option<String>,
    /// The request.
    pub request_id: Option<String>,
    /// The hash of the row before.
    pub prev_hash: String,
    /// The hash of this row, which binds all before it.
    #[serde(default)]
    pub hash: String,
}

impl Record {
    /// What the hash of this row has to be.
    #[must_use]
    pub fn expected_hash(&self) -> String {
        let bare = Self { hash: String::new(), ..self.clone() };
        sha256_hex(&serde_json::to_vec(&bare).unwrap_or_default())
    }
}

/// The first row that breaks the chain, in a sentence; `head` is what came before the first of `rows`.
///
/// # Errors
/// The place and what is wrong there.
pub fn verify<'r>(
    head: (u64, &str),
    rows: impl IntoIterator<Item = &'r Record>,
) -> Result<(u64, String), (u64, &'static str)> {
    let (mut seq, mut hash) = (head.0, head.1.to_owned());
    for row in rows {
        seq += 1;
        if row.seq != seq {
            return Err((seq, "a row is missing"));
        }
        if row.prev_hash != hash {
            return Err((seq, "the row does not follow the one before it"));
        }
        if row.hash != row.expected_hash() {
            return Err((seq, "the row is not what was written"));
        }
        hash.clone_from(&row.hash);
    }
    Ok((seq, hash))
}

/// Writes a row behind the last one.
///
/// # Errors
/// The database's own failures.
pub fn append(
    conn: &Connection,
    workspace: WorkspaceId,
    now: Timestamp,
    entry: Entry,
) -> Result<(), store::Error> {
    let last = conn
        .prepare_cached("select seq, hash from audit where workspace_id = ?1 order by seq desc limit 1")?
        .query_row([workspace.to_string()], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)))
        .optional()?;
    let (seq, prev_hash) = last.unwrap_or_else(|| (0, GENESIS.to_owned()));
    let cut = |text: String| text.chars().take(TEXT_CHARS_MAX).collect::<String>();
    let mut record = Record {
        workspace_id: workspace,
        seq: seq.cast_unsigned() + 1,
        at: now,
        actor: entry.actor.to_string(),
        action: cut(entry.action),
        resource: cut(entry.resource),
        outcome: entry.outcome,
        before_sha256: entry.before_sha256,
        after_sha256: entry.after_sha256,
        request_id: entry.request_id.map(|id| id.to_string()),
        prev_hash,
        hash: String::new(),
    };
    record.hash = record.expected_hash();
    conn.prepare_cached(
        "insert into audit (workspace_id, seq, at, actor, action, resource, outcome, before_sha256, after_sha256,
           request_id, prev_hash, hash) values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
    )?
    .execute(params![
        workspace.to_string(),
        record.seq.cast_signed(),
        record.at.as_ms(),
        record.actor,
        record.action,
        record.resource,
        if record.outcome == Outcome::Done { "done" } else { "denied" },
        record.before_sha256,
        record.after_sha256,
        record.request_id,
        record.prev_hash,
        record.hash,
    ])?;
    Ok(())
}

/// Writes the row of the request at work, when it stands for an act.
///
/// # Errors
/// The database's own failures.
pub fn note(
    conn: &Connection,
    act: Option<&Act>,
    now: Timestamp,
    after_sha256: Option<String>,
) -> Result<(), store::Error> {
    match act {
        Some(act) => append(conn, act.workspace, now, act.entry(Outcome::Done, after_sha256)),
        None => Ok(()),
    }
}

/// Which rows to read, in order.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// Only later rows.
    pub after_seq: u64,
    /// Only this actor.
    pub actor: Option<String>,
    /// Only actions that begin so.
    pub action: Option<String>,
    /// Only what ended so: `done` or `denied`.
    pub outcome: Option<String>,
    /// How many rows.
    pub rows: i64,
}

fn record(row: &Row<'_>) -> rusqlite::Result<(String, Record)> {
    let outcome: String = row.get(6)?;
    let record = Record {
        workspace_id: WorkspaceId::from_bytes([0; 16]),
        seq: row.get::<_, i64>(1)?.cast_unsigned(),
        at: Timestamp::from_ms(row.get(2)?),
        actor: row.get(3)?,
        action: row.get(4)?,
        resource: row.get(5)?,
        outcome: if outcome == "done" { Outcome::Done } else { Outcome::Denied },
        before_sha256: row.get(7)?,
        after_sha256: row.get(8)?,
        request_id: row.get(9)?,
        prev_hash: row.get(10)?,
        hash: row.get(11)?,
    };
    Ok((row.get(0)?, record))
}

/// Rows of a workspace, in order.
///
/// # Errors
/// The database's own failures.
pub fn read(conn: &Connection, workspace: WorkspaceId, query: &Query) -> Result<Vec<Record>, store::Error> {
    let mut statement = conn.prepare_cached(
        "select workspace_id, seq, at, actor, action, resource, outcome, before_sha256, after_sha256, request_id, prev_hash, hash
           from audit where workspace_id = ?1 and seq > ?2 and (?3 is null or actor = ?3)
            and (?4 is null or substr(action, 1, length(?4)) = ?4) and (?5 is null or outcome = ?5)
          order by seq limit ?6",
    )?;
    let rows = statement.query_map(
        params![
            workspace.to_string(),
            query.after_seq.cast_signed(),
            query.actor,
            query.action,
            query.outcome,
            query.rows
        ],
        record,
    )?;
    rows.map(|row| {
        row.map(|(_, record)| Record { workspace_id: workspace, ..record }).map_err(store::Error::from)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn chain(count: u64) -> Vec<Record> {
        let mut prev_hash = GENESIS.to_owned();
        (1..=count)
            .map(|seq| {
                let mut record = Record {
                    workspace_id: WorkspaceId::from_bytes([1; 16]),
                    seq,
                    at: Timestamp::from_ms(i64::try_from(seq).unwrap() * 1_000),
                    actor: "prin_1".to_owned(),
                    action: format!("POST /v1/{seq}"),
                    resource: "/v1".to_owned(),
                    outcome: Outcome::Done,
                    before_sha256: None,
                    after_sha256: Some("ab".to_owned()),
                    request_id: None,
                    prev_hash: prev_hash.clone(),
                    hash: String::new(),
                };
                record.hash = record.expected_hash();
                prev_hash.clone_from(&record.hash);
                record
            })
            .collect()
    }

    proptest! {
        #[test]
        fn whatever_row_is_changed_taken_out_or_moved_is_found(count in 2u64..12, at in 0usize..12, how in 0u8..5) {
            let mut rows = chain(count);
            let head = verify((0, GENESIS), &rows).unwrap();
            prop_assert_eq!(head.0, count);
            let at = at % (rows.len() - 1);
            match how {
                0 => rows[at].actor.push('x'),
                1 => rows[at].at = rows[at].at.plus_ms(1),
                2 => drop(rows.remove(at)),
                3 => rows.swap(at, at + 1),
                _ => rows[at].hash = rows[at + 1].hash.clone(),
            }
            let found = verify((0, GENESIS), &rows);
            prop_assert_eq!(found.map_err(|(seq, _)| seq), Err(at as u64 + 1));
        }
    }
}
