//! Pairing and tokens: the only calls of the protocol that need no token. And the end of a pairing, by the runner itself.

use super::{By, Said};
use crate::http::{
    Plane,
    reply::{Answer, ok},
};
use axum::{
    extract::{ConnectInfo, State},
    http::{HeaderMap, header},
};
use checkfu_shared::{
    problem::{Code, Problem},
    protocol::pairing::{Pair, TokenRequest},
};
use std::net::SocketAddr;

pub(super) async fn nonce(State(plane): State<Plane>) -> Answer {
    ok(&plane.engine.nonce())
}

pub(super) async fn pair(
    State(plane): State<Plane>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    Said(request): Said<Pair>,
) -> Answer {
    ok(&plane.engine.pair(request, authority(&headers)?, peer.ip()).await?)
}

pub(super) async fn token(
    State(plane): State<Plane>,
    headers: HeaderMap,
    Said(request): Said<TokenRequest>,
) -> Answer {
    ok(&plane.engine.token(request, authority(&headers)?).await?)
}

pub(super) async fn unpair(State(plane): State<Plane>, By(caller): By) -> Answer {
    let reason = "it was unpaired on its own machine".to_owned();
    plane.engine.revoke_runner(caller.workspace_id, caller.runner_id, reason).await?;
    ok(&serde_json::json!({}))
}

/// The host and port that the runner sees this server at.
fn authority(headers: &HeaderMap) -> Result<&str, Problem> {
    headers.get(header::HOST).and_then(|host| host.to_str().ok()).ok_or_else(|| {
        Problem::new(Code::InvalidHeader, "The `Host` header is missing. Send the server's host and port.")
    })
}
