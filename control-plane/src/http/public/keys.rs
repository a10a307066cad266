//! `/v1/api-keys`: made by owners, shown once, revoked at once.

use crate::{
    domain::grant::{Kind::Workspace, Permission::Admin},
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
    registry::{Filter, KeyRecord, NewKey, Once},
};
use axum::extract::State;
use checkfu_shared::{
    id::{KeyId, PrincipalId},
    problem::Problem,
    time::Timestamp,
};

const TTL_SECONDS_MAX: u64 = 10 * 366 * 86_400;

/// The routes.
pub(crate) fn routes() -> Routes {
    Routes::new()
        .get("/v1/api-keys", Guard::all(Admin, Workspace), list)
        .post("/v1/api-keys", Guard::all(Admin, Workspace), create)
        .get("/v1/api-keys/{key}", Guard::all(Admin, Workspace), read)
        .delete("/v1/api-keys/{key}", Guard::all(Admin, Workspace), revoke)
        .post("/v1/api-keys/{key}/revoke", Guard::all(Admin, Workspace), revoke)
}

async fn create(State(plane): State<Plane>, caller: Caller, body: Json) -> Answer {
    let once = Once::of(&caller, "POST", "/v1/api-keys", &body.sha256);
    let now = plane.clock.now();
    let new = draft(body.fields(caller.dialect)?, caller.principal_id, now)?;
    plane.registry.acting_principal(caller.workspace_id, new.principal_id).await?;
    reply::ok(&plane.registry.create_key(caller.workspace_id, new, once, now).await?)
}

fn draft(mut fields: Fields, own: PrincipalId, now: Timestamp) -> Result<NewKey, Problem> {
    let name = fields.required_text("name", 1, 256)?;
    let principal_id = fields.id("principal_id")?.unwrap_or(own);
    let expires_at = expiry(&mut fields, now)?;
    fields.end()?;
    Ok(NewKey { name, principal_id, expires_at })
}

/// Takes `expires_at` or `ttl_seconds`.
///
/// # Errors
/// A refusal of a time that is past, malformed or said twice.
pub(super) fn expiry(fields: &mut Fields, now: Timestamp) -> Result<Option<Timestamp>, Problem> {
    let ttl = fields.whole("ttl_seconds", 1, TTL_SECONDS_MAX)?;
    match fields.text("expires_at")? {
        None => Ok(ttl.and_then(|seconds| i64::try_from(seconds).ok()).map(|s| now.plus_ms(s * 1_000))),
        Some(_) if ttl.is_some() => {
            Err(wrong("ttl_seconds", "and `expires_at` say the same; send one of them"))
        }
        Some(text) => {
            let at: Timestamp = text
                .parse()
                .map_err(|_| wrong("expires_at", "must be a time such as 2026-01-31T23:59:59.000Z"))?;
            Some(at).filter(|at| *at > now).map(Some).ok_or_else(|| wrong("expires_at", "lies in the past"))
        }
    }
}

async fn list(State(plane): State<Plane>, caller: Caller, query: Query) -> Answer {
    let limit = query.limit(20, 100)?;
    let filter = Filter::read(&query, "api keys", limit)?;
    let rows = plane.registry.keys(caller.workspace_id, filter).await?;
    let page = Listed::cut(rows, limit, "api keys", true, |row| row.id.to_string());
    reply::ok(&page.map(|key: KeyRecord| key.wire()))
}

async fn read(State(plane): State<Plane>, caller: Caller, At(id): At<KeyId>) -> Answer {
    let found = plane.registry.key(caller.workspace_id, id).await?;
    reply::ok(&found.ok_or_else(|| not_found("key"))?.wire())
}

async fn revoke(State(plane): State<Plane>, caller: Caller, At(id): At<KeyId>) -> Answer {
    Ok(reply::text(plane.registry.revoke_key(caller.workspace_id, id, plane.clock.now()).await?))
}
