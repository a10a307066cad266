//! Claims: offers, leases, fencing, loss, recovery, files.

use super::*;
use checkfu_shared::{
    event::{CaptureStatus, StopReason},
    protocol::{
        append::{Deltas, sha256_hex},
        recover::{HeldClaim, Recover, SandboxFate, Verdict},
        renew::{Directive, DirectivesRequest},
        settlement::{ManifestFile, SettledFile, SettlementRequest},
    },
};

/// Every write of a claim, tried once; the code of each refusal.
async fn every_write(bench: &Bench, machine: &Machine, claim: &Claim) -> Vec<Option<Code>> {
    let (engine, caller, id, epoch) = (&bench.engine, machine.caller, claim.id, claim.epoch);
    let token = engine.gateway_token(id);
    let deltas = Deltas { epoch, event_id: EventId::mint(), offset: 0, text: "x".to_owned() };
    let hang = DirectivesRequest { epoch, after: 0, wait_ms: 0 };
    let manifest = SettlementRequest { epoch, files: Vec::new() };
    vec![
        bench.append(machine, claim, 0, &[says("late")]).await.err().map(|p| p.code),
        engine.deltas(caller, id, deltas).await.err().map(|p| p.code),
        engine.directives(caller, id, hang).await.err().map(|p| p.code),
        engine.history(caller, id, epoch, 0, 10).await.err().map(|p| p.code),
        engine.settlement(caller, id, manifest).await.err().map(|p| p.code),
        bench.settle(machine, claim, 0, SettledOutcome::EndTurn).await.err().map(|p| p.code),
        bench.renew(machine, claim).await.err().map(|p| p.code),
        engine.capability(token.reveal()).await.err().map(|p| p.code),
    ]
}

#[tokio::test]
async fn an_older_epoch_is_refused_on_every_write() {
    let bench = Bench::new().await;
    let (old, new) = (bench.machine().await, bench.machine().await);
    let session = bench.session().await;
    let first = bench.claim(&old).await;
    bench.clock.advance_ms(60_000 + 60_000 + 1);
    bench.engine.lapse_leases().await.unwrap();
    assert_eq!(bench.record(session).await.status, Status::Rescheduling);
    let second = bench.claim(&new).await;
    assert_eq!((second.epoch, second.attempt), (first.epoch + 1, 2));
    let before = bench.kinds(session).await;
    assert_eq!(every_write(&bench, &old, &first).await, vec![Some(Code::Fenced); 8]);
    assert_eq!(bench.kinds(session).await, before);
    bench.append(&new, &second, 0, &[says("mine")]).await.unwrap();
    bench.assert_verified().await;
}

#[tokio::test]
async fn nothing_is_taken_before_the_first_renewal() {
    let bench = Bench::new().await;
    let machine = bench.machine().await;
    bench.session().await;
    let claim = bench.poll(&machine).await.claim.unwrap();
    assert_eq!(code(bench.append(&machine, &claim, 0, &[says("early")]).await), Code::ClaimLapsed);
    let token = bench.engine.gateway_token(claim.id);
    assert_eq!(code(bench.engine.capability(token.reveal()).await), Code::Fenced);
    bench.renew(&machine, &claim).await.unwrap();
    bench.append(&machine, &claim, 0, &[says("now")]).await.unwrap();
}

#[tokio::test]
async fn a_repeated_request_id_gets_the_same_claim_until_its_offer_lapses() {
    let bench = Bench::new().await;
    let (machine, other) = (bench.machine().await, bench.machine().await);
    bench.session().await;
    let request = ask(&machine);
    let first = bench.engine.claim(machine.caller, request.clone()).await.unwrap().claim.unwrap();
    let again = bench.engine.claim(machine.caller, request.clone()).await.unwrap().claim.unwrap();
    assert_eq!(first, again);
    assert!(bench.poll(&other).await.claim.is_none(), "one run was offered twice");
    bench.clock.advance_ms(10_001);
    bench.engine.expire_offers().await.unwrap();
    let lapsed = bench.engine.claim(machine.caller, request).await.unwrap();
    assert!(lapsed.claim.is_none() && lapsed.lapsed);
    assert_eq!(code(bench.renew(&machine, &first).await), Code::ClaimLapsed);
    assert_eq!(bench.claim(&other).await.epoch, first.epoch + 1);
}

