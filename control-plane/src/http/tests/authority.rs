//! Who may do what: every route for every role, in one's own workspace and in another, and what a revocation ends.

use super::{sessions::ground, *};
use crate::{
    domain::grant::Role,
    http::route::{Guard, Row},
    registry::{NewKey, Once},
};
use checkfu_shared::id::{PrincipalId, WorkspaceId};
use std::collections::BTreeMap;

/// A key of a fresh principal with this role.
async fn key_of(bench: &Bench, name: &str, role: &str) -> (String, String) {
    let made = bench.post("/v1/principals", json!({"name": name, "role": role})).await.ok();
    let key = bench.post("/v1/api-keys", json!({"name": name, "principal_id": made["id"]})).await.ok();
    (made["id"].as_str().unwrap().to_owned(), key["key"].as_str().unwrap().to_owned())
}

/// The key of an owner of another workspace.
async fn stranger(bench: &Bench) -> String {
    let (workspace, principal) = (WorkspaceId::mint(), PrincipalId::mint());
    bench.plane.engine.seat_owner(workspace, principal).await;
    let new = NewKey { name: "s".to_owned(), principal_id: principal, expires_at: None };
    let now = bench.clock.now();
    let made = bench.plane.registry.create_key(workspace, new, Once::NEVER, now).await.unwrap();
    made["key"].as_str().unwrap().to_owned()
}

async fn with_key(bench: &Bench, method: Method, path: &str, key: &str, body: Option<Value>) -> Got {
    let headers = [OURS[0], OURS[1], ("x-api-key", key)];
    bench.ask(method, path, &headers, body).await
}

/// A real id for each parameter of a path.
async fn ids(bench: &Bench) -> BTreeMap<&'static str, String> {
    let (agent, environment) = ground(bench).await;
    let made = bench.sdk("/v1/sessions", json!({"agent": agent, "environment_id": environment})).await.ok();
    let session = made["id"].as_str().unwrap().to_owned();
    let threads = bench.get(&format!("/v1/sessions/{session}/threads")).await.ok();
    let (principal, _) = key_of(bench, "spare", "none").await;
    let keys = bench.get("/v1/api-keys?limit=1").await.ok();
    let says = json!({"subject": principal, "permission": "read", "resource": {"kind": "*", "id_glob": "*"}});
    let assignment = bench.post("/v1/permission-assignments", says).await.ok();
    let policy = bench.post("/v1/action-policies", policies::asks("spare", "bash")).await.ok();
    let nowhere = json!({"name": "nowhere", "kind": "anthropic", "base_url": "http://127.0.0.1:9", "allow_private": true});
    let provider = bench.post("/v1/providers", nowhere).await.ok();
    let leads = json!({"name": "r", "candidates": [{"provider_id": provider["id"], "model": "m"}]});
    let route = bench.post("/v1/model-routes", leads).await.ok();
    let limits = json!({"session_id": session, "limit": 9, "metric": "model_tokens"});
    let budget = bench.post("/v1/budgets", limits).await.ok();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    BTreeMap::from([
        ("budget", text(&budget["id"])),
        ("provider", text(&provider["id"])),
        ("route", text(&route["id"])),
        ("agent", agent),
        ("environment", environment),
        ("session", session),
        ("thread", text(&threads["data"][0]["id"])),
        ("member", principal.clone()),
        ("principal", principal),
        ("key", text(&keys["data"][0]["id"])),
        ("assignment", text(&assignment["id"])),
        ("policy", text(&policy["id"])),
        ("approval", "appr_00000000000000000000000000000000".to_owned()),
        ("standing", "stnd_00000000000000000000000000000000".to_owned()),
        ("deployment", "adep_00000000000000000000000000000000".to_owned()),
        ("runner", "rnr_00000000000000000000000000000000".to_owned()),
        ("file", "file_00000000000000000000000000000000".to_owned()),
    ])
}

fn filled(row: &Row, ids: &BTreeMap<&'static str, String>) -> String {
    let mut path = row.path.clone();
    for (name, id) in ids {
        path = path.replace(&format!("{{{name}}}"), id);
    }
    assert!(!path.contains('{'), "{path} has a parameter that this test does not fill");
    path
}

fn keyed(row: &Row) -> bool {
    matches!(row.guard, Guard::AnyKey | Guard::Key(..))
}

