//! The gateway with a real engine, a live claim and a real HTTP provider.

mod budgets;
mod routing;

use super::provider::{Address, Kind, Waits};
use super::*;
use crate::dial::Reach;
use crate::{
    config::Config,
    engine::{Caller, Engine, NewPairing, NewSession},
    http as plane_http, serve,
};
use axum::{
    Router,
    body::{Bytes, to_bytes},
    extract::State as Shared,
    response::IntoResponse,
    routing::post,
};
use axum::{
    http::{Request, StatusCode},
    response::Response,
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use checkfu_shared::event::ModelUsage;
use checkfu_shared::{
    agent::{self, Agent, Model},
    content::Block,
    environment::{Limits, Network, Packages, Profile, Spec},
    event::{Body as EventBody, Cause, CauseKind},
    id::{AgentId, ClaimRequestId, EnvironmentId, InstanceId, PrincipalId, WorkspaceId},
    protocol::{
        claim::{Claim, ClaimRequest},
        pairing::{Host, Pair, signed_bytes},
        renew::Renew,
    },
    time::{ManualClock, Timestamp},
};
use futures_util::{StreamExt, stream};
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::{Map, Value, json};
use std::{net::Ipv4Addr, sync::Mutex};
use tokio::net::TcpListener;

const KEY: &str = "sk-canary-real-key";
const START: &str = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":5,\"output_tokens\":1}}}\n\n";
const STOP: &str = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";

/// How the scripted provider answers.
#[derive(Debug, Clone, Copy)]
enum Answering {
    Stream,
    Hang,
    Busy,
    EchoKey,
    Whole,
}

#[derive(Debug, Clone)]
struct Provided {
    answering: Answering,
    asked: Arc<Mutex<Vec<(HeaderMap, Value)>>>,
}

async fn provide(Shared(provided): Shared<Provided>, headers: HeaderMap, body: Bytes) -> Response {
    let key = headers["x-api-key"].to_str().unwrap().to_owned();
    provided.asked.lock().unwrap().push((headers, serde_json::from_slice(&body).unwrap()));
    let events = [("content-type", "text/event-stream")];
    let error = |message: String| {
        axum::Json(json!({"type": "error", "error": {"type": "x_error", "message": message}}))
    };
    match provided.answering {
        Answering::Stream => (events, format!("{START}{STOP}")).into_response(),
        Answering::Hang => {
            let first = stream::iter([Ok::<_, std::io::Error>(START)]);
            (events, Body::from_stream(first.chain(stream::pending()))).into_response()
        }
        Answering::Busy => {
            (StatusCode::from_u16(529).unwrap(), [("retry-after", "7")], error("busy".into())).into_response()
        }
        Answering::EchoKey => (StatusCode::UNAUTHORIZED, error(format!("bad key {key}"))).into_response(),
        Answering::Whole => {
            axum::Json(json!({"type": "message", "usage": {"input_tokens": 3, "output_tokens": 4}}))
                .into_response()
        }
    }
}

/// A whole server with one live claim, and a scripted provider behind it.
pub(super) struct Bench {
    pub(super) plane: Plane,
    clock: Arc<ManualClock>,
    pub(super) router: Router,
    provided: Provided,
    runner: Caller,
    claim: Claim,
    pub(super) token: String,
    _dir: tempfile::TempDir,
}

impl Bench {
    async fn new(answering: Answering) -> Self {
        let provided = Provided { answering, asked: Arc::default() };
        let provider = Router::new().route("/v1/messages", post(provide)).with_state(provided.clone());
        Self::of(Kind::Anthropic, provider, provided).await
    }

    /// A server whose models go to `provider`, which is of this kind.
    pub(super) async fn with(kind: Kind, provider: Router) -> Self {
        let provided = Provided { answering: Answering::Stream, asked: Arc::default() };
        Self::of(kind, provider, provided).await
    }

    async fn of(kind: Kind, provider: Router, provided: Provided) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, provider).await });

        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::new(dir.path());
        config.model_base_url = url.clone();
        config.model_key = Some(Secret::new(KEY));
        let clock = Arc::new(ManualClock::new(Timestamp::from_ms(1_700_000_000_000)));
        let mut plane = serve::open(config, clock.clone(), CancellationToken::new()).await.unwrap();
        if kind == Kind::OpenaiCompatible {
            let key = Some(Secret::new(KEY));
            let address = Address { kind, base_url: &url, key, reach: Reach::Private };
            let built_in = Provider::new(address, Waits::default()).unwrap();
            plane.gateway = Gateway::new(Some(built_in));
        }
        let runner = paired(&plane.engine).await;
        let claim = claimed(&plane.engine, runner).await;
        let renewed = plane.engine.renew(runner, claim.id, Renew { epoch: claim.epoch }).await.unwrap();
        assert_eq!(renewed.gateway.base_path, BASE_PATH);
        let token = renewed.gateway.token.reveal().to_owned();
        let router = plane_http::router(plane.clone());
        Self { plane, clock, router, provided, runner, claim, token, _dir: dir }
    }

    async fn ask(&self, token: &str, body: &Value) -> Response {
        self.ask_at("/v1/messages", token, body).await
    }

    /// Asks at a path of the gateway.
    pub(super) async fn ask_at(&self, path: &str, token: &str, body: &Value) -> Response {
        let request = Request::post(format!("{BASE_PATH}{path}"))
            .header("x-api-key", token)
            .header("anthropic-beta", "never-pass-this")
            .body(Body::from(body.to_string()))
            .unwrap();
        tower::ServiceExt::oneshot(self.router.clone(), request).await.unwrap()
    }

    async fn ask_well(&self) -> Response {
        self.ask(&self.token, &well()).await
    }

    /// What stands on record of the model request that `response` names.
    pub(super) async fn recorded(&self, response_id: String) -> Option<ModelUsage> {
        let read = move |conn: &rusqlite::Connection| {
            let mut rows = conn.prepare("select usage from model_usage where request_id = ?1")?;
            let found = rows.query_map([response_id], |row| row.get::<_, String>(0))?.next().transpose()?;
            Ok(found.map(|text| serde_json::from_str(&text).unwrap()))
        };
        self.plane.store.read(read).await.unwrap()
    }
}

