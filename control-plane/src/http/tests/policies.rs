//! Action policies: their shape, and the dry run that names the rule that decides.

use super::*;

/// A policy with one rule that asks before this tool.
pub(super) fn asks(name: &str, tool: &str) -> Value {
    json!({"name": name, "rules": [{
        "subject": {"kind": "*"}, "resource": {"kind": "tool", "id_glob": tool}, "disposition": "require_approval",
    }]})
}

#[tokio::test]
async fn a_policy_is_made_changed_and_put_out_of_force() {
    let bench = Bench::new().await;
    let made = bench.post("/v1/action-policies", asks("p", "bash")).await.ok();
    assert_eq!((&made["version"], &made["rules"][0]["permission_glob"]), (&json!(1), &json!("*")));
    bench.post("/v1/action-policies", asks("p", "read")).await.refused(409, "conflict");
    let path = format!("/v1/action-policies/{}", made["id"].as_str().unwrap());
    let mut change = asks("q", "wr*");
    change["version"] = json!(1);
    assert_eq!(bench.post(&path, change.clone()).await.ok()["version"], 2);
    bench.post(&path, change).await.refused(409, "conflict");
    bench.post(&format!("{path}/archive"), json!({})).await.ok();
    bench.post(&path, asks("q", "bash")).await.refused(400, "archived");
    assert_eq!(bench.get("/v1/action-policies").await.ok()["data"], json!([]));
    assert_eq!(bench.get(&path).await.ok()["name"], "q");
    bench.post("/v1/action-policies", asks("q", "bash")).await.ok();
}

#[tokio::test]
async fn a_rule_outside_the_closed_sets_is_refused_by_its_place() {
    let bench = Bench::new().await;
    for (member, value, field) in [
        ("subject", json!({"kind": "moon"}), "rules[0].subject.kind"),
        ("resource", json!({"kind": "moon"}), "rules[0].resource.kind"),
        ("resource", json!(null), "rules[0].resource"),
        ("disposition", json!("maybe"), "rules[0].disposition"),
        ("ttl_seconds", json!(0), "rules[0].ttl_seconds"),
        ("nope", json!(1), "rules[0].nope"),
    ] {
        let mut body = asks("p", "bash");
        body["rules"][0][member] = value;
        let got = bench.post("/v1/action-policies", body).await;
        assert_eq!((got.status.as_u16(), &got.body["error"]["details"]["field"]), (400, &json!(field)));
    }
    let mut body = asks("p", "bash");
    body["rules"][0]["disposition"] = json!("allow");
    body["rules"][0]["ttl_seconds"] = json!(60);
    bench.post("/v1/action-policies", body).await.refused(400, "invalid_request");
    bench
        .post("/v1/action-policies", json!({"name": "p", "rules": []}))
        .await
        .refused(400, "invalid_request");
}

#[tokio::test]
async fn a_dry_run_says_what_would_happen_and_which_rule_says_so() {
    let bench = Bench::new().await;
    let agent = bench.agent().await;
    let evaluate = async |kind: &str, id: &str| {
        let body = json!({"agent": agent, "resource": {"kind": kind, "id": id}});
        bench.post("/v1/action-policies/evaluate", body).await.ok()
    };
    let got = evaluate("tool", "read").await;
    assert_eq!((&got["disposition"], &got["decided_by"]["type"]), (&json!("allow"), &json!("default")));
    assert_eq!(evaluate("tool", "bash").await["disposition"], "require_approval");
    assert_eq!(evaluate("mcp_tool", "files/read").await["disposition"], "require_approval");
    let made = bench.post("/v1/action-policies", asks("p", "re*")).await.ok();
    let got = evaluate("tool", "read").await;
    let by = json!({"type": "action_policy", "policy_id": made["id"], "name": "p", "rule": 0});
    assert_eq!((&got["disposition"], &got["decided_by"]), (&json!("require_approval"), &by));
    assert_eq!(got["matched"], json!([by]));
    let nobody =
        json!({"agent": "agent_00000000000000000000000000000000", "resource": {"kind": "tool", "id": "x"}});
    bench.post("/v1/action-policies/evaluate", nobody).await.refused(400, "unknown_reference");
}

#[tokio::test]
async fn a_selection_narrows_and_restores_and_moves_nothing_that_is_pinned() {
    let bench = Bench::new().await;
    let (agent, environment) = super::sessions::ground(&bench).await;
    let body = json!({"agent": agent, "environment_id": environment});
    let made = bench.post("/v1/sessions", body).await.ok();
    let path = format!("/v1/sessions/{}", made["id"].as_str().unwrap());
    let select = format!("{path}/selection");
    let toolset =
        json!([{"type": checkfu_shared::tool::TOOLSET, "configs": [{"name": "bash", "enabled": true}]}]);
    let agents = bench
        .post(
            "/v1/agents",
            json!({"name": "full", "model": "m", "tools": [{"type": checkfu_shared::tool::TOOLSET}]}),
        )
        .await
        .ok();
    let body = json!({"agent": agents["id"], "environment_id": environment});
    let full = bench.post("/v1/sessions", body).await.ok();
    let full_select = format!("/v1/sessions/{}/selection", full["id"].as_str().unwrap());
    let narrowed = bench.post(&full_select, json!({"tools": toolset})).await.ok();
    assert_ne!(narrowed["agent"]["tools"], full["agent"]["tools"]);
    let restored = bench.post(&full_select, json!({})).await.ok();
    assert_eq!(restored["agent"], full["agent"]);
    let log = format!("/v1/sessions/{}/events?types[]=session.updated", full["id"].as_str().unwrap());
    let updates = bench.get(&log).await.ok();
    let [first, second] = [&updates["data"][0]["release"], &updates["data"][1]["release"]];
    assert_eq!(first["before_sha256"], second["after_sha256"]);
    assert_eq!(first["after_sha256"], second["before_sha256"]);
    let custom =
        json!([{"type": "custom", "name": "new", "description": "d", "input_schema": {"type": "object"}}]);
    bench.post(&select, json!({"tools": custom})).await.refused(400, "invalid_request");
    bench.post(&select, json!({"model": "x"})).await.refused(400, "unknown_field");
    let config = json!({"config": {"type": "self_hosted", "image": "other"}});
    bench.post(&format!("/v1/environments/{environment}"), config).await.ok();
    bench.post(&full_select, json!({})).await.refused(400, "invalid_state");
    let say = json!({"events": [super::sessions::text("hi")]});
    bench.sdk(&format!("{path}/events"), say).await.ok();
    bench.post(&select, json!({})).await.refused(400, "invalid_state");
}
