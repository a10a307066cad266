//! `GET /v1/support/capabilities`: what this deployment does, and what it knows and refuses.

use crate::http::{
    auth::{Caller, VERSIONS},
    body::BODY_BYTES_MAX,
    reply::{self, Answer},
    route::{Guard, Routes},
};
use serde_json::{Value, json};

/// The routes.
pub(crate) fn routes() -> Routes {
    Routes::new().get("/v1/support/capabilities", Guard::AnyKey, read)
}

async fn read(_: Caller) -> Answer {
    reply::ok(&describe())
}

fn describe() -> Value {
    let status = |built: bool| if built { "built" } else { "unsupported" };
    let features: serde_json::Map<String, Value> = [
        ("agents", true),
        ("environments", true),
        ("sessions", true),
        ("events", true),
        ("event_stream_resume", true),
        ("event_previews", true),
        ("primary_thread", true),
        ("session_files", true),
        ("runner_pairings", true),
        ("principals", true),
        ("api_keys", true),
        ("idempotency", true),
        ("agent_with_overrides", true),
        ("multiagent", false),
        ("skills", false),
        ("mcp_servers", false),
        ("session_resources", false),
        ("vaults", false),
        ("budgets", true),
        ("outcomes", false),
        ("memory_stores", false),
        ("automations", false),
        ("webhooks", false),
        ("agent_deployments", true),
        ("permission_assignments", true),
        ("action_policies", true),
        ("action_approvals", true),
        ("standing_approvals", true),
        ("audit", true),
        ("environment_retention", false),
    ]
    .into_iter()
    .map(|(name, built)| (name.to_owned(), status(built).into()))
    .collect();
    json!({
        "type": "capabilities",
        "release": env!("CARGO_PKG_VERSION"),
        "versions": VERSIONS,
        "limits": {"body_bytes": BODY_BYTES_MAX, "file_window_bytes": 8 << 20, "initial_events": 50},
        "features": features,
    })
}