fn well() -> Value {
    json!({"model": "dearer", "max_tokens": 9, "stream": true, "service_tier": "priority",
           "messages": [{"role": "user", "content": "hi"}]})
}

fn cause() -> Cause {
    Cause { kind: CauseKind::ApiRequest, id: "req".into() }
}

async fn paired(engine: &Engine) -> Caller {
    let (workspace_id, principal_id) = (WorkspaceId::mint(), PrincipalId::mint());
    engine.seat_owner(workspace_id, principal_id).await;
    let minted = engine
        .mint_pairing(
            NewPairing {
                workspace_id,
                principal_id,
                created_by: principal_id,
                name: None,
                labels: vec![],
                max_sessions: None,
                ephemeral: false,
                ttl_seconds: 60,
            },
            None,
        )
        .await
        .unwrap();
    let key = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    let public_key = BASE64_STANDARD.encode(key.public_key().as_ref());
    let (instance_id, nonce) = (InstanceId::mint(), engine.nonce().nonce);
    let signed = signed_bytes("pair", "http://plane", &public_key, instance_id, &nonce);
    let signature = BASE64_STANDARD.encode(key.sign(&signed).as_ref());
    let host = Host::default();
    let code = minted.code.unwrap();
    let pair = Pair { code, public_key, nonce, signature, instance_id, name: "r".into(), host };
    let paired = engine.pair(pair, "plane", Ipv4Addr::LOCALHOST.into()).await.unwrap();
    Caller { runner_id: paired.runner_id, instance_id, workspace_id, principal_id }
}

fn agent() -> Agent {
    Agent {
        id: AgentId::mint(),
        kind: agent::Kind::Agent,
        version: 1,
        name: "a".into(),
        description: None,
        system: None,
        model: Model { id: "pinned".into(), effort: None, inference_geo: None, speed: None },
        tools: vec![],
        mcp_servers: vec![],
        skills: vec![],
        multiagent: None,
    }
}

async fn claimed(engine: &Engine, runner: Caller) -> Claim {
    let environment = Spec {
        image: None,
        network: Network::None,
        limits: Limits::default(),
        profile: Profile::default(),
        packages: Packages::default(),
        placement_labels: vec![],
    };
    let message = EventBody::UserMessage { content: vec![Block::text("hi")] };
    let input = crate::engine::Input { body: message, authored_by: runner.principal_id, caused_by: cause() };
    let new = NewSession {
        workspace_id: runner.workspace_id,
        principal_id: runner.principal_id,
        agent: agent(),
        environment_id: EnvironmentId::mint(),
        environment_revision: 1,
        environment,
        title: None,
        metadata: Map::new(),
        resources: vec![],
        vault_ids: vec![],
        budget: None,
        instructions: None,
        initial: vec![input],
        caused_by: cause(),
    };
    engine.create_session(new, None).await.unwrap();
    let request = ClaimRequest {
        instance_id: runner.instance_id,
        request_id: ClaimRequestId::mint(),
        free_slots: 1,
        labels: vec![],
        wait_ms: 1_000,
    };
    engine.claim(runner, request).await.unwrap().claim.unwrap()
}

pub(super) fn request_id(response: &Response) -> String {
    response.headers()[MODEL_REQUEST_ID].to_str().unwrap().to_owned()
}

