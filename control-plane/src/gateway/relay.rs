//! Passes a provider's streamed reply on, piece by piece and unchanged, and counts it on the way.
//! The count is on record before the reader sees the end of the reply. Whatever is no proper end reaches the reader as a
//! broken connection, never as an end.

use super::{
    meter::{Meter, Reading},
    provider::{Kind, Waits},
};
use bytes::Bytes;
use futures_util::{Stream, stream};
use std::pin::pin;
use tokio::{
    sync::mpsc::{self, Receiver, Sender},
    time::{error::Elapsed, timeout},
};

/// Pieces that may wait for the reader.
const PIECES_WAITING: usize = 16;

/// A streamed reply as it comes from its provider.
#[derive(Debug)]
pub(super) struct Source {
    /// What the provider speaks.
    pub(super) kind: Kind,
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
    pieces: Sender<Piece>,
    fenced: impl Future<Output = ()>,
    record: impl FnOnce(Reading) -> R,
) -> Ended
where
    R: Future<Output = bool>,
{
    let mut fenced = pin!(fenced);
    let Source { kind, mut first, rest: mut reply, waits } = source;
    let mut meter = Meter::new(kind);
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
        meter.feed(&bytes);
        if meter.reading().is_complete
            && let Some(record) = record.take()
            && !record(meter.reading()).await
        {
            break Ended::Unrecorded;
        }
        tokio::select! {
            biased;
            () = &mut fenced => break Ended::Fenced,
            sent = timeout(waits.piece, pieces.send(Piece::Bytes(bytes))) => {
                if !matches!(sent, Ok(Ok(()))) {
                    break Ended::ReaderGone;
                }
            }
        }
    };
    if let Some(record) = record.take()
        && !record(meter.reading()).await
    {
        return Ended::Unrecorded;
    }
    if ended == Ended::Whole && !matches!(timeout(waits.piece, pieces.send(Piece::End)).await, Ok(Ok(()))) {
        return Ended::ReaderGone;
    }
    ended
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
