//! The list of sessions, which pages both ways. A cursor keeps its order and must lie in the range that is asked for.

use super::wire;
use crate::{
    engine::{Page, SessionQuery, SessionRecord, Status},
    http::{
        Plane,
        auth::Caller,
        fields::{unsupported, wrong},
        query::{Cursor, Query},
        reply::{self, Answer},
    },
};
use axum::extract::State;
use checkfu_shared::{
    id::{AgentId, SessionId},
    problem::{Code, Problem},
    time::Timestamp,
};
use serde_json::json;

const LIST: &str = "sessions";

pub(super) async fn list(State(plane): State<Plane>, caller: Caller, query: Query) -> Answer {
    let asked = Asked::read(&query)?;
    let backward = asked.cursor.as_ref().is_some_and(|(backward, _)| *backward);
    let found = plane.engine.sessions(caller.workspace_id, asked.query()).await?;
    let (rows, previous, next) = asked.arrange(found, backward);
    let mark = |row: &SessionRecord, backward| {
        let position = format!("{} {}", row.created_at.as_ms(), row.id);
        Cursor::at(LIST, asked.descending, backward, position).text()
    };
    let now = plane.clock.now();
    reply::ok(&json!({
        "data": rows.iter().map(|row| wire::session(row, now)).collect::<Vec<_>>(),
        "next_page": rows.last().filter(|_| next).map(|row| mark(row, false)),
        "prev_page": rows.first().filter(|_| previous).map(|row| mark(row, true)),
    }))
}

struct Asked {
    filter: SessionQuery,
    descending: bool,
    /// Which way from which session.
    cursor: Option<(bool, SessionId)>,
}

impl Asked {
    fn read(query: &Query) -> Result<Self, Problem> {
        for name in ["agent_version", "deployment_id", "memory_store_id"] {
            if query.get(name).is_some() {
                return Err(unsupported(
                    name,
                    &format!("Sessions cannot be filtered by `{name}`. Leave it out."),
                ));
            }
        }
        let descending = query.descending(true)?;
        let (created_from, created_before) = query.created()?;
        let cursor = query.cursor(LIST, descending)?.map(|cursor| position(&cursor)).transpose()?;
        if let Some((_, at, _)) = cursor
            && (created_from.is_some_and(|from| at < from)
                || created_before.is_some_and(|before| at >= before))
        {
            let message = "`page` lies outside the asked `created_at` range. Start the list again.";
            return Err(Problem::new(Code::InvalidCursor, message).with("field", "page"));
        }
        let agent = query
            .get("agent_id")
            .map(|text| text.parse::<AgentId>().map_err(|error| wrong("agent_id", &format!("is {error}"))));
        let filter = SessionQuery {
            agent_id: agent.transpose()?.map(|id| id.to_string()),
            statuses: query.all("statuses").map(status).collect::<Result<_, _>>()?,
            include_archived: query.flag("include_archived")?,
            created_from,
            created_to: created_before.map(|before| before.plus_ms(-1)),
            ascending: !descending,
            after: None,
            limit: u32::try_from(query.limit(20, 100)?).unwrap_or(100),
        };
        Ok(Self { filter, descending, cursor: cursor.map(|(backward, _, id)| (backward, id)) })
    }

    /// What the engine is asked: a page backward is a page of the other order.
    fn query(&self) -> SessionQuery {
        let backward = self.cursor.is_some_and(|(backward, _)| backward);
        SessionQuery {
            ascending: self.filter.ascending != backward,
            after: self.cursor.map(|(_, id)| id),
            ..self.filter.clone()
        }
    }

    /// The rows in the list's order, and whether there is more before and behind.
    fn arrange(&self, found: Page<SessionRecord>, backward: bool) -> (Vec<SessionRecord>, bool, bool) {
        let mut rows = found.data;
        if backward {
            rows.reverse();
            (rows, found.has_more, true)
        } else {
            (rows, self.cursor.is_some(), found.has_more)
        }
    }
}

fn position(cursor: &Cursor) -> Result<(bool, Timestamp, SessionId), Problem> {
    let read = || {
        let (ms, id) = cursor.position.split_once(' ')?;
        Some((cursor.backward, Timestamp::from_ms(ms.parse().ok()?), id.parse().ok()?))
    };
    read().ok_or_else(|| {
        Problem::new(Code::InvalidCursor, "`page` is no cursor of this list.").with("field", "page")
    })
}

fn status(text: &str) -> Result<Status, Problem> {
    [Status::Idle, Status::Running, Status::Rescheduling, Status::Terminated]
        .into_iter()
        .find(|status| status.as_str() == text)
        .ok_or_else(|| wrong("statuses[]", "may name idle, running, rescheduling and terminated only"))
}
