//! Approvals from the ask to the resumed call: who answers, when it is too late, what a policy changes in between, what stands.

use super::*;
use crate::{
    domain::policy::{Disposition as Verdict, Resource, ResourceKind, Rule, Subject, SubjectKind},
    registry::{NewPolicy, Once, Registry},
};
use checkfu_shared::{
    event::Confirmation,
    protocol::append::{Disposition, sha256_hex},
    secret::Secret,
};
use serde_json::Value;

fn rule(kind: ResourceKind, disposition: Verdict) -> Rule {
    Rule {
        subject: Subject { kind: SubjectKind::Any, id_glob: "*".to_owned() },
        resource: Resource { kind, id_glob: "*".to_owned() },
        permission_glob: "*".to_owned(),
        disposition,
        other_responder: false,
        ttl_seconds: None,
    }
}

/// A session whose call asks, with what a test needs of it.
struct Asking {
    bench: Bench,
    machine: Machine,
    session: SessionId,
    call: Appended,
    approval: ApprovalId,
}

fn digest(call: &Appended) -> String {
    match &call.body {
        Body::AgentToolUse(call) => sha256_hex(&serde_json::to_vec(&call.input).unwrap()),
        Body::AgentToolProposed { input, .. } => sha256_hex(&serde_json::to_vec(input).unwrap()),
        _ => unreachable!("no call"),
    }
}

fn custom() -> Tool {
    Tool::Custom { name: "lookup".to_owned(), description: "d".to_owned(), input_schema: json!({}) }
}

fn proposes() -> Appended {
    appended(Body::AgentToolProposed { name: "lookup".to_owned(), input: json!({"word": "lease"}) })
}

async fn policy(bench: &Bench, name: &str, rules: Vec<Rule>) -> String {
    let registry = Registry::open(bench.engine.store().clone(), bench.dir.path(), &[]).await.unwrap();
    let new = NewPolicy { name: name.to_owned(), rules };
    registry.create_policy(bench.workspace, new, Once::NEVER, bench.clock.now()).await.unwrap()
}

async fn ask_with(bench: Bench, tools: Vec<Tool>, call: Appended) -> Asking {
    let machine = bench.machine().await;
    let session = bench.session_with(tools).await;
    let claim = bench.claim(&machine).await;
    let reply = bench.append(&machine, &claim, 0, std::slice::from_ref(&call)).await.unwrap();
    assert_eq!(reply.decisions[0].disposition, Disposition::Ask);
    let approval = reply.decisions[0].approval_id.expect("a call that asks has an approval");
    bench.settle(&machine, &claim, 1, SettledOutcome::RequiresAction).await.unwrap();
    Asking { bench, machine, session, call, approval }
}

async fn asking() -> Asking {
    ask_with(Bench::new().await, vec![toolset(None)], calls("bash")).await
}

impl Asking {
    async fn answer_as(&self, credential: Credential, decision: Confirmation) -> Result<Value, Problem> {
        let note = (decision == Confirmation::Deny).then(|| "not on a Friday".to_owned());
        let answer = Answer { decision, credential, note, standing: None, caused_by: cause() };
        self.bench.engine.answer(self.bench.workspace, self.approval, answer).await
    }

    async fn answer(&self, decision: Confirmation) -> Result<Value, Problem> {
        self.answer_as(Credential::Principal(self.bench.principal), decision).await
    }

    async fn shown(&self) -> Value {
        let query = ApprovalQuery { only: Some(self.approval), rows: 1, ..ApprovalQuery::default() };
        self.bench.engine.approvals(self.bench.workspace, query).await.unwrap().pop().unwrap().1
    }

    /// The next claim resumes the call; its decision.
    async fn resumed(&self) -> checkfu_shared::protocol::append::Decision {
        let claim = self.bench.claim(&self.machine).await;
        let body = Body::AgentToolResumed { tool_use_id: self.call.id, arguments_sha256: digest(&self.call) };
        let reply = self.bench.append(&self.machine, &claim, 0, &[appended(body)]).await.unwrap();
        reply.decisions.into_iter().next().unwrap()
    }
}

#[tokio::test]
async fn an_approval_is_frozen_answered_once_and_survives_a_restart() {
    use Confirmation::{Allow, Deny};
    let mut asking = asking().await;
    let shown = asking.shown().await;
    assert_eq!((&shown["status"], &shown["tool"]), (&json!("pending"), &json!("bash")));
    assert_eq!(shown["arguments"], json!({"command": "true"}));
    assert_eq!(shown["arguments_sha256"], json!(digest(&asking.call)));
    asking.bench.restart().await;
    let first = asking.answer(Allow).await.unwrap();
    assert_eq!((&first["status"], &first["responder"]), (&json!("approved"), &json!(asking.bench.principal)));
    assert_eq!(asking.answer(Allow).await.unwrap()["responded_at"], first["responded_at"]);
    assert_eq!(code(asking.answer(Deny).await), Code::AlreadyResolved);
    let kinds = asking.bench.kinds(asking.session).await;
    assert_eq!(kinds.iter().filter(|kind| *kind == "action_approval.resolved").count(), 1);
    assert_eq!(asking.resumed().await.disposition, Disposition::Allow);
    asking.bench.assert_verified().await;
}

