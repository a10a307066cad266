//! Budgets over the API: both forms, attached later, paused, listed, and shown on the session.

use super::{sessions::ground, *};

async fn session(bench: &Bench, (agent, environment): &(String, String), budget: Option<Value>) -> Got {
    let mut body = json!({"agent": agent, "environment_id": environment});
    body["budget"] = budget.unwrap_or_default();
    bench.sdk("/v1/sessions", body).await
}

async fn priced(bench: &Bench) {
    let price = json!({"input": 1_000_000, "output": 5_000_000});
    let route = json!({"name": "m", "candidates": [{"model": "m", "price": price}]});
    bench.post("/v1/model-routes", route).await.ok();
}

#[tokio::test]
async fn both_forms_are_taken_at_the_start_and_shown_again() {
    let bench = Bench::new().await;
    let ground = ground(&bench).await;
    let cents = json!({"type": "limit", "max_list_cost": {"amount": "125", "currency": "USD"}});
    session(&bench, &ground, Some(cents.clone())).await.refused(400, "invalid_request");
    let tokens = session(&bench, &ground, Some(json!({"limit": 1_000, "metric": "model_tokens"}))).await.ok();
    assert_eq!(tokens["budget"], json!({"type": "limit", "limit": 1_000, "metric": "model_tokens"}));
    priced(&bench).await;
    let made = session(&bench, &ground, Some(cents.clone())).await.ok();
    assert_eq!(made["budget"], cents);
    assert_eq!(session(&bench, &ground, Some(json!({"limit": 1_250_000}))).await.ok()["budget"], cents);
    let listed = bench.get("/v1/budgets").await.ok();
    assert_eq!(listed["data"].as_array().unwrap().len(), 3);
    let of = format!("/v1/budgets?session_id={}", made["id"].as_str().unwrap());
    let one = bench.get(&of).await.ok()["data"][0].clone();
    assert_eq!(
        (&one["metric"], &one["limit"], &one["used"], &one["status"]),
        (&json!("model_spend"), &json!(1_250_000), &json!(0), &json!("active"))
    );
}

#[tokio::test]
async fn a_budget_is_attached_later_raised_paused_and_taken_up_again() {
    let bench = Bench::new().await;
    priced(&bench).await;
    let ground = ground(&bench).await;
    let made = session(&bench, &ground, None).await.ok();
    let id = made["id"].as_str().unwrap();
    assert_eq!(made["budget"], Value::Null);
    let attach = json!({"session_id": id, "limit": 50_000});
    let budget = bench.post("/v1/budgets", attach.clone()).await.ok();
    bench.post("/v1/budgets", attach).await.refused(409, "conflict");
    let path = format!("/v1/budgets/{}", budget["id"].as_str().unwrap());
    let session = format!("/v1/sessions/{id}");
    let amount = async || bench.get(&session).await.ok()["budget"]["max_list_cost"]["amount"].clone();
    assert_eq!(amount().await, "5");
    assert_eq!(bench.post(&path, json!({"limit": 60_000})).await.ok()["limit"], 60_000);
    assert_eq!(amount().await, "6");
    assert_eq!(bench.post(&format!("{path}/pause"), json!({})).await.ok()["status"], "paused");
    assert_eq!(amount().await, Value::Null);
    assert_eq!(bench.post(&format!("{path}/resume"), json!({})).await.ok()["status"], "active");
    assert_eq!(bench.sdk(&session, json!({"budget": null})).await.ok()["budget"], Value::Null);
    assert_eq!(bench.get(&path).await.ok()["status"], "paused");
    let raised = json!({"budget": {"type": "limit", "max_list_cost": {"amount": "9", "currency": "USD"}}});
    assert_eq!(bench.sdk(&session, raised).await.ok()["budget"]["max_list_cost"]["amount"], "9");
    assert_eq!(bench.get(&path).await.ok()["status"], "active");
    let events = bench.get(&format!("{session}/events?types[]=session.updated")).await.ok();
    let told: Vec<&Value> = events["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| &event["budget"]["max_list_cost"]["amount"])
        .collect();
    assert_eq!(json!(told), json!(["5", "6", null, "6", null, "9"]));
    bench.post("/v1/budgets", json!({"session_id": id, "limit": 0})).await.refused(400, "invalid_request");
    bench.post(&path, json!({})).await.refused(400, "invalid_request");
}