#[tokio::test]
async fn an_open_poll_gets_the_run_that_comes_later() {
    let bench = Bench::new().await;
    let machine = bench.machine().await;
    let poll = bench.engine.claim(machine.caller, ClaimRequest { wait_ms: 20_000, ..ask(&machine) });
    let (reply, session) = tokio::join!(poll, bench.session());
    assert_eq!(reply.unwrap().claim.unwrap().session_id, session);
}

#[tokio::test]
async fn a_session_waits_for_the_runner_that_has_its_sandbox() {
    let bench = Bench::new().await;
    let (home, other) = (bench.machine().await, bench.machine().await);
    let session = bench.session().await;
    let claim = bench.claim(&home).await;
    let fold = unprocessed(&bench, &home, &claim).await;
    bench.append(&home, &claim, 0, &[fold]).await.unwrap();
    bench.settle(&home, &claim, 1, SettledOutcome::EndTurn).await.unwrap();
    bench.send(session, Body::UserMessage { content: vec![Block::text("more")] }).await.unwrap();
    assert!(bench.poll(&other).await.claim.is_none());
    let reason = bench.engine.runs(session).await.unwrap().pop().unwrap().waiting_reason;
    assert_eq!(reason, Some(WaitingReason::Affinity));
    bench.clock.advance_ms(60_001);
    bench.engine.authenticate(&home.token).await.unwrap();
    assert_eq!(bench.claim(&other).await.session_id, session);
}

#[tokio::test]
async fn a_lost_claim_is_revived_until_a_newer_epoch_is_offered() {
    let bench = Bench::new().await;
    let machine = bench.machine().await;
    let session = bench.session().await;
    let claim = bench.claim(&machine).await;
    bench.append(&machine, &claim, 0, &[says("a")]).await.unwrap();
    bench.clock.advance_ms(120_001);
    bench.engine.lapse_leases().await.unwrap();
    assert_eq!(code(bench.append(&machine, &claim, 1, &[says("b")]).await), Code::Fenced);
    bench.renew(&machine, &claim).await.unwrap();
    assert_eq!(bench.record(session).await.status, Status::Running);
    assert_eq!(bench.append(&machine, &claim, 1, &[says("b")]).await.unwrap().acked, 2);
    bench.assert_verified().await;
}

#[tokio::test]
async fn after_a_restart_every_live_claim_has_one_full_lease() {
    let mut bench = Bench::new().await;
    let machine = bench.machine().await;
    let session = bench.session().await;
    let claim = bench.claim(&machine).await;
    bench.clock.advance_ms(3_600_000);
    bench.restart().await;
    bench.engine.lapse_leases().await.unwrap();
    assert_eq!(bench.record(session).await.status, Status::Running);
    bench.append(&machine, &claim, 0, &[says("still mine")]).await.unwrap();
}

#[tokio::test]
async fn after_five_attempts_the_run_is_given_up_and_a_new_message_starts_afresh() {
    let bench = Bench::new().await;
    let machine = bench.machine().await;
    let session = bench.session().await;
    for attempt in 1..=5 {
        assert_eq!(bench.claim(&machine).await.attempt, attempt);
        bench.clock.advance_ms(120_001);
        bench.engine.lapse_leases().await.unwrap();
        bench.engine.authenticate(&machine.token).await.unwrap();
    }
    let record = bench.record(session).await;
    assert_eq!((record.status, record.stop_reason), (Status::Idle, Some(StopReason::RetriesExhausted)));
    assert!(bench.poll(&machine).await.claim.is_none());
    bench.send(session, Body::UserMessage { content: vec![Block::text("again")] }).await.unwrap();
    assert_eq!(bench.claim(&machine).await.attempt, 1);
    bench.assert_verified().await;
}

#[tokio::test]
async fn a_completed_model_request_takes_the_attempts_back_to_one() {
    let bench = Bench::new().await;
    let machine = bench.machine().await;
    bench.session().await;
    let claim = bench.claim(&machine).await;
    let released =
        |counts_as_attempt| SettledOutcome::Released { reason: "drain".to_owned(), counts_as_attempt };
    bench.settle(&machine, &claim, 0, released(true)).await.unwrap();
    let claim = bench.claim(&machine).await;
    assert_eq!(claim.attempt, 2);
    bench.append(&machine, &claim, 0, &[model_end()]).await.unwrap();
    bench.settle(&machine, &claim, 1, released(false)).await.unwrap();
    assert_eq!(bench.claim(&machine).await.attempt, 1);
    bench.assert_verified().await;
}

