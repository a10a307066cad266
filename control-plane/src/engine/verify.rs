//! Proof that what is stored beside the log follows from it: every session is folded again and compared.

use super::{log, reads};
use crate::{
    domain::session::State,
    record::{EventQuery, RunRecord},
    store::{self, Store},
};
use checkfu_shared::{
    event::{ApprovalStatus, Body, Event, OutputCaptured},
    id::SessionId,
    problem::Problem,
};
use rusqlite::Connection;
use std::collections::BTreeMap;

/// What a verification found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// How many sessions were compared.
    pub sessions: u64,
    /// How many events were read.
    pub events: u64,
    /// Everything that does not follow from the log.
    pub differences: Vec<Difference>,
}

/// One thing that does not follow from the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Whose.
    pub session_id: SessionId,
    /// What differs, in a sentence.
    pub what: String,
}

/// Folds every session's log again and compares status, run, usage, open calls, files and epoch with the stored rows.
///
/// # Errors
/// When the store cannot be read.
pub async fn verify(store: &Store) -> Result<Report, Problem> {
    let keys = store
        .read(|conn| {
            let mut statement = conn.prepare_cached("select key from sessions order by key")?;
            let rows = statement.query_map([], |row| row.get::<_, i64>(0))?;
            Ok(rows.collect::<Result<Vec<_>, _>>()?)
        })
        .await?;
    let mut report = Report::default();
    for key in keys {
        let (events, differences) = store.read(move |conn| session(conn, key)).await?;
        report.sessions += 1;
        report.events += events;
        report.differences.extend(differences);
    }
    Ok(report)
}

/// What the log alone says.
#[derive(Default)]
struct Told {
    state: State,
    runs: BTreeMap<String, RunRecord>,
    files: BTreeMap<String, OutputCaptured>,
    approvals: BTreeMap<String, String>,
    epoch: u64,
    gaps: Vec<String>,
    count: u64,
}

fn session(conn: &Connection, key: i64) -> Result<(u64, Vec<Difference>), store::Error> {
    let loaded = log::load_key(conn, key)?;
    let told = read(conn, loaded.id)?;
    let mut whats = told.gaps.clone();
    let mut compare = |same: bool, what: &str| {
        if !same {
            whats.push(format!("{what} does not follow from the log"));
        }
    };
    let (state, stored) = (&told.state, &loaded.state);
    compare(state.seq == stored.seq, "the last seq");
    compare(state.status == stored.status && state.stop_reason == stored.stop_reason, "the status");
    compare(state.run == stored.run, "the run");
    compare(state.waiting == stored.waiting, "the list of waiting inputs");
    compare(state.calls == stored.calls, "the list of open calls");
    compare(
        state.usage == stored.usage
            && state.spent_micro_usd == stored.spent_micro_usd
            && state.active_ms == stored.active_ms,
        "the usage",
    );
    compare(state.settled_epoch == stored.settled_epoch, "the settled epoch");
    compare(told.epoch <= loaded.epoch, "the epoch");
    compare(runs(conn, key)? == told.runs, "a run's record");
    compare(approvals(conn, key)? == told.approvals, "the status of an approval");
    compare(files(conn, loaded.id)? == told.files, "the list of files");
    let differences = whats.into_iter().map(|what| Difference { session_id: loaded.id, what }).collect();
    Ok((told.count, differences))
}

fn read(conn: &Connection, session: SessionId) -> Result<Told, store::Error> {
    let mut told = Told::default();
    loop {
        let query = EventQuery { after_seq: Some(told.state.seq), limit: 1_000, ..EventQuery::default() };
        let page = reads::events(conn, session, &query)?;
        if page.is_empty() {
            return Ok(told);
        }
        for raw in page {
            let event: Event = serde_json::from_str(&raw.json)?;
            if event.seq != raw.seq || event.seq != told.state.seq + 1 || event.body.kind() != raw.kind {
                told.gaps.push(format!("the log is broken at seq {}", raw.seq));
            }
            told.count += 1;
            match &event.body {
                Body::RunClaimed(claimed) => told.epoch = told.epoch.max(claimed.epoch),
                Body::ActionApprovalPending(asked) => {
                    let pending = ApprovalStatus::Pending.as_str().to_owned();
                    told.approvals.insert(asked.approval_id.to_string(), pending);
                }
                Body::ActionApprovalResolved(end) => {
                    told.approvals.insert(end.approval_id.to_string(), end.status.as_str().to_owned());
                }
                Body::SessionOutputCaptured(file) => {
                    told.files.insert(file.path.clone(), file.clone());
                }
                _ => {}
            }
            if let Some(run) = told.state.apply(&event) {
                told.runs.insert(run.id.to_string(), run);
            }
            // A broken place must not be read again for ever.
            told.state.seq = raw.seq;
        }
    }
}

fn runs(conn: &Connection, key: i64) -> Result<BTreeMap<String, RunRecord>, store::Error> {
    let mut statement = conn.prepare_cached("select id, record from runs where session = ?1")?;
    let rows = statement.query_map([key], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
    rows.map(|row| {
        let (id, record) = row?;
        Ok((id, serde_json::from_str(&record)?))
    })
    .collect()
}

fn approvals(conn: &Connection, key: i64) -> Result<BTreeMap<String, String>, store::Error> {
    let mut statement = conn.prepare_cached("select id, status from action_approvals where session = ?1")?;
    let rows = statement.query_map([key], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn files(conn: &Connection, session: SessionId) -> Result<BTreeMap<String, OutputCaptured>, store::Error> {
    let files = reads::files(conn, session)?.into_iter();
    let shown = files.map(|file| {
        let (status, size_bytes, sha256) = (file.status, file.size_bytes, file.sha256);
        (file.path.clone(), OutputCaptured { path: file.path, status, size_bytes, sha256 })
    });
    Ok(shown.collect())
}
