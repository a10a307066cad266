//! Uploads of captured files in pieces, continued at the offset that the server has on its disk.
//! A piece is streamed from the spool file; no piece is ever held in memory as a whole.

use super::{
    Error, Plane,
    carrier::{Parcel, Way},
    link::{Failure, unreachable, unreached},
    parse,
};
use crate::backoff::Backoff;
use checkfu_shared::{id::UploadId, problem::Code, protocol::settlement::UploadReply};
use futures_util::StreamExt as _;
use reqwest::{Body, Method, header};
use std::{
    io::SeekFrom,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};

const PIECE_BYTES: u64 = 16 << 20;
/// A piece of which nothing moves for this long is tried again.
const STALL: Duration = Duration::from_secs(60);

impl Plane {
    /// Uploads the file at `spool` from `offset` on until the server has `size` bytes of it. Repeats through outages.
    ///
    /// # Errors
    /// Any [`Error`] but [`Error::Unreachable`]; [`Error::Refused`] with `internal` when the spool file cannot be read.
    pub async fn upload(
        &self,
        upload: UploadId,
        epoch: u64,
        spool: &Path,
        size: u64,
        offset: u64,
    ) -> Result<(), Error> {
        let mut backoff = Backoff::from(self.tempo());
        let mut next = Some(offset).filter(|&offset| offset < size || size == 0);
        while let Some(offset) = next {
            let length = PIECE_BYTES.min(size - offset);
            match self.piece(upload, epoch, spool, offset, length).await {
                Ok(durable) => {
                    if durable > offset {
                        backoff.reset();
                    } else if size > 0 {
                        tokio::time::sleep(backoff.next(None)).await;
                    }
                    next = Some(durable).filter(|&durable| durable < size);
                }
                Err(Error::Refused(problem)) if problem.code == Code::UploadOffset => {
                    let wanted = problem.details.get("offset").and_then(serde_json::Value::as_u64);
                    match wanted {
                        Some(wanted) if wanted != offset => {
                            next = Some(wanted).filter(|&wanted| wanted < size)
                        }
                        _ => return Err(Error::Refused(problem)),
                    }
                }
                Err(Error::Unreachable { reason, retry_after, .. }) => {
                    tracing::debug!(%reason, "the upload is continued");
                    tokio::time::sleep(backoff.next(retry_after)).await;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn piece(
        &self,
        upload: UploadId,
        epoch: u64,
        spool: &Path,
        offset: u64,
        length: u64,
    ) -> Result<u64, Error> {
        let path = format!("/v1/runner/uploads/{upload}");
        let query = [("epoch", epoch.to_string()), ("offset", offset.to_string())];
        let mut after = 0;
        loop {
            let bearer = self.bearer(after).await?;
            let moved = Arc::new(AtomicU64::new(0));
            let exchange = async {
                let http = match self.link.way() {
                    Way::Http(pool) => pool.client().0,
                    Way::Carried(carrier) => {
                        let [(epoch, at), (from, byte)] = &query;
                        let parcel = Parcel {
                            method: Method::PUT,
                            target: format!("{path}?{epoch}={at}&{from}={byte}"),
                            token: Some(bearer.secret.reveal().to_owned()),
                            body: Some(whole(spool, offset, length)?),
                        };
                        return self.link.answered(carrier.carry(parcel).await);
                    }
                };
                let request = self
                    .link
                    .request(&http, Method::PUT, &path, Some(bearer.secret.reveal()))
                    .query(&query)
                    .header(header::CONTENT_LENGTH, length)
                    .header(header::CONTENT_TYPE, "application/octet-stream")
                    .body(body(spool, offset, length, Arc::clone(&moved)).await?);
                self.exchange(request).await
            };
            let outcome = tokio::select! {
                outcome = exchange => outcome,
                () = stalled(&moved) => {
                    Err(unreached(format!("nothing of the upload moved for {} s", STALL.as_secs()), None).into())
                }
            };
            match self.judged(&bearer, outcome, after > 0)? {
                Some(reply) => return parse::<UploadReply>(&reply).map(|reply| reply.offset),
                None => after = bearer.generation,
            }
        }
    }

    async fn exchange(&self, request: reqwest::RequestBuilder) -> Result<bytes::Bytes, Failure> {
        let response = request.send().await.map_err(|error| unreachable(&error))?;
        self.link.finish(response).await
    }
}

fn unreadable(error: std::io::Error) -> Error {
    Error::Refused(checkfu_shared::problem::Problem::new(
        Code::Internal,
        format!("The captured file on this machine cannot be read: {error}."),
    ))
}

/// A piece in memory, for a simulation, whose files are small.
fn whole(spool: &Path, offset: u64, length: u64) -> Result<bytes::Bytes, Error> {
    let mut piece = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
    let file = std::fs::File::open(spool).map_err(unreadable)?;
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut piece, offset).map_err(unreadable)?;
    Ok(piece.into())
}

async fn body(spool: &Path, offset: u64, length: u64, moved: Arc<AtomicU64>) -> Result<Body, Error> {
    let mut file = tokio::fs::File::open(spool).await.map_err(unreadable)?;
    file.seek(SeekFrom::Start(offset)).await.map_err(unreadable)?;
    let pieces = tokio_util::io::ReaderStream::with_capacity(file.take(length), 256 << 10);
    Ok(Body::wrap_stream(pieces.inspect(move |_| {
        moved.fetch_add(1, Ordering::Relaxed);
    })))
}

/// Returns when nothing was read for the body during a whole period.
async fn stalled(moved: &AtomicU64) {
    let mut before = moved.load(Ordering::Relaxed);
    loop {
        tokio::time::sleep(STALL).await;
        let now = moved.load(Ordering::Relaxed);
        if now == before {
            return;
        }
        before = now;
    }
}
