//! The Session and its primary thread in the wire's exact members: what is not listed here leaks nowhere.

use crate::engine::SessionRecord;
use checkfu_shared::time::Timestamp;
use serde_json::{Value, json};

/// The Session.
pub(crate) fn session(record: &SessionRecord, now: Timestamp) -> Value {
    json!({
        "id": record.id,
        "type": "session",
        "agent": record.agent,
        "archived_at": record.archived_at,
        "automation_id": null,
        "budget": record.budget,
        "created_at": record.created_at,
        "environment_id": record.environment_id,
        "metadata": record.metadata,
        "outcome_evaluations": [],
        "resources": record.resources,
        "stats": stats(record, now),
        "status": record.status,
        "title": record.title,
        "updated_at": record.updated_at,
        "usage": record.usage,
        "vault_ids": record.vault_ids,
    })
}

fn stats(record: &SessionRecord, now: Timestamp) -> Value {
    let end = match record.status {
        crate::engine::Status::Terminated => record.archived_at.unwrap_or(record.updated_at),
        _ => now,
    };
    json!({
        "active_seconds": record.active_seconds,
        "duration_seconds": end.since_ms(record.created_at).max(0) / 1_000,
    })
}

/// The primary thread, which every session has.
pub(crate) fn thread(record: &SessionRecord, now: Timestamp) -> Value {
    let mut stats = stats(record, now);
    stats["startup_seconds"] = 0.into();
    json!({
        "id": record.thread_id,
        "type": "session_thread",
        "session_id": record.id,
        "parent_thread_id": null,
        "agent": record.agent,
        "status": record.status,
        "stats": stats,
        "usage": record.usage,
        "workflow_run_id": null,
        "created_at": record.created_at,
        "updated_at": record.updated_at,
        "archived_at": record.archived_at,
    })
}
