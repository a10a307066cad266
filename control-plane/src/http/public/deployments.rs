//! `/v1/agent-deployments`: pinned releases, so that a session runs exactly what was reviewed.

use crate::{
    domain::grant::{
        Kind::Agent,
        Permission::{Read, Write},
    },
    http::{
        Plane,
        auth::Caller,
        body::Json,
        fields::{Fields, wrong},
        path::{At, not_found},
        query::{Listed, Query},
        reply::{self, Answer},
        route::{Guard, Routes},
    },
    registry::{DeploymentRecord, Filter, HARNESS, NewDeployment, Once},
};
use axum::extract::State;
use checkfu_shared::{
    id::{AgentId, DeploymentId, EnvironmentId},
    problem::Problem,
};

/// The routes.
pub(crate) fn routes() -> Routes {
    let (reads, writes) = (Guard::all(Read, Agent), Guard::all(Write, Agent));
    Routes::new()
        .get("/v1/agent-deployments", reads, list)
        .post("/v1/agent-deployments", writes, create)
        .get("/v1/agent-deployments/{deployment}", reads, read)
        .post("/v1/agent-deployments/{deployment}/archive", writes, archive)
}

async fn create(State(plane): State<Plane>, caller: Caller, body: Json) -> Answer {
    let once = Once::of(&caller, "POST", "/v1/agent-deployments", &body.sha256);
    let new = draft(body.fields(caller.dialect)?)?;
    let now = plane.clock.now();
    Ok(reply::text(plane.registry.create_deployment(caller.workspace_id, new, once, now).await?))
}

fn draft(mut fields: Fields) -> Result<NewDeployment, Problem> {
    let small = |number: Option<u64>| number.and_then(|number| u32::try_from(number).ok());
    let name = fields.required_text("name", 1, 256)?;
    let mut agent =
        fields.object("agent")?.ok_or_else(|| wrong("agent", "is required: `{\"id\", \"version\"}`"))?;
    let agent_id = agent.id::<AgentId>("id")?.ok_or_else(|| wrong("agent.id", "is required"))?;
    let agent_version = small(agent.whole("version", 1, u64::from(u32::MAX))?);
    let kind = agent.text("type")?;
    if kind.is_some_and(|kind| kind != "agent") {
        return Err(wrong("agent.type", "must be agent"));
    }
    agent.end()?;
    let environment_id = fields
        .id::<EnvironmentId>("environment_id")?
        .ok_or_else(|| wrong("environment_id", "is required"))?;
    let environment_revision = small(fields.whole("environment_revision", 1, u64::from(u32::MAX))?);
    if fields.text("harness")?.is_some_and(|harness| harness != HARNESS) {
        return Err(wrong("harness", &format!("must be {HARNESS}")));
    }
    fields.end()?;
    Ok(NewDeployment { name, agent_id, agent_version, environment_id, environment_revision })
}

async fn list(State(plane): State<Plane>, caller: Caller, query: Query) -> Answer {
    let limit = query.limit(20, 100)?;
    let filter = Filter::read(&query, "agent deployments", limit)?;
    let rows = plane.registry.deployments(caller.workspace_id, filter).await?;
    let page = Listed::cut(rows, limit, "agent deployments", true, |row| row.id.to_string());
    reply::ok(&page.map(|row: DeploymentRecord| row.wire()))
}

async fn read(State(plane): State<Plane>, caller: Caller, At(id): At<DeploymentId>) -> Answer {
    let found = plane.registry.deployment(caller.workspace_id, id).await?;
    reply::ok(&found.ok_or_else(|| not_found("deployment"))?.wire())
}

async fn archive(State(plane): State<Plane>, caller: Caller, At(id): At<DeploymentId>) -> Answer {
    Ok(reply::text(plane.registry.archive_deployment(caller.workspace_id, id, plane.clock.now()).await?))
}
