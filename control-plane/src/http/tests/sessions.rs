//! Sessions and what is said to them.

use super::*;
use std::collections::BTreeSet;

/// An agent and an environment.
pub(super) async fn ground(bench: &Bench) -> (String, String) {
    let made = bench.post("/v1/environments", json!({"name": "e"})).await.ok();
    (bench.agent().await, made["id"].as_str().unwrap().to_owned())
}

pub(super) fn text(text: &str) -> Value {
    json!({"type": "user.message", "content": [{"type": "text", "text": text}]})
}

/// A session that nothing was said to, and its path.
pub(super) async fn idle(bench: &Bench) -> (Value, String) {
    let (agent, environment) = ground(bench).await;
    let made = bench.sdk("/v1/sessions", json!({"agent": agent, "environment_id": environment})).await.ok();
    let path = format!("/v1/sessions/{}", made["id"].as_str().unwrap());
    (made, path)
}

fn members(value: &Value) -> BTreeSet<String> {
    value.as_object().unwrap().keys().cloned().collect()
}

fn set(names: &str) -> BTreeSet<String> {
    names.split_whitespace().map(str::to_owned).collect()
}

#[tokio::test]
async fn a_session_has_exactly_the_documented_members() {
    let bench = Bench::new().await;
    let (made, path) = idle(&bench).await;
    let read = bench.get(&path).await.ok();
    assert_eq!(read, made);
    let session = "agent archived_at automation_id budget created_at environment_id id metadata outcome_evaluations \
                   resources stats status title type updated_at usage vault_ids";
    assert_eq!(members(&read), set(session));
    let agent = "description id mcp_servers model multiagent name skills system tools type version";
    assert_eq!(members(&read["agent"]), set(agent));
    assert_eq!(members(&read["stats"]), set("active_seconds duration_seconds"));
    let usage = "active_seconds cache_creation cache_read_input_tokens input_tokens list_cost output_tokens server_tool_use";
    assert_eq!(members(&read["usage"]), set(usage));
    assert_eq!((&read["status"], &read["type"]), (&json!("idle"), &json!("session")));
    for time in ["created_at", "updated_at"] {
        let text = read[time].as_str().unwrap();
        assert!(text.len() == 24 && text.ends_with('Z'), "{text}");
    }
}

#[tokio::test]
async fn a_create_that_breaks_a_rule_makes_no_session() {
    let bench = Bench::new().await;
    let (agent, environment) = ground(&bench).await;
    let archived = bench.agent().await;
    bench.post(&format!("/v1/agents/{archived}/archive"), json!({})).await.ok();
    let with = |member: &str, value: Value| {
        let mut body = json!({"agent": agent, "environment_id": environment});
        body[member] = value;
        body
    };
    let nobody = "agent_00000000000000000000000000000000";
    for (body, code) in [
        (json!({}), "invalid_request"),
        (with("agent", json!("agent_x")), "invalid_request"),
        (with("agent", json!(nobody)), "unknown_reference"),
        (with("agent", json!(archived)), "archived"),
        (with("agent", json!({"type": "agent", "id": agent, "version": 2})), "unknown_reference"),
        (with("agent", json!({"type": "moon", "id": agent})), "invalid_request"),
        (with("agent", json!({"type": "agent_with_overrides", "id": agent, "model": "x"})), "unsupported"),
        (with("environment_id", json!("env_1")), "invalid_request"),
        (with("environment_id", json!("env_00000000000000000000000000000000")), "unknown_reference"),
        (with("resources", json!([{"type": "file"}])), "unsupported"),
        (with("vault_ids", json!(["vlt_00000000000000000000000000000000"])), "unsupported"),
        (
            with("budget", json!({"type": "limit", "max_list_cost": {"amount": "0", "currency": "USD"}})),
            "invalid_request",
        ),
        (with("initial_events", json!([text("ok"), text("")])), "invalid_request"),
        (with("initial_events", json!([{"type": "user.interrupt"}])), "invalid_request"),
        (with("initial_events", json!(vec![text("ok"); 51])), "invalid_request"),
        (with("initial_events", json!([text("a"), text("b")])), "invalid_request"),
        (with("title", json!("t".repeat(513))), "invalid_request"),
        (with("metadata", json!({"k": 1})), "invalid_metadata"),
        (with("nope", json!(1)), "unknown_field"),
    ] {
        bench.post("/v1/sessions", body).await.refused(400, code);
    }
    assert_eq!(bench.get("/v1/sessions").await.ok()["data"], json!([]));
}

