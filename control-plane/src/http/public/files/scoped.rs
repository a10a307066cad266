//! `/v1/files` in the shape of the SDK: the captured outputs of a session (its `scope`), by id. A file that was found and
//! not kept has no bytes and is not listed here.

use super::{deliver, media};
use crate::{
    domain::grant::{Kind::Session, Permission::Read},
    engine::FileRecord,
    http::{
        Plane,
        auth::Caller,
        fields::wrong,
        path::{At, not_found},
        public::sessions::own,
        query::{Listed, Query},
        reply::{self, Answer},
        route::{Guard, Routes},
    },
};
use axum::{extract::State, http::HeaderMap};
use checkfu_shared::{
    event::CaptureStatus,
    id::{FileId, SessionId},
    problem::Problem,
};
use serde_json::{Value, json};

pub(super) fn routes() -> Routes {
    let guard = Guard::some(Read, Session);
    Routes::new().get("/v1/files", guard, list).get("/v1/files/{file}", guard, metadata).get(
        "/v1/files/{file}/content",
        guard,
        content,
    )
}

fn shape(file: &FileRecord) -> Value {
    json!({
        "id": file.id,
        "type": "file",
        "filename": file.path,
        "mime_type": media::named(&file.path),
        "size_bytes": file.size_bytes,
        "created_at": file.captured_at,
        "downloadable": true,
        "expires_at": null,
        "scope": {"type": "session", "id": file.session_id},
    })
}

async fn list(State(plane): State<Plane>, caller: Caller, query: Query) -> Answer {
    if query.all("ids").next().is_some() {
        return Err(wrong("ids[]", "is not supported; name a session with `scope_id`").into());
    }
    let scope = query.get("scope_id").map(str::parse::<SessionId>);
    let Some(Ok(session)) = scope else {
        return Err(wrong("scope_id", "is required: the id of the session whose files are wanted").into());
    };
    caller.grants.check(Read, Session, &session.to_string())?;
    own(&plane, &caller, session).await?;
    let limit = query.limit(20, 1_000)?;
    let list = format!("captured files of {session}");
    let after = query.cursor(&list, false)?.map(|cursor| cursor.position);
    let files = plane.engine.files(session).await?.into_iter();
    let captured = files.filter(|file| file.status == CaptureStatus::Captured);
    let rest = captured.filter(|file| after.as_ref().is_none_or(|after| file.path > *after));
    let page = Listed::cut(rest.take(limit + 1).collect(), limit, &list, false, |file: &FileRecord| {
        file.path.clone()
    });
    reply::ok(&page.map(|file| shape(&file)))
}

async fn found(plane: &Plane, caller: &Caller, id: FileId) -> Result<FileRecord, Problem> {
    let file = plane.engine.file(caller.workspace_id, id).await?.ok_or_else(|| not_found("file"))?;
    caller.grants.check(Read, Session, &file.session_id.to_string())?;
    Ok(file)
}

async fn metadata(State(plane): State<Plane>, caller: Caller, At(id): At<FileId>) -> Answer {
    reply::ok(&shape(&found(&plane, &caller, id).await?))
}

async fn content(
    State(plane): State<Plane>,
    caller: Caller,
    At(id): At<FileId>,
    query: Query,
    headers: HeaderMap,
) -> Answer {
    let file = found(&plane, &caller, id).await?;
    deliver(&plane, &file, &query, &headers).await
}
