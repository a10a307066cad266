//! A session whose model is of another provider's kind: the runner speaks Messages, the provider Chat Completions, and
//! nobody in the session notices.

use rig::{
    api::{content, script},
    world::World,
};
use serde_json::{Value, json};

fn of_type<'e>(events: &'e [Value], kind: &str) -> Vec<&'e Value> {
    events.iter().filter(|event| event["type"] == kind).collect()
}

#[tokio::test]
async fn a_session_on_an_openai_compatible_provider_completes_turns_with_parallel_tools() {
    let world = World::start().await;
    let agent = world.agent_on_chat("local").await;
    // The provider fails before and in the middle of its first reply, as real ones do.
    let first = script(&json!([
        {"error": 503},
        {"stream_error": "server_error", "after_deltas": 1},
        {"think": "Two at once.", "say": "I make and look.", "tools": [
            {"tool": "bash", "input": {"command": "echo ünï > a.txt && cat a.txt"}},
            {"tool": "bash", "input": {"command": "echo two"}}]},
        {"expect": "two", "tool": "read", "input": {"file_path": "a.txt"}},
        {"expect": "ünï", "say": "First turn done."}
    ]));
    let session = world.api.session(&agent, &world.environment, &first).await;
    world.api.idle(&session, 1).await;
    world.api.say(&session, &script(&json!([{"tool": "bash", "input": {"command": "exit 3"}}, {"expect": "3", "say": "Second turn done."}]))).await;
    let events = world.api.idle(&session, 2).await;

    let results = of_type(&events, "agent.tool_result");
    assert_eq!(results.len(), 4, "{results:#?}");
    assert!(content(results[0]).contains("ünï") && content(results[1]).contains("two"), "{results:#?}");
    let said: Vec<String> = of_type(&events, "agent.message").into_iter().map(content).collect();
    assert_eq!(said, ["I make and look.", "First turn done.", "Second turn done."]);
    let last = events.last().unwrap();
    assert_eq!(last["stop_reason"], json!({"type": "end_turn"}));
    let counted = of_type(&events, "span.model_request_end");
    let is_counted = |event: &&Value| event["model_usage"]["input_tokens"].as_u64() > Some(0);
    // Five whole replies and the one that broke off, which is billed by what was seen of it.
    assert_eq!(counted.iter().copied().filter(is_counted).count(), 6, "{counted:#?}");

    let asked = world.model.requests();
    assert!(asked.iter().all(|request| request.body["model"] == "upstream-model"));
    assert!(asked.iter().all(|request| request.body.get("system").is_none()), "asked in the other wire");
    world.nothing_malformed_was_asked();
    world.verify().await;
}
