//! Pairings, runners and what a deployment says of itself.

use super::*;

#[tokio::test]
async fn a_pairing_code_is_shown_once() {
    let bench = Bench::new().await;
    let keyed = [OURS[0], OURS[1], ("idempotency-key", "k")];
    let body = json!({"name": "r", "labels": ["gpu"], "max_sessions": 2, "ttl_seconds": 60});
    let first = bench.ask(Method::POST, "/v1/runner-pairings", &keyed, Some(body.clone())).await.ok();
    assert!(first["id"].as_str().unwrap().starts_with("pair_"));
    assert_eq!(first["expires_at"], "2026-12-01T00:01:00.000Z");
    let code = first["code"].as_str().unwrap();
    assert!(code.len() >= 8);
    let again = bench.ask(Method::POST, "/v1/runner-pairings", &keyed, Some(body)).await.ok();
    assert_eq!((again["id"].clone(), again.get("code")), (first["id"].clone(), None));
}

#[tokio::test]
async fn pairings_that_break_a_rule_are_refused() {
    let bench = Bench::new().await;
    for (body, code) in [
        (json!({"ttl_seconds": 3601}), "invalid_request"),
        (json!({"ttl_seconds": 0}), "invalid_request"),
        (json!({"max_sessions": 0}), "invalid_request"),
        (json!({"labels": ["a b"]}), "invalid_request"),
        (json!({"principal": "x"}), "invalid_request"),
        (json!({"principal": "prin_00000000000000000000000000000000"}), "unknown_reference"),
        (json!({"nope": 1}), "unknown_field"),
    ] {
        bench.post("/v1/runner-pairings", body).await.refused(400, code);
    }
    assert_eq!(bench.get("/v1/runners").await.ok(), json!({"data": [], "next_page": null}));
    let nobody = "/v1/runners/rnr_00000000000000000000000000000000";
    bench.get(nobody).await.refused(404, "not_found");
    bench.post(&format!("{nobody}/revoke"), json!({"reason": "x"})).await.refused(404, "not_found");
    bench.post(&format!("{nobody}/drain"), json!({})).await.refused(404, "not_found");
}

#[tokio::test]
async fn a_deployment_says_what_it_does() {
    let bench = Bench::new().await;
    let got = bench.get("/v1/support/capabilities").await.ok();
    assert_eq!(got["versions"], json!(["2026-08-29"]));
    assert_eq!(got["features"]["sessions"], "built");
}

#[tokio::test]
async fn a_keyed_pairing_is_minted_once_however_many_ask_at_the_same_time() {
    let bench = Bench::new().await;
    let keyed = [OURS[0], OURS[1], ("idempotency-key", "k")];
    let ask = || bench.ask(Method::POST, "/v1/runner-pairings", &keyed, Some(json!({"name": "r"})));
    let all = futures_util::future::join_all((0..16).map(|_| ask())).await;
    let all: Vec<Value> = all.into_iter().map(Got::ok).collect();
    assert!(all.iter().all(|one| one["id"] == all[0]["id"]), "{all:#?}");
    assert_eq!(all.iter().filter(|one| one["code"].is_string()).count(), 1, "only the first shows the code");
}
