//! Live text of messages in the making: in order, contiguous, best effort. After a gap nothing more of that message is sent,
//! and no text overtakes the events that were taken before it: who watches sees them in the order of the log.

use super::{
    Outbox,
    sender::{Route, allows},
};
use crate::plane;
use checkfu_shared::{id::EventId, protocol::append::Deltas};
use std::collections::VecDeque;
use tokio::sync::mpsc;

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

/// Where a message stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// This byte comes next.
    At(u64),
    /// Nothing more of it is forwarded; whether what is dropped is missed by somebody.
    GivenUp { missed: bool },
}

/// What becomes of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admitted {
    Yes,
    No { missed: bool },
}

/// Which byte of which message comes next.
#[derive(Debug, Default)]
struct Positions(VecDeque<(EventId, Place)>);

impl Positions {
    /// Whether the piece goes on where its message stands; if not, the message is given up.
    fn admit(&mut self, delta: &Delta) -> Admitted {
        let known = self.0.iter_mut().find(|(id, _)| *id == delta.event_id);
        let place = known.as_ref().map_or(Place::At(0), |(_, place)| *place);
        let (next, admitted) = match place {
            Place::At(next) if next == delta.offset => {
                (Place::At(delta.offset + delta.text.len() as u64), Admitted::Yes)
            }
            // A piece before this one is gone, and was counted when it went.
            Place::At(_) => (Place::GivenUp { missed: true }, Admitted::No { missed: true }),
            Place::GivenUp { missed } => (place, Admitted::No { missed }),
        };
        if let Some((_, position)) = known {
            *position = next;
        } else {
            if self.0.len() == MESSAGES {
                self.0.pop_front();
            }
            self.0.push_back((delta.event_id, next));
        }
        admitted
    }

    fn give_up(&mut self, id: EventId, missed: bool) {
        let places = self.0.iter_mut().filter(|(known, _)| *known == id);
        places.for_each(|(_, place)| *place = Place::GivenUp { missed });
    }
}

pub(crate) async fn run(mut queue: mpsc::Receiver<Delta>, route: &Route, outbox: &Outbox) {
    let mut positions = Positions::default();
    let (mut progress, mut held) = (outbox.progress(), None);
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
        let (id, bytes) = (delta.event_id, delta.text.len());
        let missed = match positions.admit(&delta) {
            Admitted::Yes => match forward(route, outbox, delta).await {
                Ok(()) => continue,
                Err(Dropped { missed }) => {
                    positions.give_up(id, missed);
                    missed
                }
            },
            Admitted::No { missed } => missed,
        };
        if missed {
            outbox.dropped(bytes);
        }
    }
}

/// Why a piece went no further than here.
struct Dropped {
    missed: bool,
}

async fn forward(route: &Route, outbox: &Outbox, delta: Delta) -> Result<(), Dropped> {
    if !*route.watched.borrow() {
        return Err(Dropped { missed: false });
    }
    if !allows(&outbox.shared.lease) {
        return Err(Dropped { missed: true });
    }
    let deltas =
        Deltas { epoch: route.epoch, event_id: delta.event_id, offset: delta.offset, text: delta.text };
    match route.plane.deltas(route.claim, &deltas).await {
        Ok(()) => Ok(()),
        // A refusal says that the message is out or that nobody looks.
        Err(error) => Err(Dropped { missed: matches!(error, plane::Error::Unreachable { .. }) }),
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
        let (yes, no) = (Admitted::Yes, Admitted::No { missed: true });
        for (piece, admitted) in [
            (delta(1, 0, "abc"), yes),
            (delta(2, 5, "late"), no),
            (delta(1, 3, "d"), yes),
            (delta(1, 5, "f"), no),
            (delta(1, 4, "e"), no),
            (delta(2, 0, "again"), no),
            (delta(3, 0, "x"), yes),
        ] {
            assert_eq!(positions.admit(&piece), admitted, "{piece:?}");
        }
        positions.give_up(EventId::from_bytes([3; 16]), false);
        assert_eq!(positions.admit(&delta(3, 1, "y")), Admitted::No { missed: false });
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
