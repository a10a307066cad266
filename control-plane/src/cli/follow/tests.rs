//! Following a session: nothing shown twice, nothing lost when the connection is.

use super::*;
use axum::{
    Router,
    body::Body,
    http::HeaderMap,
    response::{IntoResponse, Response},
    routing::get,
};
use serde_json::json;
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};
use tokio::net::TcpListener;

const SESSION: &str = "sess_00000000000000000000000000000001";

fn frame(seq: u64, fields: &Value) -> String {
    let mut event = json!({"id": EventId::from_bytes([1; 16]), "seq": seq, "session_id": SESSION,
        "created_at": "2026-01-01T00:00:00.000Z", "processed_at": null});
    event.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    format!("id: {seq}\nevent: x\ndata: {event}\n\n")
}

/// A server whose connections each give one of `replies`, and the `Last-Event-ID` of each.
async fn server(replies: Vec<String>) -> (String, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (seen, count) = (Arc::clone(&asked), Arc::new(AtomicUsize::new(0)));
    let answer = move |headers: HeaderMap| async move {
        seen.lock().unwrap().push(headers["last-event-id"].to_str().unwrap().to_owned());
        match replies.get(count.fetch_add(1, Ordering::Relaxed)) {
            Some(reply) => Response::new(Body::from(reply.clone())),
            None => axum::http::StatusCode::NOT_FOUND.into_response(),
        }
    };
    let router = Router::new().route("/v1/sessions/{id}/events/stream", get(answer));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, asked)
}

#[tokio::test]
async fn a_stream_that_breaks_off_is_taken_up_after_the_last_event() {
    let running = json!({"type": "session.status_running"});
    let idle = json!({"type": "session.status_idle", "stop_reason": {"type": "end_turn"}});
    let replies =
        vec![frame(1, &running) + &frame(2, &running), String::new(), frame(2, &running) + &frame(3, &idle)];
    let (url, asked) = server(replies).await;
    let client = Client::new(&url, None).unwrap();
    let output = Output { is_json: false };
    let manner = Manner { after: 0, present: 0, until_idle: true, asks: false };
    let rest = Follower::new(&client, &output, SESSION, manner).follow().await.unwrap();
    assert_eq!(rest, Rest::Idle(StopReason::EndTurn));
    assert_eq!(*asked.lock().unwrap(), ["0", "2", "2"]);
}

#[tokio::test]
async fn an_idle_of_the_past_is_no_rest_and_the_present_one_is() {
    let running = json!({"type": "session.status_running"});
    let idle = json!({"type": "session.status_idle", "stop_reason": {"type": "end_turn"}});
    let refused = json!({"type": "session.status_idle", "stop_reason": {"type": "refusal"}});
    let updated = json!({"type": "session.updated", "title": "t"});
    let past = frame(1, &running) + &frame(2, &idle) + &frame(3, &running);
    for (present, more, want) in [
        (3, frame(4, &refused) + &frame(5, &idle), StopReason::Refusal),
        (4, frame(4, &refused) + &frame(5, &idle), StopReason::Refusal),
        // What comes after an idle and does not end it leaves the session idle.
        (5, frame(4, &refused) + &frame(5, &updated), StopReason::Refusal),
    ] {
        let (url, _) = server(vec![past.clone() + &more]).await;
        let client = Client::new(&url, None).unwrap();
        let output = Output { is_json: false };
        let manner = Manner { after: 0, present, until_idle: true, asks: false };
        let rest = Follower::new(&client, &output, SESSION, manner).follow().await.unwrap();
        assert_eq!(rest, Rest::Idle(want), "{present}");
    }
}

#[tokio::test]
async fn a_session_that_is_not_there_is_a_failure_at_once() {
    let (url, asked) = server(vec![]).await;
    let client = Client::new(&url, None).unwrap();
    let output = Output { is_json: false };
    let manner = Manner { after: 7, present: 7, until_idle: false, asks: false };
    assert!(Follower::new(&client, &output, SESSION, manner).follow().await.is_err());
    assert_eq!(*asked.lock().unwrap(), ["7"]);
}

#[test]
fn only_a_finished_turn_is_a_success() {
    let call = EventId::from_bytes([9; 16]);
    let waiting = Rest::Idle(StopReason::RequiresAction { event_ids: vec![call] });
    assert_eq!(verdict(SESSION, &Rest::Idle(StopReason::EndTurn)), Ok(()));
    let failure = verdict(SESSION, &waiting).unwrap_err();
    assert_eq!(failure.exit, Exit::Waiting);
    assert!(
        failure.message.contains(&format!("checkfu sessions confirm {SESSION} {call} --allow")),
        "{failure}"
    );
    for rest in [
        Rest::Idle(StopReason::Refusal),
        Rest::Idle(StopReason::BudgetReached),
        Rest::Idle(StopReason::RetriesExhausted),
        Rest::Over,
    ] {
        assert_eq!(verdict(SESSION, &rest).unwrap_err().exit, Exit::Unfinished);
    }
}
