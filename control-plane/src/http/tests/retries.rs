//! Requests that come twice: close behind each other, out of order, by key or by the SDK's own word.

use super::{
    sessions::{idle, text},
    *,
};

/// Sends the same batch with an SDK's headers; the answer's echoes.
async fn said(bench: &Bench, events: &str, retry: &str) -> Value {
    let headers = [SDK[0], ("x-stainless-retry-count", retry)];
    bench.ask(Method::POST, events, &headers, Some(json!({"events": [text("once")]}))).await.ok()
}

#[tokio::test]
async fn an_sdks_retry_close_behind_its_first_try_acts_once_for_both() {
    let bench = Bench::new().await;
    let (_, path) = idle(&bench).await;
    let events = format!("{path}/events");
    for round in 1..=20 {
        let (first, again) = tokio::join!(said(&bench, &events, "0"), said(&bench, &events, "1"));
        assert_eq!(first, again, "round {round}");
        let all = bench.get(&format!("{events}?types[]=user.message")).await.ok();
        assert_eq!(all["data"].as_array().unwrap().len(), round);
        // Later the same words are meant again.
        bench.clock.advance_ms(60_001);
    }
}

#[tokio::test]
async fn a_first_try_that_its_own_retry_overtook_acts_no_more_and_a_new_request_does() {
    let bench = Bench::new().await;
    let (_, path) = idle(&bench).await;
    let events = format!("{path}/events");
    let count = async || {
        let all = bench.get(&format!("{events}?types[]=user.message")).await.ok();
        all["data"].as_array().unwrap().len()
    };
    // The first try hangs in its body while the retry comes, is answered, and the client is content.
    let body = json!({"events": [text("once")]}).to_string();
    let (sender, frames) = tokio::sync::mpsc::channel::<Result<String, std::io::Error>>(1);
    let stream = futures_util::stream::unfold(frames, async |mut frames| {
        frames.recv().await.map(|frame| (frame, frames))
    });
    let request = bench.request(Method::POST, &events, &SDK).body(Body::from_stream(stream)).unwrap();
    let first = tokio::spawn(bench.router.clone().oneshot(request));
    sender.reserve().await.unwrap();
    let (half, rest) = body.split_at(10);
    sender.send(Ok(half.to_owned())).await.unwrap();
    sender.reserve().await.unwrap();
    let answer = said(&bench, &events, "1").await;
    sender.send(Ok(rest.to_owned())).await.unwrap();
    drop(sender);
    assert_eq!(read(first.await.unwrap().unwrap()).await.ok(), answer);
    assert_eq!(count().await, 1);
    said(&bench, &events, "0").await;
    assert_eq!(count().await, 2);
}

#[tokio::test]
async fn a_session_is_deleted_once_per_key_however_many_ask() {
    let bench = Bench::new().await;
    let (_, path) = idle(&bench).await;
    let keyed = [OURS[0], OURS[1], ("idempotency-key", "k")];
    let ask = || bench.ask(Method::DELETE, &path, &keyed, None);
    let all = futures_util::future::join_all((0..8).map(|_| ask())).await;
    for one in all {
        assert_eq!(one.ok()["type"], "session_deleted");
    }
}
