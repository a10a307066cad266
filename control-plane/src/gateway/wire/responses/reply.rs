//! Whole replies of the Responses wire.

use super::{
    super::{
        reply::{Label, Reply},
        step::Stop,
    },
    item::item,
    write_usage,
};
use serde_json::{Value, json};

pub(in super::super) fn write(reply: &Reply, label: &Label) -> Value {
    let (status, reason) = status(reply);
    let output: Vec<Value> = reply
        .blocks
        .iter()
        .enumerate()
        .map(|(index, block)| item(block, index, label, "completed"))
        .collect();
    let mut written = begun(label);
    written["status"] = status.into();
    written["output"] = output.into();
    written["usage"] = write_usage(&reply.usage);
    if let Some(reason) = reason {
        written["incomplete_details"] = json!({"reason": reason});
    }
    if let Some(fault) = &reply.fault {
        written["error"] = fault.responses();
    }
    written
}

/// How a reply ended: its status, and what cut it short.
pub(super) const fn status(reply: &Reply) -> (&'static str, Option<&'static str>) {
    if reply.fault.is_some() {
        return ("failed", None);
    }
    match reply.stop {
        Stop::MaxTokens | Stop::ContextFull => ("incomplete", Some("max_output_tokens")),
        Stop::Refusal => ("incomplete", Some("content_filter")),
        Stop::EndTurn | Stop::ToolUse | Stop::Sequence(_) | Stop::Pause => ("completed", None),
    }
}

/// A reply of which nothing was said yet.
pub(super) fn begun(label: &Label) -> Value {
    json!({
        "id": format!("resp_{}", label.id),
        "object": "response",
        "created_at": label.created_s,
        "status": "in_progress",
        "model": label.model,
        "output": [],
        "error": null,
        "incomplete_details": null,
        "usage": null,
        "store": false,
    })
}
