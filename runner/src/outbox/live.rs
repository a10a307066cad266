//! Live text without secrets: each message in the making is one stream, whatever pieces it comes in. Positions count what was
//! given out, so that they fit the message as the log will hold it.

use crate::mask::{Masker, Stream};
use checkfu_shared::id::EventId;
use std::collections::VecDeque;

/// How many messages may be in the making at once; older ones count as over.
const MESSAGES: usize = 32;

/// The messages in the making.
#[derive(Debug, Default)]
pub(super) struct Live(VecDeque<(EventId, Stream, u64)>);

impl Live {
    /// What of this piece may be shown now, and where in the message it stands. The end of a message that may still become a
    /// secret is not shown live; the message itself has it.
    pub(super) fn pass(&mut self, mask: &Masker, id: EventId, offset: u64, text: &str) -> (u64, String) {
        if offset == 0 {
            self.0.retain(|(known, ..)| *known != id);
            if self.0.len() == MESSAGES {
                self.0.pop_front();
            }
            self.0.push_back((id, Stream::default(), 0));
        }
        let Some((_, stream, given)) = self.0.iter_mut().find(|(known, ..)| *known == id) else {
            // Its beginning is unknown, so nothing of it is shown; a position that cannot be says so.
            return (u64::MAX, String::new());
        };
        let mut out = Vec::new();
        stream.push(mask, text.as_bytes(), &mut out);
        let at = *given;
        *given += out.len() as u64;
        (at, String::from_utf8_lossy(&out).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_over_several_pieces_is_masked_and_positions_go_on_without_a_gap() {
        let mask = Masker::new(["correct-horse"]).0;
        let (one, two) = (EventId::from_bytes([1; 16]), EventId::from_bytes([2; 16]));
        let mut live = Live::default();
        let (mut shown, mut offset) = (String::new(), 0);
        for piece in ["say corr", "ect-ho", "rse an", "d äcorrec", "t! ", "end."] {
            let (at, text) = live.pass(&mask, one, offset, piece);
            assert_eq!(at, shown.len() as u64, "{piece}");
            shown.push_str(&text);
            offset += piece.len() as u64;
            live.pass(&mask, two, offset, "x");
        }
        assert_eq!(shown, "say [masked] and äcorrect! end.");
        assert_eq!(live.pass(&mask, two, 7, "middle"), (u64::MAX, String::new()));
    }
}
