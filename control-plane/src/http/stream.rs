//! A session's log as server-sent events: replay from a place, then live, without gap or repetition. Order and place are
//! the log's own `seq`. A slow reader pages from the log and never holds anybody up; previews have no place and may be lost.

mod frame;
mod previews;

use super::{Plane, auth::Caller, fields::wrong, query::Query, reply::Answer};
use crate::{
    engine::{EventQuery, SessionRecord},
    fanout::Preview,
};
use axum::{
    body::{Body, Bytes},
    http::{HeaderMap, header},
    response::IntoResponse,
};
use checkfu_shared::{id::SessionId, problem::Problem};
use futures_util::stream;
use previews::Previews;
use std::{convert::Infallible, time::Duration};
use tokio::{
    sync::{broadcast, watch},
    time::Instant,
};

/// How many events one read of the log brings.
const PAGE: u32 = 128;
const PREVIEW_TYPES_MAX: usize = 100;

/// Answers with the stream that the request asks for.
///
/// # Errors
/// `invalid_request` when the wanted place or the previews make no sense.
pub fn open(
    plane: Plane,
    caller: Caller,
    session: &SessionRecord,
    query: &Query,
    headers: &HeaderMap,
) -> Answer {
    let previews = wants_previews(query)?;
    let fanout = plane.engine.fanout();
    // Subscribed before the log is looked at, so that nothing falls between.
    let head = fanout.watch(session.id);
    let receiver = previews.then(|| fanout.previews(session.id));
    let place = place(query, headers, session.last_seq)?;
    let keep_alive = plane.config.keep_alive;
    let reader = Reader {
        plane,
        caller,
        session: session.id,
        place,
        head,
        receiver,
        previews: Previews::default(),
        keep_alive,
        due: Instant::now() + keep_alive,
        state: State::Opening,
    };
    let body = stream::unfold(reader, |mut reader| async {
        let bytes = reader.next().await?;
        Some((Ok::<Bytes, Infallible>(bytes), reader))
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    Ok((headers, Body::from_stream(body)).into_response())
}

fn wants_previews(query: &Query) -> Result<bool, Problem> {
    let kinds: Vec<&str> = query.all("event_deltas").collect();
    if kinds.len() > PREVIEW_TYPES_MAX {
        return Err(wrong("event_deltas[]", &format!("may have at most {PREVIEW_TYPES_MAX} values")));
    }
    if kinds.iter().any(|kind| !["agent.message", "agent.thinking"].contains(kind)) {
        return Err(wrong("event_deltas[]", "may name agent.message and agent.thinking only"));
    }
    Ok(kinds.contains(&"agent.message") || query.flag("deltas")?)
}

/// After which `seq` the stream starts: where the caller left off, or now.
fn place(query: &Query, headers: &HeaderMap, head: u64) -> Result<u64, Problem> {
    let asked = match headers.get("last-event-id") {
        Some(value) => {
            let number = value.to_str().ok().and_then(|text| text.trim().parse().ok());
            Some(number.ok_or_else(|| wrong("Last-Event-ID", "must be the `seq` of an event"))?)
        }
        None => query.whole("after_seq", 0, u64::MAX)?,
    };
    match asked {
        None => Ok(head),
        Some(seq) if seq <= head => Ok(seq),
        Some(_) => {
            let rule = format!("lies beyond the log's last `seq`, which is {head}");
            Err(wrong("after_seq", &rule).with("last_seq", head))
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Opening,
    Reading,
    Waiting,
    Over,
}

/// One reader of one session's log.
struct Reader {
    plane: Plane,
    caller: Caller,
    session: SessionId,
    /// The `seq` of the last event that was sent.
    place: u64,
    head: watch::Receiver<u64>,
    receiver: Option<broadcast::Receiver<Preview>>,
    previews: Previews,
    keep_alive: Duration,
    due: Instant,
    state: State,
}

enum Woken {
    Head,
    Preview(Preview),
    Missed,
    Due,
    Stop,
}

impl Reader {
    /// The next bytes; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        let bytes = loop {
            match self.state {
                State::Opening => {
                    self.state = State::Reading;
                    break frame::comment("open");
                }
                State::Reading => {
                    if let Some(bytes) = self.read().await? {
                        break bytes;
                    }
                    self.state = State::Waiting;
                }
                State::Waiting => {
                    if let Some(bytes) = self.wait().await? {
                        break bytes;
                    }
                }
                State::Over => return None,
            }
        };
        self.due = Instant::now() + self.keep_alive;
        Some(bytes)
    }

    /// The next page of the log as frames, or nothing when there is no more.
    async fn read(&mut self) -> Option<Option<Bytes>> {
        // Marked before the look, so that what comes after the look wakes again.
        self.head.mark_unchanged();
        let query = EventQuery { after_seq: Some(self.place), limit: PAGE, ..EventQuery::default() };
        let rows = match self.plane.engine.events(self.session, query).await {
            Ok(rows) => rows,
            Err(problem) => return self.fail(&problem),
        };
        let Some(last) = rows.last().map(|row| row.seq) else { return self.look_for_deletion().await };
        let mut bytes = Vec::with_capacity(rows.iter().map(|row| row.json.len() + 64).sum());
        for row in &rows {
            if row.kind == "agent.message" {
                self.previews.close(&row.json);
            }
            frame::event(&mut bytes, row);
        }
        self.place = last;
        Some(Some(bytes.into()))
    }

    /// An empty page may mean that the session is gone: then one last frame says so.
    async fn look_for_deletion(&mut self) -> Option<Option<Bytes>> {
        match self.plane.engine.session(self.caller.workspace_id, self.session).await {
            Ok(Some(_)) => Some(None),
            Ok(None) => {
                self.state = State::Over;
                Some(Some(frame::deleted(self.session, self.place, self.plane.clock.now())))
            }
            Err(problem) => self.fail(&problem),
        }
    }

    fn fail(&mut self, problem: &Problem) -> Option<Option<Bytes>> {
        self.state = State::Over;
        Some(Some(frame::error(problem, &self.caller.request_id.to_string())))
    }

    async fn wait(&mut self) -> Option<Option<Bytes>> {
        match self.woken().await {
            Woken::Stop => None,
            Woken::Head => {
                self.state = State::Reading;
                Some(None)
            }
            Woken::Missed => {
                self.previews.forget();
                Some(None)
            }
            Woken::Due => self.keep_alive().await,
            Woken::Preview(preview) => self.preview(&preview).await,
        }
    }

    async fn woken(&mut self) -> Woken {
        let preview = async {
            match &mut self.receiver {
                Some(receiver) => receiver.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.plane.stop.cancelled() => Woken::Stop,
            changed = self.head.changed() => if changed.is_ok() { Woken::Head } else { Woken::Stop },
            preview = preview => match preview {
                Ok(preview) => Woken::Preview(preview),
                Err(broadcast::error::RecvError::Lagged(_)) => Woken::Missed,
                Err(broadcast::error::RecvError::Closed) => Woken::Stop,
            },
            () = tokio::time::sleep_until(self.due) => Woken::Due,
        }
    }

    /// What the log has by now goes out before a preview that begins, so that the order is that of the turn.
    async fn preview(&mut self, preview: &Preview) -> Option<Option<Bytes>> {
        let mut bytes = Vec::new();
        if preview.offset == 0 {
            while let Some(page) = self.read().await? {
                bytes.extend_from_slice(&page);
                if self.state == State::Over {
                    return Some(Some(bytes.into()));
                }
            }
        }
        self.previews.frames(preview, &mut bytes);
        Some((!bytes.is_empty()).then(|| bytes.into()))
    }

    /// The key is looked up again, so that a revocation closes open streams.
    async fn keep_alive(&mut self) -> Option<Option<Bytes>> {
        match self.plane.registry.is_good(self.caller.key_id, self.plane.clock.now()).await {
            Ok(true) => Some(Some(frame::comment("keep-alive"))),
            Ok(false) => None,
            Err(problem) => self.fail(&problem),
        }
    }
}