#[tokio::test]
async fn initial_events_make_a_session_that_runs() {
    let bench = Bench::new().await;
    let (agent, environment) = ground(&bench).await;
    let body = json!({"agent": {"type": "agent", "id": agent, "version": 1}, "environment_id": environment,
        "initial_events": [text("a"), text("b")], "title": "t", "metadata": {"k": "v"}});
    let made = bench.sdk("/v1/sessions", body.clone()).await.ok();
    assert_eq!(
        (&made["status"], &made["title"], &made["metadata"]),
        (&json!("running"), &json!("t"), &json!({"k": "v"}))
    );
    let path = format!("/v1/sessions/{}", made["id"].as_str().unwrap());
    let events = bench.get(&format!("{path}/events")).await.ok();
    let kinds: Vec<_> =
        events["data"].as_array().unwrap().iter().map(|event| event["type"].clone()).collect();
    assert_eq!(kinds, ["user.message", "user.message", "run.created", "session.status_running"]);
    let runs = bench.get(&format!("{path}/runs")).await.ok();
    assert_eq!((&runs["data"][0]["status"], &runs["data"][0]["attempt"]), (&json!("queued"), &json!(1)));
    bench.ask(Method::POST, &format!("{path}/archive"), &SDK, None).await.refused(400, "invalid_state");
    bench.ask(Method::DELETE, &path, &SDK, None).await.refused(400, "invalid_state");
    let retry = [SDK[0], ("x-stainless-retry-count", "1")];
    let again = bench.ask(Method::POST, "/v1/sessions", &retry, Some(body)).await.ok();
    assert_eq!(again["id"], made["id"]);
}

#[tokio::test]
async fn what_is_said_comes_back_attributed_and_once_per_key() {
    let bench = Bench::new().await;
    let (_, path) = idle(&bench).await;
    let events = format!("{path}/events");
    let said = bench.sdk(&events, json!({"events": [text("hi")]})).await;
    let request = said.headers["request-id"].to_str().unwrap().to_owned();
    let said = said.ok();
    let echo = &said["data"][0];
    assert_eq!(echo["content"][0]["text"], "hi");
    assert_eq!(echo["caused_by"], json!({"type": "api_request", "id": request}));
    assert!(echo["authored_by"].as_str().unwrap().starts_with("prin_"));
    assert_eq!((&echo["seq"], &echo["processed_at"]), (&json!(1), &Value::Null));

    let keyed = [OURS[0], OURS[1], ("idempotency-key", "k")];
    let body = json!({"type": "user.message", "payload": {"content": [{"type": "text", "text": "x"}]},
        "authored_by": echo["authored_by"], "caused_by": {"type": "event", "id": echo["id"]}});
    let first = bench.ask(Method::POST, &events, &keyed, Some(body.clone())).await.ok();
    let second = bench.ask(Method::POST, &events, &keyed, Some(body)).await.ok();
    assert_eq!(first, second);
    assert_eq!(first["data"][0]["caused_by"]["type"], "event");
    bench
        .ask(Method::POST, &events, &keyed, Some(json!({"events": [text("y")]})))
        .await
        .refused(409, "idempotency_conflict");
    let all = bench.get(&format!("{events}?types[]=user.message")).await.ok();
    assert_eq!(all["data"].as_array().unwrap().len(), 2);
    let retry = [SDK[0], ("x-stainless-retry-count", "1")];
    let again = bench.ask(Method::POST, &events, &retry, Some(json!({"events": [text("hi")]}))).await.ok();
    assert_eq!(again, said);
}

