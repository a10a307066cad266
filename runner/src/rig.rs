//! A control plane for tests: it keeps a log by the shared rules, answers over real HTTP, and fails as it is told to.
//! A lost reply is one whose request took effect and whose answer never came.

use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, Path, Query, Request, State},
    http::StatusCode,
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
    routing::{get, post, put},
};
use checkfu_shared::{
    event::Body,
    id::{ClaimId, EventId, RunnerId},
    problem::{Code, Problem},
    protocol::{
        Tempo,
        append::{AppendReply, AppendRequest, Appended, Decision, Disposition, Misfit, digest_of, place},
        claim::{Claim, ClaimReply, ClaimRequest, Notice},
        pairing::{Host, Nonce, Paired, Token},
        recover::{Recover, Recovered, Verdict},
        renew::{Directives, Gateway, Renewed},
        settlement::UploadReply,
    },
    secret::Secret,
};
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use crate::{
    identity::{self, Identity},
    plane::{Plane, token::Keeper},
    state,
};

/// What becomes of one request.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    None,
    /// It takes effect and the reply is lost.
    LostReply,
    /// It takes no effect.
    Status(u16),
    Refuse(Problem),
    Slow(Duration),
}

type Faults = Box<dyn FnMut(&str) -> Fault + Send>;

/// What the control plane knows.
pub(crate) struct World {
    pub(crate) faults: Faults,
    pub(crate) calls: Vec<String>,
    pub(crate) log: Vec<Appended>,
    pub(crate) lease_ms: u64,
    pub(crate) tempo: Tempo,
    pub(crate) offers: Vec<Claim>,
    pub(crate) notices: Vec<Notice>,
    pub(crate) requests: Vec<String>,
    given: HashMap<String, Claim>,
    pub(crate) verdicts: Vec<Verdict>,
    pub(crate) recovered: Vec<Recover>,
    pub(crate) tokens: u64,
    pub(crate) pairs: Vec<Value>,
    pub(crate) authorizations: Vec<String>,
    pub(crate) uploaded: Vec<u8>,
}

pub(crate) type Shared = Arc<Mutex<World>>;

/// A running control plane and the client of a paired runner.
pub(crate) struct Rig {
    pub(crate) world: Shared,
    pub(crate) address: String,
    pub(crate) plane: Arc<Plane>,
    pub(crate) keeper: Option<Keeper>,
    pub(crate) dir: tempfile::TempDir,
    server: tokio::task::JoinHandle<()>,
    keeping: Option<tokio::task::JoinHandle<()>>,
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.server.abort();
        if let Some(keeping) = &self.keeping {
            keeping.abort();
        }
    }
}

impl Rig {
    pub(crate) async fn start() -> Self {
        let mut rig = Self::without_token().await;
        rig.keeping = rig.keeper.take().map(|keeper| tokio::spawn(keeper.run()));
        rig
    }

    pub(crate) async fn without_token() -> Self {
        let tempo = Tempo {
            poll_wait_ms: 100,
            renew_ms: 100,
            directives_wait_ms: 100,
            lease_ms: 30_000,
            freeze_margin_ms: 100,
            offer_ms: 2_000,
            affinity_ms: 1_000,
            keep_ms: 10_000,
            error_backoff_min_ms: 2,
            error_backoff_max_ms: 20,
        };
        let world: Shared = Arc::new(Mutex::new(World {
            faults: Box::new(|_| Fault::None),
            calls: Vec::new(),
            log: Vec::new(),
            lease_ms: 30_000,
            tempo,
            offers: Vec::new(),
            notices: Vec::new(),
            requests: Vec::new(),
            given: HashMap::new(),
            verdicts: Vec::new(),
            recovered: Vec::new(),
            tokens: 0,
            pairs: Vec::new(),
            authorizations: Vec::new(),
            uploaded: Vec::new(),
        }));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let router = routes(Arc::clone(&world));
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        let dir = tempfile::tempdir().unwrap();
        let state = state::State::open(dir.path()).unwrap();
        let identity = Identity {
            plane: address.parse().unwrap(),
            runner_id: RunnerId::mint(),
            name: "test".to_owned(),
            max_sessions: None,
            labels: Vec::new(),
            key: identity::pending_key(&state).unwrap(),
        };
        let instance = checkfu_shared::id::InstanceId::mint();
        let (plane, keeper) = Plane::new(Arc::new(identity), instance, Host::default(), None).unwrap();
        plane.set_tempo(tempo);
        Self { world, address, plane, keeper: Some(keeper), dir, server, keeping: None }
    }

    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    pub(crate) fn faults(&self, faults: impl FnMut(&str) -> Fault + Send + 'static) {
        self.world().faults = Box::new(faults);
    }

