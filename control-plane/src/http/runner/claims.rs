//! Claims: the poll, the lease, directives, events, history, and what a restart asks.

use super::{By, Said, hang, id};
use crate::http::{
    Plane,
    reply::{self, Answer, ok},
};
use axum::extract::{Path, Query, State};
use checkfu_shared::protocol::{
    append::{AppendRequest, Deltas},
    claim::{ClaimRequest, Close},
    recover::{Inventory, Recover},
    renew::{DirectivesRequest, Renew},
};
use serde::Deserialize;

pub(super) async fn poll(
    State(plane): State<Plane>,
    By(caller): By,
    Said(request): Said<ClaimRequest>,
) -> Answer {
    ok(&hang(&plane, plane.engine.claim(caller, request)).await?)
}

pub(super) async fn renew(
    State(plane): State<Plane>,
    By(caller): By,
    Path(claim): Path<String>,
    Said(request): Said<Renew>,
) -> Answer {
    ok(&plane.engine.renew(caller, id(&claim)?, request).await?)
}

pub(super) async fn directives(
    State(plane): State<Plane>,
    By(caller): By,
    Path(claim): Path<String>,
    Said(request): Said<DirectivesRequest>,
) -> Answer {
    ok(&hang(&plane, plane.engine.directives(caller, id(&claim)?, request)).await?)
}

pub(super) async fn append(
    State(plane): State<Plane>,
    By(caller): By,
    Path(claim): Path<String>,
    Said(request): Said<AppendRequest>,
) -> Answer {
    ok(&plane.engine.append(caller, id(&claim)?, request).await?)
}

pub(super) async fn deltas(
    State(plane): State<Plane>,
    By(caller): By,
    Path(claim): Path<String>,
    Said(request): Said<Deltas>,
) -> Answer {
    plane.engine.deltas(caller, id(&claim)?, request).await?;
    ok(&serde_json::json!({}))
}

/// Which page of the log.
#[derive(Debug, Deserialize)]
pub(super) struct Page {
    epoch: u64,
    #[serde(default)]
    after_seq: u64,
    #[serde(default = "page_size")]
    limit: u32,
}

const fn page_size() -> u32 {
    1_000
}

pub(super) async fn history(
    State(plane): State<Plane>,
    By(caller): By,
    Path(claim): Path<String>,
    Query(page): Query<Page>,
) -> Answer {
    let claim = id(&claim)?;
    let (events, has_more) =
        plane.engine.history(caller, claim, page.epoch, page.after_seq, page.limit).await?;
    Ok(reply::text(format!("{{\"events\":[{}],\"has_more\":{has_more}}}", events.join(","))))
}

pub(super) async fn recover(
    State(plane): State<Plane>,
    By(caller): By,
    Said(request): Said<Recover>,
) -> Answer {
    ok(&plane.engine.recover(caller, request).await?)
}

pub(super) async fn inventory(
    State(plane): State<Plane>,
    By(caller): By,
    Said(request): Said<Inventory>,
) -> Answer {
    ok(&plane.engine.inventory(caller, request).await?)
}

pub(super) async fn close(State(plane): State<Plane>, By(caller): By, Said(request): Said<Close>) -> Answer {
    plane.engine.close_instance(caller, request.instance_id).await?;
    ok(&serde_json::json!({}))
}
