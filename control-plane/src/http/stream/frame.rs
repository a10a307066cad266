//! Frames of server-sent events. Every one but comments has an `event:` line, without which the SDK drops it silently.

use crate::engine::RawEvent;
use axum::body::Bytes;
use checkfu_shared::{
    event::{Body, Event},
    id::{EventId, SessionId},
    problem::Problem,
    time::Timestamp,
};
use serde_json::Value;

/// A comment, which readers ignore and proxies see.
pub(super) fn comment(text: &str) -> Bytes {
    format!(": {text}\n\n").into()
}

/// A stored event; its JSON is one line, as it was written.
pub(super) fn event(bytes: &mut Vec<u8>, row: &RawEvent) {
    bytes.extend_from_slice(format!("id: {}\nevent: {}\ndata: ", row.seq, row.kind).as_bytes());
    bytes.extend_from_slice(row.json.as_bytes());
    bytes.extend_from_slice(b"\n\n");
}

/// A frame without a place.
pub(super) fn unplaced(bytes: &mut Vec<u8>, kind: &str, data: &Value) {
    bytes.extend_from_slice(format!("event: {kind}\ndata: {data}\n\n").as_bytes());
}

/// The last frame of a deleted session's stream.
pub(super) fn deleted(session: SessionId, place: u64, now: Timestamp) -> Bytes {
    let event = Event {
        id: EventId::mint(),
        seq: place + 1,
        session_id: session,
        session_thread_id: None,
        run_id: None,
        created_at: now,
        processed_at: Some(now),
        authored_by: None,
        caused_by: None,
        body: Body::SessionDeleted {},
    };
    let mut bytes = Vec::new();
    unplaced(&mut bytes, event.body.kind(), &serde_json::to_value(&event).unwrap_or_default());
    bytes.into()
}

/// The last frame of a stream that cannot go on; the SDK raises it.
pub(super) fn error(problem: &Problem, request_id: &str) -> Bytes {
    let mut bytes = Vec::new();
    unplaced(&mut bytes, "error", &problem.body(request_id));
    bytes.into()
}
