//! Hints to waiting readers: how far each session's log is, and the text that streams before its event is durable.
//! It carries no truth: a hint may be lost, a reader that falls behind reads the log.

use checkfu_shared::id::{EventId, SessionId, ThreadId};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::{broadcast, watch};

/// How many previews a slow reader may be behind before it misses some.
const PREVIEWS: usize = 256;
/// How many unfinished messages of one session are previewed at once.
const OPEN_PREVIEWS: usize = 16;

/// A part of a message that is still being written. Never stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preview {
    /// The `agent.message` that will hold the text.
    pub event_id: EventId,
    /// Which thread.
    pub thread_id: Option<ThreadId>,
    /// How many bytes of the text came before; 0 opens the preview.
    pub offset: u64,
    /// The next part.
    pub text: String,
}

/// The hints of all sessions; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Fanout(Arc<Mutex<HashMap<SessionId, Channel>>>);

#[derive(Debug)]
struct Channel {
    head: watch::Sender<u64>,
    previews: broadcast::Sender<Preview>,
    /// How far each open preview is; `None` after a gap.
    open: HashMap<EventId, Option<u64>>,
}

impl Default for Channel {
    fn default() -> Self {
        Self { head: watch::channel(0).0, previews: broadcast::channel(PREVIEWS).0, open: HashMap::new() }
    }
}

impl Channel {
    fn is_unwatched(&self) -> bool {
        self.head.receiver_count() == 0 && self.previews.receiver_count() == 0
    }
}

impl Fanout {
    /// The head of the session's log, as far as hinted; 0 says nothing. Every change of the session touches it.
    #[must_use]
    pub fn watch(&self, session: SessionId) -> watch::Receiver<u64> {
        self.lock().entry(session).or_default().head.subscribe()
    }

    /// The previews of the session from now on.
    #[must_use]
    pub fn previews(&self, session: SessionId) -> broadcast::Receiver<Preview> {
        self.lock().entry(session).or_default().previews.subscribe()
    }

    /// Whether somebody watches the session's previews, so that a runner sends them at once.
    #[must_use]
    pub fn watched(&self, session: SessionId) -> bool {
        self.lock().get(&session).is_some_and(|channel| channel.previews.receiver_count() > 0)
    }

    /// Wakes the readers of a session after a commit; a head that is behind wakes them too and changes nothing.
    pub(crate) fn advance(&self, session: SessionId, head: u64) {
        let mut channels = self.lock();
        if let Some(channel) = channels.get_mut(&session) {
            if channel.is_unwatched() {
                channels.remove(&session);
            } else {
                channel.head.send_modify(|known| *known = head.max(*known));
            }
        }
    }

    /// Forwards the next part of a message while it is contiguous.
    pub(crate) fn preview(&self, session: SessionId, preview: Preview) {
        let mut channels = self.lock();
        let Some(channel) =
            channels.get_mut(&session).filter(|channel| channel.previews.receiver_count() > 0)
        else {
            return;
        };
        if !channel.open.contains_key(&preview.event_id) && channel.open.len() >= OPEN_PREVIEWS {
            return;
        }
        let place = channel.open.entry(preview.event_id).or_insert(Some(0));
        if *place == Some(preview.offset) {
            *place = Some(preview.offset + preview.text.len() as u64);
            // Nobody may be listening any more, which is no failure of the sender.
            drop(channel.previews.send(preview));
        } else {
            *place = None;
        }
    }

    /// Forgets the previews of events that are durable now.
    pub(crate) fn close_previews(&self, session: SessionId, events: &[EventId]) {
        if let Some(channel) = self.lock().get_mut(&session) {
            for event in events {
                channel.open.remove(event);
            }
        }
    }

    /// Forgets every open preview: the claim is over, what it began will not end.
    pub(crate) fn drop_previews(&self, session: SessionId) {
        if let Some(channel) = self.lock().get_mut(&session) {
            channel.open.clear();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Channel>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(event_id: EventId, offset: u64, text: &str) -> Preview {
        Preview { event_id, thread_id: None, offset, text: text.to_owned() }
    }

    #[tokio::test]
    async fn previews_are_forwarded_until_the_first_gap() {
        let (fanout, session, event) = (Fanout::default(), SessionId::mint(), EventId::mint());
        let mut previews = fanout.previews(session);
        for (offset, text) in [(0, "ab"), (2, "c"), (9, "x"), (3, "d")] {
            fanout.preview(session, part(event, offset, text));
        }
        assert_eq!(previews.recv().await.unwrap().text, "ab");
        assert_eq!(previews.recv().await.unwrap().text, "c");
        assert!(previews.try_recv().is_err(), "something was forwarded after a gap");
    }

    #[test]
    fn the_head_only_grows_and_unwatched_sessions_are_forgotten() {
        let (fanout, session) = (Fanout::default(), SessionId::mint());
        let head = fanout.watch(session);
        fanout.advance(session, 5);
        fanout.advance(session, 3);
        assert_eq!(*head.borrow(), 5);
        drop(head);
        fanout.advance(session, 6);
        assert!(fanout.lock().is_empty());
    }
}
