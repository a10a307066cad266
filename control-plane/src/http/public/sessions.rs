//! `/v1/sessions`: create, read, list, update, archive, delete; their runs and resources.

pub(super) mod budget;
mod change;
mod draft;
mod list;
mod narrow;
mod selection;
pub(super) mod wire;

use crate::{
    domain::grant::{
        Kind::Session,
        Permission::{Read, Write},
    },
    engine::SessionRecord,
    http::{
        Plane,
        auth::Caller,
        body::Json,
        path::{At, not_found},
        query::Listed,
        reply::{self, Answer},
        route::{Guard, Routes},
    },
    registry::Once,
};
use axum::extract::State;
use checkfu_shared::{id::SessionId, problem::Problem};
use serde_json::{Value, json};

/// The routes.
pub(crate) fn routes() -> Routes {
    Routes::new()
        .get("/v1/sessions", Guard::all(Read, Session), list::list)
        .post("/v1/sessions", Guard::all(Write, Session), create)
        .get("/v1/sessions/{session}", Guard::named(Read, Session, "session"), read)
        .post("/v1/sessions/{session}", Guard::named(Write, Session, "session"), update)
        .delete("/v1/sessions/{session}", Guard::named(Write, Session, "session"), delete)
        .post("/v1/sessions/{session}/archive", Guard::named(Write, Session, "session"), archive)
        .post("/v1/sessions/{session}/selection", Guard::named(Write, Session, "session"), selection::select)
        .get("/v1/sessions/{session}/runs", Guard::named(Read, Session, "session"), runs)
        .get("/v1/sessions/{session}/resources", Guard::named(Read, Session, "session"), resources)
}

/// The session, when it is in the caller's workspace.
pub(super) async fn own(plane: &Plane, caller: &Caller, id: SessionId) -> Result<SessionRecord, Problem> {
    plane.engine.session(caller.workspace_id, id).await?.ok_or_else(|| not_found("session"))
}

fn shown(plane: &Plane, record: &SessionRecord) -> Answer {
    reply::ok(&wire::session(record, plane.clock.now()))
}

async fn create(State(plane): State<Plane>, caller: Caller, body: Json) -> Answer {
    let once = Once::of(&caller, "POST", "/v1/sessions", &body.sha256);
    let fields = body.fields(caller.dialect)?;
    if let Some(record) = plane.registry.earlier::<SessionRecord>(&once, plane.clock.now()).await? {
        return shown(&plane, &record);
    }
    let new = draft::create(&plane, &caller, fields).await?;
    shown(&plane, &plane.engine.create_session(new, once.replay()).await?)
}

async fn read(State(plane): State<Plane>, caller: Caller, At(id): At<SessionId>) -> Answer {
    shown(&plane, &own(&plane, &caller, id).await?)
}

async fn update(State(plane): State<Plane>, caller: Caller, At(id): At<SessionId>, body: Json) -> Answer {
    let fields = body.fields(caller.dialect)?;
    let now = own(&plane, &caller, id).await?;
    let patch = change::read(fields, &now)?;
    if let Some(Some(limit)) = patch.budget {
        budget::check_priced(&plane, caller.workspace_id, limit, &now.agent.model.id).await?;
    }
    shown(&plane, &plane.engine.update_session(caller.workspace_id, id, patch).await?)
}

async fn archive(State(plane): State<Plane>, caller: Caller, At(id): At<SessionId>) -> Answer {
    shown(&plane, &plane.engine.archive_session(caller.workspace_id, id).await?)
}

async fn delete(State(plane): State<Plane>, caller: Caller, At(id): At<SessionId>) -> Answer {
    let once = Once::of(&caller, "DELETE", &format!("/v1/sessions/{id}"), "");
    plane.engine.delete_session(caller.workspace_id, id, once.replay()).await?;
    reply::ok(&json!({"id": id, "type": "session_deleted"}))
}

async fn runs(State(plane): State<Plane>, caller: Caller, At(id): At<SessionId>) -> Answer {
    own(&plane, &caller, id).await?;
    let shape = |run| {
        let mut run = json!(run);
        run["type"] = "run".into();
        run
    };
    let runs: Vec<Value> = plane.engine.runs(id).await?.into_iter().map(shape).collect();
    reply::ok(&Listed::whole(runs))
}

async fn resources(State(plane): State<Plane>, caller: Caller, At(id): At<SessionId>) -> Answer {
    reply::ok(&Listed::whole(own(&plane, &caller, id).await?.resources))
}
