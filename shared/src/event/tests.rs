//! The catalogue on the wire: what is written is what is read back.

use super::*;
use serde_json::json;

fn envelope(body: Body) -> Event {
    Event {
        id: EventId::from_bytes([1; 16]),
        seq: 7,
        session_id: SessionId::from_bytes([2; 16]),
        session_thread_id: None,
        run_id: None,
        created_at: Timestamp::from_ms(0),
        processed_at: None,
        authored_by: None,
        caused_by: None,
        body,
    }
}

#[test]
fn the_type_and_its_fields_stand_at_the_top_level_of_the_envelope() {
    let event = envelope(Body::SessionStatusIdle { stop_reason: StopReason::EndTurn });
    assert_eq!(
        serde_json::to_value(&event).unwrap(),
        json!({"id": "sevt_01010101010101010101010101010101", "seq": 7,
               "session_id": "sess_02020202020202020202020202020202", "created_at": "1970-01-01T00:00:00.000Z",
               "processed_at": null, "type": "session.status_idle", "stop_reason": {"type": "end_turn"}})
    );
}

#[test]
fn every_kind_survives_the_wire_under_its_own_name() {
    let id = EventId::from_bytes([3; 16]);
    let bodies = [
        Body::UserMessage { content: vec![Block::text("hi")] },
        Body::UserInterrupt { session_thread_id: None },
        Body::AgentThinking {},
        Body::AgentToolUse(AppendedToolUse {
            name: "bash".into(),
            input: json!({"a": 1}),
            evaluated_permission: None,
        }),
        Body::AgentToolResult(ToolResult {
            tool_use_id: id,
            content: vec![Block::text("x")],
            is_error: true,
        }),
        Body::SessionUpdated { changed: json!({"title": "t"}).as_object().unwrap().clone() },
        Body::SessionUsage { usage: Usage::default(), budget: None },
        Body::SpanModelRequestEnd {
            model_request_start_id: id,
            model_usage: ModelUsage::default(),
            is_error: false,
            bill: None,
        },
        Body::RunSettled(RunSettled {
            epoch: 3,
            stop_reason: StopReason::RequiresAction { event_ids: vec![id] },
        }),
        Body::AgentThreadContextCompacted { summary: "s".into(), tokens_before: 9 },
        Body::SandboxRestarted {},
        Body::StreamGap { bytes: 5 },
    ];
    for body in bodies {
        let event = envelope(body);
        let wire = serde_json::to_value(&event).unwrap();
        assert_eq!(wire["type"], event.body.kind());
        assert_eq!(serde_json::from_value::<Event>(wire).unwrap(), event);
    }
}
