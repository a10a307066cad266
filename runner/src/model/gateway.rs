//! The provider behind the control plane's gateway, on the Anthropic Messages wire. It sends each request once; whether to
//! ask again is the harness's decision. The capability comes with each renewal and is never kept longer.

use super::{Failure, Preview, Provider, Reply, assemble::Assembly, failure, sse::Decoder};
use crate::plane::{self, Plane};
use bytes::Bytes;
use checkfu_shared::protocol::renew::Gateway as Access;
use futures_util::StreamExt as _;
use std::{sync::Arc, time::Duration};
use tokio::{sync::watch, time::timeout};

/// How long a stream may say nothing at all; the provider sends pings far more often.
const SILENCE_MAX: Duration = Duration::from_secs(120);
/// How long the first sign of an answer may take.
const ANSWER_WAIT: Duration = Duration::from_secs(300);
/// How much of an error's body is read.
const ERROR_BYTES_MAX: usize = 64 << 10;
/// Names the request at the gateway.
const REQUEST_ID: &str = "checkfu-model-request-id";

/// The gateway as one claim reaches it.
#[derive(Debug, Clone)]
pub struct Gateway {
    /// The way to the control plane.
    pub plane: Arc<Plane>,
    /// The newest capability.
    pub access: watch::Receiver<Access>,
}

impl Provider for Gateway {
    async fn ask(&self, body: Bytes, seen: &mut (dyn FnMut(Preview) + Send)) -> Result<Reply, Failure> {
        let access = self.access.borrow().clone();
        let sent = self.plane.gateway_messages(&access, self.plane.mask().message(body.to_vec()));
        let answer = match timeout(ANSWER_WAIT, sent).await {
            Err(_) => return Err(failure::unreachable("no answer began in time")),
            Ok(Err(plane::Error::Fenced | plane::Error::Revoked)) => return Err(Failure::Fenced),
            Ok(Err(plane::Error::Refused(problem))) => return Err(failure::of_problem(&problem, None)),
            Ok(Err(plane::Error::Unreachable { reason, .. })) => return Err(failure::unreachable(&reason)),
            Ok(Ok(answer)) => answer,
        };
        if !answer.status().is_success() {
            return Err(refusal(answer).await);
        }
        let request_id = header(&answer, REQUEST_ID);
        if let Some(request_id) = &request_id {
            seen(Preview::Began { request_id: request_id.clone() });
        }
        read(answer, request_id, seen).await
    }
}

fn header(answer: &reqwest::Response, name: &str) -> Option<String> {
    answer.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

async fn read(
    answer: reqwest::Response,
    request_id: Option<String>,
    seen: &mut (dyn FnMut(Preview) + Send),
) -> Result<Reply, Failure> {
    let (mut decoder, mut assembly) = (Decoder::default(), Assembly::default());
    let mut pieces = answer.bytes_stream();
    while !assembly.is_over() {
        let piece = match timeout(SILENCE_MAX, pieces.next()).await {
            Err(_) => return Err(failure::broken("the stream went silent")),
            Ok(None) => break,
            Ok(Some(Err(_))) => return Err(failure::broken("the connection was lost")),
            Ok(Some(Ok(piece))) => piece,
        };
        let mut taken = Ok(());
        decoder
            .feed(&piece, |data| {
                if taken.is_ok() && !assembly.is_over() {
                    taken = assembly.take(data, seen);
                }
            })
            .map_err(|_| failure::broken("an event of the stream is too long"))?;
        taken?;
    }
    assembly.finish(request_id)
}

async fn refusal(answer: reqwest::Response) -> Failure {
    let status = answer.status().as_u16();
    let seconds = header(&answer, "retry-after").and_then(|value| value.trim().parse::<u64>().ok());
    let mut body = Vec::new();
    let mut pieces = answer.bytes_stream();
    while let Ok(Some(Ok(piece))) = timeout(Duration::from_secs(10), pieces.next()).await {
        body.extend_from_slice(&piece);
        if body.len() > ERROR_BYTES_MAX {
            break;
        }
    }
    failure::of_answer(status, seconds.map(|seconds| seconds.saturating_mul(1_000)), &body)
}
