//! `/v1/runner-pairings` and `/v1/runners`: which machines may take work, and how they are stopped.

use super::environments::labels;
use crate::{
    domain::grant::{
        Kind::{Principal, Runner},
        Permission::{ActAs, PairRunner, Read},
    },
    engine::{NewPairing, Presence, RunnerRecord},
    http::{
        Plane,
        auth::Caller,
        body::Json,
        fields::Fields,
        path::{At, not_found},
        query::{Listed, Query},
        reply::{self, Answer},
        route::{Guard, Routes},
    },
    registry::Once,
};
use axum::extract::State;
use checkfu_shared::{
    id::{PrincipalId, RunnerId},
    problem::Problem,
};
use serde_json::{Value, json};

const TTL_SECONDS_MAX: u64 = 3_600;
const TTL_SECONDS: u32 = 600;
const SESSIONS_MAX: u64 = 10_000;

/// The routes.
pub(crate) fn routes() -> Routes {
    Routes::new()
        .post("/v1/runner-pairings", Guard::all(PairRunner, Runner), pair)
        .get("/v1/runners", Guard::all(Read, Runner), list)
        .get("/v1/runners/{runner}", Guard::named(Read, Runner, "runner"), read)
        .post("/v1/runners/{runner}/revoke", Guard::named(PairRunner, Runner, "runner"), revoke)
        .post("/v1/runners/{runner}/drain", Guard::named(PairRunner, Runner, "runner"), drain)
}

async fn pair(State(plane): State<Plane>, caller: Caller, body: Json) -> Answer {
    let once = Once::of(&caller, "POST", "/v1/runner-pairings", &body.sha256);
    let new = draft(body.fields(caller.dialect)?, &caller)?;
    if new.principal_id != caller.principal_id {
        caller.grants.check(ActAs, Principal, &new.principal_id.to_string())?;
        plane.registry.acting_principal(caller.workspace_id, new.principal_id).await?;
    }
    let mut shown = json!({
        "type": "runner_pairing",
        "principal_id": new.principal_id,
        "name": new.name,
        "labels": new.labels,
        "max_sessions": new.max_sessions,
        "ephemeral": new.ephemeral,
    });
    let minted = plane.engine.mint_pairing(new, once.replay()).await?;
    shown["id"] = json!(minted.id);
    shown["created_at"] = json!(minted.created_at);
    shown["expires_at"] = json!(minted.expires_at);
    if let Some(code) = minted.code {
        shown["code"] = code.reveal().into();
    }
    reply::ok(&shown)
}

fn draft(mut fields: Fields, caller: &Caller) -> Result<NewPairing, Problem> {
    let small = |number: Option<u64>| number.and_then(|number| u32::try_from(number).ok());
    let new = NewPairing {
        workspace_id: caller.workspace_id,
        principal_id: fields.id::<PrincipalId>("principal")?.unwrap_or(caller.principal_id),
        created_by: caller.principal_id,
        name: fields.bounded_text("name", 128)?.filter(|name| !name.is_empty()),
        labels: labels(&mut fields, "labels")?,
        max_sessions: small(fields.whole("max_sessions", 1, SESSIONS_MAX)?),
        ephemeral: fields.flag("ephemeral")?.unwrap_or(false),
        ttl_seconds: small(fields.whole("ttl_seconds", 1, TTL_SECONDS_MAX)?).unwrap_or(TTL_SECONDS),
    };
    fields.end()?;
    Ok(new)
}

fn shape(runner: &RunnerRecord) -> Value {
    json!({
        "id": runner.id,
        "type": "runner",
        "name": runner.name,
        "status": match runner.presence {
            Presence::Online if runner.draining => json!("draining"),
            presence => json!(presence),
        },
        "draining": runner.draining,
        "labels": runner.labels,
        "max_sessions": runner.max_sessions,
        "ephemeral": runner.ephemeral,
        "host": runner.host,
        "principal_id": runner.principal_id,
        "pairing_id": runner.pairing_id,
        "sessions": runner.sessions,
        "created_at": runner.created_at,
        "last_seen_at": runner.last_seen_at,
        "revoked_at": runner.revoked_at,
        "revoked_reason": runner.revoked_reason,
    })
}

async fn list(State(plane): State<Plane>, caller: Caller, query: Query) -> Answer {
    let limit = query.limit(20, 100)?;
    let after = query.cursor("runners", false)?.map(|cursor| cursor.position);
    let rows = plane.engine.runners(caller.workspace_id).await?.into_iter();
    let rest = rows.filter(|row| after.as_ref().is_none_or(|after| row.id.to_string() > *after));
    let page = Listed::cut(rest.take(limit + 1).collect(), limit, "runners", false, |row: &RunnerRecord| {
        row.id.to_string()
    });
    reply::ok(&page.map(|runner| shape(&runner)))
}

async fn read(State(plane): State<Plane>, caller: Caller, At(id): At<RunnerId>) -> Answer {
    let found = plane.engine.runner(caller.workspace_id, id).await?;
    reply::ok(&shape(&found.ok_or_else(|| not_found("runner"))?))
}

async fn revoke(State(plane): State<Plane>, caller: Caller, At(id): At<RunnerId>, body: Json) -> Answer {
    let mut fields = body.fields(caller.dialect)?;
    let reason = fields.bounded_text("reason", 500)?.unwrap_or_else(|| "revoked by request".to_owned());
    fields.end()?;
    reply::ok(&shape(&plane.engine.revoke_runner(caller.workspace_id, id, reason).await?))
}

async fn drain(State(plane): State<Plane>, caller: Caller, At(id): At<RunnerId>) -> Answer {
    reply::ok(&shape(&plane.engine.drain_runner(caller.workspace_id, id).await?))
}
