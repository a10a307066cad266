//! `/v1/principals`: as whom keys call and runners work.

use crate::{
    http::{
        Plane,
        auth::Caller,
        body::Json,
        fields::{Fields, wrong},
        path::{At, not_found},
        query::{Listed, Query},
        reply::{self, Answer},
    },
    registry::{Act, Filter, NewPrincipal, Once, PrincipalKind, PrincipalRecord, Role},
};
use axum::{
    Router,
    extract::State,
    routing::{get, post},
};
use checkfu_shared::{id::PrincipalId, problem::Problem};

/// The routes.
pub(crate) fn routes() -> Router<Plane> {
    Router::new()
        .route("/v1/principals", get(list).post(create))
        .route("/v1/principals/{principal}", get(read))
        .route("/v1/principals/{principal}/archive", post(archive))
}

async fn create(State(plane): State<Plane>, caller: Caller, body: Json) -> Answer {
    caller.role.check(Act::GovernKeys)?;
    let once = Once::of(&caller, "POST", "/v1/principals", &body.sha256);
    let new = draft(body.fields(caller.dialect)?)?;
    let now = plane.clock.now();
    Ok(reply::text(plane.registry.create_principal(caller.workspace_id, new, once, now).await?))
}

fn draft(mut fields: Fields) -> Result<NewPrincipal, Problem> {
    let name = fields.required_text("name", 1, 256)?;
    let kind = match fields.text("kind")? {
        None => PrincipalKind::User,
        Some(text) => {
            PrincipalKind::from_text(&text).ok_or_else(|| wrong("kind", "must be user, service or agent"))?
        }
    };
    let role = match fields.text("role")? {
        None => Role::Developer,
        Some(text) => Role::from_text(&text)
            .ok_or_else(|| wrong("role", "must be viewer, developer, operator or owner"))?,
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
    caller.role.check(Act::GovernKeys)?;
    Ok(reply::text(plane.registry.archive_principal(caller.workspace_id, id, plane.clock.now()).await?))
}
