//! Pairing, identity, revocation, asks, interrupts.

use super::*;
use crate::{
    domain::grant::Role,
    registry::{NewPrincipal, Once, PrincipalKind, Registry, assignments, principals},
};
use checkfu_shared::{
    event::{Confirmation, StopReason, ToolConfirmation},
    protocol::{
        append::{Disposition, sha256_hex},
        renew::{Directive, DirectivesRequest},
    },
};

#[tokio::test]
async fn a_code_pairs_one_key_and_repeats_its_answer() {
    let bench = Bench::new().await;
    let code_text = bench.code(Some(3), &["gpu"]).await;
    let (first, second) = (key(), key());
    let paired = bench.pair(&code_text, &first).await.unwrap();
    assert_eq!((paired.max_sessions, paired.labels.as_slice()), (Some(3), &["gpu".to_owned()][..]));
    assert_eq!(bench.pair(&code_text.to_lowercase(), &first).await.unwrap().runner_id, paired.runner_id);
    assert_eq!(code(bench.pair(&code_text, &second).await), Code::PairingCodeInvalid);
    assert_eq!(bench.engine.runners(bench.workspace).await.unwrap().len(), 1);
    assert_eq!(told(&bench, "runner.paired").await, 1);
}

/// How many rows of the audit tell of this act.
async fn told(bench: &Bench, action: &str) -> usize {
    let (workspace, action) = (bench.workspace, Some(action.to_owned()));
    let query = crate::audit::Query { action, rows: 100, ..crate::audit::Query::default() };
    bench.engine.store().read(move |conn| crate::audit::read(conn, workspace, &query)).await.unwrap().len()
}

#[tokio::test]
async fn an_expired_code_says_so_and_wrong_secrets_burn_one() {
    let bench = Bench::new().await;
    let good = bench.code(None, &[]).await;
    let wrong = format!("{}-2222-2222", &good[..4]);
    for attempt in 0..5 {
        let peer = format!("10.0.1.{attempt}");
        assert_eq!(code(bench.pair_from(&wrong, &key(), &peer).await), Code::PairingCodeInvalid);
    }
    assert_eq!(told(&bench, "runner_pairing.refused").await, 5);
    let burnt = bench.pair_from(&good, &key(), "10.0.2.1").await.unwrap_err();
    assert!(burnt.message.contains("burnt"), "{}", burnt.message);
    let late = bench.code(None, &[]).await;
    bench.clock.advance_ms(600_000);
    assert_eq!(code(bench.pair(&late, &key()).await), Code::PairingCodeExpired);
}

#[tokio::test]
async fn five_wrong_codes_a_minute_are_heard_from_one_network_and_a_restart_does_not_forget() {
    let mut bench = Bench::new().await;
    let good = bench.code(None, &[]).await;
    for host in 1..=5 {
        let peer = format!("2001:db8:1:1::{host}");
        assert_eq!(code(bench.pair_from("AAAA-2222-2222", &key(), &peer).await), Code::PairingCodeInvalid);
    }
    bench.restart().await;
    assert_eq!(code(bench.pair_from(&good, &key(), "2001:db8:1:1::9").await), Code::RateLimited);
    bench.pair_from(&good, &key(), "2001:db8:1:2::1").await.unwrap();
    bench.clock.advance_ms(60_001);
    assert_eq!(code(bench.pair_from("x", &key(), "2001:db8:1:1::9").await), Code::PairingCodeInvalid);
}

#[tokio::test]
async fn a_copied_identity_is_refused_while_the_other_lives_and_a_restart_replaces_at_once() {
    let bench = Bench::new().await;
    let machine = bench.machine().await;
    let old = machine.token.clone();
    let copy = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    assert_eq!(code(bench.start(copy, machine.paired.clone(), "m1").await.map(drop)), Code::Unauthenticated);
    let machine = bench.start(machine.key, machine.paired, "m1").await.unwrap();
    assert_eq!(code(bench.engine.authenticate(&old).await), Code::Unauthenticated);
    let (key, paired) = (machine.key, machine.paired);
    bench.clock.advance_ms(10_000);
    let refused = bench.start(key, paired, "m2").await;
    assert_eq!(code(refused.map(drop)), Code::IdentityInUse);
}

#[tokio::test]
async fn a_token_ends_after_an_hour() {
    let bench = Bench::new().await;
    let machine = bench.machine().await;
    bench.clock.advance_ms(3_599_000);
    assert_eq!(bench.engine.authenticate(&machine.token).await.unwrap(), machine.caller);
    bench.clock.advance_ms(1_000);
    assert_eq!(code(bench.engine.authenticate(&machine.token).await), Code::Unauthenticated);
}

