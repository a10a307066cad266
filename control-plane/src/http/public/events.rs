//! `/v1/sessions/{id}/events`: what is said to a session, its log page by page, and its stream.

mod content;
pub(super) mod inputs;
mod kinds;

use super::sessions::own;
use crate::{
    domain::grant::{
        Kind::Session,
        Permission::{Read, Write},
    },
    engine::EventQuery,
    http::{
        Plane,
        auth::Caller,
        body::Json,
        fields::{unsupported, wrong},
        path::At,
        query::{Cursor, Query},
        reply::{self, Answer},
        route::{Guard, Routes},
        stream,
    },
    registry::Once,
};
use axum::{extract::State, http::HeaderMap};
use checkfu_shared::{id::SessionId, problem::Problem};
use serde_json::json;

const PAGE_MAX: usize = 1_000;

/// The routes.
pub(crate) fn routes() -> Routes {
    Routes::new()
        .get("/v1/sessions/{session}/events", Guard::named(Read, Session, "session"), list)
        .post("/v1/sessions/{session}/events", Guard::named(Write, Session, "session"), send)
        .get("/v1/sessions/{session}/events/stream", Guard::named(Read, Session, "session"), follow)
}

async fn send(State(plane): State<Plane>, caller: Caller, At(id): At<SessionId>, body: Json) -> Answer {
    let once = Once::of(&caller, "POST", &format!("/v1/sessions/{id}/events"), &body.sha256);
    let inputs = inputs::sent(body.fields(caller.dialect)?, &caller)?;
    for author in inputs.iter().map(|input| input.authored_by).filter(|author| *author != caller.principal_id)
    {
        plane.registry.acting_principal(caller.workspace_id, author).await?;
    }
    let echoes = plane.engine.send(caller.workspace_id, id, inputs, once.replay()).await?;
    reply::ok(&json!({ "data": echoes }))
}

async fn list(State(plane): State<Plane>, caller: Caller, At(id): At<SessionId>, query: Query) -> Answer {
    own(&plane, &caller, id).await?;
    page(&plane, id, &query).await
}

/// A page of the log; a thread's own page too, as long as there is one thread.
pub(super) async fn page(plane: &Plane, id: SessionId, query: &Query) -> Answer {
    let descending = query.descending(false)?;
    let limit = query.limit(PAGE_MAX, PAGE_MAX)?;
    let list = format!("events of {id}");
    let from = query.cursor(&list, descending)?.and_then(|cursor| cursor.position.parse::<u64>().ok());
    let after = query.whole("after_seq", 0, u64::MAX)?;
    let (created_from, created_before) = query.created()?;
    if created_from.is_some() || created_before.is_some() {
        let message = "Events are not filtered by time. Use `after_seq`, which has no clock in it.";
        return Err(unsupported("created_at", message).into());
    }
    let wanted = EventQuery {
        after_seq: if descending { after } else { from.max(after) },
        before_seq: if descending { from } else { None },
        descending,
        types: types(query)?,
        limit: u32::try_from(limit + 1).unwrap_or(u32::MAX),
    };
    // The engine gives at most a thousand, so one more may have to be asked for alone.
    let mut rows = plane.engine.events(id, wanted.clone()).await?;
    let more = if rows.len() > limit {
        true
    } else if rows.len() == limit {
        let last = rows.last().map(|row| row.seq);
        let (after_seq, before_seq) =
            if descending { (wanted.after_seq, last) } else { (last, wanted.before_seq) };
        let next = EventQuery { after_seq, before_seq, limit: 1, ..wanted };
        !plane.engine.events(id, next).await?.is_empty()
    } else {
        false
    };
    rows.truncate(limit);
    let next = rows.last().filter(|_| more).map(|row| Cursor::at(&list, descending, false, row.seq).text());
    let mut text = String::from("{\"data\":[");
    for (at, row) in rows.iter().enumerate() {
        if at > 0 {
            text.push(',');
        }
        text.push_str(&row.json);
    }
    text.push_str("],\"next_page\":");
    text.push_str(&json!(next).to_string());
    text.push('}');
    Ok(reply::text(text))
}

fn types(query: &Query) -> Result<Vec<String>, Problem> {
    let check = |kind: &str| {
        if kinds::is_known(kind) {
            return Ok(kind.to_owned());
        }
        let shown: String = kind.chars().take(80).collect();
        Err(wrong("types[]", &format!("has `{shown}`, which is no event type to filter by")))
    };
    query.all("types").map(check).collect()
}

async fn follow(
    State(plane): State<Plane>,
    caller: Caller,
    At(id): At<SessionId>,
    query: Query,
    headers: HeaderMap,
) -> Answer {
    let session = own(&plane, &caller, id).await?;
    stream::open(plane, caller, &session, &query, &headers)
}
