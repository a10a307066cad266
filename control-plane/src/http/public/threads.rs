//! `/v1/sessions/{id}/threads`: the primary thread, which every session has, and its log and stream.

use super::{
    events,
    sessions::{own, wire},
};
use crate::{
    domain::grant::{Kind::Session, Permission::Read},
    engine::SessionRecord,
    http::{
        Plane,
        auth::Caller,
        fields::wrong,
        path::{At, not_found},
        query::{Listed, Query},
        reply::{self, Answer},
        route::{Guard, Routes},
        stream,
    },
};
use axum::{extract::State, http::HeaderMap};
use checkfu_shared::{
    id::{SessionId, ThreadId},
    problem::Problem,
};

/// The routes.
pub(crate) fn routes() -> Routes {
    Routes::new()
        .get("/v1/sessions/{session}/threads", Guard::named(Read, Session, "session"), list)
        .get("/v1/sessions/{session}/threads/{thread}", Guard::named(Read, Session, "session"), read)
        .get("/v1/sessions/{session}/threads/{thread}/events", Guard::named(Read, Session, "session"), log)
        .get("/v1/sessions/{session}/threads/{thread}/stream", Guard::named(Read, Session, "session"), follow)
}

async fn primary(
    plane: &Plane,
    caller: &Caller,
    session: SessionId,
    thread: ThreadId,
) -> Result<SessionRecord, Problem> {
    let record = own(plane, caller, session).await?;
    if record.thread_id == thread { Ok(record) } else { Err(not_found("thread")) }
}

async fn list(State(plane): State<Plane>, caller: Caller, At(id): At<SessionId>, query: Query) -> Answer {
    query.limit(1_000, 1_000)?;
    query.cursor("threads", true)?;
    let record = own(&plane, &caller, id).await?;
    let mut statuses = query.all("statuses").peekable();
    if let Some(bad) =
        query.all("statuses").find(|s| !["idle", "running", "rescheduling", "terminated"].contains(s))
    {
        let shown: String = bad.chars().take(80).collect();
        return Err(wrong("statuses[]", &format!("has `{shown}`, which is no status")).into());
    }
    let wanted = statuses.peek().is_none() || statuses.any(|status| status == record.status.as_str());
    let rows = if wanted { vec![wire::thread(&record, plane.clock.now())] } else { Vec::new() };
    reply::ok(&Listed::whole(rows))
}

async fn read(
    State(plane): State<Plane>,
    caller: Caller,
    At(session): At<SessionId>,
    At(thread): At<ThreadId>,
) -> Answer {
    let record = primary(&plane, &caller, session, thread).await?;
    reply::ok(&wire::thread(&record, plane.clock.now()))
}

async fn log(
    State(plane): State<Plane>,
    caller: Caller,
    At(session): At<SessionId>,
    At(thread): At<ThreadId>,
    query: Query,
) -> Answer {
    primary(&plane, &caller, session, thread).await?;
    events::page(&plane, session, &query).await
}

async fn follow(
    State(plane): State<Plane>,
    caller: Caller,
    At(session): At<SessionId>,
    At(thread): At<ThreadId>,
    query: Query,
    headers: HeaderMap,
) -> Answer {
    let record = primary(&plane, &caller, session, thread).await?;
    stream::open(plane, caller, &record, &query, &headers)
}
