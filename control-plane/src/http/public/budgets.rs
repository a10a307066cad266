//! `/v1/budgets`: what sessions may spend on models; attached, raised, paused and listed.

use super::sessions::budget;
use crate::{
    domain::grant::{
        Kind::Session,
        Permission::{self, Read, Write},
    },
    engine::{BudgetChange, BudgetRecord},
    http::{
        Plane,
        auth::Caller,
        body::Json,
        fields::wrong,
        path::At,
        query::{Listed, Query},
        reply::{self, Answer},
        route::{Guard, Routes},
    },
};
use axum::extract::State;
use checkfu_shared::{
    id::{BudgetId, SessionId},
    problem::Problem,
};

/// The routes.
pub(crate) fn routes() -> Routes {
    Routes::new()
        .get("/v1/budgets", Guard::all(Read, Session), list)
        .post("/v1/budgets", Guard::some(Write, Session), create)
        .get("/v1/budgets/{budget}", Guard::some(Read, Session), read)
        .post("/v1/budgets/{budget}", Guard::some(Write, Session), update)
        .post("/v1/budgets/{budget}/pause", Guard::some(Write, Session), pause)
        .post("/v1/budgets/{budget}/resume", Guard::some(Write, Session), resume)
}

/// The budget, when the caller may do this to its session.
async fn own(
    plane: &Plane,
    caller: &Caller,
    id: BudgetId,
    permission: Permission,
) -> Result<BudgetRecord, Problem> {
    let found = plane.engine.budget(caller.workspace_id, id).await?;
    caller.grants.check(permission, Session, &found.session_id.to_string())?;
    Ok(found)
}

async fn create(State(plane): State<Plane>, caller: Caller, body: Json) -> Answer {
    let mut fields = body.fields(caller.dialect)?;
    let session = fields.id::<SessionId>("session_id")?.ok_or_else(|| wrong("session_id", "is required"))?;
    caller.grants.check(Write, Session, &session.to_string())?;
    let limit = budget::limit(&mut fields)?;
    fields.end()?;
    let found = super::sessions::own(&plane, &caller, session).await?;
    budget::check_priced(&plane, caller.workspace_id, limit, &found.agent.model.id).await?;
    reply::ok(&plane.engine.create_budget(caller.workspace_id, session, limit).await?.wire())
}

async fn list(State(plane): State<Plane>, caller: Caller, query: Query) -> Answer {
    let limit = query.limit(20, 100)?;
    let session = query.get("session_id").map(|text| text.parse::<SessionId>());
    let session = session.transpose().map_err(|error| wrong("session_id", &format!("is {error}")))?;
    let before = query.cursor("budgets", true)?.map(|cursor| cursor.position);
    let rows = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
    let rows = plane.engine.budgets(caller.workspace_id, session, before, rows).await?;
    let page = Listed::cut(rows, limit, "budgets", true, |row| row.id.to_string());
    reply::ok(&page.map(|budget: BudgetRecord| budget.wire()))
}

async fn read(State(plane): State<Plane>, caller: Caller, At(id): At<BudgetId>) -> Answer {
    reply::ok(&own(&plane, &caller, id, Read).await?.wire())
}

async fn update(State(plane): State<Plane>, caller: Caller, At(id): At<BudgetId>, body: Json) -> Answer {
    own(&plane, &caller, id, Write).await?;
    let mut fields = body.fields(caller.dialect)?;
    let amount =
        fields.whole("limit", 1, budget::AMOUNT_MAX)?.ok_or_else(|| wrong("limit", "is required"))?;
    fields.end()?;
    change(&plane, &caller, id, BudgetChange::Raise(amount)).await
}

async fn pause(State(plane): State<Plane>, caller: Caller, At(id): At<BudgetId>) -> Answer {
    change(&plane, &caller, id, BudgetChange::Pause).await
}

async fn resume(State(plane): State<Plane>, caller: Caller, At(id): At<BudgetId>) -> Answer {
    change(&plane, &caller, id, BudgetChange::Resume).await
}

async fn change(plane: &Plane, caller: &Caller, id: BudgetId, change: BudgetChange) -> Answer {
    own(plane, caller, id, Write).await?;
    reply::ok(&plane.engine.change_budget(caller.workspace_id, id, change).await?.wire())
}