#[tokio::test]
async fn a_bad_event_leaves_no_trace_and_the_session_goes_on() {
    let bench = Bench::new().await;
    let (_, path) = idle(&bench).await;
    let events = format!("{path}/events");
    bench.sdk(&events, json!({"events": [text("ok"), text("")]})).await.refused(400, "invalid_request");
    bench.sdk(&events, json!({"events": [{"type": "user.tool_result"}]})).await.refused(400, "unsupported");
    let id = "sevt_00000000000000000000000000000000";
    let unknown = json!({"events": [{"type": "user.custom_tool_result", "custom_tool_use_id": id}]});
    let got = bench.sdk(&events, unknown).await;
    assert_eq!(got.status, 400, "{}", got.body);
    bench.post(&events, json!({"type": "user.message", "content": []})).await.refused(400, "invalid_request");
    assert_eq!(bench.get(&events).await.ok()["data"], json!([]));
    bench.sdk(&events, json!({"events": [text("ok")]})).await.ok();
    bench
        .sdk("/v1/sessions/sesn_nope/events", json!({"events": [text("ok")]}))
        .await
        .refused(404, "not_found");
}

#[tokio::test]
async fn the_log_is_paged_both_ways_and_filtered() {
    let bench = Bench::new().await;
    let (_, path) = idle(&bench).await;
    let events = format!("{path}/events");
    for n in 0..5 {
        bench.sdk(&events, json!({"events": [text(&n.to_string())]})).await.ok();
    }
    let all = bench.get(&events).await.ok();
    let total = all["data"].as_array().unwrap().len();
    assert_eq!(all["next_page"], Value::Null);
    for order in ["asc", "desc"] {
        let mut seqs = Vec::new();
        let mut page = String::new();
        loop {
            let got = bench.get(&format!("{events}?order={order}&limit=3{page}")).await.ok();
            seqs.extend(got["data"].as_array().unwrap().iter().map(|event| event["seq"].as_u64().unwrap()));
            let Some(next) = got["next_page"].as_str() else { break };
            page = format!("&page={next}");
        }
        if order == "desc" {
            seqs.reverse();
        }
        assert_eq!(seqs, (1..=total as u64).collect::<Vec<_>>(), "{order}");
    }
    let after = bench.get(&format!("{events}?after_seq=2&limit=1")).await.ok();
    assert_eq!(after["data"][0]["seq"], 3);
    let next = after["next_page"].as_str().unwrap();
    bench.get(&format!("{events}?order=desc&page={next}")).await.refused(400, "invalid_cursor");
    for bad in [
        "limit=1001",
        "types[]=session.deleted",
        "types[]=nope",
        "after_seq=-1",
        "order=up",
        "created_at[gt]=2026-01-01T00:00:00Z",
    ] {
        assert_eq!(bench.get(&format!("{events}?{bad}")).await.status, 400, "{bad}");
    }
}

#[tokio::test]
async fn sessions_are_listed_filtered_and_paged_both_ways() {
    let bench = Bench::new().await;
    let (agent, environment) = ground(&bench).await;
    let other = bench.agent().await;
    let mut ids = Vec::new();
    for n in 0..5 {
        let agent = if n == 4 { &other } else { &agent };
        let made =
            bench.sdk("/v1/sessions", json!({"agent": agent, "environment_id": environment})).await.ok();
        ids.insert(0, made["id"].as_str().unwrap().to_owned());
        bench.clock.advance_ms(1_000);
    }
    let ids_of = |got: &Value| -> Vec<String> {
        got["data"].as_array().unwrap().iter().map(|s| s["id"].as_str().unwrap().to_owned()).collect()
    };
    let first = bench.get("/v1/sessions?limit=2").await.ok();
    assert_eq!((ids_of(&first), &first["prev_page"]), (ids[..2].to_vec(), &Value::Null));
    let second =
        bench.get(&format!("/v1/sessions?limit=2&page={}", first["next_page"].as_str().unwrap())).await.ok();
    assert_eq!(ids_of(&second), ids[2..4]);
    let back =
        bench.get(&format!("/v1/sessions?limit=2&page={}", second["prev_page"].as_str().unwrap())).await.ok();
    assert_eq!((ids_of(&back), &back["prev_page"]), (ids[..2].to_vec(), &Value::Null));
    let last =
        bench.get(&format!("/v1/sessions?limit=2&page={}", second["next_page"].as_str().unwrap())).await.ok();
    assert_eq!((ids_of(&last), &last["next_page"]), (ids[4..].to_vec(), &Value::Null));
    assert_eq!(ids_of(&bench.get(&format!("/v1/sessions?agent_id={other}")).await.ok()), ids[..1]);
    let oldest = bench.get("/v1/sessions?order=asc&created_at[lt]=2026-12-01T00:00:01Z").await.ok();
    assert_eq!(ids_of(&oldest), ids[4..]);
    assert_eq!(ids_of(&bench.get("/v1/sessions?statuses[]=running").await.ok()), Vec::<String>::new());
    assert_eq!(ids_of(&bench.get("/v1/sessions?statuses[]=idle&statuses[]=running").await.ok()).len(), 5);
    let page = first["next_page"].as_str().unwrap();
    bench.get(&format!("/v1/sessions?order=asc&page={page}")).await.refused(400, "invalid_cursor");
    let outside = format!("/v1/sessions?created_at[lt]=2026-12-01T00:00:01Z&page={page}");
    bench.get(&outside).await.refused(400, "invalid_cursor");
    bench.get("/v1/sessions?statuses[]=asleep").await.refused(400, "invalid_request");
    bench.get("/v1/sessions?agent_id=x").await.refused(400, "invalid_request");
}

