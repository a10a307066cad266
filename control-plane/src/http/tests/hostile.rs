//! Whatever a body says, the answer is never a failure of ours.

use super::{sessions::idle, *};
use proptest::prelude::*;

/// Names that the routes know, so that the bodies get far.
const NAMES: [&str; 32] = [
    "name",
    "model",
    "id",
    "effort",
    "type",
    "tools",
    "configs",
    "permission_policy",
    "input_schema",
    "properties",
    "metadata",
    "config",
    "networking",
    "allowed_hosts",
    "packages",
    "apt",
    "agent",
    "environment_id",
    "events",
    "payload",
    "content",
    "text",
    "source",
    "data",
    "initial_events",
    "budget",
    "max_list_cost",
    "title",
    "labels",
    "authored_by",
    "caused_by",
    "version",
];
const TEXTS: [&str; 14] = [
    "",
    "a",
    "agent",
    "user.message",
    "user.tool_confirmation",
    "text",
    "image",
    "base64",
    "cloud",
    "limited",
    "custom",
    "agent_toolset_20260401",
    "object",
    "\u{0}\u{202e}💥",
];

const PARAMETERS: [&str; 11] = [
    "limit",
    "page",
    "order",
    "after_seq",
    "types[]",
    "statuses[]",
    "created_at[gt]",
    "path",
    "offset",
    "length",
    "include_archived",
];

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(&TEXTS[..]).prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((prop::sample::select(&NAMES[..]), inner), 0..6)
                .prop_map(|pairs| Value::Object(pairs.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())),
        ]
    })
}

#[test]
fn no_body_makes_the_server_fail() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (bench, routes) = runtime.block_on(async {
        let bench = Bench::new().await;
        let (session, path) = idle(&bench).await;
        let agent = session["agent"]["id"].as_str().unwrap().to_owned();
        let environment = session["environment_id"].as_str().unwrap().to_owned();
        let routes = [
            "/v1/agents".to_owned(),
            format!("/v1/agents/{agent}"),
            "/v1/environments".to_owned(),
            format!("/v1/environments/{environment}"),
            "/v1/sessions".to_owned(),
            path.clone(),
            format!("{path}/events"),
            "/v1/api-keys".to_owned(),
            "/v1/principals".to_owned(),
            "/v1/runner-pairings".to_owned(),
        ];
        (bench, routes)
    });
    proptest!(ProptestConfig::with_cases(300), |(body in value(), route in 0usize..10, ours: bool)| {
        let headers = if ours { &OURS[..] } else { &SDK[..] };
        let got = runtime.block_on(bench.ask(Method::POST, &routes[route], headers, Some(body.clone())));
        prop_assert!(got.status.as_u16() < 500, "{} {}: {}", routes[route], body, got.body);
        if !got.status.is_success() {
            prop_assert!(!got.code().is_empty(), "{} {}", routes[route], got.body);
        }
    });
    proptest!(ProptestConfig::with_cases(100), |(bytes: Vec<u8>, route in 0usize..10)| {
        let request = bench.request(Method::POST, &routes[route], &SDK).body(Body::from(bytes)).unwrap();
        let status = runtime.block_on(bench.raw(request)).status();
        prop_assert!(status.as_u16() < 500);
    });
}

#[test]
fn no_query_makes_the_server_fail() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (bench, path) = runtime.block_on(async {
        let bench = Bench::new().await;
        let (_, path) = idle(&bench).await;
        (bench, path)
    });
    let routes = [
        "/v1/agents".to_owned(),
        "/v1/sessions".to_owned(),
        format!("{path}/events"),
        format!("{path}/files"),
        format!("{path}/files/content"),
        "/v1/environments".to_owned(),
        "/v1/runners".to_owned(),
        format!("{path}/threads"),
    ];
    proptest!(ProptestConfig::with_cases(300), |(
        pairs in prop::collection::vec((prop::sample::select(&PARAMETERS[..]), "[a-z0-9%.:_-]{0,20}"), 0..4), route in 0usize..8
    )| {
        let query: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let uri = format!("{}?{}", routes[route], query.join("&"));
        let got = runtime.block_on(bench.get(&uri));
        prop_assert!(got.status.as_u16() < 500, "{uri}: {}", got.body);
    });
}
