//! Live text of messages in the making: in order, contiguous, best effort. After a gap nothing more of that message is sent,
//! and no text overtakes the events that were taken before it: who watches sees them in the order of the log.

use super::{
    Progress,
    sender::{Route, allows},
};
use crate::claim::lease::State;
use checkfu_shared::{id::EventId, protocol::append::Deltas};
use std::collections::VecDeque;
use tokio::sync::{mpsc, watch};

const TEXT_BYTES_MAX: usize = 16 << 10;
/// How many messages may be in the making at once; older ones count as broken off.
const MESSAGES: usize = 32;

/// A piece of a message's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Delta {
    pub(crate) event_id: EventId,
    pub(crate) offset: u64,
    pub(crate) text: String,
    /// How many events come before it.
    pub(crate) after: u64,
}

/// Which byte of which message comes next; `None` after a gap.
#[derive(Debug, Default)]
struct Positions(VecDeque<(EventId, Option<u64>)>);

impl Positions {
    /// Whether the piece goes on where its message stands; if not, the message is given up.
    fn admit(&mut self, delta: &Delta) -> bool {
        let known = self.0.iter_mut().find(|(id, _)| *id == delta.event_id);
        let fits = known.as_ref().map_or(Some(0), |(_, next)| *next) == Some(delta.offset);
        let next = fits.then(|| delta.offset + delta.text.len() as u64);
        if let Some((_, position)) = known {
            *position = next;
        } else {
            if self.0.len() == MESSAGES {
                self.0.pop_front();
            }
            self.0.push_back((delta.event_id, next));
        }
        fits
    }

    fn give_up(&mut self, id: EventId) {
        self.0.iter_mut().filter(|(known, _)| *known == id).for_each(|(_, next)| *next = None);
    }
}

pub(crate) async fn run(
    mut queue: mpsc::Receiver<Delta>,
    route: &Route,
    lease: watch::Receiver<State>,
    mut progress: watch::Receiver<Progress>,
) {
    let mut positions = Positions::default();
    let mut held: Option<Delta> = None;
    loop {
        let Some(mut delta) = (match held.take() {
            Some(delta) => Some(delta),
            None => queue.recv().await,
        }) else {
            // Every clone of the outbox is gone; the events decide when to end.
            return std::future::pending().await;
        };
        // An error means that every outbox is gone; then the next receive ends this too.
        let _ = progress.wait_for(|progress| progress.acked >= delta.after).await;
        held = gather(&mut delta, &mut queue);
        if !positions.admit(&delta) {
            continue;
        }
        let wanted = *route.watched.borrow() && allows(&lease);
        let deltas =
            Deltas { epoch: route.epoch, event_id: delta.event_id, offset: delta.offset, text: delta.text };
        if !wanted || route.plane.deltas(route.claim, &deltas).await.is_err() {
            positions.give_up(deltas.event_id);
        }
    }
}

/// Joins what already waits behind `delta` and continues it; returns the first piece that does not.
fn gather(delta: &mut Delta, queue: &mut mpsc::Receiver<Delta>) -> Option<Delta> {
    while delta.text.len() < TEXT_BYTES_MAX {
        let next = queue.try_recv().ok()?;
        let continues =
            next.event_id == delta.event_id && next.offset == delta.offset + delta.text.len() as u64;
        if !continues {
            return Some(next);
        }
        delta.text.push_str(&next.text);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delta(id: u8, offset: u64, text: &str) -> Delta {
        Delta { event_id: EventId::from_bytes([id; 16]), offset, text: text.to_owned(), after: 0 }
    }

    #[test]
    fn a_message_is_forwarded_up_to_its_first_gap_and_no_further() {
        let mut positions = Positions::default();
        for (piece, admitted) in [
            (delta(1, 0, "abc"), true),
            (delta(2, 5, "late"), false),
            (delta(1, 3, "d"), true),
            (delta(1, 5, "f"), false),
            (delta(1, 4, "e"), false),
            (delta(2, 0, "again"), false),
            (delta(3, 0, "x"), true),
        ] {
            assert_eq!(positions.admit(&piece), admitted, "{piece:?}");
        }
        positions.give_up(EventId::from_bytes([3; 16]));
        assert!(!positions.admit(&delta(3, 1, "y")));
    }

    #[tokio::test]
    async fn waiting_pieces_of_one_message_travel_together() {
        let (sender, mut queue) = mpsc::channel(8);
        for piece in [delta(1, 1, "b"), delta(1, 2, "c"), delta(2, 0, "z"), delta(1, 3, "d")] {
            sender.send(piece).await.unwrap();
        }
        let mut first = delta(1, 0, "a");
        assert_eq!(gather(&mut first, &mut queue), Some(delta(2, 0, "z")));
        assert_eq!(first, delta(1, 0, "abc"));
    }
}
