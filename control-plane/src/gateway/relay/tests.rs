//! The relay against a real HTTP provider: streams, cuts and refusals.

use super::{
    super::{
        provider,
        wire::{Wire, reply::Label},
    },
    *,
};
use axum::{Router, body::Body, routing::post};
use checkfu_shared::event::ModelUsage;
use futures_util::StreamExt;
use std::{
    future::pending,
    io,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    net::TcpListener,
    sync::{Notify, oneshot},
};

const START: &str = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":5,\"output_tokens\":1}}}\n\n";
const STOP: &str = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";

/// What the scripted provider does after the first frame.
#[derive(Debug, Clone)]
enum Then {
    Stop,
    /// Once the first frame was read.
    Break(Arc<Notify>),
    Hang,
}

async fn reply(then: Then) -> reqwest::Response {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answer = move || async move {
        let first = stream::iter([Ok(Bytes::from(START))]);
        let rest = match then {
            Then::Stop => stream::iter([Ok(Bytes::from(STOP))]).boxed(),
            Then::Break(read) => stream::once(async move {
                read.notified().await;
                Err(io::Error::other("broken"))
            })
            .boxed(),
            Then::Hang => stream::pending().boxed(),
        };
        Body::from_stream(first.chain(rest))
    };
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/", post(answer))).await });
    let client = crate::dial::client(&crate::dial::base(&url).unwrap()).unwrap();
    client.post(url).send().await.unwrap()
}

fn source(rest: reqwest::Response, waits: Waits) -> Source {
    Source { first: None, rest, waits }
}

fn waits() -> Waits {
    Waits { head: Duration::from_secs(60), piece: Duration::from_secs(60) }
}

fn way() -> Way {
    Way::new(provider::Kind::Anthropic, Wire::Messages, true, Label::default())
}

type Records = Arc<Mutex<Vec<ModelUsage>>>;

fn recorder(answer: bool) -> (Records, impl FnOnce(Reading) -> std::future::Ready<bool>) {
    let records = Records::default();
    let held = Arc::clone(&records);
    (records, move |reading: Reading| {
        held.lock().unwrap().push(reading.usage);
        std::future::ready(answer)
    })
}

async fn read(pieces: Receiver<Piece>) -> (String, Result<(), Cut>) {
    let mut body = std::pin::pin!(body(pieces));
    let mut text = String::new();
    while let Some(piece) = body.next().await {
        match piece {
            Ok(bytes) => text.push_str(std::str::from_utf8(&bytes).unwrap()),
            Err(cut) => return (text, Err(cut)),
        }
    }
    (text, Ok(()))
}

const COUNTED: ModelUsage = ModelUsage {
    input_tokens: 5,
    output_tokens: 1,
    cache_creation_input_tokens: 0,
    cache_read_input_tokens: 0,
};

#[tokio::test]
async fn a_whole_reply_arrives_unchanged_and_is_counted_once() {
    let (sender, pieces) = channel();
    let (records, record) = recorder(true);
    let relayed = relay(source(reply(Then::Stop).await, waits()), way(), sender, pending(), record);
    let (ended, got) = tokio::join!(relayed, read(pieces));
    assert_eq!((ended, got), (Ended::Whole, (format!("{START}{STOP}"), Ok(()))));
    assert_eq!(*records.lock().unwrap(), [COUNTED]);
}

#[tokio::test]
async fn the_count_is_on_record_before_the_reader_sees_the_end() {
    let (sender, pieces) = channel();
    let relayed = relay(source(reply(Then::Stop).await, waits()), way(), sender, pending(), |_| {
        std::future::ready(false)
    });
    let (ended, (text, end)) = tokio::join!(relayed, read(pieces));
    assert_eq!((ended, end), (Ended::Unrecorded, Err(Cut)));
    assert!(!text.contains("message_stop"), "{text}");
}

#[tokio::test]
async fn a_fenced_claim_cuts_the_reply_and_what_was_used_is_counted() {
    let (sender, pieces) = channel();
    let (records, record) = recorder(true);
    let (fence, fenced) = oneshot::channel::<()>();
    let (seen_sender, mut seen) = mpsc::channel(1);
    let reader = async {
        let mut body = std::pin::pin!(body(pieces));
        assert!(body.next().await.unwrap().is_ok());
        seen_sender.send(()).await.unwrap();
        body.next().await
    };
    let fencing = async {
        seen.recv().await.unwrap();
        fence.send(()).unwrap();
    };
    let fenced = async { drop(fenced.await) };
    let relayed = relay(source(reply(Then::Hang).await, waits()), way(), sender, fenced, record);
    let (ended, last, ()) = tokio::join!(relayed, reader, fencing);
    assert_eq!((ended, last), (Ended::Fenced, Some(Err(Cut))));
    assert_eq!(*records.lock().unwrap(), [COUNTED]);
}

#[tokio::test]
async fn a_provider_that_breaks_off_never_looks_like_an_end() {
    let (sender, pieces) = channel();
    let (records, record) = recorder(true);
    let seen = Arc::new(Notify::new());
    let reply = reply(Then::Break(Arc::clone(&seen))).await;
    let reader = async {
        let mut body = std::pin::pin!(body(pieces));
        assert_eq!(body.next().await, Some(Ok(Bytes::from(START))));
        seen.notify_one();
        let last = body.next().await.unwrap().unwrap();
        assert!(last.starts_with(b"event: error\n"), "{last:?}");
        body.next().await
    };
    let (ended, last) = tokio::join!(relay(source(reply, waits()), way(), sender, pending(), record), reader);
    assert_eq!((ended, last), (Ended::Broken, Some(Err(Cut))));
    assert_eq!(*records.lock().unwrap(), [COUNTED]);
}

#[tokio::test]
async fn a_silent_provider_is_given_up() {
    let (sender, pieces) = channel();
    let (_, record) = recorder(true);
    let waits = Waits { piece: Duration::from_millis(50), ..waits() };
    let relayed = relay(source(reply(Then::Hang).await, waits), way(), sender, pending(), record);
    let (ended, (_, end)) = tokio::join!(relayed, read(pieces));
    assert_eq!((ended, end), (Ended::Stalled, Err(Cut)));
}

#[tokio::test]
async fn a_reader_that_goes_away_ends_the_relay_and_is_billed() {
    let (sender, pieces) = channel();
    let (records, record) = recorder(true);
    let reader = async {
        let mut body = Box::pin(body(pieces));
        assert!(body.next().await.unwrap().is_ok());
    };
    let relayed = relay(source(reply(Then::Hang).await, waits()), way(), sender, pending(), record);
    let (ended, ()) = tokio::join!(relayed, reader);
    assert_eq!(ended, Ended::ReaderGone);
    assert_eq!(*records.lock().unwrap(), [COUNTED]);
}
