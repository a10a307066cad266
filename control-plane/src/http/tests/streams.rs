//! Streams: replay and live without gap or repetition, previews, deletion, revocation, stop.

use super::{
    sessions::{idle, text},
    *,
};
use axum::body::BodyDataStream;
use futures_util::StreamExt;
use std::time::Duration;

/// One frame: its `id`, `event` and `data`.
type Frame = (Option<u64>, String, Value);

/// A reader of frames.
struct Frames {
    body: BodyDataStream,
    buffer: String,
    comments: usize,
}

impl Frames {
    async fn open(bench: &Bench, path: &str, headers: &[(&str, &str)]) -> Self {
        let response =
            bench.raw(bench.request(Method::GET, path, headers).body(Body::empty()).unwrap()).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { body: response.into_body().into_data_stream(), buffer: String::new(), comments: 0 }
    }

    /// The next frame; `None` at the end of the stream.
    async fn next(&mut self) -> Option<Frame> {
        loop {
            while let Some((block, rest)) =
                self.buffer.split_once("\n\n").map(|(a, b)| (a.to_owned(), b.to_owned()))
            {
                self.buffer = rest;
                if block.starts_with(':') {
                    self.comments += 1;
                    continue;
                }
                let field =
                    |name: &str| block.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
                let data = serde_json::from_str(&field("data: ").expect("a frame without data")).unwrap();
                let id = field("id: ").map(|id| id.parse().unwrap());
                return Some((id, field("event: ").expect("a frame without event"), data));
            }
            let bytes = tokio::time::timeout(Duration::from_secs(60), self.body.next())
                .await
                .expect("no frame came")?;
            self.buffer.push_str(std::str::from_utf8(&bytes.unwrap()).unwrap());
        }
    }

    async fn take(&mut self, count: usize) -> Vec<Frame> {
        let mut frames = Vec::new();
        for _ in 0..count {
            frames.push(self.next().await.expect("the stream ended"));
        }
        frames
    }
}

async fn say(bench: &Bench, path: &str, words: &str) {
    bench.sdk(&format!("{path}/events"), json!({"events": [text(words)]})).await.ok();
}

fn seqs(frames: &[Frame]) -> Vec<u64> {
    frames.iter().map(|frame| frame.0.expect("a log frame without id")).collect()
}

#[tokio::test]
async fn a_stream_replays_from_a_place_and_goes_live_without_gap_or_repetition() {
    let bench = Bench::new().await;
    let (_, path) = idle(&bench).await;
    say(&bench, &path, "one").await;
    let stream = format!("{path}/events/stream");
    let mut from_start = Frames::open(&bench, &format!("{stream}?after_seq=0"), &SDK).await;
    let mut from_two = Frames::open(&bench, &stream, &[SDK[0], ("last-event-id", "2")]).await;
    let mut now = Frames::open(&bench, &stream, &SDK).await;
    for n in 0..300 {
        say(&bench, &path, &n.to_string()).await;
    }
    let all = from_start.take(303).await;
    assert_eq!(seqs(&all), (1..=303).collect::<Vec<_>>());
    assert_eq!(seqs(&from_two.take(301).await), (3..=303).collect::<Vec<_>>());
    assert_eq!(seqs(&now.take(300).await), (4..=303).collect::<Vec<_>>());
    for (seq, kind, data) in all {
        assert_eq!((data["seq"].as_u64(), data["type"].as_str()), (seq, Some(kind.as_str())));
    }
}

#[tokio::test]
async fn a_place_beyond_the_log_and_odd_previews_are_refused() {
    let bench = Bench::new().await;
    let (_, path) = idle(&bench).await;
    let stream = format!("{path}/events/stream");
    bench.get(&format!("{stream}?after_seq=1")).await.refused(400, "invalid_request");
    bench.get(&format!("{stream}?event_deltas[]=user.message")).await.refused(400, "invalid_request");
    let many = "event_deltas[]=agent.message&".repeat(101);
    bench.get(&format!("{stream}?{many}")).await.refused(400, "invalid_request");
    let odd = [SDK[0], ("last-event-id", "x")];
    bench.ask(Method::GET, &stream, &odd, None).await.refused(400, "invalid_request");
    bench
        .get("/v1/sessions/sess_00000000000000000000000000000000/events/stream")
        .await
        .refused(404, "not_found");
}