#[tokio::test]
async fn a_denial_tells_the_model_why() {
    let asking = asking().await;
    asking.answer(Confirmation::Deny).await.unwrap();
    let decision = asking.resumed().await;
    assert_eq!((decision.disposition, decision.reason.as_str()), (Disposition::Deny, "not on a Friday"));
    asking.bench.assert_verified().await;
}

#[tokio::test]
async fn nobody_answers_in_time_and_the_session_goes_on_with_a_denial() {
    let asking = asking().await;
    asking.bench.clock.advance_ms(7 * 86_400_000 - 1);
    asking.bench.engine.expire_approvals().await.unwrap();
    assert_eq!(asking.shown().await["status"], "pending");
    asking.bench.clock.advance_ms(1);
    asking.bench.engine.expire_approvals().await.unwrap();
    assert_eq!(asking.shown().await["status"], "expired");
    assert_eq!(code(asking.answer(Confirmation::Allow).await), Code::AlreadyResolved);
    let decision = asking.resumed().await;
    assert!(decision.disposition == Disposition::Deny && decision.reason.contains("expired"), "{decision:?}");
    asking.bench.assert_verified().await;
}

#[tokio::test]
async fn an_answer_past_its_time_is_an_expiry_sweeper_or_not() {
    let asking = asking().await;
    asking.bench.clock.advance_ms(7 * 86_400_000);
    assert_eq!(code(asking.answer(Confirmation::Allow).await), Code::AlreadyResolved);
    assert_eq!(asking.shown().await["status"], "expired");
    assert_eq!(asking.resumed().await.disposition, Disposition::Deny);
    asking.bench.assert_verified().await;
}

#[tokio::test]
async fn a_policy_that_was_tightened_meanwhile_denies_and_other_arguments_never_run() {
    let asking = asking().await;
    asking.answer(Confirmation::Allow).await.unwrap();
    policy(&asking.bench, "lockdown", vec![rule(ResourceKind::Tool, Verdict::Deny)]).await;
    let claim = asking.bench.claim(&asking.machine).await;
    let resume = |arguments_sha256: String| {
        appended(Body::AgentToolResumed { tool_use_id: asking.call.id, arguments_sha256 })
    };
    let changed = resume(sha256_hex(b"{\"command\":\"rm\"}"));
    assert_eq!(code(asking.bench.append(&asking.machine, &claim, 0, &[changed]).await), Code::InvalidRequest);
    let reply =
        asking.bench.append(&asking.machine, &claim, 0, &[resume(digest(&asking.call))]).await.unwrap();
    assert_eq!(reply.decisions[0].disposition, Disposition::Deny);
    assert!(reply.decisions[0].reason.contains("lockdown"));
    asking.bench.assert_verified().await;
}

#[tokio::test]
async fn somebody_else_has_to_answer_when_the_rule_says_so() {
    let bench = Bench::new().await;
    let asks = Rule { other_responder: true, ..rule(ResourceKind::Tool, Verdict::RequireApproval) };
    policy(&bench, "two people", vec![asks]).await;
    let asking = ask_with(bench, vec![toolset(None)], calls("bash")).await;
    assert_eq!(code(asking.answer(Confirmation::Allow).await), Code::PermissionDenied);
    let confirm = Body::UserToolConfirmation(checkfu_shared::event::ToolConfirmation {
        tool_use_id: asking.call.id,
        result: Confirmation::Allow,
        deny_message: None,
    });
    assert_eq!(code(asking.bench.send(asking.session, confirm).await), Code::PermissionDenied);
    let stranger = Credential::Principal(PrincipalId::mint());
    assert_eq!(code(asking.answer_as(stranger, Confirmation::Allow).await), Code::PermissionDenied);
    assert_eq!(asking.shown().await["status"], "pending");
    asking.bench.assert_verified().await;
}

#[tokio::test]
async fn a_response_token_carries_exactly_one_answer() {
    let asking = asking().await;
    let (workspace, principal) = (asking.bench.workspace, asking.bench.principal);
    let minted =
        asking.bench.engine.response_token(workspace, asking.approval, principal, None).await.unwrap();
    let token = || Credential::Token(Secret::new(minted["token"].as_str().unwrap()));
    let wrong = Credential::Token(Secret::new("rsp_wrong"));
    assert_eq!(code(asking.answer_as(wrong, Confirmation::Allow).await), Code::PermissionDenied);
    let answered = asking.answer_as(token(), Confirmation::Allow).await.unwrap();
    assert_eq!(answered["responder"], json!(principal));
    assert_eq!(code(asking.answer_as(token(), Confirmation::Allow).await), Code::AlreadyResolved);
    let stranger = PrincipalId::mint();
    let refused = asking.bench.engine.response_token(workspace, asking.approval, stranger, None).await;
    assert_eq!(code(refused), Code::PermissionDenied);
}

