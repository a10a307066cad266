//! `/v1/agents`: versioned definitions. An update makes a new version unless it changes nothing.

mod draft;
mod model;
mod schema;
mod tools;

use crate::{
    domain::grant::{
        Kind::Agent,
        Permission::{Read, Write},
    },
    http::{
        Plane,
        auth::Caller,
        body::Json,
        path::{At, not_found},
        query::{Listed, Query},
        reply::{self, Answer},
        route::{Guard, Routes},
    },
    registry::{AgentRecord, Filter, Once},
};
use axum::extract::State;
use checkfu_shared::id::AgentId;

use draft::Update;
pub(super) use tools::take as take_tools;

/// The routes.
pub(crate) fn routes() -> Routes {
    Routes::new()
        .get("/v1/agents", Guard::all(Read, Agent), list)
        .post("/v1/agents", Guard::all(Write, Agent), create)
        .get("/v1/agents/{agent}", Guard::named(Read, Agent, "agent"), read)
        .post("/v1/agents/{agent}", Guard::named(Write, Agent, "agent"), update)
        .post("/v1/agents/{agent}/archive", Guard::named(Write, Agent, "agent"), archive)
        .get("/v1/agents/{agent}/versions", Guard::named(Read, Agent, "agent"), versions)
}

async fn create(State(plane): State<Plane>, caller: Caller, body: Json) -> Answer {
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
    let once = Once::of(&caller, "POST", &format!("/v1/agents/{id}"), &body.sha256);
    let update = Update::read(body.fields(caller.dialect)?)?;
    let (expected, now) = (update.version, plane.clock.now());
    let apply = move |old| update.over(old);
    let reply = plane.registry.update_agent(caller.workspace_id, id, expected, apply, once, now).await?;
    Ok(reply::text(reply))
}

async fn archive(State(plane): State<Plane>, caller: Caller, At(id): At<AgentId>) -> Answer {
    let reply = plane.registry.archive_agent(caller.workspace_id, id, plane.clock.now()).await?;
    Ok(reply::text(reply))
}