#[tokio::test]
async fn a_settle_is_repeated_with_its_first_answer_even_after_a_newer_epoch() {
    let bench = Bench::new().await;
    let machine = bench.machine().await;
    let session = bench.session().await;
    let claim = bench.claim(&machine).await;
    let first = bench.settle(&machine, &claim, 0, SettledOutcome::Refusal).await.unwrap();
    bench.claim(&machine).await;
    let log = bench.kinds(session).await;
    assert_eq!(bench.settle(&machine, &claim, 0, SettledOutcome::EndTurn).await.unwrap(), first);
    assert_eq!(code(bench.append(&machine, &claim, 0, &[says("late")]).await), Code::Fenced);
    assert_eq!(bench.kinds(session).await, log);
}

#[tokio::test]
async fn a_message_that_races_the_settle_queues_the_next_run_in_the_same_transaction() {
    let bench = Bench::new().await;
    let machine = bench.machine().await;
    let session = bench.session().await;
    let claim = bench.claim(&machine).await;
    let fold = unprocessed(&bench, &machine, &claim).await;
    bench.append(&machine, &claim, 0, &[fold]).await.unwrap();
    bench.send(session, Body::UserMessage { content: vec![Block::text("wait")] }).await.unwrap();
    let missing = bench.settle(&machine, &claim, 9, SettledOutcome::EndTurn).await.unwrap_err();
    assert_eq!((missing.code, missing.details["expected"].as_u64()), (Code::EventsGap, Some(1)));
    let settled = bench.settle(&machine, &claim, 1, SettledOutcome::EndTurn).await.unwrap();
    assert_eq!(settled.stop_reason, None);
    let tail = bench.kinds(session).await.split_off(6);
    assert_eq!(tail, ["run.settled", "run.created"]);
    assert_eq!(bench.record(session).await.status, Status::Running);
}

#[tokio::test]
async fn a_restarted_runner_resumes_what_it_lists_and_loses_the_rest() {
    let bench = Bench::new().await;
    let machine = bench.machine().await;
    let (kept_session, lost_session) = (bench.session().await, bench.session().await);
    let (kept, lost) = (bench.claim(&machine).await, bench.claim(&machine).await);
    bench.append(&machine, &kept, 0, &[says("a")]).await.unwrap();
    let old = machine.caller;
    let machine = bench.start(machine.key, machine.paired, "m1").await.unwrap();
    assert_ne!(old.instance_id, machine.caller.instance_id);
    let unknown = HeldClaim { id: ClaimId::mint(), epoch: 1, next_index: 0 };
    let listed = HeldClaim { id: kept.id, epoch: kept.epoch, next_index: 3 };
    let request = Recover { instance_id: machine.caller.instance_id, claims: vec![listed, unknown] };
    let verdicts = bench.engine.recover(machine.caller, request).await.unwrap().claims;
    assert!(matches!(&verdicts[0], Verdict::Resume { acked: 1, claim } if claim.id == kept.id));
    assert!(matches!(verdicts[1], Verdict::Fenced { sandbox: SandboxFate::Keep }));
    bench.append(&machine, &kept, 1, &[says("b")]).await.unwrap();
    assert_eq!(code(bench.append(&machine, &lost, 0, &[says("c")]).await), Code::Fenced);
    assert_eq!(bench.record(kept_session).await.status, Status::Running);
    assert_eq!(bench.record(lost_session).await.status, Status::Rescheduling);
}

#[tokio::test]
async fn a_question_of_a_restart_that_arrives_twice_takes_nothing_of_the_same_start() {
    let bench = Bench::new().await;
    let machine = bench.machine().await;
    bench.session().await;
    bench.session().await;
    let request = Recover { instance_id: machine.caller.instance_id, claims: Vec::new() };
    bench.engine.recover(machine.caller, request.clone()).await.unwrap();
    let held = bench.claim(&machine).await;
    let offered = bench.poll(&machine).await.claim.unwrap();
    bench.engine.recover(machine.caller, request).await.unwrap();
    bench.append(&machine, &held, 0, &[says("still mine")]).await.unwrap();
    bench.renew(&machine, &offered).await.unwrap();
}

