//! The engine over a real store and a clock that the test moves.

mod approvals;
mod claims;
mod clocks;
mod governance;
mod log;

use super::*;
use crate::domain::tests::agent;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use checkfu_shared::{
    agent::{PermissionPolicy, Tool, ToolSwitch},
    content::Block,
    environment::{Limits, Network, Packages, Profile, Spec},
    event::{AppendedToolUse, Body, Cause, CauseKind, Event, SettledOutcome, ToolResult},
    id::*,
    protocol::{
        append::{AppendReply, AppendRequest, Appended},
        claim::{Claim, ClaimReply, ClaimRequest},
        pairing::{Host, Pair, Paired, TokenRequest, signed_bytes},
        renew::Renew,
        settlement::{Settle, Settled},
    },
    time::ManualClock,
};
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::json;

const AUTHORITY: &str = "plane.test:8321";

/// An engine over a temporary directory, with its clock.
struct Bench {
    engine: Engine,
    clock: Arc<ManualClock>,
    dir: tempfile::TempDir,
    workspace: WorkspaceId,
    principal: PrincipalId,
}

/// A paired runner with a token.
struct Machine {
    key: Ed25519KeyPair,
    paired: Paired,
    caller: Caller,
    token: String,
}

impl Bench {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(Timestamp::from_ms(1_800_000_000_000)));
        let engine = open(&dir, &clock).await;
        let (workspace, principal) = (WorkspaceId::mint(), PrincipalId::mint());
        engine.seat_owner(workspace, principal).await;
        Self { engine, clock, dir, workspace, principal }
    }

    /// Closes the store and opens it again, as a restart does.
    async fn restart(&mut self) {
        self.engine.store().close();
        self.engine = open(&self.dir, &self.clock).await;
    }

    fn new_session(&self, tools: Vec<Tool>, initial: Vec<Input>) -> NewSession {
        NewSession {
            workspace_id: self.workspace,
            principal_id: self.principal,
            agent: agent(tools),
            environment_id: EnvironmentId::mint(),
            environment_revision: 1,
            environment: Spec {
                image: None,
                network: Network::None,
                limits: Limits::default(),
                profile: Profile::Standard,
                packages: Packages::default(),
                placement_labels: Vec::new(),
            },
            title: None,
            metadata: serde_json::Map::new(),
            resources: Vec::new(),
            vault_ids: Vec::new(),
            budget: None,
            instructions: None,
            initial,
            caused_by: cause(),
        }
    }

    /// A session that was told something.
    async fn session(&self) -> SessionId {
        self.session_with(vec![toolset(None)]).await
    }

    async fn session_with(&self, tools: Vec<Tool>) -> SessionId {
        let new = self.new_session(tools, vec![self.message("go")]);
        self.engine.create_session(new, None).await.unwrap().id
    }

    fn input(&self, body: Body) -> Input {
        Input { body, authored_by: self.principal, caused_by: cause() }
    }

    fn message(&self, text: &str) -> Input {
        self.input(Body::UserMessage { content: vec![Block::text(text)] })
    }

    async fn send(&self, session: SessionId, body: Body) -> Result<Vec<Event>, Problem> {
        self.engine.send(self.workspace, session, vec![self.input(body)], None).await
    }

    async fn record(&self, session: SessionId) -> SessionRecord {
        self.engine.session(self.workspace, session).await.unwrap().unwrap()
    }

    async fn kinds(&self, session: SessionId) -> Vec<String> {
        let query = EventQuery { limit: 1_000, ..EventQuery::default() };
        let events = self.engine.events(session, query).await.unwrap();
        events.into_iter().map(|event| event.kind).collect()
    }

    async fn code(&self, max_sessions: Option<u32>, labels: &[&str]) -> String {
        let new = NewPairing {
            workspace_id: self.workspace,
            principal_id: self.principal,
            created_by: self.principal,
            name: None,
            labels: labels.iter().map(|&label| label.to_owned()).collect(),
            max_sessions,
            ephemeral: false,
            ttl_seconds: 600,
        };
        self.engine.mint_pairing(new, None).await.unwrap().code.unwrap().reveal().to_owned()
    }

    async fn pair(&self, code: &str, key: &Ed25519KeyPair) -> Result<Paired, Problem> {
        self.pair_from(code, key, "10.0.0.1").await
    }

    async fn pair_from(&self, code: &str, key: &Ed25519KeyPair, peer: &str) -> Result<Paired, Problem> {
        let public_key = BASE64_STANDARD.encode(key.public_key().as_ref());
        let (instance_id, nonce) = (InstanceId::mint(), self.engine.nonce().nonce);
        let signature = sign(key, "pair", &public_key, instance_id, &nonce);
        let (code, name, host) = (checkfu_shared::secret::Secret::new(code), "box".to_owned(), on("m1"));
        let request = Pair { code, public_key, nonce, signature, instance_id, name, host };
        self.engine.pair(request, AUTHORITY, peer.parse().unwrap()).await
    }

    async fn machine(&self) -> Machine {
        let code = self.code(None, &[]).await;
        let key = key();
        let paired = self.pair(&code, &key).await.unwrap();
        self.start(key, paired, "m1").await.unwrap()
    }

    /// A start of a runner on a machine.
    async fn start(&self, key: Ed25519KeyPair, paired: Paired, machine: &str) -> Result<Machine, Problem> {
        let (instance_id, nonce) = (InstanceId::mint(), self.engine.nonce().nonce);
        let signature = sign(&key, "token", &paired.runner_id.to_string(), instance_id, &nonce);
        let host = on(machine);
        let request = TokenRequest { runner_id: paired.runner_id, instance_id, nonce, signature, host };
        let token = self.engine.token(request, AUTHORITY).await?.token.reveal().to_owned();
        let caller = self.engine.authenticate(&token).await?;
        Ok(Machine { key, paired, caller, token })
    }

    async fn poll(&self, machine: &Machine) -> ClaimReply {
        self.engine.claim(machine.caller, ask(machine)).await.unwrap()
    }

    /// An offered and confirmed claim.
    async fn claim(&self, machine: &Machine) -> Claim {
        let claim = self.poll(machine).await.claim.expect("a run waits");
        self.renew(machine, &claim).await.unwrap();
        claim
    }

    async fn renew(&self, machine: &Machine, claim: &Claim) -> Result<(), Problem> {
        self.engine.renew(machine.caller, claim.id, Renew { epoch: claim.epoch }).await.map(drop)
    }

    async fn append(
        &self,
        machine: &Machine,
        claim: &Claim,
        first: u64,
        events: &[Appended],
    ) -> Result<AppendReply, Problem> {
        let request = AppendRequest { epoch: claim.epoch, first, events: events.to_vec() };
        self.engine.append(machine.caller, claim.id, request).await
    }

    async fn settle(
        &self,
        machine: &Machine,
        claim: &Claim,
        events: u64,
        outcome: SettledOutcome,
    ) -> Result<Settled, Problem> {
        let epoch = claim.epoch;
        let request =
            Settle { epoch, settlement_id: None, events, outcome, files: Vec::new(), keeps_sandbox: true };
        self.engine.settle(machine.caller, claim.id, request).await
    }

    async fn assert_verified(&self) {
        let report = verify::verify(self.engine.store()).await.unwrap();
        assert_eq!(report.differences, [], "what is stored does not follow from the log");
    }
}

