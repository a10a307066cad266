//! `/v1/agents`: versioned definitions. An update makes a new version unless it changes nothing.

mod draft;
mod model;
mod schema;
mod tools;

use crate::{
    http::{
        Plane,
        auth::Caller,
        body::Json,
        path::{At, not_found},
        query::{Listed, Query},
        reply::{self, Answer},
    },
    registry::{Act, AgentRecord, Filter, Once},
};
use axum::{
    Router,
    extract::State,
    routing::{get, post},
};
use checkfu_shared::id::AgentId;

use draft::Update;
pub(super) use tools::take as take_tools;

/// The routes.
pub(crate) fn routes() -> Router<Plane> {
    Router::new()
        .route("/v1/agents", get(list).post(create))
        .route("/v1/agents/{agent}", get(read).post(update))
        .route("/v1/agents/{agent}/archive", post(archive))
        .route("/v1/agents/{agent}/versions", get(versions))
}

async fn create(State(plane): State<Plane>, caller: Caller, body: Json) -> Answer {
    caller.role.check(Act::Write)?;
    let once = Once::of(&caller, "POST", "/v1/agents", &body.sha256);
    let definition = draft::create(body.fields(caller.dialect)?)?;
    let reply = plane.registry.create_agent(caller.workspace_id, definition, once, plane.clock.now()).await?;
    Ok(reply::text(reply))
}

async fn read(State(plane): State<Plane>, caller: Caller, At(id): At<AgentId>, query: Query) -> Answer {
    let version = query.whole("version", 1, u64::from(u32::MAX))?.and_then(|v| u32::try_from(v).ok());
    let agent = plane.registry.agent(caller.workspace_id, id, version).await?;
    reply::ok(&agent.ok_or_else(|| not_found("agent"))?.wire())
}

async fn list(State(plane): State<Plane>, caller: Caller, query: Query) -> Answer {
    let limit = query.limit(20, 100)?;
    let filter = Filter::read(&query, "agents", limit)?;
    let rows = plane.registry.agents(caller.workspace_id, filter).await?;
    let page = Listed::cut(rows, limit, "agents", true, |row| row.id.to_string());
    reply::ok(&page.map(|agent: AgentRecord| agent.wire()))
}

async fn versions(State(plane): State<Plane>, caller: Caller, At(id): At<AgentId>, query: Query) -> Answer {
    let limit = query.limit(20, 100)?;
    let list = format!("versions of {id}");
    let before = query.cursor(&list, true)?.and_then(|cursor| cursor.position.parse().ok());
    let rows = plane.registry.agent_versions(caller.workspace_id, id, before, limit + 1).await?;
    let page = Listed::cut(rows, limit, &list, true, |row| row.version.to_string());
    reply::ok(&page.map(|agent: AgentRecord| agent.wire()))
}

async fn update(State(plane): State<Plane>, caller: Caller, At(id): At<AgentId>, body: Json) -> Answer {
    caller.role.check(Act::Write)?;
    let once = Once::of(&caller, "POST", &format!("/v1/agents/{id}"), &body.sha256);
    let update = Update::read(body.fields(caller.dialect)?)?;
    let (expected, now) = (update.version, plane.clock.now());
    let apply = move |old| update.over(old);
    let reply = plane.registry.update_agent(caller.workspace_id, id, expected, apply, once, now).await?;
    Ok(reply::text(reply))
}

async fn archive(State(plane): State<Plane>, caller: Caller, At(id): At<AgentId>) -> Answer {
    caller.role.check(Act::Write)?;
    let reply = plane.registry.archive_agent(caller.workspace_id, id, plane.clock.now()).await?;
    Ok(reply::text(reply))
}