    /// How many requests whose path ends so have come.
    pub(crate) fn count(&self, end: &str) -> usize {
        self.world().calls.iter().filter(|path| path.ends_with(end)).count()
    }
}

/// Waits until `found` finds something; gives up far beyond what any test needs.
pub(crate) async fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    for _ in 0..6_000 {
        if let Some(found) = found() {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{what} never came");
}

fn routes(world: Shared) -> Router {
    Router::new()
        .route("/v1/runner/nonce", get(|| async { Json(Nonce { nonce: "n".to_owned() }) }))
        .route("/v1/runner/token", post(token))
        .route("/v1/runner/pair", post(pair))
        .route("/v1/runner/claims", post(claims))
        .route("/v1/runner/claims/{id}/renew", post(renew))
        .route("/v1/runner/claims/{id}/directives", post(directives))
        .route("/v1/runner/claims/{id}/events", post(events))
        .route("/v1/runner/claims/{id}/deltas", post(|| async { Json(json!({})) }))
        .route(
            "/v1/runner/claims/{id}/history",
            get(|| async { Json(json!({"events": [], "has_more": true})) }),
        )
        .route("/v1/runner/uploads/{id}", put(upload))
        .route("/v1/runner/recover", post(recover))
        .route("/v1/runner/close", post(|| async { Json(json!({})) }))
        .layer(DefaultBodyLimit::disable())
        .layer(middleware::from_fn_with_state(Arc::clone(&world), faulty))
        .with_state(world)
}

async fn faulty(State(world): State<Shared>, request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let fault = {
        let mut world = world.lock().unwrap();
        world.calls.push(path.clone());
        if let Some(value) = request.headers().get("authorization") {
            world.authorizations.push(value.to_str().unwrap().to_owned());
        }
        (world.faults)(&path)
    };
    let html = |status: u16| (StatusCode::from_u16(status).unwrap(), "<html>gateway</html>").into_response();
    match fault {
        Fault::None => next.run(request).await,
        Fault::LostReply => {
            next.run(request).await;
            html(502)
        }
        Fault::Status(status) => html(status),
        Fault::Refuse(problem) => refusal(&problem),
        Fault::Slow(wait) => {
            tokio::time::sleep(wait).await;
            next.run(request).await
        }
    }
}

fn refusal(problem: &Problem) -> Response {
    let status = StatusCode::from_u16(problem.code.status()).unwrap();
    (status, Json(problem.body("req_1"))).into_response()
}

async fn token(State(world): State<Shared>) -> Json<Token> {
    let mut world = world.lock().unwrap();
    world.tokens += 1;
    Json(Token { token: Secret::new(format!("token {}", world.tokens)), expires_in_ms: 3_600_000 })
}

async fn pair(State(world): State<Shared>, Json(request): Json<Value>) -> Json<Paired> {
    world.lock().unwrap().pairs.push(request);
    Json(Paired {
        runner_id: RunnerId::mint(),
        name: "one".to_owned(),
        max_sessions: None,
        labels: Vec::new(),
    })
}

async fn claims(State(world): State<Shared>, Json(request): Json<ClaimRequest>) -> Json<ClaimReply> {
    let (claim, wait) = {
        let mut world = world.lock().unwrap();
        let id = request.request_id.to_string();
        world.requests.push(id.clone());
        let claim = world.given.get(&id).cloned().or_else(|| world.offers.pop());
        if let Some(claim) = &claim {
            world.given.insert(id, claim.clone());
        }
        let wait = if claim.is_none() { request.wait_ms } else { 0 };
        (claim, wait)
    };
    tokio::time::sleep(Duration::from_millis(wait)).await;
    let mut world = world.lock().unwrap();
    let notices = std::mem::take(&mut world.notices);
    Json(ClaimReply { claim, lapsed: false, notices, tempo: world.tempo })
}

async fn renew(State(world): State<Shared>, Path(_): Path<ClaimId>) -> Json<Renewed> {
    let lease_ms = world.lock().unwrap().lease_ms;
    let gateway =
        Gateway { base_path: "/v1/gateway".to_owned(), token: Secret::new("g"), expires_in_ms: 1_000 };
    Json(Renewed { lease_ms, gateway, watched: false })
}

async fn directives() -> Json<Directives> {
    tokio::time::sleep(Duration::from_millis(50)).await;
    Json(Directives { directives: Vec::new(), after: 0 })
}

async fn recover(State(world): State<Shared>, Json(request): Json<Recover>) -> Json<Recovered> {
    let mut world = world.lock().unwrap();
    world.recovered.push(request);
    Json(Recovered { claims: std::mem::take(&mut world.verdicts) })
}

/// Keeps what comes at the right place.
async fn upload(
    State(world): State<Shared>,
    Query(query): Query<HashMap<String, u64>>,
    body: axum::body::Bytes,
) -> Response {
    let mut world = world.lock().unwrap();
    let have = world.uploaded.len() as u64;
    if query["offset"] != have {
        return refusal(&Problem::new(Code::UploadOffset, "Elsewhere.").with("offset", have));
    }
    world.uploaded.extend_from_slice(&body);
    Json(UploadReply { offset: world.uploaded.len() as u64 }).into_response()
}

/// Takes a batch by the rules that the real server runs, too.
async fn events(State(world): State<Shared>, Json(request): Json<AppendRequest>) -> Response {
    let mut world = world.lock().unwrap();
    let batch: Vec<(EventId, String)> =
        request.events.iter().map(|event| (event.id, digest_of(event))).collect();
    let acked = world.log.len() as u64;
    let logged =
        |index: u64| world.log.get(usize::try_from(index).unwrap()).map(|event| (event.id, digest_of(event)));
    match place(acked, request.first, &batch, logged) {
        Ok(overlap) => {
            let decisions = request.events.iter().filter_map(decision).collect();
            world.log.extend(request.events.into_iter().skip(overlap));
            let acked = world.log.len() as u64;
            Json(AppendReply { acked, last_seq: acked, decisions, watched: false }).into_response()
        }
        Err(Misfit::Gap { expected, .. }) => {
            refusal(&Problem::new(Code::EventsGap, "A gap.").with("expected", expected))
        }
        Err(Misfit::Conflict { .. }) => refusal(&Problem::new(Code::EventsConflict, "A conflict.")),
    }
}

fn decision(event: &Appended) -> Option<Decision> {
    matches!(event.body, Body::AgentToolProposed { .. }).then(|| Decision {
        tool_use_id: event.id,
        disposition: Disposition::Allow,
        approval_id: None,
        reason: "Allowed.".to_owned(),
    })
}

/// A claim with these ids' last byte.
pub(crate) fn claim(n: u8) -> Claim {
    serde_json::from_value(json!({
        "id": ClaimId::from_bytes([n; 16]),
        "epoch": n,
        "attempt": 1,
        "lease_ms": 30_000,
        "session_id": checkfu_shared::id::SessionId::from_bytes([n; 16]),
        "thread_id": checkfu_shared::id::ThreadId::from_bytes([n; 16]),
        "run_id": checkfu_shared::id::RunId::from_bytes([n; 16]),
        "agent": {
            "id": checkfu_shared::id::AgentId::from_bytes([n; 16]), "type": "agent", "version": 1, "name": "a",
            "description": null, "system": null, "model": {"id": "m"}, "tools": [], "mcp_servers": [],
            "skills": [], "multiagent": null,
        },
        "environment_id": checkfu_shared::id::EnvironmentId::from_bytes([n; 16]),
        "environment_revision": 1,
        "environment": {
            "image": null, "network": {"type": "none"},
            "limits": {"memory_bytes": 1, "cpu_millis": 1, "pids": 1}, "profile": "standard",
        },
        "last_seq": 1,
        "settlement": {"file_bytes": 1, "total_bytes": 1, "files": 1},
    }))
    .unwrap()
}

/// An event whose text tells which one it is.
pub(crate) fn message(text: &str) -> Appended {
    Appended {
        id: EventId::mint(),
        thread_id: None,
        model_request_id: None,
        body: Body::AgentMessage { content: vec![checkfu_shared::content::Block::text(text)] },
    }
}

/// A proposal, which waits for a decision.
pub(crate) fn proposal() -> Appended {
    let body = Body::AgentToolProposed { name: "x".to_owned(), input: json!({"b": 1, "a": [1.5, null]}) };
    Appended { id: EventId::mint(), thread_id: None, model_request_id: None, body }
}

/// A small generator, so that a failing seed replays.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}
