//! What readers of the public API see: sessions, events, runs, files. Nothing here writes.

use super::{Engine, log};
use crate::{
    record::{EventQuery, FileRecord, Page, RawEvent, RunRecord, SessionQuery, SessionRecord},
    store,
};
use checkfu_shared::{
    id::{FileId, SessionId, WorkspaceId},
    problem::Problem,
    time::Timestamp,
};
use rusqlite::{Connection, OptionalExtension, ToSql, params};

/// A page never has more events than this.
const EVENTS_MAX: u32 = 1_000;

impl Engine {
    /// One session, when it is in this workspace.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn session(
        &self,
        workspace: WorkspaceId,
        session: SessionId,
    ) -> Result<Option<SessionRecord>, Problem> {
        let read = move |conn: &Connection| {
            let found = log::load(conn, session)?.filter(|loaded| loaded.workspace_id == workspace);
            Ok(found.map(|loaded| loaded.record()))
        };
        Ok(self.store().read(read).await?)
    }

    /// A page of sessions.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn sessions(
        &self,
        workspace: WorkspaceId,
        query: SessionQuery,
    ) -> Result<Page<SessionRecord>, Problem> {
        Ok(self.store().read(move |conn| list(conn, workspace, &query)).await?)
    }

    /// A page of a session's log; the caller checked that the session is its own.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn events(&self, session: SessionId, query: EventQuery) -> Result<Vec<RawEvent>, Problem> {
        Ok(self.store().read(move |conn| events(conn, session, &query)).await?)
    }

    /// A session's runs, oldest first; the caller checked that the session is its own.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn runs(&self, session: SessionId) -> Result<Vec<RunRecord>, Problem> {
        let (now, tempo) = (self.now(), self.tempo());
        let read = move |conn: &Connection| {
            let mut runs = stored_runs(conn, session)?;
            if let Some(last) = runs.last_mut() {
                last.waiting_reason = super::offer::waiting_reason(conn, session, last, &tempo, now)?;
            }
            Ok(runs)
        };
        Ok(self.store().read(read).await?)
    }

    /// A session's files by path; the caller checked that the session is its own.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn files(&self, session: SessionId) -> Result<Vec<FileRecord>, Problem> {
        Ok(self.store().read(move |conn| files(conn, session)).await?)
    }

    /// A captured file by its id.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn file(&self, workspace: WorkspaceId, file: FileId) -> Result<Option<FileRecord>, Problem> {
        let job = move |conn: &Connection| {
            let sql = "select s.id from files f join sessions s on s.key = f.session \
                       where f.id = ?1 and f.status = 'captured' and s.workspace_id = ?2";
            let at = params![file.to_string(), workspace.to_string()];
            let session: Option<String> = conn.query_row(sql, at, |row| row.get(0)).optional()?;
            let Some(session) = session else { return Ok(None) };
            let files = files(conn, log::parsed(&session)?)?;
            Ok(files.into_iter().find(|found| found.id == file))
        };
        Ok(self.store().read(job).await?)
    }
}

fn list(
    conn: &Connection,
    workspace: WorkspaceId,
    query: &SessionQuery,
) -> Result<Page<SessionRecord>, store::Error> {
    let mut arguments: Vec<Box<dyn ToSql>> = vec![Box::new(workspace.to_string())];
    let mut clauses = vec!["workspace_id = ?1".to_owned()];
    let mut clause = |sql: &str, argument: Box<dyn ToSql>| {
        arguments.push(argument);
        clauses.push(format!("{sql} ?{}", arguments.len()));
    };
    if let Some(agent) = &query.agent_id {
        clause("agent_id =", Box::new(agent.clone()));
    }
    if let Some(from) = query.created_from {
        clause("created_at >=", Box::new(from.as_ms()));
    }
    if let Some(to) = query.created_to {
        clause("created_at <=", Box::new(to.as_ms()));
    }
    if let Some(after) = query.after {
        clause(if query.ascending { "id >" } else { "id <" }, Box::new(after.to_string()));
    }
    if !query.include_archived {
        clauses.push("archived_at is null".to_owned());
    }
    if !query.statuses.is_empty() {
        let names: Vec<String> =
            query.statuses.iter().map(|status| format!("'{}'", status.as_str())).collect();
        clauses.push(format!("status in ({})", names.join(", ")));
    }
    let limit = usize::try_from(query.limit).unwrap_or(1).max(1);
    let order = if query.ascending { "asc" } else { "desc" };
    let rest = format!("where {} order by id {order} limit {}", clauses.join(" and "), limit + 1);
    let arguments: Vec<&dyn ToSql> = arguments.iter().map(AsRef::as_ref).collect();
    let mut found = log::select(conn, &rest, &arguments)?;
    let has_more = found.len() > limit;
    found.truncate(limit);
    Ok(Page { data: found.iter().map(log::Loaded::record).collect(), has_more })
}