#[tokio::test]
async fn previews_come_without_a_place_and_only_to_those_who_asked() {
    let bench = Bench::new().await;
    let (session, path) = idle(&bench).await;
    let stream = format!("{path}/events/stream");
    let mut plain = Frames::open(&bench, &stream, &SDK).await;
    let mut asked = Frames::open(&bench, &format!("{stream}?event_deltas[]=agent.message"), &SDK).await;
    let id = session["id"].as_str().unwrap().parse().unwrap();
    let message = checkfu_shared::id::EventId::mint();
    for (offset, words) in [(0, "ab"), (2, "c")] {
        let preview =
            crate::fanout::Preview { event_id: message, thread_id: None, offset, text: words.to_owned() };
        bench.plane.engine.fanout().preview(id, preview);
    }
    let frames = asked.take(3).await;
    let kinds: Vec<_> = frames.iter().map(|frame| (frame.0, frame.1.as_str())).collect();
    assert_eq!(kinds, [(None, "event_start"), (None, "event_delta"), (None, "event_delta")]);
    assert_eq!(frames[0].2["event"], json!({"type": "agent.message", "id": message}));
    assert_eq!(frames[2].2["delta"]["content"]["text"], "c");
    say(&bench, &path, "x").await;
    assert_eq!(plain.next().await.unwrap().1, "user.message");
}

#[tokio::test]
async fn an_update_shows_only_what_changed_and_a_deletion_ends_the_stream() {
    let bench = Bench::new().await;
    let (_, path) = idle(&bench).await;
    let thread =
        bench.get(&format!("{path}/threads")).await.ok()["data"][0]["id"].as_str().unwrap().to_owned();
    let mut frames = Frames::open(&bench, &format!("{path}/events/stream"), &SDK).await;
    let mut threads = Frames::open(&bench, &format!("{path}/threads/{thread}/stream"), &SDK).await;
    bench.sdk(&path, json!({"title": "t"})).await.ok();
    let (_, kind, data) = frames.next().await.unwrap();
    assert_eq!((kind.as_str(), &data["title"], data.get("metadata")), ("session.updated", &json!("t"), None));
    bench.ask(Method::DELETE, &path, &SDK, None).await.ok();
    for frames in [&mut frames, &mut threads] {
        let mut last = None;
        while let Some(frame) = frames.next().await {
            last = Some(frame);
        }
        let (id, kind, _) = last.unwrap();
        assert_eq!((id, kind.as_str()), (None, "session.deleted"));
    }
}

#[tokio::test]
async fn an_idle_stream_is_kept_alive_until_its_key_is_revoked() {
    let bench = Bench::new().await;
    let (_, path) = idle(&bench).await;
    let made = bench.post("/v1/api-keys", json!({"name": "k"})).await.ok();
    let headers = [SDK[0], ("x-api-key", made["key"].as_str().unwrap())];
    let mut frames = Frames::open(&bench, &format!("{path}/events/stream"), &headers).await;
    say(&bench, &path, "x").await;
    frames.take(3).await;
    while frames.comments < 3 {
        let bytes = frames.body.next().await.unwrap().unwrap();
        assert!(bytes.starts_with(b":"));
        frames.comments += 1;
    }
    bench.post(&format!("/v1/api-keys/{}/revoke", made["id"].as_str().unwrap()), json!({})).await.ok();
    assert_eq!(frames.next().await, None);
}

#[tokio::test]
async fn streams_end_when_the_server_stops() {
    let bench = Bench::new().await;
    let (_, path) = idle(&bench).await;
    let mut frames = Frames::open(&bench, &format!("{path}/events/stream"), &SDK).await;
    bench.plane.stop.cancel();
    assert_eq!(frames.next().await, None);
    assert_eq!(bench.get("/readyz").await.status, 503);
}
