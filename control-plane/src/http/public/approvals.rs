//! `/v1/action-approvals`: tool calls that wait for somebody, and their one answer. Answers are `POST` only, so that nobody
//! answers by following a link.

use crate::{
    domain::grant::{
        Kind::ActionApproval,
        Permission::{Read, RespondApproval},
    },
    engine::{Answer as Response, ApprovalQuery, Credential, StandingWish},
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
    registry::Once,
};
use axum::extract::State;
use checkfu_shared::{
    event::{Cause, CauseKind, Confirmation},
    id::{ApprovalId, PrincipalId},
    problem::Problem,
    secret::Secret,
};

const NOTE_CHARS_MAX: usize = 10_000;
const STATUSES: [&str; 5] = ["pending", "approved", "denied", "expired", "invalidated"];

/// The routes.
pub(crate) fn routes() -> Routes {
    Routes::new()
        .get("/v1/action-approvals", Guard::all(Read, ActionApproval), list)
        .get("/v1/action-approvals/{approval}", Guard::named(Read, ActionApproval, "approval"), read)
        // A token stands for the permission of the principal that it names, so the key need only read.
        .post(
            "/v1/action-approvals/{approval}/responses",
            Guard::named(Read, ActionApproval, "approval"),
            respond,
        )
        .post(
            "/v1/action-approvals/{approval}/response-tokens",
            Guard::named(RespondApproval, ActionApproval, "approval"),
            mint,
        )
}

async fn list(State(plane): State<Plane>, caller: Caller, query: Query) -> Answer {
    let limit = query.limit(20, 100)?;
    let status = query.get("status").map(str::to_owned);
    if status.as_ref().is_some_and(|status| !STATUSES.contains(&status.as_str())) {
        return Err(wrong("status", &format!("must be one of {}", STATUSES.join(", "))).into());
    }
    let session = query.get("session_id").map(str::parse).transpose();
    let wanted = ApprovalQuery {
        only: None,
        status,
        session: session.map_err(|error| wrong("session_id", &format!("is {error}")))?,
        before: query.cursor("action approvals", true)?.map(|cursor| cursor.position),
        rows: i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1),
    };
    let rows = plane.engine.approvals(caller.workspace_id, wanted).await?;
    let page = Listed::cut(rows, limit, "action approvals", true, |(id, _)| id.clone());
    reply::ok(&page.map(|(_, row)| row))
}

async fn read(State(plane): State<Plane>, caller: Caller, At(id): At<ApprovalId>) -> Answer {
    let wanted = ApprovalQuery { only: Some(id), rows: 1, ..ApprovalQuery::default() };
    let found = plane.engine.approvals(caller.workspace_id, wanted).await?.pop();
    reply::ok(&found.ok_or_else(|| not_found("action approval"))?.1)
}

async fn respond(State(plane): State<Plane>, caller: Caller, At(id): At<ApprovalId>, body: Json) -> Answer {
    let answer = draft(body.fields(caller.dialect)?, &caller)?;
    reply::ok(&plane.engine.answer(caller.workspace_id, id, answer).await?)
}

fn draft(mut fields: Fields, caller: &Caller) -> Result<Response, Problem> {
    let decision = match fields.required_text("decision", 1, 64)?.as_str() {
        "approve" => Confirmation::Allow,
        "deny" => Confirmation::Deny,
        _ => return Err(wrong("decision", "must be approve or deny")),
    };
    let token = fields.bounded_text("response_token", 256)?;
    let note = fields.bounded_text("note", NOTE_CHARS_MAX)?;
    let standing = fields.object("standing")?.map(standing).transpose()?;
    fields.end()?;
    if standing.is_some() && decision == Confirmation::Deny {
        return Err(wrong("standing", "goes with an approval only"));
    }
    if standing.is_some() && token.is_some() {
        return Err(wrong("standing", "cannot be asked for with a token, which carries one answer"));
    }
    let credential = match token {
        Some(token) => Credential::Token(Secret::new(token)),
        None => Credential::Principal(caller.principal_id),
    };
    let caused_by = Cause { kind: CauseKind::ApiRequest, id: caller.request_id.to_string() };
    Ok(Response { decision, credential, note, standing, caused_by })
}

fn standing(mut fields: Fields) -> Result<StandingWish, Problem> {
    let small = |number: Option<u64>| number.and_then(|number| u32::try_from(number).ok());
    let most = u64::from(crate::domain::approval::STANDING_SECONDS_MAX);
    let ttl = small(fields.whole("ttl_seconds", 1, most)?);
    let max_uses = small(fields.whole("max_uses", 1, u64::from(u32::MAX))?);
    let path = fields.path("ttl_seconds");
    fields.end()?;
    let ttl_seconds = ttl.ok_or_else(|| wrong(&path, "is required"))?;
    Ok(StandingWish { ttl_seconds, max_uses })
}

async fn mint(State(plane): State<Plane>, caller: Caller, At(id): At<ApprovalId>, body: Json) -> Answer {
    let once = Once::of(&caller, "POST", &format!("/v1/action-approvals/{id}/response-tokens"), &body.sha256);
    let mut fields = body.fields(caller.dialect)?;
    let principal: PrincipalId =
        fields.id("principal")?.ok_or_else(|| wrong("principal", "is required: who is to answer"))?;
    fields.end()?;
    let shown = plane.engine.response_token(caller.workspace_id, id, principal, once.replay()).await?;
    reply::ok(&shown)
}
