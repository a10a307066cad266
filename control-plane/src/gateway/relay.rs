//! Passes a provider's streamed reply on, piece by piece, and counts it on the way.
//! The count is on record before the reader sees the end of the reply. Whatever is no proper end reaches the reader as a
//! broken connection, never as an end.

mod way;

use super::{
    meter::Reading,
    provider::Waits,
    wire::fault::{Fault, Kind},
};
use bytes::Bytes;
use futures_util::{Stream, stream};
use std::pin::pin;
use tokio::{
    sync::mpsc::{self, Receiver, Sender},
    time::{error::Elapsed, timeout},
};
pub(super) use way::Way;

/// Pieces that may wait for the reader.
const PIECES_WAITING: usize = 16;

/// A streamed reply as it comes from its provider.
#[derive(Debug)]
pub(super) struct Source {
    /// The piece that was read already.
    pub(super) first: Option<Bytes>,
    /// What follows.
    pub(super) rest: reqwest::Response,
    /// How long the provider is waited for.
    pub(super) waits: Waits,
}

/// What goes to the reader.
#[derive(Debug)]
pub(super) enum Piece {
    /// Bytes of the reply.
    Bytes(Bytes),
    /// The proper end.
    End,
}

/// The reply was cut: nothing follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the model's reply was cut")]
pub(super) struct Cut;

/// How a relayed reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// All of it was passed on.
    Whole,
    /// The claim may not go on.
    Fenced,
    /// The reader went away, or does not read.
    ReaderGone,
    /// The provider broke off.
    Broken,
    /// The provider sent nothing for too long.
    Stalled,
    /// The count could not be put on record.
    Unrecorded,
}

/// The way from the relay to the reader.
pub(super) fn channel() -> (Sender<Piece>, Receiver<Piece>) {
    mpsc::channel(PIECES_WAITING)
}

/// The reader's side as a body: it ends well only after [`Piece::End`].
pub(super) fn body(pieces: Receiver<Piece>) -> impl Stream<Item = Result<Bytes, Cut>> + Send + 'static {
    stream::unfold(Some(pieces), |pieces| async {
        let mut pieces = pieces?;
        match pieces.recv().await {
            Some(Piece::Bytes(bytes)) => Some((Ok(bytes), Some(pieces))),
            Some(Piece::End) => None,
            None => Some((Err(Cut), None)),
        }
    })
}

/// Relays `source` until it ends or `fenced` completes. `record` is called exactly once, with what was counted.
pub(super) async fn relay<R>(
    source: Source,
    mut way: Way,
    pieces: Sender<Piece>,
    fenced: impl Future<Output = ()>,
    record: impl FnOnce(Reading) -> R,
) -> Ended
where
    R: Future<Output = bool>,
{
    let mut fenced = pin!(fenced);
    let Source { mut first, rest: mut reply, waits } = source;
    let mut record = Some(record);
    let ended = loop {
        let piece = tokio::select! {
            biased;
            () = &mut fenced => break Ended::Fenced,
            () = pieces.closed() => break Ended::ReaderGone,
            piece = next(&mut first, &mut reply, waits) => piece,
        };
        let bytes = match piece {
            Ok(Ok(Some(bytes))) => bytes,
            Ok(Ok(None)) => break Ended::Whole,
            Ok(Err(_)) => break Ended::Broken,
            Err(_) => break Ended::Stalled,
        };
        let bytes = way.feed(bytes);
        if way.reading().is_complete
            && let Some(record) = record.take()
            && !record(way.reading()).await
        {
            break Ended::Unrecorded;
        }
        tokio::select! {
            biased;
            () = &mut fenced => break Ended::Fenced,
            sent = timeout(waits.piece, send(&pieces, bytes)) => {
                if !matches!(sent, Ok(Ok(()))) {
                    break Ended::ReaderGone;
                }
            }
        }
        if way.has_failed() {
            break Ended::Broken;
        }
    };
    let (ended, last) = last_words(ended, &mut way);
    if let Some(record) = record.take()
        && !record(way.reading()).await
    {
        return Ended::Unrecorded;
    }
    if !matches!(timeout(waits.piece, send(&pieces, last)).await, Ok(Ok(()))) {
        return if ended == Ended::Whole { Ended::ReaderGone } else { ended };
    }
    if ended == Ended::Whole && !matches!(timeout(waits.piece, pieces.send(Piece::End)).await, Ok(Ok(()))) {
        return Ended::ReaderGone;
    }
    ended
}

/// What is still to be said, and how the reply really ended: without the wire's own last event it broke off.
fn last_words(ended: Ended, way: &mut Way) -> (Ended, Bytes) {
    let fault = match ended {
        Ended::Whole => None,
        Ended::Broken => Some(Fault::new(Kind::Api, "The model's reply broke off. Ask again.")),
        Ended::Stalled => Some(Fault::new(Kind::Timeout, "The model provider sent nothing for too long.")),
        Ended::Fenced | Ended::ReaderGone | Ended::Unrecorded => return (ended, Bytes::new()),
    };
    let last = way.finish(fault);
    if ended == Ended::Whole && !way.reading().is_complete {
        return (Ended::Broken, last);
    }
    (ended, last)
}

async fn send(pieces: &Sender<Piece>, bytes: Bytes) -> Result<(), mpsc::error::SendError<Piece>> {
    if bytes.is_empty() { Ok(()) } else { pieces.send(Piece::Bytes(bytes)).await }
}

async fn next(
    first: &mut Option<Bytes>,
    reply: &mut reqwest::Response,
    waits: Waits,
) -> Result<reqwest::Result<Option<Bytes>>, Elapsed> {
    match first.take() {
        Some(piece) => Ok(Ok(Some(piece))),
        None => timeout(waits.piece, reply.chunk()).await,
    }
}

#[cfg(test)]
mod tests;
