//! Tool calls that ask: the run is suspended, nothing runs before the answer, and the answer is obeyed.

use rig::{
    api::{content, script},
    world::World,
};
use serde_json::{Value, json};

async fn asking(world: &World) -> (String, String) {
    let agent = world.api.agent_with(json!({"type": "always_ask"})).await;
    let steps = script(
        &json!([{"tool": "bash", "input": {"command": "echo ran >> /tmp/ran; wc -l < /tmp/ran"}}, {"say": "ok"}]),
    );
    let session = world.api.session(&agent, &world.environment, &steps).await;
    let events = world.api.idle(&session, 1).await;
    let call = events.iter().find(|event| event["type"] == "agent.tool_use").unwrap();
    assert_eq!(call["evaluated_permission"], "ask");
    let reason = &events.last().unwrap()["stop_reason"];
    assert_eq!(*reason, json!({"type": "requires_action", "event_ids": [call["id"]]}));
    assert!(!events.iter().any(|event| event["type"] == "agent.tool_result"));
    (session, call["id"].as_str().unwrap().to_owned())
}

fn result(events: &[Value]) -> &Value {
    let results: Vec<_> = events.iter().filter(|event| event["type"] == "agent.tool_result").collect();
    assert_eq!(results.len(), 1, "{results:#?}");
    results[0]
}

#[tokio::test]
async fn an_allowed_call_runs_once_and_a_denied_one_never() {
    let world = World::start().await;
    let (allowed, call) = asking(&world).await;
    world
        .api
        .input(&allowed, json!({"type": "user.tool_confirmation", "tool_use_id": call, "result": "allow"}))
        .await;
    let events = world.api.idle(&allowed, 2).await;
    assert_eq!(content(result(&events)).trim(), "1");
    assert_eq!(events.last().unwrap()["stop_reason"], json!({"type": "end_turn"}));

    let (denied, call) = asking(&world).await;
    let answer = json!({"type": "user.tool_confirmation", "tool_use_id": call, "result": "deny", "deny_message": "not on a Friday"});
    world.api.input(&denied, answer).await;
    let events = world.api.idle(&denied, 2).await;
    assert!(result(&events)["is_error"] == true && content(result(&events)).contains("not on a Friday"));
    world.nothing_malformed_was_asked();
    world.verify().await;
}

#[tokio::test]
async fn an_answer_survives_the_restart_of_both_programs() {
    let mut world = World::start().await;
    let (session, call) = asking(&world).await;
    world.kill_runner();
    world.restart_plane().await;
    world
        .api
        .input(&session, json!({"type": "user.tool_confirmation", "tool_use_id": call, "result": "allow"}))
        .await;
    world.start_runner().await;
    let events = world.api.idle(&session, 2).await;
    assert_eq!(content(result(&events)).trim(), "1");
    world.nothing_malformed_was_asked();
    world.verify().await;
}

#[tokio::test]
async fn a_confirmation_of_nothing_is_refused_and_an_interrupt_closes_what_asks() {
    let world = World::start().await;
    let (session, _) = asking(&world).await;
    let wrong = json!({"events": [{"type": "user.tool_confirmation", "tool_use_id": "sevt_00000000000000000000000000000000", "result": "allow"}]});
    let (status, _) =
        world.api.send(reqwest::Method::POST, &format!("/v1/sessions/{session}/events"), Some(wrong)).await;
    assert_eq!(status, 400);
    world.api.input(&session, json!({"type": "user.interrupt"})).await;
    world.api.idle(&session, 2).await;
    world.api.say(&session, &script(&json!([{"say": "still here"}]))).await;
    let events = world.api.idle(&session, 3).await;
    assert_eq!(content(events.iter().rfind(|event| event["type"] == "agent.message").unwrap()), "still here");
    assert!(result(&events)["is_error"] == true);
    world.nothing_malformed_was_asked();
    world.verify().await;
}

#[tokio::test]
async fn a_custom_tool_waits_for_the_application_and_its_result_goes_to_the_model() {
    let world = World::start().await;
    let tools = json!([{"type": "custom", "name": "lookup", "description": "Looks a word up.",
                        "input_schema": {"type": "object", "properties": {"word": {"type": "string"}}}},
                       {"type": "agent_toolset_20260401", "default_config": {"enabled": true, "permission_policy": {"type": "always_allow"}}}]);
    let agent = world
        .api
        .post(
            "/v1/agents",
            json!({"name": rig::api::unique("custom"), "model": "scripted-1", "tools": tools}),
        )
        .await;
    let steps = script(&json!([{"tool": "lookup", "input": {"word": "lease"}}, {"say": "thanks"}]));
    let session = world.api.session(agent["id"].as_str().unwrap(), &world.environment, &steps).await;
    let events = world.api.idle(&session, 1).await;
    let call = events.iter().find(|event| event["type"] == "agent.custom_tool_use").unwrap();
    assert_eq!(call["input"], json!({"word": "lease"}));
    assert_eq!(
        events.last().unwrap()["stop_reason"],
        json!({"type": "requires_action", "event_ids": [call["id"]]})
    );
    let answer = json!({"type": "user.custom_tool_result", "custom_tool_use_id": call["id"], "content": [{"type": "text", "text": "a promise in time"}]});
    world.api.input(&session, answer).await;
    let events = world.api.idle(&session, 2).await;
    assert_eq!(content(events.iter().rfind(|event| event["type"] == "agent.message").unwrap()), "thanks");
    world.nothing_malformed_was_asked();
    world.verify().await;
}
