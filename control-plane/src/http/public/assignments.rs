//! `/v1/permission-assignments`: who may do what to which resources, row by row. There are no rows that deny.

use crate::{
    domain::grant::{
        Kind::{self, Workspace},
        Permission::{self, Admin},
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
    registry::{AssignmentQuery, AssignmentRecord, NewAssignment, Once, assignments},
};
use axum::extract::State;
use checkfu_shared::{id::AssignmentId, problem::Problem, time::Timestamp};
use rusqlite::Connection;

const GLOB_CHARS_MAX: usize = 128;

/// The routes.
pub(crate) fn routes() -> Routes {
    let guard = Guard::all(Admin, Workspace);
    Routes::new()
        .get("/v1/permission-assignments", guard, list)
        .post("/v1/permission-assignments", guard, create)
        .get("/v1/permission-assignments/{assignment}", guard, read)
        .delete("/v1/permission-assignments/{assignment}", guard, revoke)
        .post("/v1/permission-assignments/{assignment}/revoke", guard, revoke)
}

async fn create(State(plane): State<Plane>, caller: Caller, body: Json) -> Answer {
    let once = Once::of(&caller, "POST", "/v1/permission-assignments", &body.sha256);
    let now = plane.clock.now();
    let says = draft(body.fields(caller.dialect)?, now)?;
    let (workspace, by) = (caller.workspace_id, caller.principal_id);
    Ok(reply::text(plane.registry.create_assignment(workspace, says, by, once, now).await?))
}

/// The texts of a closed set, for a refusal.
fn one_of<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    format!("must be one of {}", texts.collect::<Vec<_>>().join(", "))
}

fn draft(mut fields: Fields, now: Timestamp) -> Result<NewAssignment, Problem> {
    let subject = fields.id("subject")?.ok_or_else(|| wrong("subject", "is required: a principal's id"))?;
    let text = fields.required_text("permission", 1, 64)?;
    let permission = Permission::from_text(&text)
        .ok_or_else(|| wrong("permission", &one_of(Permission::ALL.iter().map(|one| one.as_str()))))?;
    let mut resource = fields
        .object("resource")?
        .ok_or_else(|| wrong("resource", "is required: `{\"kind\", \"id_glob\"}`"))?;
    let text = resource.required_text("kind", 1, 64)?;
    let kind = Kind::from_text(&text)
        .ok_or_else(|| wrong("resource.kind", &one_of(Kind::ALL.iter().map(|one| one.as_str()))))?;
    let id_glob = resource.required_text("id_glob", 1, GLOB_CHARS_MAX)?;
    resource.end()?;
    let expires_at = super::keys::expiry(&mut fields, now)?;
    fields.end()?;
    Ok(NewAssignment { subject, permission, kind, id_glob, expires_at })
}

async fn list(State(plane): State<Plane>, caller: Caller, query: Query) -> Answer {
    let limit = query.limit(20, 100)?;
    let subject = query.get("subject").map(str::parse).transpose();
    let wanted = AssignmentQuery {
        subject: subject.map_err(|error| wrong("subject", &format!("is {error}")))?,
        include_revoked: query.flag("include_revoked")?,
        before_id: query.cursor("permission assignments", true)?.map(|cursor| cursor.position),
        rows: i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1),
    };
    let rows = plane.registry.assignments(caller.workspace_id, wanted).await?;
    let page = Listed::cut(rows, limit, "permission assignments", true, |row| row.id.to_string());
    reply::ok(&page.map(|row: AssignmentRecord| row.wire()))
}

async fn read(State(plane): State<Plane>, caller: Caller, At(id): At<AssignmentId>) -> Answer {
    let found = plane.registry.assignment(caller.workspace_id, id).await?;
    reply::ok(&found.ok_or_else(|| not_found("assignment"))?.wire())
}

async fn revoke(State(plane): State<Plane>, caller: Caller, At(id): At<AssignmentId>) -> Answer {
    let (workspace, by) = (caller.workspace_id, caller.principal_id);
    let job = move |tx: &Connection, now| assignments::revoke(tx, workspace, id, by, now);
    reply::ok(&plane.engine.withdraw(workspace, job).await?.wire())
}
