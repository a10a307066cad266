//! Keys, version headers, request ids, unknown routes, bodies.

use super::*;

#[tokio::test]
async fn a_key_is_good_in_either_header_and_nothing_else_is() {
    let bench = Bench::new().await;
    let key = bench.key.clone();
    for (header, status) in [
        (("authorization", format!("Bearer {key}")), 200),
        (("x-api-key", key.clone()), 200),
        (("authorization", "Bearer ck_wrong".to_owned()), 401),
        (("authorization", format!("Basic {key}")), 401),
        (("x-api-key", String::new()), 401),
    ] {
        let headers = [(header.0, header.1.as_str()), SDK[0]];
        let got = bench.ask(Method::GET, "/v1/agents", &headers, None).await;
        assert_eq!(got.status.as_u16(), status, "{header:?}");
    }
}

#[tokio::test]
async fn every_reply_names_its_request_and_every_refusal_repeats_the_name() {
    let bench = Bench::new().await;
    for path in ["/healthz", "/readyz", "/v1/agents", "/v1/agents/nope", "/nope"] {
        let got = bench.get(path).await;
        let id = got.headers["request-id"].to_str().unwrap();
        assert!(id.starts_with("req_"), "{path}");
        if !got.status.is_success() {
            assert_eq!(got.body["request_id"], id, "{path}");
            assert_eq!(got.body["type"], "error");
        }
    }
}

#[tokio::test]
async fn versions_routes_and_methods_that_nobody_knows_are_refused_by_name() {
    let bench = Bench::new().await;
    bench.ask(Method::GET, "/v1/agents", &[], None).await.refused(400, "invalid_header");
    let wrong = [("checkfu-version", "1999-01-01"), OURS[1]];
    bench.ask(Method::GET, "/v1/agents", &wrong, None).await.refused(400, "invalid_header");
    bench.get("/v1/nope").await.refused(404, "unknown_route");
    let got = bench.ask(Method::PUT, "/v1/agents", &OURS, None).await;
    got.refused(405, "method_not_allowed");
    assert!(got.headers.contains_key("allow"));
    assert_eq!(bench.ask(Method::GET, "/v1/agents?beta=true", &SDK, None).await.status, 200);
}

#[tokio::test]
async fn a_malformed_id_is_not_found_on_a_path() {
    let bench = Bench::new().await;
    for path in [
        "/v1/agents/agent_x",
        "/v1/agents/%ff",
        "/v1/environments/sesn_nope",
        "/v1/principals/x",
        "/v1/api-keys/key_0",
    ] {
        let got = bench.get(path).await;
        assert_eq!(got.status, 404, "{path}: {}", got.body);
        assert_eq!(got.body["error"]["type"], "not_found_error");
    }
}

#[tokio::test]
async fn broken_json_is_refused_and_a_body_over_32_mib_is_too_large() {
    let bench = Bench::new().await;
    let send = async |body: Body| {
        read(bench.raw(bench.request(Method::POST, "/v1/agents", &OURS).body(body).unwrap()).await).await
    };
    send(Body::from("{")).await.refused(400, "invalid_json");
    send(Body::from("[]")).await.refused(400, "invalid_request");
    send(Body::from(vec![b' '; (32 << 20) + 1])).await.refused(413, "too_large");
}

