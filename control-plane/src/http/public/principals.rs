//! `/v1/principals`: as whom keys call and runners work.

use crate::{
    domain::grant::{
        Kind::Principal,
        Permission::{Admin, Read},
        Role,
    },
    http::{
        Plane,
        auth::Caller,
        body::Json,
        fields::{Fields, wrong},
        path::{At, Member, not_found},
        query::{Listed, Query},
        reply::{self, Answer},
        route::{Guard, Routes},
    },
    registry::{Filter, NewPrincipal, Once, PrincipalKind, PrincipalRecord, members, principals},
};
use axum::extract::State;
use checkfu_shared::{id::PrincipalId, problem::Problem};
use rusqlite::Connection;

/// The routes.
pub(crate) fn routes() -> Routes {
    Routes::new()
        .get("/v1/principals", Guard::all(Read, Principal), list)
        .post("/v1/principals", Guard::all(Admin, Principal), create)
        .get("/v1/principals/{principal}", Guard::named(Read, Principal, "principal"), read)
        .get("/v1/principals/{principal}/members", Guard::named(Read, Principal, "principal"), members)
        .post("/v1/principals/{principal}/members", Guard::named(Admin, Principal, "principal"), add_member)
        .delete(
            "/v1/principals/{principal}/members/{member}",
            Guard::named(Admin, Principal, "principal"),
            remove_member,
        )
        .post("/v1/principals/{principal}/archive", Guard::named(Admin, Principal, "principal"), archive)
}

async fn create(State(plane): State<Plane>, caller: Caller, body: Json) -> Answer {
    let once = Once::of(&caller, "POST", "/v1/principals", &body.sha256);
    let new = draft(body.fields(caller.dialect)?)?;
    let now = plane.clock.now();
    Ok(reply::text(
        plane.registry.create_principal(caller.workspace_id, new, caller.principal_id, once, now).await?,
    ))
}

fn draft(mut fields: Fields) -> Result<NewPrincipal, Problem> {
    let name = fields.required_text("name", 1, 256)?;
    let kind = match fields.text("kind")? {
        None => PrincipalKind::User,
        Some(text) => PrincipalKind::from_text(&text)
            .ok_or_else(|| wrong("kind", "must be user, service, agent or group"))?,
    };
    let role = match fields.text("role")? {
        None if kind == PrincipalKind::Group => Role::None,
        None => Role::Developer,
        Some(text) => Role::from_text(&text)
            .ok_or_else(|| wrong("role", "must be none, viewer, developer, operator or owner"))?,
    };
    fields.end()?;
    Ok(NewPrincipal { name, kind, role })
}

async fn list(State(plane): State<Plane>, caller: Caller, query: Query) -> Answer {
    let limit = query.limit(20, 100)?;
    let filter = Filter::read(&query, "principals", limit)?;
    let rows = plane.registry.principals(caller.workspace_id, filter).await?;
    let page = Listed::cut(rows, limit, "principals", true, |row| row.id.to_string());
    reply::ok(&page.map(|principal: PrincipalRecord| principal.wire()))
}

async fn read(State(plane): State<Plane>, caller: Caller, At(id): At<PrincipalId>) -> Answer {
    let found = plane.registry.principal(caller.workspace_id, id).await?;
    reply::ok(&found.ok_or_else(|| not_found("principal"))?.wire())
}

async fn archive(State(plane): State<Plane>, caller: Caller, At(id): At<PrincipalId>) -> Answer {
    let workspace = caller.workspace_id;
    let job = move |tx: &Connection, now| principals::archive(tx, workspace, id, now);
    reply::ok(&plane.engine.withdraw(workspace, job).await?.wire())
}

async fn members(State(plane): State<Plane>, caller: Caller, At(id): At<PrincipalId>) -> Answer {
    reply::ok(&Listed::whole(plane.registry.members(caller.workspace_id, id).await?))
}

async fn add_member(
    State(plane): State<Plane>,
    caller: Caller,
    At(id): At<PrincipalId>,
    body: Json,
) -> Answer {
    let once = Once::of(&caller, "POST", &format!("/v1/principals/{id}/members"), &body.sha256);
    let mut fields = body.fields(caller.dialect)?;
    let member = fields.id("principal")?.ok_or_else(|| wrong("principal", "is required"))?;
    fields.end()?;
    let now = plane.clock.now();
    Ok(reply::text(plane.registry.add_member(caller.workspace_id, id, member, once, now).await?))
}

async fn remove_member(
    State(plane): State<Plane>,
    caller: Caller,
    At(id): At<PrincipalId>,
    At(Member(member)): At<Member>,
) -> Answer {
    let workspace = caller.workspace_id;
    let job = move |tx: &Connection, _| members::remove(tx, workspace, id, member);
    reply::ok(&plane.engine.withdraw(workspace, job).await?)
}
