//! `/v1/standing-approvals`: calls that run without asking again. They are made beside an approval's answer only.

use crate::{
    domain::grant::{
        Kind::ActionApproval,
        Permission::{Read, RespondApproval},
    },
    http::{
        Plane,
        auth::Caller,
        path::{At, not_found},
        query::{Listed, Query},
        reply::{self, Answer},
        route::{Guard, Routes},
    },
};
use axum::extract::State;
use checkfu_shared::id::StandingId;

/// The routes.
pub(crate) fn routes() -> Routes {
    let (reads, answers) = (Guard::all(Read, ActionApproval), Guard::all(RespondApproval, ActionApproval));
    Routes::new()
        .get("/v1/standing-approvals", reads, list)
        .get("/v1/standing-approvals/{standing}", reads, read)
        .post("/v1/standing-approvals/{standing}/revoke", answers, revoke)
}

async fn list(State(plane): State<Plane>, caller: Caller, query: Query) -> Answer {
    let limit = query.limit(20, 100)?;
    let before = query.cursor("standing approvals", true)?.map(|cursor| cursor.position);
    let rows = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
    let rows = plane.engine.standing_approvals(caller.workspace_id, None, before, rows).await?;
    let page = Listed::cut(rows, limit, "standing approvals", true, |(id, _)| id.clone());
    reply::ok(&page.map(|(_, row)| row))
}

async fn read(State(plane): State<Plane>, caller: Caller, At(id): At<StandingId>) -> Answer {
    let found = plane.engine.standing_approvals(caller.workspace_id, Some(id), None, 1).await?.pop();
    reply::ok(&found.ok_or_else(|| not_found("standing approval"))?.1)
}

async fn revoke(State(plane): State<Plane>, caller: Caller, At(id): At<StandingId>) -> Answer {
    reply::ok(&plane.engine.revoke_standing(caller.workspace_id, id, caller.principal_id).await?)
}
