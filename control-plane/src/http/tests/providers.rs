//! Providers and model routes: keys go in and never come out, addresses are judged, routes name what is there.

use super::*;

const CANARY: &str = "sk-canary-98f1-tail";

async fn provider(bench: &Bench, name: &str) -> Value {
    let body = json!({"name": name, "kind": "anthropic", "key": CANARY});
    bench.post("/v1/providers", body).await.ok()
}

#[tokio::test]
async fn a_key_goes_in_and_never_comes_out() {
    let bench = Bench::new().await;
    let made = provider(&bench, "main").await;
    assert_eq!(made["base_url"], "https://api.anthropic.com");
    assert_eq!((&made["has_key"], &made["kind"]), (&json!(true), &json!("anthropic")));
    let id = made["id"].as_str().unwrap();
    let path = format!("/v1/providers/{id}");
    let moved = json!({"base_url": "https://elsewhere.example"});
    bench.post(&path, moved.clone()).await.refused(400, "invalid_request");
    let both = json!({"base_url": "https://elsewhere.example", "key": "sk-canary-other"});
    let changed = bench.post(&path, both).await.ok();
    let listed = bench.get("/v1/providers").await.ok();
    let read = bench.get(&path).await.ok();
    assert_eq!((&listed["data"][0], &read), (&changed, &changed));
    let cleared = bench.post(&path, json!({"key": null})).await.ok();
    assert_eq!(cleared["has_key"], false);
    bench.post(&path, json!({"key": CANARY})).await.ok();
    let archived = bench.post(&format!("{path}/archive"), json!({})).await.ok();
    assert_eq!(archived["has_key"], false);
    bench.post(&path, json!({"name": "again"})).await.refused(400, "archived");
    for shown in [made, changed, listed, read, cleared, archived] {
        assert!(!shown.to_string().contains("canary"), "{shown}");
    }
    let replays = bench
        .plane
        .store
        .read(|conn| {
            Ok(conn.query_row("select count(*) from replays where reply like '%canary%'", [], |row| {
                row.get::<_, i64>(0)
            })?)
        })
        .await;
    assert_eq!(replays.unwrap(), 0);
}

#[tokio::test]
async fn no_page_of_the_database_holds_a_key_and_a_rotation_seals_it_anew() {
    let bench = Bench::new().await;
    let id = provider(&bench, "main").await["id"].as_str().unwrap().to_owned();
    let sealed = async || {
        let read = |conn: &rusqlite::Connection| {
            Ok(conn.query_row("select sealed_key from providers", [], |row| row.get::<_, String>(0))?)
        };
        bench.plane.store.read(read).await.unwrap()
    };
    let before = sealed().await;
    let rotated = bench.post("/v1/providers/rotate-master-key", json!({})).await.ok();
    assert_eq!(rotated["resealed"], 1);
    let after = sealed().await;
    assert_ne!(crate::seal::key_id(&before), crate::seal::key_id(&after));
    let workspace = bench.workspace().await;
    let row = bench.plane.registry.provider(workspace, id.parse().unwrap()).await.unwrap().unwrap();
    let key = bench.plane.registry.unsealed(&row).unwrap().unwrap();
    assert_eq!(key.reveal(), CANARY);
    for file in std::fs::read_dir(&bench.plane.config.data_dir).unwrap() {
        let path = file.unwrap().path();
        let bytes = if path.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
        let canary = CANARY.as_bytes();
        assert!(!bytes.windows(canary.len()).any(|window| window == canary), "{}", path.display());
    }
}

#[tokio::test]
async fn private_addresses_need_permission_and_a_test_says_what_is_wrong() {
    let bench = Bench::new().await;
    let local = json!({"name": "local", "kind": "openai_compatible", "base_url": "http://127.0.0.1:9/v1"});
    bench.post("/v1/providers", local.clone()).await.refused(400, "invalid_request");
    for bad in ["http://169.254.169.254/v1", "ftp://x", "nonsense", "http://u:p@host/v1"] {
        let body =
            json!({"name": "bad", "kind": "openai_compatible", "base_url": bad, "allow_private": true});
        bench.post("/v1/providers", body).await.refused(400, "invalid_request");
    }
    let mut allowed = local;
    allowed["allow_private"] = true.into();
    let made = bench.post("/v1/providers", allowed.clone()).await.ok();
    bench.post("/v1/providers", allowed).await.refused(409, "conflict");
    let tested =
        bench.post(&format!("/v1/providers/{}/test", made["id"].as_str().unwrap()), json!({})).await.ok();
    assert_eq!(tested["ok"], false);
    assert_eq!(tested["problem"]["error_code"], "provider_unreachable");
    bench
        .post("/v1/providers", json!({"name": "x", "kind": "openai_compatible"}))
        .await
        .refused(400, "invalid_request");
    bench.post("/v1/providers", json!({"name": "x", "kind": "other"})).await.refused(400, "invalid_request");
}

#[tokio::test]
async fn a_route_names_providers_that_are_there_and_prices_in_whole_numbers() {
    let bench = Bench::new().await;
    let made = provider(&bench, "main").await;
    let id = made["id"].as_str().unwrap();
    let route = json!({"name": "smart", "candidates": [
        {"provider_id": id, "model": "claude-sonnet-4-5", "effort": "high"},
        {"model": "scripted-1", "price": {"input": 3_000_000, "output": 15_000_000}},
    ]});
    let route = bench.post("/v1/model-routes", route).await.ok();
    assert_eq!(route["candidates"][1]["price"]["cache_read"], 3_000_000);
    assert_eq!(route["candidates"][0]["effort"], "high");
    let path = format!("/v1/model-routes/{}", route["id"].as_str().unwrap());
    assert_eq!(bench.get(&path).await.ok(), route);
    let renamed = bench.post(&path, json!({"name": "smarter"})).await.ok();
    assert_eq!((&renamed["name"], &renamed["candidates"]), (&json!("smarter"), &route["candidates"]));
    for candidates in [
        json!([]),
        json!([{"model": ""}]),
        json!([{"model": "m", "effort": "xhigh"}]),
        json!([{"model": "m", "price": {"input": 1}}]),
        json!([{"model": "m", "price": {"input": 1.5, "output": 1}}]),
        json!([{"model": "m", "raw": 1}]),
    ] {
        let refused = bench.post("/v1/model-routes", json!({"name": "x", "candidates": candidates})).await;
        assert_eq!(refused.status, 400, "{candidates}");
    }
    bench.post(&format!("/v1/providers/{id}/archive"), json!({})).await.ok();
    let gone = json!({"name": "x", "candidates": [{"provider_id": id, "model": "m"}]});
    bench.post("/v1/model-routes", gone).await.refused(400, "unknown_reference");
    bench.ask(Method::DELETE, &path, &OURS, None).await.ok();
    assert_eq!(bench.get("/v1/model-routes").await.ok()["data"], json!([]));
}
