//! `/healthz` and `/readyz`, without a key: whether the process answers, and whether it can make something durable.

use super::{
    Plane,
    reply::{self, Answer},
    route::{Guard, Routes},
};
use axum::extract::State;
use checkfu_shared::problem::{Code, Problem};
use serde_json::json;

/// The routes.
pub(crate) fn routes() -> Routes {
    Routes::new().get("/healthz", Guard::Open, health).get("/readyz", Guard::Open, ready)
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
