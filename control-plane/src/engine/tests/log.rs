//! The log: exactly once, in order, and everything beside it follows from it.

use super::*;
use checkfu_shared::event::StopReason;

#[tokio::test]
async fn a_normal_turn_reads_in_the_promised_order() {
    let bench = Bench::new().await;
    let (machine, session) = (bench.machine().await, bench.session().await);
    assert_eq!(bench.record(session).await.status, Status::Running);
    let claim = bench.claim(&machine).await;
    let start = appended(Body::SpanModelRequestStart {});
    let call = calls("read");
    let batch = [start, call.clone(), result_of(call.id), says("hi"), model_end()];
    let reply = bench.append(&machine, &claim, 0, &batch).await.unwrap();
    assert_eq!((reply.acked, reply.decisions.len()), (5, 1));
    let waiting = bench.engine.directives(machine.caller, claim.id, asked(&claim)).await.unwrap();
    let Some(Directive::Inputs { event_ids }) = waiting.directives.first() else { panic!("{waiting:?}") };
    let fold = appended(Body::SessionInputProcessed { event_ids: event_ids.clone() });
    bench.append(&machine, &claim, 5, &[fold]).await.unwrap();
    bench.clock.advance_ms(2_500);
    let settled = bench.settle(&machine, &claim, 6, SettledOutcome::EndTurn).await.unwrap();
    assert_eq!(settled.stop_reason, Some(StopReason::EndTurn));
    let want = [
        "user.message",
        "run.created",
        "session.status_running",
        "run.claimed",
        "span.model_request_start",
        "agent.tool_use",
        "agent.tool_result",
        "agent.message",
        "span.model_request_end",
        "session.input_processed",
        "run.settled",
        "session.usage",
        "session.status_idle",
    ];
    assert_eq!(bench.kinds(session).await, want);
    let record = bench.record(session).await;
    assert_eq!((record.status, record.active_seconds, record.last_seq), (Status::Idle, 2, 13));
    assert_eq!(bench.engine.runs(session).await.unwrap()[0].status, RunStatus::Settled);
    bench.assert_verified().await;
}

#[tokio::test]
async fn the_bytes_of_an_input_show_when_it_was_processed() {
    let bench = Bench::new().await;
    let (machine, session) = (bench.machine().await, bench.session().await);
    let claim = bench.claim(&machine).await;
    let first = |events: Vec<RawEvent>| serde_json::from_str::<Event>(&events[0].json).unwrap();
    let query = || EventQuery { limit: 1, ..EventQuery::default() };
    let before = first(bench.engine.events(session, query()).await.unwrap());
    assert_eq!(before.processed_at, None);
    let fold = appended(Body::SessionInputProcessed { event_ids: vec![before.id] });
    bench.append(&machine, &claim, 0, &[fold]).await.unwrap();
    let after = first(bench.engine.events(session, query()).await.unwrap());
    assert!(after.processed_at.is_some());
    let none = bench.engine.directives(machine.caller, claim.id, asked(&claim)).await.unwrap();
    assert_eq!(none.directives, []);
}

#[tokio::test]
async fn a_repeated_batch_changes_nothing_and_gets_the_same_decisions() {
    let bench = Bench::new().await;
    let (machine, session) = (bench.machine().await, bench.session().await);
    let claim = bench.claim(&machine).await;
    let batch = [says("a"), calls("bash"), says("b")];
    let once = bench.append(&machine, &claim, 0, &batch).await.unwrap();
    let log = bench.kinds(session).await;
    assert_eq!(bench.append(&machine, &claim, 0, &batch).await.unwrap(), once);
    assert_eq!(bench.append(&machine, &claim, 1, &batch[1..]).await.unwrap().decisions, once.decisions);
    assert_eq!(bench.kinds(session).await, log);
    let overlapping = [batch[2].clone(), says("c")];
    assert_eq!(bench.append(&machine, &claim, 2, &overlapping).await.unwrap().acked, 4);
    assert_eq!(bench.kinds(session).await.len(), log.len() + 1);
}

#[tokio::test]
async fn a_gap_names_the_wanted_index_and_a_difference_is_a_conflict() {
    let bench = Bench::new().await;
    let machine = bench.machine().await;
    bench.session().await;
    let claim = bench.claim(&machine).await;
    bench.append(&machine, &claim, 0, &[says("a")]).await.unwrap();
    let gap = bench.append(&machine, &claim, 3, &[says("b")]).await.unwrap_err();
    assert_eq!((gap.code, gap.details["expected"].as_u64()), (Code::EventsGap, Some(1)));
    assert_eq!(code(bench.append(&machine, &claim, 0, &[says("other")]).await), Code::EventsConflict);
    let forbidden = appended(Body::SessionStatusRunning {});
    assert_eq!(code(bench.append(&machine, &claim, 1, &[forbidden]).await), Code::PermissionDenied);
}