#[tokio::test]
async fn an_update_changes_what_it_names_and_an_agents_update_leaves_the_snapshot() {
    let bench = Bench::new().await;
    let (made, path) = idle(&bench).await;
    bench.sdk(&path, json!({"title": "t", "metadata": {"a": "1"}})).await.ok();
    let after = bench.sdk(&path, json!({"metadata": {"a": null, "b": "2"}})).await.ok();
    assert_eq!((&after["title"], &after["metadata"]), (&json!("t"), &json!({"b": "2"})));
    let many: serde_json::Map<_, _> = (0..16).map(|n| (n.to_string(), json!("v"))).collect();
    bench.sdk(&path, json!({"metadata": many})).await.refused(400, "invalid_metadata");
    assert_eq!(bench.sdk(&path, json!({"title": null})).await.ok()["title"], Value::Null);
    let agent = format!("/v1/agents/{}", made["agent"]["id"].as_str().unwrap());
    bench.sdk(&agent, json!({"name": "renamed"})).await.ok();
    assert_eq!(bench.get(&path).await.ok()["agent"], made["agent"]);
    let tools = json!({"agent": {"tools": [{"type": "agent_toolset_20260401"}]}});
    assert_eq!(bench.sdk(&path, tools).await.ok()["agent"]["tools"].as_array().unwrap().len(), 1);
    bench.sdk(&path, json!({"vault_ids": ["vlt_x"]})).await.refused(400, "unsupported");
    bench.post(&path, json!({"nope": 1})).await.refused(400, "unknown_field");
}

#[tokio::test]
async fn an_archived_session_is_terminated_readable_and_deaf_and_a_deleted_one_is_gone() {
    let bench = Bench::new().await;
    let (_, path) = idle(&bench).await;
    let archived = bench.ask(Method::POST, &format!("{path}/archive"), &SDK, None).await.ok();
    assert_eq!((&archived["status"], archived["archived_at"].is_string()), (&json!("terminated"), true));
    bench.sdk(&format!("{path}/events"), json!({"events": [text("x")]})).await.refused(400, "archived");
    assert!(!bench.get(&format!("{path}/events")).await.ok()["data"].as_array().unwrap().is_empty());
    assert_eq!(bench.get("/v1/sessions").await.ok()["data"], json!([]));
    let gone = bench.ask(Method::DELETE, &path, &SDK, None).await.ok();
    assert_eq!(gone["type"], "session_deleted");
    bench.get(&path).await.refused(404, "not_found");
    let retry = [SDK[0], ("x-stainless-retry-count", "2")];
    assert_eq!(bench.ask(Method::DELETE, &path, &retry, None).await.ok(), gone);
}

