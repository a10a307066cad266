//! The gateway with real programs: custody of a provider's key, the next candidate, budgets that pause and go on by
//! themselves, and conversations that are summed up.

use rig::{api::script, api::text, wait, world::World};
use serde_json::{Value, json};

const CANARY: &str = "canary-second-provider-key-77ab";

/// Lets models of this name go to these candidates.
async fn route(world: &World, name: &str, candidates: Value) {
    world.api.post("/v1/model-routes", json!({"name": name, "candidates": candidates})).await;
}

async fn agent(world: &World, model: &str) -> String {
    let toolset = json!([{"type": "agent_toolset_20260401",
        "default_config": {"enabled": true, "permission_policy": {"type": "always_allow"}}}]);
    let body = json!({"name": rig::api::unique("gateway"), "model": model, "tools": toolset});
    text(&world.api.post("/v1/agents", body).await["id"])
}

#[tokio::test]
async fn a_refused_key_falls_over_to_the_next_candidate_and_is_seen_nowhere() {
    let world = World::start().await;
    // The scripted model takes another key, so this provider refuses, and quotes nothing that anybody sees.
    let wrong = json!({"name": "wrong", "kind": "anthropic", "base_url": world.model.url(), "key": CANARY,
        "allow_private": true});
    let provider = world.api.post("/v1/providers", wrong).await;
    assert_eq!((&provider["has_key"], provider.get("key")), (&json!(true), None));
    let tested = world.api.post(&format!("/v1/providers/{}/test", text(&provider["id"])), json!({})).await;
    route(&world, "smart", json!([{"provider_id": provider["id"], "model": "a"}, {"model": "scripted-1"}]))
        .await;
    route(&world, "alone", json!([{"provider_id": provider["id"], "model": "a"}])).await;
    let steps = script(
        &json!([{"tool": "bash", "input": {"command": "env; cat /proc/*/environ 2>/dev/null | tr '\\0' ' '"}}, {"say": "ok"}]),
    );
    let session = world.api.session(&agent(&world, "smart").await, &world.environment, &steps).await;
    let events = world.api.idle(&session, 1).await;
    let ends: Vec<&Value> = events.iter().filter(|event| event["type"] == "span.model_request_end").collect();
    assert!(
        ends.iter().all(|end| end["bill"]["model"] == "scripted-1" && end["is_error"] == false),
        "{ends:#?}"
    );
    let refused = world.api.session(&agent(&world, "alone").await, &world.environment, &steps).await;
    let said = world.api.idle(&refused, 1).await;
    let error = said.iter().find(|event| event["type"] == "session.error").unwrap();
    assert!(error["error"]["message"].as_str().unwrap().contains("does not accept the key"), "{error}");

    let shown = [json!(events), json!(said), provider, tested, world.api.get("/v1/providers").await];
    assert!(shown.iter().all(|shown| !shown.to_string().contains("canary")), "{shown:#?}");
    assert!(!world.inspect_sandboxes(&session).contains(CANARY));
    assert!(!world.command_lines().contains(CANARY) && !world.database_holds(CANARY));
    for (file, text) in world.logs() {
        assert!(!text.contains(CANARY), "the key is in {file}");
    }
}

#[tokio::test]
async fn a_session_waits_at_its_budget_and_goes_on_by_itself_when_it_is_raised() {
    let world = World::start().await;
    let priced = json!([{"model": "scripted-1", "price": {"input": 1_000_000, "output": 1_000_000}}]);
    route(&world, "priced", priced).await;
    let agent = agent(&world, "priced").await;
    let steps = json!([{"tool": "bash", "input": {"command": "echo one"}}, {"say": "done"}]);
    let message = json!({"type": "user.message", "content": [{"type": "text", "text": script(&steps)}]});
    let session = world
        .api
        .post(
            "/v1/sessions",
            json!({"agent": agent, "environment_id": world.environment, "budget": {"limit": 1},
                "initial_events": [message]}),
        )
        .await;
    let session = text(&session["id"]);
    let paused = world.api.idle(&session, 1).await;
    let idle = paused.iter().rfind(|event| event["type"] == "session.status_idle").unwrap();
    assert_eq!(idle["stop_reason"]["type"], "budget_reached");
    assert_eq!(paused.iter().filter(|event| event["type"] == "agent.tool_result").count(), 1);
    let budgets = world.api.get(&format!("/v1/budgets?session_id={session}")).await;
    let budget = &budgets["data"][0];
    assert_eq!(budget["status"], "reached");
    let path = format!("/v1/budgets/{}", text(&budget["id"]));
    world.api.post(&path, json!({"limit": 1_000_000_000})).await;
    let events = world.api.idle(&session, 2).await;
    let last = events.iter().rfind(|event| event["type"] == "session.status_idle").unwrap();
    assert_eq!(last["stop_reason"]["type"], "end_turn");
    let cost = |event: &Value| event["bill"]["list_cost_micro_usd"].as_u64().unwrap_or(0);
    let billed: u64 = events.iter().map(cost).sum();
    assert_eq!(world.api.get(&path).await["used"], billed);
    assert!(billed > 0);
    world.nothing_malformed_was_asked();
    world.verify().await;
}

#[tokio::test]
async fn a_conversation_beyond_its_share_of_the_window_goes_on_from_a_summary() {
    let world = World::start().await;
    route(&world, "narrow", json!([{"model": "scripted-1", "context_window_tokens": 1_000}])).await;
    let agent = agent(&world, "narrow").await;
    let long = json!({"tool": "bash", "input": {"command": "head -c 9000 /dev/zero | tr '\\0' x"}});
    let session =
        world.api.session(&agent, &world.environment, &script(&json!([long, {"say": "first"}]))).await;
    world.api.event(&session, "a summary", |event| event["type"] == "agent.thread_context_compacted").await;
    world.api.idle(&session, 1).await;
    world.api.say(&session, &script(&json!([{"say": "second"}]))).await;
    let events = world.api.idle(&session, 2).await;
    let spoken: Vec<String> =
        events.iter().filter(|event| event["type"] == "agent.message").map(rig::api::content).collect();
    assert!(spoken.iter().any(|said| said == "second"), "{spoken:?}");
    wait::until("no request with the long result after the summary", async || {
        let last = world.model.requests().pop()?;
        (!format!("{last:?}").contains(&"x".repeat(8_000))).then_some(())
    })
    .await;
    world.nothing_malformed_was_asked();
    world.verify().await;
}
