//! The conversation by examples, and for any log that may be: always valid, always the same.

use super::*;
use crate::model::{Content, Message, Role};
use checkfu_shared::{
    event::{
        AppendedToolUse, Confirmation, EvaluatedPermission, ModelUsage, RetryStatus, ToolConfirmation,
        ToolResult,
    },
    id::SessionId,
    time::Timestamp,
};
use proptest::prelude::*;
use serde_json::json;
use std::collections::HashSet;

fn id(n: u8) -> EventId {
    EventId::from_bytes([n; 16])
}

fn event(n: u8, body: Body) -> Event {
    Event {
        id: id(n),
        seq: u64::from(n),
        session_id: SessionId::from_bytes([0; 16]),
        session_thread_id: None,
        run_id: None,
        created_at: Timestamp::from_ms(0),
        processed_at: (!body.is_input()).then_some(Timestamp::from_ms(0)),
        authored_by: None,
        caused_by: None,
        body,
    }
}

fn says(text: &str) -> Body {
    Body::UserMessage { content: vec![Block::text(text)] }
}

fn replies(text: &str) -> Body {
    Body::AgentMessage { content: vec![Block::text(text)] }
}

fn calls(name: &str) -> Body {
    Body::AgentToolUse(AppendedToolUse {
        name: name.into(),
        input: json!({"n": name}),
        evaluated_permission: Some(EvaluatedPermission::Allow),
    })
}

fn result(call: u8, text: &str) -> Body {
    Body::AgentToolResult(ToolResult {
        tool_use_id: id(call),
        content: vec![Block::text(text)],
        is_error: false,
    })
}

fn processed(ids: &[u8]) -> Body {
    Body::SessionInputProcessed { event_ids: ids.iter().map(|n| id(*n)).collect() }
}

fn ends(start: u8) -> Body {
    Body::SpanModelRequestEnd {
        model_request_start_id: id(start),
        model_usage: ModelUsage::default(),
        is_error: false,
        bill: None,
    }
}

fn rebuilt(bodies: Vec<Body>) -> Transcript {
    let events: Vec<Event> = (1..).zip(bodies).map(|(n, body)| event(n, body)).collect();
    Transcript::rebuild(&events)
}

fn offered() -> HashSet<&'static str> {
    ["bash", "read", "look_up"].into()
}

/// The conversation in short: one line a message.
fn told(transcript: &Transcript) -> Vec<String> {
    let content = |content: &Content| match content {
        Content::Block(Block::Text { text }) => text.clone(),
        Content::Block(_) => "attachment".to_owned(),
        Content::Call { name, .. } => format!("call {name}"),
        Content::Result { content, is_error, .. } => format!("result {content:?} {is_error}"),
    };
    let line = |message: &Message| {
        let who = if message.role == Role::User { "user" } else { "model" };
        format!("{who}: {}", message.content.iter().map(content).collect::<Vec<_>>().join(" | "))
    };
    transcript.messages(&offered()).iter().map(line).collect()
}

/// Says what is wrong with a conversation, by the provider's rules.
fn check(messages: &[Message]) -> Result<(), String> {
    let mut wanted: Vec<&str> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let role = if at % 2 == 0 { Role::User } else { Role::Assistant };
        if message.role != role || message.content.is_empty() {
            return Err(format!("message {at} has the wrong role or is empty"));
        }
        let mut given = Vec::new();
        let mut asked = Vec::new();
        let mut texts = Vec::new();
        for (part, content) in message.content.iter().enumerate() {
            match content {
                Content::Result { id, content, .. } => {
                    if given.len() != part || content.is_empty() {
                        return Err(format!(
                            "message {at} has a result after something else, or an empty one"
                        ));
                    }
                    given.push(id.as_str());
                    texts.extend(content);
                }
                Content::Call { id, input, .. } if role == Role::Assistant && input.is_object() => {
                    asked.push(id.as_str());
                }
                Content::Call { .. } => return Err(format!("message {at} has a misplaced call")),
                Content::Block(block) => texts.push(block),
            }
        }
        if given != wanted {
            return Err(format!("message {at} answers {given:?} instead of {wanted:?}"));
        }
        if texts.iter().any(|block| matches!(block, Block::Text { text } if text.trim().is_empty())) {
            return Err(format!("message {at} has a blank text"));
        }
        wanted = asked;
    }
    let ends_with_user = messages.last().is_some_and(|last| last.role == Role::User);
    if ends_with_user { Ok(()) } else { Err("it does not end with the user".to_owned()) }
}