#[tokio::test]
async fn a_custom_tool_passes_the_gate_before_the_application_sees_it() {
    let bench = Bench::new().await;
    policy(&bench, "ask", vec![rule(ResourceKind::CustomTool, Verdict::RequireApproval)]).await;
    let asking = ask_with(bench, vec![custom()], proposes()).await;
    let seen = |kinds: &[String]| kinds.iter().any(|kind| kind == "agent.custom_tool_use");
    assert!(!seen(&asking.bench.kinds(asking.session).await));
    asking.answer(Confirmation::Allow).await.unwrap();
    assert!(!seen(&asking.bench.kinds(asking.session).await), "it is shown when it is resumed");
    assert_eq!(asking.resumed().await.disposition, Disposition::Allow);
    let query =
        EventQuery { limit: 100, types: vec!["agent.custom_tool_use".to_owned()], ..EventQuery::default() };
    let events = asking.bench.engine.events(asking.session, query).await.unwrap();
    let shown: Value = serde_json::from_str(&events[0].json).unwrap();
    assert_eq!(shown["input"], json!({"word": "lease"}));
    assert_eq!(shown["proposed_id"], json!(asking.call.id));
    asking.bench.assert_verified().await;

    let bench = Bench::new().await;
    policy(&bench, "no", vec![rule(ResourceKind::CustomTool, Verdict::Deny)]).await;
    let machine = bench.machine().await;
    let session = bench.session_with(vec![custom()]).await;
    let claim = bench.claim(&machine).await;
    let reply = bench.append(&machine, &claim, 0, &[proposes()]).await.unwrap();
    assert_eq!(reply.decisions[0].disposition, Disposition::Deny);
    assert!(!seen(&bench.kinds(session).await));
    bench.assert_verified().await;
}

#[tokio::test]
async fn an_interrupt_invalidates_what_asks() {
    let asking = asking().await;
    asking.bench.send(asking.session, Body::UserInterrupt { session_thread_id: None }).await.unwrap();
    assert_eq!(asking.shown().await["status"], "invalidated");
    assert_eq!(code(asking.answer(Confirmation::Allow).await), Code::AlreadyResolved);
    asking.bench.assert_verified().await;
}

#[tokio::test]
async fn what_stands_covers_one_exact_call_so_often_and_until_it_is_revoked() {
    let asking = asking().await;
    let (workspace, principal) = (asking.bench.workspace, asking.bench.principal);
    let standing = Some(StandingWish { ttl_seconds: 600, max_uses: Some(2) });
    let credential = Credential::Principal(principal);
    let answer =
        Answer { decision: Confirmation::Allow, credential, note: None, standing, caused_by: cause() };
    let shown = asking.bench.engine.answer(workspace, asking.approval, answer).await.unwrap();
    let id: StandingId = shown["standing_approval_id"].as_str().unwrap().parse().unwrap();
    let claim = asking.bench.claim(&asking.machine).await;
    let mut index = 0;
    let mut call = async |command: &str| {
        let input = json!({"command": command});
        let name = "bash".to_owned();
        let event = appended(Body::AgentToolUse(AppendedToolUse { name, input, evaluated_permission: None }));
        let reply = asking.bench.append(&asking.machine, &claim, index, &[event]).await.unwrap();
        index += 1;
        reply.decisions[0].disposition
    };
    assert_eq!(call("false").await, Disposition::Ask);
    assert_eq!(call("true").await, Disposition::Allow);
    assert_eq!(call("true").await, Disposition::Allow);
    assert_eq!(call("true").await, Disposition::Ask, "it was used up");
    let listed = asking.bench.engine.standing_approvals(workspace, Some(id), None, 1).await.unwrap();
    assert_eq!(listed[0].1["uses"], 2);
    let used = asking
        .bench
        .engine
        .store()
        .read(move |conn| {
            let query = crate::audit::Query {
                action: Some("standing_approval.used".to_owned()),
                rows: 9,
                ..Default::default()
            };
            crate::audit::read(conn, workspace, &query)
        })
        .await
        .unwrap();
    assert_eq!(used.len(), 2, "each use is on record");
    asking.bench.engine.revoke_standing(workspace, id, principal).await.unwrap();
    assert_eq!(call("true").await, Disposition::Ask);
    asking.bench.assert_verified().await;
}
