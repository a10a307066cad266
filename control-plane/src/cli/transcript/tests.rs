//! How events look on a terminal; nothing of a session reaches it unescaped.

use super::*;
use serde_json::json;

fn id(n: u8) -> EventId {
    EventId::from_bytes([n; 16])
}

fn frame(data: &Value) -> Frame {
    Frame { id: None, event: None, data: data.to_string() }
}

fn event(n: u8, fields: Value) -> Frame {
    let mut event = json!({"id": id(n), "seq": n, "session_id": format!("sess_{}", "0".repeat(32)),
        "created_at": "2026-01-01T00:00:00.000Z", "processed_at": null});
    event.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    frame(&event)
}

fn text(text: &str) -> Value {
    json!([{"type": "text", "text": text}])
}

fn start(n: u8) -> Frame {
    frame(&json!({"type": "event_start", "event": {"type": "agent.message", "id": id(n)}}))
}

fn delta(n: u8, index: u64, text: &str) -> Frame {
    frame(&json!({"type": "event_delta", "event_id": id(n),
        "delta": {"type": "content_delta", "index": index, "content": {"type": "text", "text": text}}}))
}

fn shown(frames: &[Frame]) -> String {
    let mut transcript = Transcript::default();
    frames.iter().map(|frame| transcript.take(frame).0).collect()
}

#[test]
fn text_that_was_previewed_is_not_shown_twice() {
    let whole = event(1, json!({"type": "agent.message", "content": text("Hello world")}));
    for (frames, want) in [
        (vec![whole.clone()], "Hello world\n"),
        (vec![start(1), delta(1, 0, "Hello"), delta(1, 0, " world"), whole.clone()], "Hello world\n"),
        (vec![start(1), delta(1, 0, "Hel"), whole.clone()], "Hello world\n"),
        (vec![start(1), whole.clone()], "Hello world\n"),
        (vec![start(1), delta(1, 0, "Nope"), whole], "Nope\nHello world\n"),
    ] {
        assert_eq!(shown(&frames), want, "{frames:?}");
    }
}

#[test]
fn several_text_blocks_stand_on_lines_of_their_own() {
    let content = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
    let whole = event(1, json!({"type": "agent.message", "content": content}));
    assert_eq!(shown(&[start(1), delta(1, 0, "a"), delta(1, 1, "b"), whole]), "a\nb\n");
}

#[test]
fn a_preview_that_is_interrupted_ends_its_line() {
    let idle = event(2, json!({"type": "session.status_idle", "stop_reason": {"type": "end_turn"}}));
    assert_eq!(shown(&[start(1), delta(1, 0, "I was"), idle]), "I was\n[done: end_turn]\n");
}

#[test]
fn a_turn_reads_from_top_to_bottom() {
    let usage = json!({"active_seconds": 3, "cache_creation": {"ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": 2},
        "cache_read_input_tokens": 1, "input_tokens": 10, "list_cost": {"amount": "0", "currency": "USD"},
        "output_tokens": 5, "server_tool_use": {"web_fetch_requests": 0, "web_search_requests": 0}});
    let message = json!({"type": "user.message", "content": text("do\nthis")});
    let frames = [
        event(1, message.clone()),
        event(1, message),
        event(2, json!({"type": "session.status_running"})),
        event(3, json!({"type": "agent.tool_use", "name": "bash", "input": {"command": "ls -l\nrm x"}})),
        event(
            4,
            json!({"type": "agent.tool_result", "tool_use_id": id(3), "content": text("a\u{1b}[2J\nb")}),
        ),
        event(5, json!({"type": "agent.tool_use", "name": "read", "input": {"file_path": "/x"}})),
        event(
            6,
            json!({"type": "agent.tool_result", "tool_use_id": id(5), "content": text("no"), "is_error": true}),
        ),
        event(
            7,
            json!({"type": "session.output_captured", "path": "a.txt", "status": "captured", "size_bytes": 2048}),
        ),
        event(
            8,
            json!({"type": "session.output_captured", "path": "b", "status": "too_large", "size_bytes": 1}),
        ),
        event(9, json!({"type": "session.usage", "usage": usage, "budget": null})),
        event(10, json!({"type": "some.later_kind"})),
    ];
    assert_eq!(
        shown(&frames),
        "> do\n> this\n* bash ls -l\\nrm x\n  | a\\u{1b}[2J\n  | b\n* read {\"file_path\":\"/x\"}\n  ! no\n\
         + a.txt (2.0 KiB)\n- b was not kept: larger than 64 MiB\n\
         [usage: 10 tokens in, 5 out, 1 from the cache, 2 into it; 3 s active]\n"
    );
}

#[test]
fn long_results_and_calls_are_cut() {
    let lines = (0..20).map(|n| n.to_string()).collect::<Vec<_>>().join("\n");
    let out = shown(&[event(
        1,
        json!({"type": "agent.tool_result", "tool_use_id": id(2), "content": text(&lines)}),
    )]);
    assert_eq!(out.lines().count(), RESULT_LINES + 1);
    assert!(out.ends_with("  | ... 8 more line(s)\n"), "{out}");
    let call = json!({"type": "agent.tool_use", "name": "bash", "input": {"command": "x".repeat(5000)}});
    assert!(shown(&[event(1, call)]).len() < 300);
}

#[test]
fn the_session_rests_when_it_is_idle_or_over() {
    let rest = |fields: Value| Transcript::default().take(&event(1, fields)).1;
    let idle = json!({"type": "session.status_idle", "stop_reason": {"type": "refusal"}});
    assert_eq!(rest(idle), Some(Rest::Idle(StopReason::Refusal)));
    assert_eq!(rest(json!({"type": "session.status_terminated"})), Some(Rest::Over));
    assert_eq!(rest(json!({"type": "session.status_running"})), None);
}

#[test]
fn a_call_that_asks_is_known_until_it_has_its_result() {
    let mut transcript = Transcript::default();
    let call = json!({"type": "agent.tool_use", "name": "bash", "input": {"command": "ls"}, "evaluated_permission": "ask"});
    let (text, _) = transcript.take(&event(3, call));
    assert!(text.contains(&format!("(asks: {})", id(3))), "{text}");
    assert_eq!(transcript.asking(id(3)), Some("bash ls"));
    let result = json!({"type": "agent.tool_result", "tool_use_id": id(3), "content": [{"type": "text", "text": "ok"}]});
    transcript.take(&event(4, result));
    assert_eq!(transcript.asking(id(3)), None);
}

#[test]
fn a_run_that_changes_hands_says_whether_its_runner_was_lost() {
    let claimed = |attempt: u32| {
        event(
            1,
            json!({"type": "run.claimed", "runner_id": format!("rnr_{}", "0".repeat(32)),
            "claim_id": format!("clm_{}", "0".repeat(32)), "epoch": 1, "attempt": attempt}),
        )
    };
    let rescheduled =
        |attempt: u32| event(2, json!({"type": "session.status_rescheduled", "attempt": attempt}));
    let answered = event(3, json!({"type": "span.model_request_end", "model_request_start_id": id(4)}));
    for (frames, want) in [
        (vec![claimed(1), rescheduled(1)], "gave the run back"),
        (vec![claimed(1), rescheduled(2)], "was lost"),
        (vec![claimed(3), answered, rescheduled(2)], "was lost"),
        (vec![rescheduled(2)], "waits for the next free runner"),
    ] {
        let out = shown(&frames);
        assert!(out.contains(want), "{out}");
    }
}
