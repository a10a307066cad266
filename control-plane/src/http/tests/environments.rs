//! Environments: names, revisions, types, archive, delete.

use super::*;

async fn made(bench: &Bench, body: Value) -> Value {
    bench.post("/v1/environments", body).await.ok()
}

#[tokio::test]
async fn a_name_is_unique_among_those_in_use() {
    let bench = Bench::new().await;
    let first = made(&bench, json!({"name": "e"})).await;
    assert_eq!(first["config"], json!({"type": "self_hosted"}));
    let taken = bench.post("/v1/environments", json!({"name": "e"})).await;
    taken.refused(409, "conflict");
    assert_eq!(taken.headers["x-should-retry"], "false");
    let other = made(&bench, json!({"name": "f"})).await;
    let path = format!("/v1/environments/{}", other["id"].as_str().unwrap());
    bench.post(&path, json!({"name": "e"})).await.refused(409, "conflict");
}

#[tokio::test]
async fn a_changed_configuration_is_a_new_revision_and_the_old_one_stays() {
    let bench = Bench::new().await;
    let first = made(&bench, json!({"name": "e", "config": {"type": "cloud"}})).await;
    let path = format!("/v1/environments/{}", first["id"].as_str().unwrap());
    let renamed = bench.post(&path, json!({"name": "g", "metadata": {"k": "v"}})).await.ok();
    assert_eq!((renamed["revision"].clone(), renamed["name"].clone()), (json!(1), json!("g")));
    let config = json!({"type": "cloud", "networking": {"type": "limited", "allowed_hosts": ["a.test"], "allow_package_managers": true}});
    let revised = bench.post(&path, json!({"config": config, "metadata": {"k": ""}})).await.ok();
    assert_eq!((revised["revision"].clone(), revised["metadata"].clone()), (json!(2), json!({})));
    let hosts = revised["config"]["networking"]["allowed_hosts"].as_array().unwrap();
    assert!(hosts.contains(&json!("pypi.org")) && hosts.contains(&json!("a.test")));
    let old = bench.get(&format!("{path}?revision=1")).await.ok();
    assert_eq!(old["config"], first["config"]);
    bench.get(&format!("{path}?revision=3")).await.refused(404, "environment_not_found");
}

#[tokio::test]
async fn the_type_never_changes() {
    let bench = Bench::new().await;
    let first = made(&bench, json!({"name": "e", "config": {"type": "self_hosted"}})).await;
    let path = format!("/v1/environments/{}", first["id"].as_str().unwrap());
    let got = bench.post(&path, json!({"config": {"type": "cloud"}})).await;
    got.refused(400, "invalid_config_type_change");
}

#[tokio::test]
async fn an_archived_environment_takes_no_change_and_a_deleted_one_is_gone() {
    let bench = Bench::new().await;
    let first = made(&bench, json!({"name": "e"})).await;
    let path = format!("/v1/environments/{}", first["id"].as_str().unwrap());
    bench.post(&format!("{path}/archive"), json!({})).await.ok();
    bench.post(&path, json!({"name": "f"})).await.refused(400, "environment_archived");
    made(&bench, json!({"name": "e"})).await;
    let gone = bench.ask(Method::DELETE, &path, &SDK, None).await.ok();
    assert_eq!(gone, json!({"id": first["id"], "type": "environment_deleted"}));
    bench.get(&path).await.refused(404, "environment_not_found");
    bench.ask(Method::DELETE, &path, &SDK, None).await.refused(404, "environment_not_found");
    let retry = [SDK[0], ("x-stainless-retry-count", "1")];
    assert_eq!(bench.ask(Method::DELETE, &path, &retry, None).await.ok(), gone);
    assert_eq!(bench.get("/v1/environments").await.ok()["data"].as_array().unwrap().len(), 1);
}
