//! Which previews a reader may see: each from its beginning, contiguous, and never after its event.

use super::frame;
use crate::fanout::Preview;
use checkfu_shared::id::EventId;
use serde::Deserialize;
use serde_json::json;
use std::collections::{HashMap, VecDeque};

/// How many ended messages are remembered; a preview this late is not sent any more.
const ENDED: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Previews {
    /// How many bytes of each open message were sent.
    open: HashMap<EventId, u64>,
    ended: VecDeque<EventId>,
}

#[derive(Deserialize)]
struct Named {
    id: EventId,
}

impl Previews {
    /// The message is in the log and was sent: nothing of its preview may follow.
    pub(super) fn close(&mut self, json: &str) {
        if let Ok(Named { id }) = serde_json::from_str(json) {
            self.open.remove(&id);
            self.ended.push_back(id);
            if self.ended.len() > ENDED {
                self.ended.pop_front();
            }
        }
    }

    /// Some parts were missed: what is open stays a prefix.
    pub(super) fn forget(&mut self) {
        self.open.clear();
    }

    /// The frames for one part, if it may be shown.
    pub(super) fn frames(&mut self, preview: &Preview, bytes: &mut Vec<u8>) {
        let id = preview.event_id;
        if preview.offset == 0 && !self.ended.contains(&id) && !self.open.contains_key(&id) {
            self.open.insert(id, 0);
            let start = json!({"type": "event_start", "event": {"type": "agent.message", "id": id}});
            frame::unplaced(bytes, "event_start", &start);
        }
        match self.open.get_mut(&id) {
            Some(sent) if *sent == preview.offset => {
                *sent += preview.text.len() as u64;
                if !preview.text.is_empty() {
                    let content = json!({"type": "text", "text": preview.text});
                    let delta = json!({"type": "content_delta", "index": 0, "content": content});
                    let data = json!({"type": "event_delta", "event_id": id, "delta": delta});
                    frame::unplaced(bytes, "event_delta", &data);
                }
            }
            _ => {
                self.open.remove(&id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(event_id: EventId, offset: u64, text: &str) -> Preview {
        Preview { event_id, thread_id: None, offset, text: text.to_owned() }
    }

    fn shown(previews: &mut Previews, preview: &Preview) -> String {
        let mut bytes = Vec::new();
        previews.frames(preview, &mut bytes);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_message_is_previewed_from_its_beginning_and_only_once_started() {
        let (mut previews, id) = (Previews::default(), EventId::mint());
        assert_eq!(shown(&mut previews, &part(id, 2, "c")), "", "a joiner in the middle saw a delta");
        let first = shown(&mut previews, &part(id, 0, "ab"));
        assert_eq!(
            (first.matches("event: event_start").count(), first.matches("event: event_delta").count()),
            (1, 1)
        );
        let second = shown(&mut previews, &part(id, 2, "c"));
        assert!(
            !second.contains("event_start") && second.contains("\"text\":\"c\"") && !second.contains("id: ")
        );
    }

    #[test]
    fn nothing_follows_a_gap_or_the_message_itself() {
        let (mut previews, id) = (Previews::default(), EventId::mint());
        shown(&mut previews, &part(id, 0, "ab"));
        assert_eq!(shown(&mut previews, &part(id, 3, "d")), "");
        assert_eq!(shown(&mut previews, &part(id, 2, "c")), "", "went on after a gap");
        let late = EventId::mint();
        previews.close(&json!({"id": late}).to_string());
        assert_eq!(shown(&mut previews, &part(late, 0, "x")), "", "began after the message");
    }
}
