//! What may be said to a session, by whom and in which form.

use super::*;
use crate::domain::grant::{Grants, Role};
use checkfu_shared::{
    id::{EventId, KeyId, RequestId, WorkspaceId},
    problem::Code,
};
use serde_json::json;

fn caller(dialect: Dialect, role: Role) -> Caller {
    Caller {
        workspace_id: WorkspaceId::mint(),
        principal_id: PrincipalId::mint(),
        grants: Grants::of_role(role),
        key_id: KeyId::mint(),
        request_id: RequestId::mint(),
        dialect,
        idempotency_key: None,
        repeated: false,
    }
}

fn text(text: &str) -> Value {
    json!({"type": "user.message", "content": [{"type": "text", "text": text}]})
}

#[test]
fn a_batch_is_attributed_to_the_key_and_the_request() {
    let caller = caller(Dialect::Sdk, Role::Developer);
    let inputs = read(json!({"events": [text("a"), {"type": "user.interrupt"}]}), &caller).unwrap();
    assert_eq!(inputs.len(), 2);
    for input in inputs {
        assert_eq!(input.authored_by, caller.principal_id);
        assert_eq!(input.caused_by, Cause { kind: CauseKind::ApiRequest, id: caller.request_id.to_string() });
    }
}

#[test]
fn one_event_of_ours_says_who_and_why() {
    let caller = caller(Dialect::Checkfu, Role::Developer);
    let payload = json!({"content": [{"type": "text", "text": "a"}]});
    let whole = json!({
        "type": "user.message", "payload": payload, "authored_by": caller.principal_id,
        "caused_by": {"type": "webhook", "id": "wh_1"},
    });
    let input = &read(whole.clone(), &caller).unwrap()[0];
    assert_eq!(input.caused_by, Cause { kind: CauseKind::Webhook, id: "wh_1".to_owned() });
    for (missing, field) in
        [("authored_by", "authored_by"), ("caused_by", "caused_by"), ("payload", "content")]
    {
        let mut body = whole.clone();
        body.as_object_mut().unwrap().remove(missing);
        assert_eq!(read(body, &caller).unwrap_err().details["field"], field);
    }
    let mut other = whole;
    other["authored_by"] = json!(PrincipalId::mint());
    assert_eq!(read(other.clone(), &caller).unwrap_err().code, Code::PermissionDenied);
    let owner = Caller { grants: Grants::of_role(Role::Owner), ..caller };
    assert_eq!(json!(read(other.clone(), &owner).unwrap()[0].authored_by), other["authored_by"]);
}

#[test]
fn events_that_break_a_rule_are_refused() {
    let id = EventId::mint().to_string();
    let confirm = |members: Value| {
        let mut event = json!({"type": "user.tool_confirmation", "tool_use_id": id, "result": "allow"});
        event.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        event
    };
    let caller = caller(Dialect::Checkfu, Role::Developer);
    for (event, code) in [
        (text(""), Code::InvalidRequest),
        (json!({}), Code::InvalidRequest),
        (json!({"type": 1}), Code::InvalidRequest),
        (json!({"type": "user.nope"}), Code::InvalidRequest),
        (json!({"type": "agent.message", "content": []}), Code::InvalidRequest),
        (json!({"type": "session.deleted"}), Code::InvalidRequest),
        (json!({"type": "user.tool_result", "tool_use_id": id}), Code::Unsupported),
        (json!({"type": "user.define_outcome"}), Code::Unsupported),
        (json!({"type": "system.message"}), Code::Unsupported),
        (json!({"type": "user.message"}), Code::InvalidRequest),
        (json!({"type": "user.message", "content": [], "x": 1}), Code::InvalidRequest),
        (json!({"type": "user.interrupt", "x": 1}), Code::UnknownField),
        (json!({"type": "user.interrupt", "session_thread_id": "main"}), Code::InvalidRequest),
        (confirm(json!({"tool_use_id": "x"})), Code::InvalidRequest),
        (confirm(json!({"result": "maybe"})), Code::InvalidRequest),
        (confirm(json!({"deny_message": "no"})), Code::InvalidRequest),
        (confirm(json!({"result": "deny", "deny_message": "n".repeat(10_001)})), Code::InvalidRequest),
        (json!({"type": "user.custom_tool_result"}), Code::InvalidRequest),
        (
            json!({"type": "user.custom_tool_result", "custom_tool_use_id": id, "is_error": "no"}),
            Code::InvalidRequest,
        ),
        (text(&"t".repeat(EVENT_BYTES_MAX)), Code::InvalidRequest),
    ] {
        let problem = read(json!({"events": [event]}), &caller).unwrap_err();
        assert_eq!(problem.code, code, "{event:.100}");
    }
    for body in
        [json!({"events": []}), json!({"events": {}}), json!({"events": vec![text("a"); BATCH_MAX + 1]})]
    {
        assert_eq!(read(body, &caller).unwrap_err().code, Code::InvalidRequest);
    }
    assert!(
        read(json!({"events": [confirm(json!({"result": "deny", "deny_message": "no"}))]}), &caller).is_ok()
    );
}

#[test]
fn a_session_begins_with_messages_and_more_than_one_needs_a_key_of_ours() {
    let begin = |events: Value, caller: &Caller| {
        initial(&mut Fields::body(json!({"initial_events": events}), caller.dialect).unwrap(), caller)
    };
    let sdk = caller(Dialect::Sdk, Role::Developer);
    let ours = caller(Dialect::Checkfu, Role::Developer);
    assert_eq!(begin(json!([text("a"), text("b")]), &sdk).unwrap().len(), 2);
    assert_eq!(begin(json!([text("a")]), &ours).unwrap().len(), 1);
    assert!(begin(json!([text("a"), text("b")]), &ours).unwrap_err().message.contains("Idempotency-Key"));
    let keyed = Caller { idempotency_key: Some("k".to_owned()), ..ours };
    assert_eq!(begin(json!([text("a"), text("b")]), &keyed).unwrap().len(), 2);
    assert!(begin(json!(vec![text("a"); 51]), &sdk).is_err());
    assert!(begin(json!([{"type": "user.interrupt"}]), &sdk).is_err());
}
