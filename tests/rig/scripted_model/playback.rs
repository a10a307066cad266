//! Lays a script's timing and faults over the frames of a reply and plays the result as an HTTP body.
//! It also owns the holds: names at which a reply waits until the test lets it go.

use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use tokio::sync::Notify;

use super::script::Fault;
use super::sse::Frame;

/// The longest a hung or held reply keeps its connection, so that a forgotten one ends by itself.
const LONGEST_WAIT: Duration = Duration::from_secs(600);

const FLUSH_TIME: Duration = Duration::from_millis(20);

/// One thing that happens on the connection.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Beat {
    Send(Bytes),
    Wait(Duration),
    Hang,
    /// The connection breaks without the end of the body.
    Cut,
}

/// The beats of a streamed reply.
pub(super) fn streamed(
    frames: &[Frame],
    pace: Duration,
    fault: Option<&Fault>,
    error: impl Fn(&str) -> Frame,
) -> Vec<Beat> {
    let (keep, ending) = match fault {
        Some(Fault::Cut { after_deltas }) => (*after_deltas, Some(Beat::Cut)),
        Some(Fault::Hang { after_deltas }) => (*after_deltas, Some(Beat::Hang)),
        Some(Fault::StreamError { kind, after_deltas }) => {
            (*after_deltas, Some(Beat::Send(error(kind).encode().into())))
        }
        Some(Fault::Status { .. }) | None => (usize::MAX, None),
    };
    let mut beats = Vec::new();
    let mut deltas = 0;
    for frame in frames {
        if ending.is_some() && (frame.is_end() || (frame.is_delta() && deltas >= keep)) {
            break;
        }
        if frame.is_delta() {
            deltas += 1;
            if !pace.is_zero() {
                beats.push(Beat::Wait(pace));
            }
        }
        beats.push(Beat::Send(frame.encode().into()));
    }
    beats.extend(ending);
    beats
}

/// The beats of a reply sent as one JSON document; a faulty one stops half-way.
pub(super) fn whole(document: &str, fault: Option<&Fault>) -> Vec<Beat> {
    let ending = match fault {
        None | Some(Fault::Status { .. }) => return vec![Beat::Send(document.to_owned().into())],
        Some(Fault::Hang { .. }) => Beat::Hang,
        Some(Fault::Cut { .. } | Fault::StreamError { .. }) => Beat::Cut,
    };
    let half: String = document.chars().take(document.chars().count() / 2).collect();
    vec![Beat::Send(half.into()), ending]
}

/// Plays the beats as they are read; a client that leaves ends the play.
pub(super) fn body(beats: Vec<Beat>) -> Body {
    let play = stream::unfold(beats.into_iter(), |mut rest| async move {
        loop {
            match rest.next()? {
                Beat::Send(bytes) => return Some((Ok(bytes), rest)),
                Beat::Wait(pause) => tokio::time::sleep(pause).await,
                Beat::Hang => tokio::time::sleep(LONGEST_WAIT).await,
                Beat::Cut => {
                    // The server flushes only when the body has to wait; without this the client may see nothing.
                    tokio::time::sleep(FLUSH_TIME).await;
                    return Some((Err(io::Error::other("the script cuts here")), rest));
                }
            }
        }
    });
    Body::from_stream(play)
}

/// Names at which replies wait. A released name stays released.
#[derive(Debug, Default)]
pub(super) struct Holds {
    state: Mutex<HoldState>,
    changed: Arc<Notify>,
}

#[derive(Debug, Default)]
struct HoldState {
    reached: HashSet<String>,
    released: HashSet<String>,
}

impl Holds {
    /// Waits until `name` is released, at most ten minutes.
    pub(super) async fn pass(&self, name: &str) {
        self.with(|state| state.reached.insert(name.to_owned()));
        let released = async {
            loop {
                let notified = self.changed.notified();
                tokio::pin!(notified);
                notified.as_mut().enable();
                if self.with(|state| state.released.contains(name)) {
                    return;
                }
                notified.await;
            }
        };
        // Running out of patience is the same as a release: the client has long given up.
        let _ = tokio::time::timeout(LONGEST_WAIT, released).await;
    }

    pub(super) fn release(&self, name: &str) {
        self.with(|state| state.released.insert(name.to_owned()));
        self.changed.notify_waiters();
    }

    pub(super) fn has_reached(&self, name: &str) -> bool {
        self.with(|state| state.reached.contains(name))
    }

    fn with<T>(&self, look: impl FnOnce(&mut HoldState) -> T) -> T {
        look(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::sse;
    use super::*;

    fn reply() -> Vec<Frame> {
        sse::frames(&json!({
            "content": [{"type": "text", "text": "a text that is long enough to be streamed in several pieces"}],
            "stop_reason": "end_turn", "usage": {"output_tokens": 3},
        }))
    }

    fn streamed(frames: &[Frame], pace: Duration, fault: Option<&Fault>) -> Vec<Beat> {
        super::streamed(frames, pace, fault, |kind| Frame::error(kind, "an error"))
    }

    fn sent(beats: &[Beat]) -> String {
        beats
            .iter()
            .filter_map(|beat| match beat {
                Beat::Send(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn a_faultless_reply_is_every_frame() {
        let frames = reply();
        let beats = streamed(&frames, Duration::ZERO, None);
        assert_eq!(beats.len(), frames.len());
        assert!(sent(&beats).contains("message_stop"));
    }

    #[test]
    fn a_pace_waits_before_each_delta() {
        let frames = reply();
        let pace = Duration::from_millis(20);
        let beats = streamed(&frames, pace, None);
        let waits = beats.iter().filter(|beat| **beat == Beat::Wait(pace)).count();
        assert_eq!(waits, frames.iter().filter(|frame| frame.is_delta()).count());
    }

    #[test]
    fn a_cut_keeps_the_wanted_deltas_and_never_ends_the_message() {
        for after_deltas in [0, 1, 2, 50] {
            let beats = streamed(&reply(), Duration::ZERO, Some(&Fault::Cut { after_deltas }));
            assert_eq!(beats.last(), Some(&Beat::Cut));
            let text = sent(&beats);
            assert!(text.contains("message_start"), "{after_deltas}");
            assert!(!text.contains("message_delta"), "{after_deltas}");
            let expected = after_deltas.min(reply().iter().filter(|frame| frame.is_delta()).count());
            assert_eq!(text.matches("event: content_block_delta").count(), expected);
        }
    }

    #[test]
    fn an_error_event_replaces_the_rest() {
        let fault = Fault::StreamError { kind: "overloaded_error".to_owned(), after_deltas: 1 };
        let text = sent(&streamed(&reply(), Duration::ZERO, Some(&fault)));
        assert!(text.trim_end().lines().last().is_some_and(|line| line.contains("overloaded_error")));
    }

    #[test]
    fn a_cut_document_is_half_of_it() {
        assert_eq!(
            whole("12345678", Some(&Fault::Cut { after_deltas: 0 })),
            [Beat::Send("1234".into()), Beat::Cut]
        );
    }

    #[tokio::test]
    async fn a_hold_lets_go_when_it_is_released_before_or_after() {
        let holds = Arc::new(Holds::default());
        let waiting = tokio::spawn({
            let holds = Arc::clone(&holds);
            async move { holds.pass("gate").await }
        });
        while !holds.has_reached("gate") {
            tokio::task::yield_now().await;
        }
        assert!(!waiting.is_finished());
        holds.release("gate");
        waiting.await.unwrap();
        holds.pass("gate").await;
    }
}