#[tokio::test]
async fn every_route_lets_exactly_the_roles_in_that_hold_its_permission() {
    let bench = Bench::new().await;
    let ids = ids(&bench).await;
    let mut keys = Vec::new();
    for &role in Role::ALL {
        keys.push((role, key_of(&bench, role.as_str(), role.as_str()).await.1));
    }
    for row in routes().rows().iter().filter(|row| keyed(row)) {
        let path = filled(row, &ids);
        for (role, key) in &keys {
            let may = match row.guard {
                Guard::Key(permission, _) => role.permissions().contains(&permission),
                _ => true,
            };
            if may && row.method != Method::GET {
                // What it does is the business of other tests; a broken body shows that the guard let it pass.
                let request =
                    bench.request(row.method.clone(), &path, &[("x-api-key", key), OURS[0], OURS[1]]);
                let got = read(bench.raw(request.body(Body::from("{")).unwrap()).await).await;
                assert!(!matches!(got.status.as_u16(), 401 | 403 | 500..), "{role:?} {row:?}: {}", got.body);
                continue;
            }
            let streams = path.ends_with("/stream");
            if may && streams {
                continue;
            }
            let got = with_key(&bench, row.method.clone(), &path, key, None).await;
            if may {
                assert!(!matches!(got.status.as_u16(), 401 | 403 | 500..), "{role:?} {row:?}: {}", got.body);
            } else {
                got.refused(403, "permission_denied");
            }
        }
        let bare = [OURS[0], OURS[1], ("x-api-key", "ck_nobody")];
        bench.ask(row.method.clone(), &path, &bare, None).await.refused(401, "unauthenticated");
    }
}

#[tokio::test]
async fn ids_of_another_workspace_are_not_found_by_any_route() {
    let bench = Bench::new().await;
    let ids = ids(&bench).await;
    let key = stranger(&bench).await;
    let mut seen = 0;
    for row in routes().rows().iter().filter(|row| keyed(row) && row.path.contains('{')) {
        let body = match (row.method.as_str(), row.path.as_str()) {
            ("POST", "/v1/sessions/{session}/events") => json!({"events": [sessions::text("hi")]}),
            ("POST", "/v1/principals/{principal}/members") => json!({"principal": ids["principal"]}),
            ("POST", "/v1/action-policies/{policy}") => policies::asks("x", "bash"),
            ("POST", "/v1/action-approvals/{approval}/responses") => json!({"decision": "approve"}),
            ("POST", "/v1/action-approvals/{approval}/response-tokens") => {
                json!({"principal": ids["principal"]})
            }
            _ => json!({}),
        };
        let body = (row.method != Method::GET).then_some(body);
        let path = filled(row, &ids);
        let path = if path.ends_with("/content") { format!("{path}?path=x") } else { path };
        let got = with_key(&bench, row.method.clone(), &path, &key, body).await;
        assert_eq!(got.status, 404, "{row:?}: {}", got.body);
        seen += 1;
    }
    assert!(seen > 20, "only {seen} routes were tried");
    for list in [
        "agents",
        "environments",
        "sessions",
        "principals",
        "permission-assignments",
        "api-keys",
        "providers",
        "model-routes",
        "budgets",
    ] {
        let listed = with_key(&bench, Method::GET, &format!("/v1/{list}"), &key, None).await.ok().to_string();
        for (name, id) in &ids {
            assert!(!listed.contains(id.as_str()), "{list} shows another workspace's {name}");
        }
    }
}

#[tokio::test]
async fn a_route_beside_the_table_is_refused_and_runner_routes_want_a_runner() {
    let bench = Bench::new().await;
    let rogue = axum::routing::get(|| async { "reached" });
    let mut beside = routes();
    beside.add_beside_the_table("/v1/rogue", rogue);
    let router = beside.guarded(&bench.plane).with_state(bench.plane.clone());
    let request = Request::get("/v1/rogue").body(Body::empty()).unwrap();
    assert_eq!(router.oneshot(request).await.unwrap().status(), 500);
    for row in routes().rows().iter().filter(|row| matches!(row.guard, Guard::Runner | Guard::Capability)) {
        let path = row.path.replace("{claim_id}", "clm_1").replace("{upload_id}", "upl_1");
        for key in [bench.key.as_str(), "rtok_nobody"] {
            let headers = [("authorization", &*format!("Bearer {key}"))];
            let got = bench.ask(row.method.clone(), &path, &headers, Some(json!({}))).await;
            assert_eq!(got.status, 401, "{row:?}");
        }
    }
    let open: Vec<String> =
        routes().rows().iter().filter(|row| row.guard == Guard::Open).map(|row| row.path.clone()).collect();
    let want =
        ["/healthz", "/readyz", "/openapi.json", "/v1/runner/nonce", "/v1/runner/pair", "/v1/runner/token"];
    assert_eq!(open, want);
}

