//! The client: what it sends, how it reads replies and refusals, and what it says when nobody answers.

use super::*;
use axum::{
    Json, Router,
    extract::Query as Params,
    http::{HeaderMap, StatusCode as Status},
    response::IntoResponse,
    routing::get,
};
use checkfu_shared::problem::Code;
use serde_json::json;
use std::collections::HashMap;
use tokio::net::TcpListener;

async fn server(router: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

#[tokio::test]
async fn every_request_carries_the_key_and_the_versions() {
    let echo = |headers: HeaderMap| async move {
        let read = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        Json(json!([read("authorization"), read("checkfu-version"), read("checkfu-beta")]))
    };
    let url = server(Router::new().route("/v1/x", get(echo))).await;
    let client = Client::new(&url, Some(&Secret::new("k1"))).unwrap();
    assert_eq!(client.get("/v1/x", &[]).await.unwrap(), json!(["Bearer k1", "2026-08-29", "managed-agents"]));
    assert!(!format!("{client:?}").contains("k1"));
}

#[tokio::test]
async fn a_list_is_read_page_by_page_up_to_its_limit() {
    let page = |Params(query): Params<HashMap<String, String>>| async move {
        let limit: u64 = query["limit"].parse().unwrap();
        let from: u64 = query.get("page").map_or(0, |page| page.parse().unwrap());
        let to = (from + limit.min(2)).min(5);
        let rows: Vec<u64> = (from..to).collect();
        Json(json!({"data": rows, "next_page": (to < 5).then(|| to.to_string())}))
    };
    let url = server(Router::new().route("/v1/x", get(page))).await;
    let client = Client::new(&url, None).unwrap();
    assert_eq!(client.list("/v1/x", &[], 3).await.unwrap(), [0, 1, 2]);
    assert_eq!(client.list("/v1/x", &[], 100).await.unwrap(), [0, 1, 2, 3, 4]);
}

#[tokio::test]
async fn a_refusal_and_a_foreign_server_are_told_apart() {
    let refuse = || async {
        (Status::CONFLICT, Json(Problem::new(Code::Conflict, "The name is taken.").body("req_1")))
            .into_response()
    };
    let url =
        server(Router::new().route("/v1/x", get(refuse)).route("/v1/y", get(|| async { "<html>" }))).await;
    let client = Client::new(&url, None).unwrap();
    let failure = client.get("/v1/x", &[]).await.unwrap_err();
    assert_eq!((failure.exit, failure.message.as_str()), (Exit::Conflict, "The name is taken."));
    let failure = client.get("/v1/y", &[]).await.unwrap_err();
    assert!(failure.message.contains("does not seem to be a Checkfu server"), "{failure}");
    let failure = client.get("/v1/z", &[]).await.unwrap_err();
    assert!(failure.message.contains("404"), "{failure}");
}

#[tokio::test]
async fn an_unreachable_server_has_its_own_code_and_a_sentence() {
    let client = Client::new("http://127.0.0.1:1", None).unwrap();
    let failure = client.get("/v1/x", &[]).await.unwrap_err();
    assert_eq!(failure.exit, Exit::Unreachable);
    assert!(failure.message.contains("http://127.0.0.1:1 cannot be reached"), "{failure}");
}

#[test]
fn a_wrong_address_or_key_is_a_matter_of_usage() {
    assert_eq!(Client::new("localhost:8321", None).unwrap_err().exit, Exit::Usage);
    let failure = Client::new("http://x", Some(&Secret::new("canary\n"))).unwrap_err();
    assert_eq!(failure.exit, Exit::Usage);
    assert!(!failure.message.contains("canary"));
}