#[test]
fn a_turn_with_calls_reads_as_it_happened() {
    let transcript = rebuilt(vec![
        says("do it"),
        says("and hurry"),
        processed(&[1]),
        Body::SpanModelRequestStart {},
        replies("first"),
        calls("bash"),
        replies("then"),
        calls("read"),
        ends(4),
        result(8, "r8"),
        result(6, "r6"),
        processed(&[2]),
        Body::SpanModelRequestStart {},
        replies("done"),
        ends(13),
    ]);
    assert_eq!(
        told(&transcript)[..3],
        [
            "user: do it",
            "model: first | call bash | then | call read",
            "user: result [Text { text: \"r6\" }] false | result [Text { text: \"r8\" }] false | and hurry",
        ]
    );
    assert!(!transcript.owes_reply() && transcript.waiting().next().is_none());
}

#[test]
fn an_input_that_is_not_processed_waits_and_is_not_in_the_conversation() {
    let transcript = rebuilt(vec![says("one"), says("two"), processed(&[1])]);
    assert_eq!(told(&transcript), ["user: one"]);
    assert_eq!(transcript.waiting().map(|input| input.id).collect::<Vec<_>>(), [id(2)]);
    assert!(transcript.owes_reply());
}

#[test]
fn a_request_that_never_ended_leaves_no_words_but_keeps_its_calls() {
    let cut = |part| {
        rebuilt(vec![
            says("go"),
            processed(&[1]),
            Body::SpanModelRequestStart {},
            part,
            Body::SpanModelRequestStart {},
            replies("again"),
            ends(5),
        ])
    };
    assert_eq!(told(&cut(replies("half")))[..2], ["user: go", "model: again"]);
    let with_call = cut(calls("bash"));
    assert_eq!(with_call.open_calls().count(), 1);
    assert_eq!(told(&with_call)[1], "model: call bash");
    assert_eq!(check(&with_call.messages(&offered())), Ok(()));
}

#[test]
fn a_failed_request_leaves_nothing() {
    let failed = Body::SpanModelRequestEnd {
        model_request_start_id: id(3),
        model_usage: ModelUsage::default(),
        is_error: true,
        bill: None,
    };
    let transcript = rebuilt(vec![says("go"), processed(&[1]), Body::SpanModelRequestStart {}, failed]);
    assert_eq!(told(&transcript), ["user: go"]);
    assert!(transcript.owes_reply());
}

#[test]
fn a_custom_tool_is_answered_by_the_host_application() {
    let proposed = Body::AgentToolProposed { name: "look_up".into(), input: json!({}) };
    let mut bodies = vec![
        says("go"),
        processed(&[1]),
        Body::SpanModelRequestStart {},
        proposed,
        ends(3),
        Body::AgentCustomToolUse { name: "look_up".into(), input: json!({}), proposed_id: Some(id(4)) },
    ];
    let open = rebuilt(bodies.clone());
    assert_eq!(
        open.open_calls().map(|call| (call.id, call.taken_up)).collect::<Vec<_>>(),
        [(id(4), Some(id(6)))]
    );
    bodies.push(Body::UserCustomToolResult {
        custom_tool_use_id: id(6),
        content: vec![Block::text("found")],
        is_error: false,
    });
    bodies.push(processed(&[7]));
    let answered = rebuilt(bodies);
    assert_eq!(answered.open_calls().count(), 0);
    assert!(answered.owes_reply() && answered.waiting().next().is_none());
    assert_eq!(told(&answered)[2], "user: result [Text { text: \"found\" }] false");
}

#[test]
fn a_confirmation_is_noted_on_its_call_and_the_first_one_counts() {
    let confirm = |result, deny_message: Option<&str>| {
        Body::UserToolConfirmation(ToolConfirmation {
            tool_use_id: id(2),
            result,
            deny_message: deny_message.map(str::to_owned),
        })
    };
    let transcript = rebuilt(vec![
        Body::SpanModelRequestStart {},
        calls("bash"),
        ends(1),
        confirm(Confirmation::Deny, Some("no")),
        confirm(Confirmation::Allow, None),
    ]);
    assert_eq!(transcript.call(id(2)).unwrap().confirmed, Some(Err(Some("no".into()))));
}

#[test]
fn an_interrupt_ends_what_is_owed_and_the_model_learns_of_it() {
    let mut transcript =
        rebuilt(vec![says("go"), processed(&[1]), Body::UserInterrupt { session_thread_id: None }]);
    assert!(transcript.owes_reply());
    transcript.read(&event(4, processed(&[3])));
    assert!(!transcript.owes_reply());
    assert_eq!(told(&transcript), ["user: go | [The user interrupted the work here.]"]);
}

#[test]
fn an_interrupt_that_the_control_plane_applied_marks_the_open_calls() {
    let mut interrupt = event(3, Body::UserInterrupt { session_thread_id: None });
    interrupt.processed_at = Some(Timestamp::from_ms(1));
    let mut transcript = rebuilt(vec![Body::SpanModelRequestStart {}, calls("bash")]);
    transcript.read(&interrupt);
    assert!(transcript.call(id(2)).unwrap().is_interrupted);
    assert_eq!(transcript.waiting().count(), 0);
}