#[tokio::test]
async fn an_assignment_gives_what_it_says_until_it_ends() {
    let bench = Bench::new().await;
    let (agent, environment) = ground(&bench).await;
    let (principal, key) = key_of(&bench, "ann", "none").await;
    let path = format!("/v1/agents/{agent}");
    with_key(&bench, Method::GET, &path, &key, None).await.refused(403, "permission_denied");
    let grant = |permission: &str, kind: &str, glob: &str| json!({"subject": principal, "permission": permission, "resource": {"kind": kind, "id_glob": glob}});
    let made = bench.post("/v1/permission-assignments", grant("read", "agent", &agent)).await.ok();
    assert!(made["id"].as_str().unwrap().starts_with("perm_"));
    with_key(&bench, Method::GET, &path, &key, None).await.ok();
    with_key(&bench, Method::GET, "/v1/agents", &key, None).await.refused(403, "permission_denied");
    let of = format!("/v1/permission-assignments?subject={principal}");
    assert_eq!(bench.get(&of).await.ok()["data"], json!([made]));
    let at = format!("/v1/permission-assignments/{}", made["id"].as_str().unwrap());
    bench.post(&format!("{at}/revoke"), json!({})).await.ok();
    with_key(&bench, Method::GET, &path, &key, None).await.refused(403, "permission_denied");
    assert_eq!(bench.get(&of).await.ok()["data"], json!([]));
    assert!(!bench.get(&at).await.ok()["revoked_at"].is_null());

    let mut short = grant("read", "agent", "*");
    short["ttl_seconds"] = json!(60);
    bench.post("/v1/permission-assignments", short).await.ok();
    with_key(&bench, Method::GET, "/v1/agents", &key, None).await.ok();
    bench.clock.advance_ms(60_000);
    with_key(&bench, Method::GET, "/v1/agents", &key, None).await.refused(403, "permission_denied");

    let create = json!({"agent": agent, "environment_id": environment});
    bench.post("/v1/permission-assignments", grant("write", "session", "*")).await.ok();
    for (permission, kind, glob) in
        [("invoke", "agent", agent.as_str()), ("use_environment", "environment", "env_*")]
    {
        let got = with_key(&bench, Method::POST, "/v1/sessions", &key, Some(create.clone())).await;
        got.refused(403, "permission_denied");
        assert_eq!(got.body["error"]["details"]["permission"], permission);
        bench.post("/v1/permission-assignments", grant(permission, kind, glob)).await.ok();
    }
    with_key(&bench, Method::POST, "/v1/sessions", &key, Some(create)).await.ok();
    for (body, code) in [
        (json!({}), "invalid_request"),
        (grant("fly", "agent", "*"), "invalid_request"),
        (grant("read", "moon", "*"), "invalid_request"),
        (grant("read", "agent", ""), "invalid_request"),
    ] {
        bench.post("/v1/permission-assignments", body).await.refused(400, code);
    }
}

#[tokio::test]
async fn a_group_gives_to_its_members_as_long_as_they_are_in() {
    let bench = Bench::new().await;
    let (principal, key) = key_of(&bench, "ann", "none").await;
    let group = bench.post("/v1/principals", json!({"name": "g", "kind": "group"})).await.ok();
    let group = group["id"].as_str().unwrap();
    let says = json!({"subject": group, "permission": "read", "resource": {"kind": "agent", "id_glob": "*"}});
    bench.post("/v1/permission-assignments", says).await.ok();
    let members = format!("/v1/principals/{group}/members");
    let look = async || with_key(&bench, Method::GET, "/v1/agents", &key, None).await.status.as_u16();
    assert_eq!(look().await, 403);
    bench.post(&members, json!({"principal": principal})).await.ok();
    assert_eq!(look().await, 200);
    assert_eq!(bench.get(&members).await.ok()["data"][0]["principal"], json!(principal));
    bench.ask(Method::DELETE, &format!("{members}/{principal}"), &OURS, None).await.ok();
    assert_eq!(look().await, 403);
    bench.post(&members, json!({"principal": principal})).await.ok();
    bench.post(&format!("/v1/principals/{group}/archive"), json!({})).await.ok();
    assert_eq!(look().await, 403);
    bench.post(&members, json!({"principal": group})).await.refused(400, "archived");
}

#[tokio::test]
async fn who_governs_last_stays() {
    let bench = Bench::new().await;
    let listed = bench.get("/v1/permission-assignments?limit=100").await.ok();
    let admin =
        listed["data"].as_array().unwrap().iter().find(|row| row["permission"] == "admin").unwrap().clone();
    let revoke = format!("/v1/permission-assignments/{}/revoke", admin["id"].as_str().unwrap());
    bench.post(&revoke, json!({})).await.refused(400, "invalid_state");
    let subject = admin["subject"].as_str().unwrap();
    bench.post(&format!("/v1/principals/{subject}/archive"), json!({})).await.refused(400, "invalid_state");
    let (other, key) = key_of(&bench, "second", "owner").await;
    bench.post(&revoke, json!({})).await.ok();
    bench.get("/v1/api-keys").await.refused(403, "permission_denied");
    with_key(&bench, Method::GET, "/v1/api-keys", &key, None).await.ok();
    let path = format!("/v1/principals/{other}/archive");
    with_key(&bench, Method::POST, &path, &key, None).await.refused(400, "invalid_state");
}