async fn open(dir: &tempfile::TempDir, clock: &Arc<ManualClock>) -> Engine {
    let store = Store::open(&dir.path().join("checkfu.db")).unwrap();
    let settings =
        Settings { data_dir: dir.path().to_owned(), tempo: Tempo::default(), compact_at_percent: 80 };
    Engine::open(store, clock.clone(), settings).await.unwrap()
}

fn key() -> Ed25519KeyPair {
    let document = Ed25519KeyPair::generate_pkcs8(&ring::rand::SystemRandom::new()).unwrap();
    Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap()
}

fn sign(key: &Ed25519KeyPair, purpose: &str, subject: &str, instance: InstanceId, nonce: &str) -> String {
    let bytes = signed_bytes(purpose, &format!("http://{AUTHORITY}"), subject, instance, nonce);
    BASE64_STANDARD.encode(key.sign(&bytes).as_ref())
}

fn ask(machine: &Machine) -> ClaimRequest {
    ClaimRequest {
        instance_id: machine.caller.instance_id,
        request_id: ClaimRequestId::mint(),
        free_slots: 4,
        labels: Vec::new(),
        wait_ms: 0,
    }
}

fn on(machine: &str) -> Host {
    Host { machine: machine.to_owned(), ..Host::default() }
}

fn cause() -> Cause {
    Cause { kind: CauseKind::ApiRequest, id: "req_test".to_owned() }
}

fn toolset(policy: Option<PermissionPolicy>) -> Tool {
    Tool::Toolset {
        configs: Vec::new(),
        default_config: ToolSwitch { enabled: true, permission_policy: policy },
    }
}

fn appended(body: Body) -> Appended {
    Appended { id: EventId::mint(), thread_id: None, model_request_id: None, body }
}

fn says(text: &str) -> Appended {
    appended(Body::AgentMessage { content: vec![Block::text(text)] })
}

fn calls(name: &str) -> Appended {
    let input = json!({"command": "true"});
    appended(Body::AgentToolUse(AppendedToolUse { name: name.to_owned(), input, evaluated_permission: None }))
}

fn result_of(id: EventId) -> Appended {
    let content = vec![Block::text("done")];
    appended(Body::AgentToolResult(ToolResult { tool_use_id: id, content, is_error: false }))
}

fn model_end() -> Appended {
    appended(Body::SpanModelRequestEnd {
        model_request_start_id: EventId::mint(),
        model_usage: checkfu_shared::event::ModelUsage::default(),
        is_error: false,
        bill: None,
    })
}

fn code<T: std::fmt::Debug>(outcome: Result<T, Problem>) -> Code {
    outcome.expect_err("it should be refused").code
}