pub(super) async fn text(response: Response) -> String {
    let bytes = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

async fn code(response: Response) -> Code {
    Problem::from_body(&serde_json::from_str(&text(response).await).unwrap()).unwrap().code
}

#[tokio::test]
async fn the_key_is_swapped_unknown_members_are_dropped_and_the_count_is_on_record() {
    let bench = Bench::new(Answering::Stream).await;
    let response = bench.ask_well().await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()[DROPPED], "service_tier");
    let id = request_id(&response);
    assert_eq!(text(response).await, format!("{START}{STOP}"));
    let usage = ModelUsage { input_tokens: 5, output_tokens: 1, ..ModelUsage::default() };
    assert_eq!(bench.recorded(id).await, Some(usage));
    let asked = bench.provided.asked.lock().unwrap();
    let (headers, body) = &asked[0];
    assert_eq!(headers["x-api-key"], KEY);
    assert_eq!(headers["anthropic-version"], "2023-06-01");
    assert!(!headers.contains_key("anthropic-beta") && !headers.contains_key("authorization"));
    let want = json!({"model": "pinned", "max_tokens": 9, "stream": true, "messages": [{"role": "user", "content": "hi"}]});
    assert_eq!(*body, want);
}

#[tokio::test]
async fn without_a_live_capability_the_provider_is_never_asked() {
    let bench = Bench::new(Answering::Stream).await;
    assert_eq!(code(bench.ask("nonsense", &well()).await).await, Code::Unauthenticated);
    let refused = bench.ask(&bench.token, &json!({"max_tokens": 1, "messages": [], "mcp_servers": []})).await;
    assert_eq!(code(refused).await, Code::Unsupported);
    bench.clock.advance_ms(3_600_000);
    assert_eq!(code(bench.ask_well().await).await, Code::ClaimLapsed);
    assert!(bench.provided.asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_refusal_of_the_provider_passes_with_its_status_and_when_to_try_again() {
    let bench = Bench::new(Answering::Busy).await;
    let response = bench.ask_well().await;
    assert_eq!(response.status().as_u16(), 529);
    assert_eq!(response.headers()["retry-after"], "7");
    assert!(response.headers().contains_key(MODEL_REQUEST_ID));
    assert!(text(response).await.contains("busy"));
}

#[tokio::test]
async fn the_key_never_comes_back() {
    let bench = Bench::new(Answering::EchoKey).await;
    let response = bench.ask_well().await;
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
    assert!(!format!("{:?}", response.headers()).contains("canary"));
    let text = text(response).await;
    assert!(text.contains("provider_key_refused") && !text.contains("canary"), "{text}");
    assert!(!text.contains("real-key") && !text.contains("bad key"), "{text}");
    assert!(!format!("{:?}", bench.plane).contains("canary"));
}

#[tokio::test]
async fn a_reply_that_is_not_streamed_is_counted_too() {
    let bench = Bench::new(Answering::Whole).await;
    let response = bench.ask_well().await;
    let id = request_id(&response);
    let usage = ModelUsage { input_tokens: 3, output_tokens: 4, ..ModelUsage::default() };
    assert_eq!(bench.recorded(id).await, Some(usage));
}

#[tokio::test]
async fn a_revoked_runner_loses_the_rest_of_a_streaming_reply() {
    let bench = Bench::new(Answering::Hang).await;
    let response = bench.ask_well().await;
    let id = request_id(&response);
    let mut body = response.into_body().into_data_stream();
    assert_eq!(body.next().await.unwrap().unwrap(), START);
    let runner = bench.runner;
    bench.plane.engine.revoke_runner(runner.workspace_id, runner.runner_id, "test".into()).await.unwrap();
    assert!(body.next().await.unwrap().is_err());
    bench.plane.gateway.close().await;
    let usage = ModelUsage { input_tokens: 5, output_tokens: 1, ..ModelUsage::default() };
    assert_eq!(bench.recorded(id).await, Some(usage));
    let refused = bench.plane.engine.capability(&bench.token).await.unwrap_err();
    assert_eq!(refused.code, Code::Fenced, "{}", bench.claim.id);
}

#[tokio::test]
async fn closing_cuts_what_streams_and_keeps_its_count() {
    let bench = Bench::new(Answering::Hang).await;
    let response = bench.ask_well().await;
    let id = request_id(&response);
    let mut body = response.into_body().into_data_stream();
    assert_eq!(body.next().await.unwrap().unwrap(), START);
    bench.plane.gateway.close().await;
    assert!(body.next().await.unwrap().is_err());
    assert!(bench.recorded(id).await.is_some());
    assert_eq!(code(bench.ask_well().await).await, Code::Overloaded);
}
