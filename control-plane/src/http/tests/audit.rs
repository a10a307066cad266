//! The audit and the export over the API: what is on record, and that it proves itself.

use super::{sessions::idle, *};
use crate::export;

#[tokio::test]
async fn every_act_and_every_denial_is_on_record_without_secrets() {
    let bench = Bench::new().await;
    let made = bench.post("/v1/principals", json!({"name": "canary-name", "role": "viewer"})).await.ok();
    let key = bench.post("/v1/api-keys", json!({"name": "k", "principal_id": made["id"]})).await.ok();
    let secret = key["key"].as_str().unwrap();
    let with = [OURS[0], OURS[1], ("x-api-key", secret)];
    bench
        .ask(Method::POST, "/v1/agents", &with, Some(json!({"name": "a", "model": "m"})))
        .await
        .refused(403, "permission_denied");
    bench.ask(Method::GET, "/v1/agents", &with, None).await.ok();
    let listed = bench.get("/v1/audit").await.ok();
    let rows = listed["data"].as_array().unwrap();
    let told: Vec<(&str, &str)> =
        rows.iter().map(|row| (row["action"].as_str().unwrap(), row["outcome"].as_str().unwrap())).collect();
    assert_eq!(
        told,
        [("POST /v1/principals", "done"), ("POST /v1/api-keys", "done"), ("POST /v1/agents", "denied")]
    );
    assert_eq!((&rows[2]["actor"], &rows[2]["seq"]), (&made["id"], &json!(3)));
    assert!(rows.iter().all(|row| row["request_id"].as_str().unwrap().starts_with("req_")));
    for canary in [secret, bench.key.as_str(), "canary-name"] {
        assert!(!listed.to_string().contains(canary), "the audit holds a text of a caller");
    }
    let denied = bench.get("/v1/audit?outcome=denied").await.ok();
    assert_eq!(denied["data"].as_array().unwrap().len(), 1);
    let page = bench.get("/v1/audit?limit=1").await.ok();
    let next = page["next_page"].as_str().unwrap();
    assert_eq!(bench.get(&format!("/v1/audit?limit=1&page={next}")).await.ok()["data"][0]["seq"], 2);
    let of = format!("/v1/audit?actor={}", made["id"].as_str().unwrap());
    assert_eq!(bench.get(&of).await.ok()["data"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_changed_row_of_the_audit_is_found_and_named() {
    let bench = Bench::new().await;
    for name in ["a", "b", "c"] {
        bench.post("/v1/principals", json!({"name": name})).await.ok();
    }
    let whole = bench.get("/v1/audit/verification").await.ok();
    assert_eq!((&whole["intact"], &whole["rows"]), (&json!(true), &json!(3)));
    assert!(whole["checkpoint"]["signature"].is_string());
    bench
        .plane
        .store
        .write(|tx| Ok(tx.execute("update audit set actor = 'nobody' where seq = 2", [])?))
        .await
        .unwrap();
    let broken = bench.get("/v1/audit/verification").await.ok();
    assert_eq!((&broken["intact"], &broken["broken_at"]), (&json!(false), &json!(2)));
}

#[tokio::test]
async fn an_export_proves_the_log_and_names_what_is_gone() {
    let bench = Bench::new().await;
    let (_, path) = idle(&bench).await;
    for text in ["a", "b"] {
        bench.sdk(&format!("{path}/events"), json!({"events": [sessions::text(text)]})).await.ok();
    }
    let export = async || {
        let request = bench.request(Method::GET, &format!("{path}/export"), &OURS);
        let response = bench.raw(request.body(Body::empty()).unwrap()).await;
        assert_eq!(response.status(), 200);
        axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap()
    };
    let bytes = export().await;
    let last = bench.get(&format!("{path}/events?order=desc&limit=1")).await.ok()["data"][0]["seq"].clone();
    let verified = export::verify(&bytes, None).unwrap();
    assert_eq!(json!(verified.head.positions), last);
    assert_eq!(verified.unavailable, Vec::<u64>::new());
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    let broken = text.replacen("user.message", "user.massage", 1);
    assert!(matches!(export::verify(broken.as_bytes(), None), Err(export::Broken::Line { line: 2 })));
    bench.plane.store.write(|tx| Ok(tx.execute("delete from events where seq = 2", [])?)).await.unwrap();
    let verified = export::verify(&export().await, Some(&verified.public_key)).unwrap();
    assert_eq!(verified.unavailable, [2]);
}