#[tokio::test]
async fn revocation_ends_the_claim_the_gateway_the_token_and_open_polls_at_once() {
    let bench = Bench::new().await;
    let (machine, other) = (bench.machine().await, bench.machine().await);
    let session = bench.session().await;
    let claim = bench.claim(&machine).await;
    let seen = bench.kinds(session).await.len() as u64;
    let hang = DirectivesRequest { epoch: claim.epoch, after: seen, wait_ms: 15_000 };
    let open = bench.engine.directives(machine.caller, claim.id, hang);
    let poll = bench.engine.claim(machine.caller, ClaimRequest { wait_ms: 20_000, ..ask(&machine) });
    let revoke = async {
        tokio::task::yield_now().await;
        bench.engine.revoke_runner(bench.workspace, machine.caller.runner_id, "stolen".to_owned()).await
    };
    let (told, polled, revoked) = tokio::join!(open, poll, revoke);
    assert_eq!(revoked.unwrap().presence, Presence::Revoked);
    assert_eq!(told.unwrap().directives, [Directive::Cancel { reason: "revoked".to_owned() }]);
    assert_eq!(code(polled), Code::RunnerRevoked);
    assert_eq!(code(bench.engine.authenticate(&machine.token).await), Code::RunnerRevoked);
    assert_eq!(code(bench.append(&machine, &claim, 0, &[says("x")]).await), Code::Fenced);
    assert_eq!(code(bench.renew(&machine, &claim).await), Code::Fenced);
    let token = bench.engine.gateway_token(claim.id);
    assert_eq!(code(bench.engine.capability(token.reveal()).await), Code::Fenced);
    let refused = bench.start(machine.key, machine.paired, "m1").await;
    assert_eq!(code(refused.map(drop)), Code::RunnerRevoked);
    assert_eq!(bench.claim(&other).await.attempt, 1);
    bench.assert_verified().await;
}

#[tokio::test]
async fn an_ask_suspends_the_run_until_it_is_answered_and_counts_once() {
    let bench = Bench::new().await;
    let machine = bench.machine().await;
    let session = bench.session_with(vec![toolset(Some(PermissionPolicy::AlwaysAsk))]).await;
    let claim = bench.claim(&machine).await;
    let (yes, no) = (calls("bash"), calls("bash"));
    let reply = bench.append(&machine, &claim, 0, &[yes.clone(), no.clone()]).await.unwrap();
    assert!(reply.decisions.iter().all(|decision| decision.disposition == Disposition::Ask));
    bench.settle(&machine, &claim, 2, SettledOutcome::RequiresAction).await.unwrap();
    let asks = StopReason::RequiresAction { event_ids: vec![yes.id, no.id] };
    assert_eq!(bench.record(session).await.stop_reason, Some(asks));
    let answer = |tool_use_id, result, message: Option<&str>| {
        let deny_message = message.map(str::to_owned);
        bench
            .send(session, Body::UserToolConfirmation(ToolConfirmation { tool_use_id, result, deny_message }))
    };
    assert_eq!(code(answer(EventId::mint(), Confirmation::Allow, None).await), Code::UnknownReference);
    answer(yes.id, Confirmation::Allow, None).await.unwrap();
    assert!(bench.poll(&machine).await.claim.is_none());
    assert_eq!(code(answer(yes.id, Confirmation::Deny, None).await), Code::UnknownReference);
    answer(no.id, Confirmation::Deny, Some("too risky")).await.unwrap();
    let claim = bench.claim(&machine).await;
    let digest = sha256_hex(json!({"command": "true"}).to_string().as_bytes());
    let resume = |id, digest: &str| {
        appended(Body::AgentToolResumed { tool_use_id: id, arguments_sha256: digest.to_owned() })
    };
    let forged = bench.append(&machine, &claim, 0, &[resume(yes.id, "0")]).await;
    assert_eq!(code(forged), Code::InvalidRequest);
    let batch = [resume(yes.id, &digest), resume(no.id, &digest)];
    let decisions = bench.append(&machine, &claim, 0, &batch).await.unwrap().decisions;
    assert_eq!(decisions[0].disposition, Disposition::Allow);
    assert_eq!(decisions[1].disposition, Disposition::Deny);
    assert_eq!(decisions[1].reason, "too risky");
    bench.append(&machine, &claim, 2, &[result_of(yes.id), result_of(no.id)]).await.unwrap();
    bench.assert_verified().await;
}

