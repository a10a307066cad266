//! `POST /v1/sessions/{id}/selection`: another choice among the tools that the session's release offers. It only narrows, is
//! admitted anew each time, and cannot move what the session is pinned to.

use super::{narrow, own, shown};
use crate::http::{
    Plane,
    auth::Caller,
    body::Json,
    fields::unsupported,
    path::{At, not_found},
    reply::Answer,
};
use axum::extract::State;
use checkfu_shared::{
    id::SessionId,
    problem::{Code, Problem},
};

pub(super) async fn select(
    State(plane): State<Plane>,
    caller: Caller,
    At(id): At<SessionId>,
    body: Json,
) -> Answer {
    let mut fields = body.fields(caller.dialect)?;
    let session = own(&plane, &caller, id).await?;
    let pinned = (session.agent.id, Some(session.agent.version));
    let release = plane.registry.agent(caller.workspace_id, pinned.0, pinned.1).await?;
    let release = release.ok_or_else(|| not_found("agent"))?;
    if release.archived_at.is_some() {
        return Err(moved("agent", "is archived").into());
    }
    let environment = plane.registry.environment(caller.workspace_id, session.environment_id, None).await?;
    match environment.filter(|environment| environment.archived_at.is_none()) {
        None => return Err(moved("environment", "is archived or gone").into()),
        Some(environment) if environment.revision != session.environment_revision => {
            return Err(moved("environment", "has another revision").into());
        }
        Some(_) => {}
    }
    let mut agent = release.snapshot();
    if fields.value("skills").is_some_and(|skills| skills != serde_json::json!(agent.skills)) {
        return Err(
            unsupported("skills", "Choosing among skills is not there yet. Leave `skills` out.").into()
        );
    }
    narrow::select(&mut fields, &mut agent)?;
    // What the session took away from its system prompt at its creation stays away.
    agent.system.clone_from(&session.agent.system);
    fields.end()?;
    shown(&plane, &plane.engine.select(caller.workspace_id, id, agent).await?)
}

fn moved(what: &str, how: &str) -> Problem {
    let message = format!(
        "The {what} that the session is pinned to {how}, so its tools cannot be chosen anew. Create a new session."
    );
    Problem::new(Code::InvalidState, message).with("pinned", what)
}
