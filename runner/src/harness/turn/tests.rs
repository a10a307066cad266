//! What a reply is logged as, and how each open call is closed.

use super::*;
use checkfu_shared::{
    event::{Confirmation, Event, ToolConfirmation},
    id::SessionId,
    time::Timestamp,
};
use serde_json::json;

fn reply(parts: Vec<Part>, stop: Stop) -> Logged {
    let reply = Reply {
        parts,
        stop,
        request_id: Some("mreq_1".into()),
        usage: checkfu_shared::event::ModelUsage::default(),
    };
    log_reply(
        reply,
        EventId::from_bytes([9; 16]),
        &HashMap::from([(1, EventId::from_bytes([1; 16]))]),
        |name| name == "look_up",
    )
}

fn call(name: &str) -> Part {
    Part::Call { name: name.into(), input: json!({}) }
}

fn kinds(logged: &Logged) -> Vec<&'static str> {
    logged.events.iter().map(|event| event.body.kind()).collect()
}

#[test]
fn a_reply_is_logged_in_its_own_order_and_ends_with_its_request() {
    let text = Part::Text { block: 1, text: "hi".into() };
    let logged = reply(vec![Part::Thinking, text, call("bash"), call("look_up")], Stop::Done);
    assert_eq!(
        kinds(&logged),
        [
            "agent.thinking",
            "agent.message",
            "agent.tool_use",
            "agent.tool_proposed",
            "span.model_request_end"
        ]
    );
    assert_eq!(logged.events[1].id, EventId::from_bytes([1; 16]));
    assert_eq!(logged.events[4].model_request_id.as_deref(), Some("mreq_1"));
    assert_eq!((logged.calls.len(), logged.next), (2, After::Go));
}

#[test]
fn an_incomplete_call_is_dropped_and_the_model_is_told() {
    let alone = reply(vec![Part::Broken { name: "write".into() }], Stop::OutputLimit);
    assert_eq!((kinds(&alone), alone.next), (vec!["span.model_request_end", "session.error"], After::Cut));
    let beside = reply(vec![call("bash"), Part::Broken { name: "write".into() }], Stop::OutputLimit);
    assert_eq!(
        (kinds(&beside), beside.next),
        (vec!["agent.tool_use", "span.model_request_end", "session.error"], After::Go)
    );
    let large = Part::Call { name: "write".into(), input: json!({"content": "x".repeat(EVENT_BYTES_MAX)}) };
    assert_eq!(reply(vec![large], Stop::Done).next, After::Cut);
}

#[test]
fn a_refusal_leaves_no_call_behind() {
    for (stop, next) in [(Stop::Refusal, After::Refusal), (Stop::ContextLimit, After::Full)] {
        let logged = reply(vec![call("bash"), Part::Broken { name: "bash".into() }], stop);
        assert_eq!((kinds(&logged), logged.next), (vec!["span.model_request_end"], next));
    }
}

#[test]
fn a_long_text_is_split_between_characters_and_every_event_fits() {
    let text = "ä\u{1}".repeat(100_000);
    let logged = reply(vec![Part::Text { block: 1, text: text.clone() }], Stop::Done);
    let joined: String = logged
        .events
        .iter()
        .filter_map(|event| match &event.body {
            Body::AgentMessage { content } => match content.as_slice() {
                [Block::Text { text }] => Some(text.as_str()),
                _ => None,
            },
            _ => None,
        })
        .collect();
    assert_eq!(joined, text);
    assert!(logged.events.iter().all(|event| serde_json::to_vec(event).unwrap().len() <= EVENT_BYTES_MAX));
}

fn transcript(events: Vec<(u8, bool, Body)>) -> Transcript {
    let events: Vec<Event> = events
        .into_iter()
        .map(|(n, is_processed, body)| Event {
            id: EventId::from_bytes([n; 16]),
            seq: u64::from(n),
            session_id: SessionId::from_bytes([0; 16]),
            session_thread_id: None,
            run_id: None,
            created_at: Timestamp::from_ms(0),
            processed_at: is_processed.then_some(Timestamp::from_ms(0)),
            authored_by: None,
            caused_by: None,
            body,
        })
        .collect();
    Transcript::rebuild(&events)
}