#[tokio::test]
async fn a_revoked_or_expired_key_is_refused_at_once_and_only_the_first_answer_shows_it() {
    let bench = Bench::new().await;
    let once = [OURS[0], OURS[1], ("idempotency-key", "k1")];
    let body = json!({"name": "ci", "ttl_seconds": 60});
    let made = bench.ask(Method::POST, "/v1/api-keys", &once, Some(body.clone())).await.ok();
    let key = made["key"].as_str().unwrap().to_owned();
    let again = bench.ask(Method::POST, "/v1/api-keys", &once, Some(body)).await.ok();
    assert_eq!((again["id"].clone(), again.get("key")), (made["id"].clone(), None));
    let with = [("x-api-key", key.as_str()), SDK[0]];
    bench.ask(Method::GET, "/v1/agents", &with, None).await.ok();
    bench.clock.advance_ms(60_000);
    bench.ask(Method::GET, "/v1/agents", &with, None).await.refused(401, "unauthenticated");

    let made = bench.post("/v1/api-keys", json!({"name": "two"})).await.ok();
    let key = made["key"].as_str().unwrap().to_owned();
    let with = [("x-api-key", key.as_str()), SDK[0]];
    bench.ask(Method::GET, "/v1/agents", &with, None).await.ok();
    let path = format!("/v1/api-keys/{}", made["id"].as_str().unwrap());
    assert_eq!(bench.get(&path).await.ok()["last_used_at"], "2026-12-01T00:01:00.000Z");
    bench.post(&format!("{path}/revoke"), json!({})).await.ok();
    bench.ask(Method::GET, "/v1/agents", &with, None).await.refused(401, "unauthenticated");
    let listed = bench.get("/v1/api-keys?include_archived=true").await.ok();
    assert!(!listed.to_string().contains(&key), "a list shows a key");
}

#[tokio::test]
async fn a_role_bounds_what_a_key_may_do() {
    let bench = Bench::new().await;
    let viewer = bench.post("/v1/principals", json!({"name": "v", "role": "viewer"})).await.ok();
    let made = bench.post("/v1/api-keys", json!({"name": "v", "principal_id": viewer["id"]})).await.ok();
    let with = [("x-api-key", made["key"].as_str().unwrap()), SDK[0]];
    bench.ask(Method::GET, "/v1/agents", &with, None).await.ok();
    let agent = json!({"name": "a", "model": "m"});
    bench.ask(Method::POST, "/v1/agents", &with, Some(agent)).await.refused(403, "permission_denied");
    bench
        .ask(Method::POST, "/v1/api-keys", &with, Some(json!({"name": "x"})))
        .await
        .refused(403, "permission_denied");
    let path = format!("/v1/principals/{}/archive", viewer["id"].as_str().unwrap());
    bench.post(&path, json!({})).await.ok();
    bench.ask(Method::GET, "/v1/agents", &with, None).await.refused(401, "unauthenticated");
    bench.post("/v1/principals", json!({"name": "v"})).await.refused(409, "conflict");
}

#[tokio::test]
async fn an_idempotency_key_gives_the_first_answer_and_refuses_another_body() {
    let bench = Bench::new().await;
    let headers = [OURS[0], OURS[1], ("idempotency-key", "k")];
    let body = json!({"name": "a", "model": "m"});
    let first = bench.ask(Method::POST, "/v1/agents", &headers, Some(body.clone())).await.ok();
    let second = bench.ask(Method::POST, "/v1/agents", &headers, Some(body.clone())).await.ok();
    assert_eq!(first, second);
    let other = json!({"name": "b", "model": "m"});
    bench.ask(Method::POST, "/v1/agents", &headers, Some(other)).await.refused(409, "idempotency_conflict");
    bench.clock.advance_ms(24 * 3_600_000);
    let late = bench.ask(Method::POST, "/v1/agents", &headers, Some(body)).await.ok();
    assert_ne!(first["id"], late["id"]);
}

#[tokio::test]
async fn an_sdk_retry_within_a_minute_gets_the_first_answer() {
    let bench = Bench::new().await;
    let retry = [SDK[0], ("x-stainless-retry-count", "1")];
    let body = json!({"name": "a", "model": "m"});
    let first = bench.sdk("/v1/agents", body.clone()).await.ok();
    let retried = bench.ask(Method::POST, "/v1/agents", &retry, Some(body.clone())).await.ok();
    assert_eq!(first, retried);
    let fresh = bench.sdk("/v1/agents", body.clone()).await.ok();
    assert_ne!(first["id"], fresh["id"], "a request that is no retry was taken for one");
    bench.clock.advance_ms(60_000);
    let late = bench.ask(Method::POST, "/v1/agents", &retry, Some(body)).await.ok();
    assert!(late["id"] != first["id"] && late["id"] != fresh["id"]);
}