#[tokio::test]
async fn answers_that_come_before_the_settle_queue_the_run_again_instead_of_idling() {
    let bench = Bench::new().await;
    let machine = bench.machine().await;
    let session = bench.session_with(vec![toolset(Some(PermissionPolicy::AlwaysAsk))]).await;
    let claim = bench.claim(&machine).await;
    let call = calls("read");
    bench.append(&machine, &claim, 0, std::slice::from_ref(&call)).await.unwrap();
    let answer = ToolConfirmation { tool_use_id: call.id, result: Confirmation::Allow, deny_message: None };
    bench.send(session, Body::UserToolConfirmation(answer)).await.unwrap();
    let settled = bench.settle(&machine, &claim, 1, SettledOutcome::RequiresAction).await.unwrap();
    assert_eq!(settled.stop_reason, None);
    assert_eq!(bench.claim(&machine).await.run_id, claim.run_id);
    bench.assert_verified().await;
}

#[tokio::test]
async fn a_custom_tool_is_shown_once_allowed_and_its_result_resumes_the_run() {
    let bench = Bench::new().await;
    let machine = bench.machine().await;
    let custom = Tool::Custom {
        name: "lookup".to_owned(),
        description: "looks up".to_owned(),
        input_schema: json!({"type": "object"}),
    };
    let session = bench.session_with(vec![custom]).await;
    let claim = bench.claim(&machine).await;
    let propose = |name: &str| appended(Body::AgentToolProposed { name: name.to_owned(), input: json!({}) });
    let batch = [propose("lookup"), propose("unknown")];
    let decisions = bench.append(&machine, &claim, 0, &batch).await.unwrap().decisions;
    assert_eq!(decisions[0].disposition, Disposition::Allow);
    assert_eq!(decisions[1].disposition, Disposition::Deny);
    bench.append(&machine, &claim, 2, &[result_of(batch[1].id)]).await.unwrap();
    let settled = bench.settle(&machine, &claim, 3, SettledOutcome::RequiresAction).await.unwrap();
    let Some(StopReason::RequiresAction { event_ids }) = settled.stop_reason else { panic!("it waits") };
    let result = |id| Body::UserCustomToolResult {
        custom_tool_use_id: id,
        content: vec![Block::text("42")],
        is_error: false,
    };
    assert_eq!(code(bench.send(session, result(batch[0].id)).await), Code::UnknownReference);
    bench.send(session, result(event_ids[0])).await.unwrap();
    bench.claim(&machine).await;
    bench.assert_verified().await;
}

#[tokio::test]
async fn without_a_claim_the_server_applies_an_interrupt_itself() {
    let bench = Bench::new().await;
    let machine = bench.machine().await;
    let interrupt = || Body::UserInterrupt { session_thread_id: None };
    let queued = bench.session().await;
    let offered = bench.poll(&machine).await.claim.unwrap();
    bench.send(queued, interrupt()).await.unwrap();
    assert_eq!(bench.record(queued).await.stop_reason, Some(StopReason::EndTurn));
    assert_eq!(code(bench.renew(&machine, &offered).await), Code::ClaimLapsed);
    let suspended = bench.session_with(vec![toolset(None)]).await;
    let claim = bench.claim(&machine).await;
    let call = calls("bash");
    bench.append(&machine, &claim, 0, std::slice::from_ref(&call)).await.unwrap();
    bench.settle(&machine, &claim, 1, SettledOutcome::RequiresAction).await.unwrap();
    bench.send(suspended, interrupt()).await.unwrap();
    // The message was not folded in yet, so it gets the next run; the call still wants its one result.
    let claim = bench.claim(&machine).await;
    let digest = sha256_hex(json!({"command": "true"}).to_string().as_bytes());
    let resume = appended(Body::AgentToolResumed { tool_use_id: call.id, arguments_sha256: digest });
    let decisions = bench.append(&machine, &claim, 0, &[resume]).await.unwrap().decisions;
    assert_eq!(decisions[0].disposition, Disposition::Deny);
    bench.append(&machine, &claim, 1, &[result_of(call.id)]).await.unwrap();
    bench.assert_verified().await;
}

#[tokio::test]
async fn an_interrupt_of_a_live_claim_is_processed_by_its_settlement() {
    let bench = Bench::new().await;
    let machine = bench.machine().await;
    let session = bench.session().await;
    let claim = bench.claim(&machine).await;
    bench.send(session, Body::UserInterrupt { session_thread_id: None }).await.unwrap();
    let request = DirectivesRequest { epoch: claim.epoch, after: 0, wait_ms: 0 };
    let told = bench.engine.directives(machine.caller, claim.id, request).await.unwrap();
    assert!(told.directives.contains(&Directive::Interrupt { thread_id: None }));
    bench.settle(&machine, &claim, 0, SettledOutcome::RetriesExhausted).await.unwrap();
    let kinds = bench.kinds(session).await;
    let want = ["session.input_processed", "run.settled", "session.usage", "session.status_idle"];
    assert_eq!(kinds[5..9], want);
    bench.assert_verified().await;
}