#[test]
fn the_note_on_a_cut_reply_is_read_by_the_model() {
    let error = |kind: &str| Body::SessionError {
        error: SessionError { kind: kind.into(), message: "cut".into(), retry_status: RetryStatus::Retrying },
    };
    let transcript = rebuilt(vec![
        says("go"),
        processed(&[1]),
        Body::SpanModelRequestStart {},
        replies("long"),
        ends(3),
        error("model_overloaded_error"),
        error(OUTPUT_TRUNCATED),
    ]);
    assert!(transcript.owes_reply());
    assert_eq!(told(&transcript), ["user: go", "model: long", "user: [cut]"]);
}

#[test]
fn a_tool_that_is_not_offered_any_more_is_told_in_words() {
    let transcript = rebuilt(vec![
        says("go"),
        processed(&[1]),
        Body::SpanModelRequestStart {},
        calls("gone"),
        ends(3),
        result(4, "r"),
    ]);
    assert_eq!(
        told(&transcript),
        ["user: go", "model: [call of gone] {\"n\":\"gone\"}", "user: [result of gone] | r"]
    );
}

#[test]
fn long_answers_of_applications_are_bounded_for_the_model() {
    let mut transcript = rebuilt(vec![
        Body::SpanModelRequestStart {},
        Body::AgentToolProposed { name: "look_up".into(), input: json!({}) },
        ends(1),
    ]);
    transcript.read(&event(4, result(2, &"x".repeat(200_000))));
    assert!(told(&transcript)[2].len() < 60_000);
}

/// Any event that a log may hold, with references that may or may not fit.
fn any_body() -> impl Strategy<Value = Body> {
    let some = 0u8..40;
    prop_oneof![
        "[ a]{0,3}".prop_map(|text| says(&text)),
        "[ a]{0,3}".prop_map(|text| replies(&text)),
        prop_oneof![Just("bash"), Just("read"), Just("gone")].prop_map(calls),
        Just(Body::AgentToolUse(AppendedToolUse {
            name: "bash".into(),
            input: json!([1]),
            evaluated_permission: None
        })),
        Just(Body::AgentToolProposed { name: "look_up".into(), input: json!({}) }),
        (some.clone(), "[ a]{0,3}").prop_map(|(call, text)| result(call, &text)),
        some.clone().prop_map(|of| Body::AgentCustomToolUse {
            name: "look_up".into(),
            input: json!({}),
            proposed_id: Some(id(of))
        }),
        some.clone().prop_map(|of| Body::UserCustomToolResult {
            custom_tool_use_id: id(of),
            content: vec![],
            is_error: true
        }),
        proptest::collection::vec(some.clone(), 0..4).prop_map(|ids| processed(&ids)),
        Just(Body::UserInterrupt { session_thread_id: None }),
        Just(Body::SpanModelRequestStart {}),
        (some, any::<bool>()).prop_map(|(start, is_error)| Body::SpanModelRequestEnd {
            model_request_start_id: id(start),
            model_usage: ModelUsage::default(),
            is_error,
            bill: None
        }),
        Just(Body::SessionError {
            error: SessionError {
                kind: OUTPUT_TRUNCATED.into(),
                message: "cut".into(),
                retry_status: RetryStatus::Retrying
            }
        }),
        Just(Body::SandboxRestarted {}),
    ]
}

proptest! {
    #[test]
    fn any_log_rebuilds_to_a_valid_conversation_and_twice_to_the_same(
        bodies in proptest::collection::vec(any_body(), 0..40)
    ) {
        let transcript = rebuilt(bodies.clone());
        let messages = transcript.messages(&offered());
        prop_assert_eq!(check(&messages), Ok(()), "{:#?}", messages);
        prop_assert_eq!(rebuilt(bodies), transcript);
    }

    #[test]
    fn reading_on_event_by_event_is_the_same_as_rebuilding_at_once(
        bodies in proptest::collection::vec(any_body(), 0..40), cut in any::<prop::sample::Index>()
    ) {
        let cut = cut.index(bodies.len() + 1);
        let mut live = rebuilt(bodies[..cut].to_vec());
        for (n, body) in (1..).zip(&bodies).skip(cut) {
            if body.is_input() {
                live.read(&event(n, body.clone()));
            } else {
                live.wrote(&Appended { id: id(n), thread_id: None, model_request_id: None, body: body.clone() });
            }
            prop_assert_eq!(check(&live.messages(&offered())), Ok(()));
        }
        prop_assert_eq!(live, rebuilt(bodies));
    }
}
