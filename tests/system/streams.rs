//! The live stream: resumed without gap or repeat, previews that are a prefix of what is logged.

use rig::{
    api::{content, script},
    world::World,
};
use serde_json::{Value, json};

#[tokio::test]
async fn a_stream_cut_anywhere_resumes_without_gap_or_repeat() {
    let world = World::start().await;
    let session = world
        .session(&script(&json!([
        {"tool": "bash", "input": {"command": "sleep 0.5; echo one"}},
        {"tool": "bash", "input": {"command": "sleep 0.5; echo two"}},
        {"say": "done"}])))
        .await;
    let mut seen: Vec<(u64, String)> = Vec::new();
    'reconnect: loop {
        let mut stream = world.api.stream(&session, seen.last().map_or(0, |(seq, _)| *seq)).await;
        for _ in 0..3 {
            let frame = stream.next().await.expect("the stream goes on");
            let Some(seq) = frame.id else { continue };
            assert_eq!(frame.event, frame.data["type"]);
            let last = seen.last().map_or(0, |(seq, _)| *seq);
            // An input is shown once more when it is processed; that frame carries no position.
            assert_eq!(seq, last + 1);
            seen.push((seq, frame.event.clone()));
            if frame.event == "session.status_idle" {
                break 'reconnect;
            }
        }
    }
    let log: Vec<_> = world
        .api
        .events(&session)
        .await
        .iter()
        .map(|event| event["type"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(seen.into_iter().map(|(_, kind)| kind).collect::<Vec<_>>(), log);
}

#[tokio::test]
async fn previews_of_a_message_join_to_a_prefix_of_what_is_logged() {
    let world = World::start().await;
    let said = "A sentence that is long enough to come in several pieces, one after the other.";
    let session = world.session(&script(&json!([{"tool": "bash", "input": {"command": "sleep 1"}}, {"say": said, "delay_ms_per_delta": 50}]))).await;
    let path = format!("/v1/sessions/{session}/events/stream?event_deltas[]=agent.message");
    let mut stream = world.api.stream_at(&path, 0).await;
    let (mut preview, mut started): (String, Option<Value>) = (String::new(), None);
    loop {
        let frame = stream.next().await.expect("the stream goes on");
        match frame.event.as_str() {
            "event_start" => started = Some(frame.data["event"]["id"].clone()),
            "event_delta" => {
                assert_eq!(Some(&frame.data["event_id"]), started.as_ref());
                preview.push_str(frame.data["delta"]["content"]["text"].as_str().unwrap());
            }
            "agent.message" => {
                assert_eq!(content(&frame.data), said);
                assert_eq!(Some(&frame.data["id"]), started.as_ref());
                break;
            }
            _ => {}
        }
    }
    assert!(!preview.is_empty() && said.starts_with(&preview), "{preview}");
}