#[tokio::test]
async fn a_withdrawn_permission_refuses_the_next_message_and_stops_what_runs() {
    let bench = Bench::new().await;
    let (agent, environment) = ground(&bench).await;
    let (principal, key) = key_of(&bench, "ann", "developer").await;
    let create =
        json!({"agent": agent, "environment_id": environment, "initial_events": [sessions::text("go")]});
    let made = with_key(&bench, Method::POST, "/v1/sessions", &key, Some(create)).await.ok();
    assert_eq!(made["status"], "running");
    let listed = bench.get(&format!("/v1/permission-assignments?limit=100&subject={principal}")).await.ok();
    let invoke = listed["data"].as_array().unwrap().iter().find(|row| row["permission"] == "invoke").unwrap();
    bench
        .post(&format!("/v1/permission-assignments/{}/revoke", invoke["id"].as_str().unwrap()), json!({}))
        .await
        .ok();
    let path = format!("/v1/sessions/{}", made["id"].as_str().unwrap());
    assert_eq!(bench.get(&path).await.ok()["status"], "idle");
    let events = bench.get(&format!("{path}/events?types[]=session.error")).await.ok();
    assert_eq!(events["data"][0]["error"]["type"], "permission_denied");
    let say = json!({"events": [sessions::text("more")]});
    let got = with_key(&bench, Method::POST, &format!("{path}/events"), &key, Some(say)).await;
    got.refused(403, "permission_denied");
    let report = crate::engine::verify::verify(&bench.plane.store).await.unwrap();
    assert_eq!(report.differences, []);
}

#[tokio::test]
async fn an_older_database_gets_the_rows_that_its_roles_stood_for() {
    let bench = Bench::new().await;
    let path = bench.dir.path().join("checkfu.db");
    bench.plane.store.close();
    let connection = rusqlite::Connection::open(&path).unwrap();
    let count = |connection: &rusqlite::Connection| -> u32 {
        connection.query_row("select count(*) from permission_assignments", [], |row| row.get(0)).unwrap()
    };
    let fresh = count(&connection);
    let governance = include_str!("../../store/migrations/0004_governance.sql");
    connection
        .execute_batch(
            "drop table permission_assignments; drop table group_members; drop index sessions_at_work;",
        )
        .unwrap();
    connection.execute_batch(governance).unwrap();
    assert_eq!(count(&connection), fresh);
}

#[tokio::test]
async fn whatever_is_revoked_every_route_that_worked_before_refuses_from_the_next_request_on() {
    let bench = Bench::new().await;
    let ids = ids(&bench).await;
    let table = routes();
    let keyed: Vec<&Row> = table.rows().iter().filter(|row| keyed(row)).collect();
    let replay = async |key: &str| {
        let mut statuses = Vec::new();
        for row in &keyed {
            let path = filled(row, &ids);
            if path.ends_with("/stream") {
                continue;
            }
            let request = bench.request(row.method.clone(), &path, &[("x-api-key", key), OURS[0], OURS[1]]);
            // A broken body lets nothing change, and is looked at only behind the guard.
            let response = bench.raw(request.body(Body::from("{")).unwrap()).await;
            statuses.push((row.guard, response.status().as_u16()));
        }
        statuses
    };
    let (_, by_key) = key_of(&bench, "key", "owner").await;
    let (archived, by_principal) = key_of(&bench, "principal", "owner").await;
    let (stripped, by_rows) = key_of(&bench, "rows", "owner").await;
    for key in [&by_key, &by_principal, &by_rows] {
        assert!(replay(key).await.iter().all(|(_, status)| !matches!(status, 401 | 403)));
    }
    let listed = bench.get("/v1/api-keys?limit=100").await.ok();
    let row = listed["data"].as_array().unwrap().iter().find(|row| row["name"] == "key").unwrap();
    bench.post(&format!("/v1/api-keys/{}/revoke", row["id"].as_str().unwrap()), json!({})).await.ok();
    bench.post(&format!("/v1/principals/{archived}/archive"), json!({})).await.ok();
    let of = format!("/v1/permission-assignments?limit=100&subject={stripped}");
    for row in bench.get(&of).await.ok()["data"].as_array().unwrap() {
        let path = format!("/v1/permission-assignments/{}/revoke", row["id"].as_str().unwrap());
        bench.post(&path, json!({})).await.ok();
    }
    for key in [&by_key, &by_principal] {
        assert!(replay(key).await.iter().all(|(_, status)| *status == 401));
    }
    let left = replay(&by_rows).await;
    assert!(left.iter().all(|(guard, status)| *status == 403 || *guard == Guard::AnyKey), "{left:?}");
}