fn id(n: u8) -> EventId {
    EventId::from_bytes([n; 16])
}

fn used(permission: EvaluatedPermission) -> (u8, bool, Body) {
    let body =
        AppendedToolUse { name: "bash".into(), input: json!({}), evaluated_permission: Some(permission) };
    (1, true, Body::AgentToolUse(body))
}

fn confirmed(result: Confirmation) -> (u8, bool, Body) {
    let body = ToolConfirmation { tool_use_id: id(1), result, deny_message: Some("not that".into()) };
    (2, false, Body::UserToolConfirmation(body))
}

fn resumed() -> (u8, bool, Body) {
    (3, true, Body::AgentToolResumed { tool_use_id: id(1), arguments_sha256: String::new() })
}

fn proposed() -> (u8, bool, Body) {
    (1, true, Body::AgentToolProposed { name: "look_up".into(), input: json!({}) })
}

fn taken_up() -> (u8, bool, Body) {
    (4, true, Body::AgentCustomToolUse { name: "look_up".into(), input: json!({}), proposed_id: Some(id(1)) })
}

fn interrupt(is_processed: bool) -> (u8, bool, Body) {
    (5, is_processed, Body::UserInterrupt { session_thread_id: None })
}

#[test]
fn each_open_call_is_closed_by_what_the_log_tells_of_it() {
    use EvaluatedPermission::{Allow, Ask, Deny};
    let table = [
        (vec![used(Allow)], "probe"),
        (vec![used(Deny)], "tell"),
        (vec![used(Ask)], "resume"),
        (vec![used(Ask), confirmed(Confirmation::Allow)], "resume"),
        (vec![used(Ask), confirmed(Confirmation::Allow), resumed()], "probe"),
        (vec![used(Ask), confirmed(Confirmation::Deny)], "tell"),
        (vec![used(Allow), interrupt(true)], "tell"),
        (vec![used(Allow), interrupt(false)], "probe"),
        (vec![proposed()], "resume"),
        (vec![proposed(), confirmed(Confirmation::Deny)], "tell"),
        (vec![proposed(), taken_up()], "await"),
        (vec![proposed(), taken_up(), interrupt(true)], "tell"),
    ];
    for (events, want) in table {
        let transcript = transcript(events.clone());
        let got = match closing(transcript.open_calls().next().unwrap()) {
            Closing::Await => "await",
            Closing::Resume => "resume",
            Closing::Probe => "probe",
            Closing::Tell(_) => "tell",
        };
        assert_eq!(got, want, "{events:?}");
    }
}

#[test]
fn the_words_of_a_denial_reach_the_model() {
    let transcript = transcript(vec![used(EvaluatedPermission::Ask), confirmed(Confirmation::Deny)]);
    let closing = closing(transcript.open_calls().next().unwrap());
    assert!(matches!(closing, Closing::Tell(text) if text.contains("not that")));
}

#[test]
fn an_interrupt_takes_along_what_was_said_before_it_and_leaves_what_came_after() {
    let said = |n| (n, false, Body::UserMessage { content: vec![Block::text("x")] });
    let interrupted = transcript(vec![said(1), interrupt(false), said(6)]);
    assert_eq!(until_interrupt(&interrupted), Some(vec![id(1), id(5)]));
    assert_eq!(until_interrupt(&transcript(vec![said(1)])), None);
}

#[test]
fn messages_wait_while_a_call_is_open_and_answers_do_not() {
    let said = (9, false, Body::UserMessage { content: vec![Block::text("x")] });
    let open = transcript(vec![used(EvaluatedPermission::Ask), confirmed(Confirmation::Allow), said.clone()]);
    assert_eq!(foldable(&open), [id(2)]);
    assert_eq!(foldable(&transcript(vec![said])), [id(9)]);
}
