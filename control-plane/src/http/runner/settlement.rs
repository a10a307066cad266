//! The end of a claim: the manifest, its uploads as streams, and the settle call.

use super::{By, Said, id};
use crate::http::{
    Plane,
    reply::{Answer, ok},
};
use axum::{
    body::Body,
    extract::{Path, Query, State},
    response::{IntoResponse, Response},
};
use checkfu_shared::{
    problem::{Code, Problem},
    protocol::settlement::{Settle, SettlementRequest, UploadReply},
};
use futures_util::StreamExt;
use serde::Deserialize;
use std::time::Duration;

/// The longest wait for the next bytes of an upload.
const SILENCE_MAX: Duration = Duration::from_secs(60);

pub(super) async fn announce(
    State(plane): State<Plane>,
    By(caller): By,
    Path(claim): Path<String>,
    Said(request): Said<SettlementRequest>,
) -> Answer {
    ok(&plane.engine.settlement(caller, id(&claim)?, request).await?)
}

pub(super) async fn settle(
    State(plane): State<Plane>,
    By(caller): By,
    Path(claim): Path<String>,
    Said(request): Said<Settle>,
) -> Answer {
    ok(&plane.engine.settle(caller, id(&claim)?, request).await?)
}

/// Where an upload goes on.
#[derive(Debug, Deserialize)]
pub(super) struct Place {
    epoch: u64,
    #[serde(default)]
    offset: u64,
}

/// Takes the bytes as they come. What came before a break is made durable all the same, so that the rest can follow.
pub(super) async fn upload(
    State(plane): State<Plane>,
    By(caller): By,
    Path(upload): Path<String>,
    Query(place): Query<Place>,
    body: Body,
) -> Answer {
    let mut incoming = plane.engine.upload(caller, id(&upload)?, place.epoch, place.offset).await?;
    let mut frames = body.into_data_stream();
    let broken = loop {
        match tokio::time::timeout(SILENCE_MAX, frames.next()).await {
            Ok(Some(Ok(frame))) => incoming.write(&frame).await?,
            Ok(None) => break None,
            Ok(Some(Err(_))) => break Some("The upload broke off."),
            Err(_) => break Some("No bytes came for 60 s."),
        }
    };
    let offset = incoming.finish().await?;
    match broken {
        None => ok(&UploadReply { offset }),
        Some(why) => Err(Problem::new(Code::InvalidRequest, format!("{why} Go on at byte {offset}."))
            .with("offset", offset)
            .into()),
    }
}

/// `HEAD`: the durable offset, in the header `upload-offset`.
pub(super) async fn offset(
    State(plane): State<Plane>,
    By(caller): By,
    Path(upload): Path<String>,
    Query(place): Query<Place>,
) -> Result<Response, crate::http::reply::Refusal> {
    let offset = plane.engine.upload_offset(caller, id(&upload)?, place.epoch).await?;
    Ok([("upload-offset", offset.to_string())].into_response())
}