/// A page of a session's log.
pub(super) fn events(
    conn: &Connection,
    session: SessionId,
    query: &EventQuery,
) -> Result<Vec<RawEvent>, store::Error> {
    let mut arguments: Vec<Box<dyn ToSql>> = vec![
        Box::new(session.to_string()),
        Box::new(query.after_seq.unwrap_or(0).cast_signed()),
        Box::new(query.before_seq.map_or(i64::MAX, u64::cast_signed)),
        Box::new(query.limit.clamp(1, EVENTS_MAX)),
    ];
    let mut kinds = String::new();
    if !query.types.is_empty() {
        let marks: Vec<String> = (5..5 + query.types.len()).map(|n| format!("?{n}")).collect();
        kinds = format!("and kind in ({})", marks.join(", "));
        arguments.extend(query.types.iter().map(|kind| Box::new(kind.clone()) as Box<dyn ToSql>));
    }
    let order = if query.descending { "desc" } else { "asc" };
    let mut statement = conn.prepare_cached(&format!(
        "select seq, kind, body from events where session = (select key from sessions where id = ?1) \
         and seq > ?2 and seq < ?3 {kinds} order by seq {order} limit ?4"
    ))?;
    let arguments: Vec<&dyn ToSql> = arguments.iter().map(AsRef::as_ref).collect();
    let rows = statement.query_map(arguments.as_slice(), |row| {
        Ok(RawEvent { seq: row.get::<_, i64>(0)?.cast_unsigned(), kind: row.get(1)?, json: row.get(2)? })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn stored_runs(conn: &Connection, session: SessionId) -> Result<Vec<RunRecord>, store::Error> {
    let mut statement = conn.prepare_cached(
        "select record from runs where session = (select key from sessions where id = ?1) order by id",
    )?;
    let rows = statement.query_map([session.to_string()], |row| row.get::<_, String>(0))?;
    rows.map(|row| Ok(serde_json::from_str(&row?)?)).collect()
}

/// A session's files by path.
pub(super) fn files(conn: &Connection, session: SessionId) -> Result<Vec<FileRecord>, store::Error> {
    let mut statement = conn.prepare_cached(
        "select id, path, path_b64, status, size, sha256, stored, captured_at from files \
         where session = (select key from sessions where id = ?1) order by path",
    )?;
    let rows = statement.query_map(params![session.to_string()], |row| {
        let text: (String, String, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
        let rest: (i64, Option<String>, Option<String>, i64) =
            (row.get(4)?, row.get(5)?, row.get(6)?, row.get(7)?);
        Ok((text, rest))
    })?;
    rows.map(|row| {
        let ((id, path, path_b64, status), (size, sha256, stored, at)) = row?;
        Ok(FileRecord {
            id: log::parsed(&id)?,
            session_id: session,
            path,
            path_b64,
            status: serde_json::from_value(status.into())?,
            size_bytes: size.cast_unsigned(),
            sha256,
            stored,
            captured_at: Timestamp::from_ms(at),
        })
    })
    .collect()
}
