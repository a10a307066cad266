//! Agents: versions, compare-and-set, archive, lists.

use super::*;

#[tokio::test]
async fn an_agent_comes_back_with_every_member_resolved() {
    let bench = Bench::new().await;
    let made = bench.sdk("/v1/agents", json!({"name": "a", "model": "m", "unknown": 1})).await.ok();
    let id = made["id"].as_str().unwrap();
    let time = "2026-12-01T00:00:00.000Z";
    let want = json!({
        "id": id, "type": "agent", "version": 1, "name": "a", "description": null, "system": null,
        "model": {"id": "m", "effort": null, "inference_geo": null, "speed": "standard"}, "tools": [], "mcp_servers": [], "skills": [],
        "multiagent": null, "execution_identity": {"type": "service_account"}, "metadata": {},
        "created_at": time, "updated_at": time, "archived_at": null,
    });
    assert_eq!(made, want);
    assert_eq!(bench.get(&format!("/v1/agents/{id}")).await.ok(), want);
    bench
        .post("/v1/agents", json!({"name": "a", "model": "m", "unknown": 1}))
        .await
        .refused(400, "unknown_field");
}

#[tokio::test]
async fn an_update_makes_a_version_once_and_old_versions_stay() {
    let bench = Bench::new().await;
    let path = format!("/v1/agents/{}", bench.agent().await);
    let change = json!({"name": "b", "version": 1});
    assert_eq!(bench.post(&path, change.clone()).await.ok()["version"], 2);
    let lost = bench.post(&path, change).await;
    lost.refused(409, "conflict");
    assert_eq!(lost.headers["x-should-retry"], "false");
    assert_eq!(lost.body["error"]["details"]["current_version"], 2);
    assert_eq!(bench.post(&path, json!({"name": "b"})).await.ok()["version"], 2, "nothing changed");
    assert_eq!(bench.get(&format!("{path}?version=1")).await.ok()["name"], "a");
    bench.get(&format!("{path}?version=3")).await.refused(404, "not_found");
    bench.get(&format!("{path}?version=0")).await.refused(400, "invalid_request");
    let versions = bench.get(&format!("{path}/versions?limit=1")).await.ok();
    assert_eq!(versions["data"][0]["version"], 2);
    let next = versions["next_page"].as_str().unwrap();
    let rest = bench.get(&format!("{path}/versions?limit=1&page={next}")).await.ok();
    assert_eq!((rest["data"][0]["version"].clone(), rest["next_page"].clone()), (json!(1), Value::Null));
}

#[tokio::test]
async fn metadata_merges_and_a_17th_pair_is_refused() {
    let bench = Bench::new().await;
    let body = json!({"name": "a", "model": "m", "metadata": {"a": "1"}});
    let made = bench.post("/v1/agents", body).await.ok();
    let path = format!("/v1/agents/{}", made["id"].as_str().unwrap());
    let after = bench.post(&path, json!({"metadata": {"a": null, "b": "2"}})).await.ok();
    assert_eq!(after["metadata"], json!({"b": "2"}));
    let many: serde_json::Map<_, _> = (0..16).map(|n| (n.to_string(), json!("v"))).collect();
    bench.post(&path, json!({"metadata": many})).await.refused(400, "invalid_metadata");
}

#[tokio::test]
async fn an_archived_agent_stays_readable_and_takes_no_change() {
    let bench = Bench::new().await;
    let id = bench.agent().await;
    let path = format!("/v1/agents/{id}");
    let archived = bench.post(&format!("{path}/archive"), json!({})).await.ok();
    assert_eq!(archived["archived_at"], "2026-12-01T00:00:00.000Z");
    bench.clock.advance_ms(1_000);
    assert_eq!(bench.post(&format!("{path}/archive"), json!({})).await.ok(), archived);
    bench.post(&path, json!({"name": "b"})).await.refused(400, "archived");
    assert_eq!(bench.get(&path).await.ok(), archived);
    assert_eq!(bench.get("/v1/agents").await.ok()["data"], json!([]));
    assert_eq!(bench.get("/v1/agents?include_archived=true").await.ok()["data"], json!([archived]));
}

#[tokio::test]
async fn pages_meet_no_agent_twice_while_others_are_made() {
    let bench = Bench::new().await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.insert(0, bench.agent().await);
    }
    let mut seen = Vec::new();
    let mut page = String::new();
    loop {
        let got = bench.get(&format!("/v1/agents?limit=2{page}")).await.ok();
        seen.extend(
            got["data"].as_array().unwrap().iter().map(|agent| agent["id"].as_str().unwrap().to_owned()),
        );
        let Some(next) = got["next_page"].as_str() else { break };
        page = format!("&page={next}");
        bench.agent().await;
    }
    assert_eq!(seen, ids);
    let late = bench.get("/v1/agents?created_at[gt]=2026-12-01T00:00:00Z").await.ok();
    assert_eq!(late["data"], json!([]));
    bench.get("/v1/agents?page=zzz").await.refused(400, "invalid_cursor");
    bench.get("/v1/agents?limit=101").await.refused(400, "invalid_request");
}