#[tokio::test]
async fn a_call_gets_one_result_and_a_batch_is_all_or_nothing() {
    let bench = Bench::new().await;
    let (machine, session) = (bench.machine().await, bench.session().await);
    let claim = bench.claim(&machine).await;
    let call = calls("read");
    bench.append(&machine, &claim, 0, &[call.clone(), result_of(call.id)]).await.unwrap();
    let before = bench.kinds(session).await;
    let twice = [says("x"), result_of(call.id)];
    assert_eq!(code(bench.append(&machine, &claim, 2, &twice).await), Code::InvalidRequest);
    assert_eq!(bench.kinds(session).await, before);
    bench.assert_verified().await;
}

#[tokio::test]
async fn usage_comes_from_the_gateways_meter() {
    let bench = Bench::new().await;
    let (machine, session) = (bench.machine().await, bench.session().await);
    let claim = bench.claim(&machine).await;
    let token = bench.engine.gateway_token(claim.id);
    let capability = bench.engine.capability(token.reveal()).await.unwrap();
    assert_eq!((capability.session_id, capability.epoch), (session, 1));
    let used = checkfu_shared::event::ModelUsage { input_tokens: 7, output_tokens: 3, ..Default::default() };
    let metered = crate::engine::Metered { usage: used, ..Default::default() };
    bench.engine.record_usage(&capability, "r1".to_owned(), metered).await.unwrap();
    let mut end = model_end();
    end.model_request_id = Some("r1".to_owned());
    bench.append(&machine, &claim, 0, &[end]).await.unwrap();
    bench.settle(&machine, &claim, 1, SettledOutcome::EndTurn).await.unwrap();
    let usage = bench.record(session).await.usage;
    assert_eq!((usage.input_tokens, usage.output_tokens), (7, 3));
    assert_eq!(code(bench.engine.capability(token.reveal()).await), Code::Fenced);
}

#[tokio::test]
async fn a_repeated_create_or_send_gets_the_first_answer_and_another_body_a_conflict() {
    let mut bench = Bench::new().await;
    let key = |body: &str| {
        Some(Replay { scope_key: "k".to_owned(), body_digest: body.to_owned(), told: Told::ByScope })
    };
    let new = || bench.new_session(Vec::new(), Vec::new());
    let (first, again) = (
        bench.engine.create_session(new(), key("a")).await.unwrap(),
        bench.engine.create_session(new(), key("a")).await.unwrap(),
    );
    assert_eq!(first, again);
    assert_eq!(code(bench.engine.create_session(new(), key("b")).await), Code::IdempotencyConflict);
    let send = |replay| bench.engine.send(bench.workspace, first.id, vec![bench.message("x")], replay);
    let key = || Some(Replay { scope_key: "s".to_owned(), body_digest: "d".to_owned(), told: Told::ByScope });
    let echoes = send(key()).await.unwrap();
    bench.restart().await;
    let send = |replay| bench.engine.send(bench.workspace, first.id, vec![bench.message("x")], replay);
    assert_eq!(send(key()).await.unwrap(), echoes);
    assert_eq!(bench.kinds(first.id).await.len(), 3);
    bench.clock.advance_ms(24 * 3_600_000 + 1);
    assert_ne!(send(key()).await.unwrap(), echoes);
}

#[tokio::test]
async fn a_running_session_is_neither_archived_nor_deleted() {
    let bench = Bench::new().await;
    let session = bench.session().await;
    assert_eq!(code(bench.engine.archive_session(bench.workspace, session).await), Code::InvalidState);
    assert_eq!(code(bench.engine.delete_session(bench.workspace, session, None).await), Code::InvalidState);
    bench.send(session, Body::UserInterrupt { session_thread_id: None }).await.unwrap();
    let archived = bench.engine.archive_session(bench.workspace, session).await.unwrap();
    assert_eq!(archived.status, Status::Terminated);
    assert!(archived.archived_at.is_some());
    let late = Body::UserMessage { content: vec![Block::text("late")] };
    assert_eq!(code(bench.send(session, late).await), Code::Archived);
    bench.assert_verified().await;
    bench.engine.delete_session(bench.workspace, session, None).await.unwrap();
    assert_eq!(bench.engine.session(bench.workspace, session).await.unwrap(), None);
}

#[tokio::test]
async fn another_workspace_sees_nothing() {
    let bench = Bench::new().await;
    let session = bench.session().await;
    let other = WorkspaceId::mint();
    assert_eq!(bench.engine.session(other, session).await.unwrap(), None);
    assert_eq!(code(bench.engine.send(other, session, vec![bench.message("x")], None).await), Code::NotFound);
    assert_eq!(code(bench.engine.delete_session(other, session, None).await), Code::NotFound);
}

use checkfu_shared::protocol::renew::{Directive, DirectivesRequest};

fn asked(claim: &Claim) -> DirectivesRequest {
    DirectivesRequest { epoch: claim.epoch, after: 0, wait_ms: 0 }
}