/// A runner that acts as a fresh principal with this role, and the principal.
async fn machine_of(bench: &Bench, role: Role) -> (Machine, PrincipalId) {
    let registry = Registry::open(bench.engine.store().clone(), bench.dir.path(), &[]).await.unwrap();
    let new = NewPrincipal { name: role.as_str().to_owned(), kind: PrincipalKind::Service, role };
    let made =
        registry.create_principal(bench.workspace, new, bench.principal, Once::NEVER, bench.clock.now());
    let made: serde_json::Value = serde_json::from_str(&made.await.unwrap()).unwrap();
    let principal: PrincipalId = made["id"].as_str().unwrap().parse().unwrap();
    let pairing = NewPairing {
        workspace_id: bench.workspace,
        principal_id: principal,
        created_by: bench.principal,
        name: None,
        labels: Vec::new(),
        max_sessions: None,
        ephemeral: false,
        ttl_seconds: 600,
    };
    let minted = bench.engine.mint_pairing(pairing, None).await.unwrap();
    let key = key();
    let paired = bench.pair(minted.code.unwrap().reveal(), &key).await.unwrap();
    (bench.start(key, paired, "m1").await.unwrap(), principal)
}

#[tokio::test]
async fn a_runner_claims_nothing_beyond_what_its_pairings_principal_may() {
    let bench = Bench::new().await;
    let session = bench.session().await;
    let (machine, _) = machine_of(&bench, Role::Developer).await;
    assert!(bench.poll(&machine).await.claim.is_none(), "its principal may not claim");
    let (machine, principal) = machine_of(&bench, Role::Operator).await;
    let claim = bench.claim(&machine).await;
    let workspace = bench.workspace;
    bench
        .engine
        .withdraw(workspace, move |tx, now| principals::archive(tx, workspace, principal, now))
        .await
        .unwrap();
    assert_eq!(code(bench.renew(&machine, &claim).await), Code::Fenced);
    let token = bench.engine.gateway_token(claim.id);
    assert_eq!(code(bench.engine.capability(token.reveal()).await), Code::Fenced);
    assert!(bench.poll(&machine).await.claim.is_none());
    assert_eq!(bench.record(session).await.status, Status::Rescheduling);
    let other = bench.machine().await;
    bench.claim(&other).await;
    bench.assert_verified().await;
}

#[tokio::test]
async fn a_session_whose_principal_may_no_longer_run_it_stops_in_both_halves() {
    let bench = Bench::new().await;
    let (workspace, owner) = (bench.workspace, bench.principal);
    let (machine, actor) = machine_of(&bench, Role::Operator).await;
    let new = NewSession {
        principal_id: actor,
        ..bench.new_session(vec![toolset(None)], vec![bench.message("go")])
    };
    let session = bench.engine.create_session(new, None).await.unwrap().id;
    let holder = bench.machine().await;
    let claim = bench.claim(&holder).await;
    let find = move |conn: &rusqlite::Connection| {
        let sql = "select id from permission_assignments where subject_id = ?1 and permission = 'invoke'";
        Ok(conn.query_row(sql, [actor.to_string()], |row| row.get::<_, String>(0))?)
    };
    let id = bench.engine.store().read(find).await.unwrap().parse().unwrap();
    bench
        .engine
        .withdraw(workspace, move |tx, now| assignments::revoke(tx, workspace, id, owner, now))
        .await
        .unwrap();
    assert_eq!(code(bench.append(&holder, &claim, 0, &[says("x")]).await), Code::Fenced);
    assert_eq!(code(bench.renew(&holder, &claim).await), Code::Fenced);
    let token = bench.engine.gateway_token(claim.id);
    assert_eq!(code(bench.engine.capability(token.reveal()).await), Code::Fenced);
    let record = bench.record(session).await;
    assert_eq!((record.status, record.stop_reason), (Status::Idle, Some(StopReason::EndTurn)));
    let said = bench.engine.send(workspace, session, vec![bench.message("more")], None).await;
    assert_eq!(code(said), Code::PermissionDenied);
    assert!(bench.poll(&machine).await.claim.is_none() && bench.poll(&holder).await.claim.is_none());
    bench.assert_verified().await;
}
