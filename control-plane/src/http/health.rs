//! `/healthz` and `/readyz`, without a key: whether the process answers, and whether it can make something durable.

use super::{
    Plane,
    reply::{self, Answer},
};
use axum::{Router, extract::State, routing::get};
use checkfu_shared::problem::{Code, Problem};
use serde_json::json;

/// The routes.
pub(crate) fn routes() -> Router<Plane> {
    Router::new().route("/healthz", get(health)).route("/readyz", get(ready))
}

async fn health() -> Answer {
    reply::ok(&json!({"status": "ok"}))
}

async fn ready(State(plane): State<Plane>) -> Answer {
    if plane.stop.is_cancelled() || plane.store.failed() {
        return Err(Problem::new(Code::Stopping, "The server is stopping. Try another one.").into());
    }
    plane.store.write(|_| Ok(())).await.map_err(Problem::from)?;
    reply::ok(&json!({"status": "ready"}))
}