#[tokio::test]
async fn a_closing_instance_gives_its_offers_back_and_gets_nothing_more() {
    let bench = Bench::new().await;
    let (closing, other) = (bench.machine().await, bench.machine().await);
    bench.session().await;
    bench.poll(&closing).await.claim.unwrap();
    bench.engine.close_instance(closing.caller, closing.caller.instance_id).await.unwrap();
    assert!(bench.poll(&closing).await.claim.is_none());
    assert!(bench.poll(&other).await.claim.is_some());
}

#[tokio::test]
async fn uploaded_files_become_visible_with_the_settle_and_unchanged_ones_need_no_upload() {
    let bench = Bench::new().await;
    let machine = bench.machine().await;
    let session = bench.session().await;
    let claim = bench.claim(&machine).await;
    let (bytes, path_b64) = (b"hello world".to_vec(), BASE64_STANDARD.encode("out put.txt"));
    let file = ManifestFile {
        key: "0".to_owned(),
        path_b64: path_b64.clone(),
        size: 11,
        sha256: sha256_hex(&bytes),
    };
    let manifest = SettlementRequest { epoch: claim.epoch, files: vec![file.clone()] };
    let reply = bench.engine.settlement(machine.caller, claim.id, manifest.clone()).await.unwrap();
    let upload = reply.uploads[0].upload_id;
    let begin = |offset| bench.engine.upload(machine.caller, upload, claim.epoch, offset);
    let mut part = begin(0).await.unwrap();
    part.write(&bytes[..5]).await.unwrap();
    assert_eq!(part.finish().await.unwrap(), 5);
    let wrong = begin(0).await.err().unwrap();
    assert_eq!((wrong.code, wrong.details["offset"].as_u64()), (Code::UploadOffset, Some(5)));
    let again = bench.engine.settlement(machine.caller, claim.id, manifest.clone()).await.unwrap();
    assert_eq!((again.settlement_id, again.uploads[0].offset), (reply.settlement_id, 5));
    let settle = Settle {
        epoch: claim.epoch,
        settlement_id: Some(reply.settlement_id),
        events: 0,
        outcome: SettledOutcome::EndTurn,
        files: vec![SettledFile {
            path_b64,
            size: 11,
            sha256: Some(file.sha256.clone()),
            status: CaptureStatus::Captured,
        }],
        keeps_sandbox: true,
    };
    let early = bench.engine.settle(machine.caller, claim.id, settle.clone()).await;
    assert_eq!(code(early), Code::UploadMismatch);
    let mut rest = begin(5).await.unwrap();
    rest.write(&bytes[5..]).await.unwrap();
    assert_eq!(rest.finish().await.unwrap(), 11);
    assert_eq!(bench.engine.upload_offset(machine.caller, upload, claim.epoch).await.unwrap(), 11);
    assert_eq!(bench.engine.files(session).await.unwrap(), []);
    bench.engine.settle(machine.caller, claim.id, settle).await.unwrap();
    let record = bench.engine.files(session).await.unwrap().pop().unwrap();
    assert_eq!(record.path, "out%20put.txt");
    let mut read = String::new();
    let mut opened = bench.engine.custody().open(&record).await.unwrap();
    tokio::io::AsyncReadExt::read_to_string(&mut opened, &mut read).await.unwrap();
    assert_eq!(read, "hello world");
    bench.assert_verified().await;
    let next = bench.claim(&machine).await;
    let manifest = SettlementRequest { epoch: next.epoch, files: vec![file] };
    let unchanged = bench.engine.settlement(machine.caller, next.id, manifest).await.unwrap();
    assert_eq!(unchanged.uploads, []);
}

/// The event that folds in whatever waits.
async fn unprocessed(bench: &Bench, machine: &Machine, claim: &Claim) -> Appended {
    let request = DirectivesRequest { epoch: claim.epoch, after: 0, wait_ms: 0 };
    let found = bench.engine.directives(machine.caller, claim.id, request).await.unwrap();
    let Some(Directive::Inputs { event_ids }) = found.directives.into_iter().next() else {
        panic!("no input waits")
    };
    appended(Body::SessionInputProcessed { event_ids })
}