#[tokio::test]
async fn a_plain_session_has_one_primary_thread() {
    let bench = Bench::new().await;
    let (_, path) = idle(&bench).await;
    let threads = bench.get(&format!("{path}/threads")).await.ok();
    let thread = &threads["data"][0];
    assert_eq!((threads["data"].as_array().unwrap().len(), &thread["parent_thread_id"]), (1, &Value::Null));
    let thread_path = format!("{path}/threads/{}", thread["id"].as_str().unwrap());
    assert_eq!(&bench.get(&thread_path).await.ok(), thread);
    bench.sdk(&format!("{path}/events"), json!({"events": [text("x")]})).await.ok();
    assert_eq!(
        bench.get(&format!("{thread_path}/events")).await.ok(),
        bench.get(&format!("{path}/events")).await.ok()
    );
    bench
        .get(&format!("{path}/threads/sthr_00000000000000000000000000000000"))
        .await
        .refused(404, "not_found");
    assert_eq!(bench.get(&format!("{path}/resources")).await.ok(), json!({"data": [], "next_page": null}));
}

#[tokio::test]
async fn overrides_narrow_a_session_only() {
    let bench = Bench::new().await;
    let (_, environment) = ground(&bench).await;
    let toolset = json!({"type": "agent_toolset_20260401", "default_config": {"enabled": false},
        "configs": [{"name": "read", "enabled": true}]});
    let agent = bench.sdk("/v1/agents", json!({"name": "n", "model": "m", "tools": [toolset]})).await.ok();
    let make = async |tools: Value| {
        let agent =
            json!({"type": "agent_with_overrides", "id": agent["id"], "tools": tools, "system": "be brief"});
        bench.sdk("/v1/sessions", json!({"agent": agent, "environment_id": environment})).await
    };
    let wide = json!([{"type": "agent_toolset_20260401", "configs": [{"name": "bash", "enabled": true}]}]);
    make(wide).await.refused(400, "invalid_request");
    assert_eq!(make(json!([])).await.ok()["agent"]["tools"], json!([]));
}

#[tokio::test]
async fn a_session_of_a_deployment_runs_what_was_pinned_whatever_changed_since() {
    let bench = Bench::new().await;
    let (agent, environment) = ground(&bench).await;
    let body = json!({"name": "stable", "agent": {"id": agent}, "environment_id": environment});
    let made = bench.post("/v1/agent-deployments", body.clone()).await.ok();
    assert_eq!((&made["agent"]["version"], &made["environment_revision"]), (&json!(1), &json!(1)));
    bench.post("/v1/agent-deployments", body).await.refused(409, "conflict");
    bench.post(&format!("/v1/agents/{agent}"), json!({"version": 1, "name": "changed"})).await.ok();
    let config = json!({"config": {"type": "self_hosted", "image": "other"}});
    bench.post(&format!("/v1/environments/{environment}"), config).await.ok();
    let of = |more: Value| {
        let mut body = json!({"agent_deployment_id": made["id"]});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let more = json!({"instructions": "Be terse.", "initial_events": [text("go")]});
    let session = bench.post("/v1/sessions", of(more)).await.ok();
    assert_eq!((&session["agent"]["version"], &session["agent"]["name"]), (&json!(1), &json!("a")));
    let runs = bench.get(&format!("/v1/sessions/{}/runs", session["id"].as_str().unwrap())).await.ok();
    let pins = &runs["data"][0]["execution_pins"];
    assert_eq!((&pins["environment_revision"], &pins["harness"]), (&json!(1), &json!("checkfu")));
    assert!(pins["instructions_sha256"].is_string());
    for (more, code) in [
        (json!({"agent": agent}), "invalid_request"),
        (json!({"environment_id": environment}), "invalid_request"),
        (json!({"instructions": "x".repeat((64 << 10) + 1)}), "invalid_request"),
    ] {
        bench.post("/v1/sessions", of(more)).await.refused(400, code);
    }
    let path = format!("/v1/agent-deployments/{}", made["id"].as_str().unwrap());
    bench.post(&format!("{path}/archive"), json!({})).await.ok();
    bench.post("/v1/sessions", of(json!({}))).await.refused(400, "archived");
    assert_eq!(bench.get(&path).await.ok()["name"], "stable");
}
