//! `/v1/sessions/{id}/files`: what a session left behind, and its bytes window by window. `path` is a stored key and never
//! a path of this machine. Only pictures and plain text are shown; everything else is a download.

mod media;
mod scoped;
mod window;

use super::sessions::own;
use crate::{
    domain::grant::{Kind::Session, Permission::Read},
    engine::FileRecord,
    files::path_key,
    http::{
        Plane,
        auth::Caller,
        fields::wrong,
        path::At,
        query::{Listed, Query},
        reply::{self, Answer, internal},
        route::{Guard, Routes},
    },
};
use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use checkfu_shared::{
    event::CaptureStatus,
    id::SessionId,
    problem::{Code, Problem},
};
use serde_json::{Value, json};
use std::io::SeekFrom;
use tokio::{
    fs::File,
    io::{AsyncReadExt, AsyncSeekExt},
};
use tokio_util::io::ReaderStream;
use window::Window;

/// The routes.
pub(crate) fn routes() -> Routes {
    let guard = Guard::named(Read, Session, "session");
    Routes::new()
        .get("/v1/sessions/{session}/files", guard, list)
        .get("/v1/sessions/{session}/files/content", guard, content)
        .merge(scoped::routes())
}

fn shape(file: &FileRecord) -> Value {
    json!({
        "id": file.id,
        "type": "session_file",
        "session_id": file.session_id,
        "path": file.path,
        "path_b64": file.path_b64,
        "status": file.status,
        "size_bytes": file.size_bytes,
        "sha256": file.sha256,
        "captured_at": file.captured_at,
    })
}

async fn list(State(plane): State<Plane>, caller: Caller, At(id): At<SessionId>, query: Query) -> Answer {
    own(&plane, &caller, id).await?;
    let limit = query.limit(1_000, 1_000)?;
    let list = format!("files of {id}");
    let after = query.cursor(&list, false)?.map(|cursor| cursor.position);
    let files = plane.engine.files(id).await?.into_iter();
    let rest = files.filter(|file| after.as_ref().is_none_or(|after| file.path > *after));
    let rows: Vec<FileRecord> = rest.take(limit + 1).collect();
    let page = Listed::cut(rows, limit, &list, false, |file| file.path.clone());
    reply::ok(&page.map(|file| shape(&file)))
}

/// A key as listed; a name as people type it finds its key too, where no key is spelled like it.
fn named(files: Vec<FileRecord>, path: &str) -> Option<FileRecord> {
    let key = path_key(path.as_bytes());
    let at = files
        .iter()
        .position(|file| file.path == path)
        .or_else(|| files.iter().position(|file| file.path == key))?;
    files.into_iter().nth(at)
}

fn no_such_path() -> Problem {
    Problem::new(
        Code::NotFound,
        "The session has no file with this path. List its files for the paths that it has.",
    )
}

async fn content(
    State(plane): State<Plane>,
    caller: Caller,
    At(id): At<SessionId>,
    query: Query,
    headers: HeaderMap,
) -> Answer {
    own(&plane, &caller, id).await?;
    let path =
        query.get("path").ok_or_else(|| wrong("path", "is required: a `path` of the session's files"))?;
    let files = plane.engine.files(id).await?;
    let file = named(files, path).ok_or_else(no_such_path)?;
    deliver(&plane, &file, &query, &headers).await
}

/// The bytes of a file, or the part of them that was asked for.
async fn deliver(plane: &Plane, file: &FileRecord, query: &Query, headers: &HeaderMap) -> Answer {
    if file.status != CaptureStatus::Captured {
        let status = json!(file.status);
        let message = format!(
            "The file was found and not kept: {}. Let the session write it again, smaller or to a readable place.",
            status.as_str().unwrap_or_default()
        );
        return Err(Problem::new(Code::NotFound, message).with("status", status).into());
    }
    let asked = window::asked(query, headers)?;
    match window::cut(&asked, file.size_bytes) {
        Ok(window) => serve(plane, file, window).await,
        Err(problem) => {
            let mut response = reply::Refusal(problem).into_response();
            let range = format!("bytes */{}", file.size_bytes);
            if let Ok(value) = HeaderValue::from_str(&range) {
                response.headers_mut().insert(header::CONTENT_RANGE, value);
            }
            Ok(response)
        }
    }
}

async fn serve(plane: &Plane, file: &FileRecord, window: Window) -> Answer {
    let mut bytes = plane.engine.custody().open(file).await.map_err(|error| internal(&error))?;
    let media = media::of(&file.path, &head(&mut bytes).await.map_err(|error| internal(&error))?);
    bytes.seek(SeekFrom::Start(window.first)).await.map_err(|error| internal(&error))?;
    let stream = ReaderStream::with_capacity(bytes.take(window.length), 64 << 10);
    let mut response = Body::from_stream(stream).into_response();
    *response.status_mut() = if window.is_whole { StatusCode::OK } else { StatusCode::PARTIAL_CONTENT };
    for (name, value) in described(file, &window, &media) {
        response.headers_mut().insert(name, HeaderValue::from_str(&value).map_err(|error| internal(&error))?);
    }
    Ok(guarded(response))
}

fn described(file: &FileRecord, window: &Window, media: &media::Media) -> Vec<(header::HeaderName, String)> {
    let mut headers = vec![
        (header::CONTENT_LENGTH, window.length.to_string()),
        (header::CONTENT_TYPE, media.content_type.to_owned()),
        (header::CONTENT_DISPOSITION, media.disposition.clone()),
        (header::ACCEPT_RANGES, "bytes".to_owned()),
    ];
    if !window.is_whole {
        let last = window.first + window.length.saturating_sub(1);
        headers.push((header::CONTENT_RANGE, format!("bytes {}-{last}/{}", window.first, file.size_bytes)));
    }
    headers.extend(file.sha256.as_ref().map(|sha256| (header::ETAG, format!("\"{sha256}\""))));
    headers
}

/// What a browser must not do with bytes that an agent wrote.
fn guarded(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let policy = HeaderValue::from_static("sandbox; default-src 'none'");
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
    response
}

async fn head(file: &mut File) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(media::HEAD_BYTES);
    file.take(media::HEAD_BYTES as u64).read_to_end(&mut head).await?;
    Ok(head)
}
