//! What a clock that jumps and a run that waits come to.

use super::*;

const HOURS_MS: i64 = 3 * 3_600_000;

#[tokio::test]
async fn a_clock_that_jumps_ahead_takes_no_claim_from_a_runner_that_lives() {
    let bench = Bench::new().await;
    let machine = bench.machine().await;
    let session = bench.session().await;
    let claim = bench.claim(&machine).await;
    bench.clock.advance_ms(HOURS_MS);
    bench.engine.follow_clock(HOURS_MS).await.unwrap();
    bench.engine.lapse_leases().await.unwrap();
    bench.append(&machine, &claim, 0, &[says("on")]).await.unwrap();
    bench.renew(&machine, &claim).await.unwrap();
    assert_eq!(bench.record(session).await.status, Status::Running);
    // One that does not live is lost after its one full lease all the same.
    bench.clock.advance_ms(60_000 + 60_000 + 1);
    bench.engine.follow_clock(0).await.unwrap();
    bench.engine.lapse_leases().await.unwrap();
    assert_eq!(bench.record(session).await.status, Status::Rescheduling);
    bench.assert_verified().await;
}

#[tokio::test]
async fn a_clock_that_is_set_back_keeps_no_run_with_a_runner_that_is_gone() {
    let bench = Bench::new().await;
    let (gone, other) = (bench.machine().await, bench.machine().await);
    let session = bench.session().await;
    let claim = bench.claim(&gone).await;
    bench.clock.advance_ms(-HOURS_MS);
    bench.engine.follow_clock(-HOURS_MS).await.unwrap();
    bench.append(&gone, &claim, 0, &[says("still mine")]).await.unwrap();
    bench.clock.advance_ms(60_000 + 60_000 + 1);
    bench.engine.follow_clock(0).await.unwrap();
    bench.engine.lapse_leases().await.unwrap();
    assert_eq!(bench.record(session).await.status, Status::Rescheduling);
    let second = bench.claim(&other).await;
    assert_eq!(second.epoch, claim.epoch + 1);
    assert_eq!(code(bench.append(&gone, &claim, 1, &[says("late")]).await), Code::Fenced);
    bench.assert_verified().await;
}

#[tokio::test]
async fn a_run_says_why_it_waits() {
    let bench = Bench::new().await;
    let session = bench.session().await;
    let reason = async || bench.engine.runs(session).await.unwrap().pop().unwrap().waiting_reason;
    assert_eq!(reason().await, Some(WaitingReason::NoRunnerMatchesLabels));
    let new = NewPairing {
        workspace_id: bench.workspace,
        principal_id: PrincipalId::mint(),
        created_by: bench.principal,
        name: None,
        labels: Vec::new(),
        max_sessions: None,
        ephemeral: false,
        ttl_seconds: 600,
    };
    let code = bench.engine.mint_pairing(new, None).await.unwrap().code.unwrap();
    let stranger = bench.pair(code.reveal(), &key()).await.unwrap();
    assert_eq!(reason().await, Some(WaitingReason::NoRunnerMayClaim));
    bench.engine.revoke_runner(bench.workspace, stranger.runner_id, "gone".to_owned()).await.unwrap();
    assert_eq!(reason().await, Some(WaitingReason::NoRunnerMatchesLabels));
    let machine = bench.machine().await;
    // It is online, has nothing to do, and does not poll.
    assert_eq!(reason().await, Some(WaitingReason::NoRunnerReady));
    bench.clock.advance_ms(60_000);
    assert_eq!(reason().await, Some(WaitingReason::AllRunnersOffline));
    bench.engine.drain_runner(bench.workspace, machine.caller.runner_id).await.unwrap();
    assert_eq!(reason().await, Some(WaitingReason::AllRunnersDraining));
    let busy = bench.machine().await;
    bench.poll(&busy).await.claim.unwrap();
    assert_eq!(reason().await, Some(WaitingReason::Offered));
    let second = bench.session().await;
    let second = bench.engine.runs(second).await.unwrap().pop().unwrap().waiting_reason;
    assert_eq!(second, Some(WaitingReason::AllSlotsBusy));
    bench.engine.revoke_runner(bench.workspace, machine.caller.runner_id, "gone".to_owned()).await.unwrap();
    bench.engine.revoke_runner(bench.workspace, busy.caller.runner_id, "gone".to_owned()).await.unwrap();
    assert_eq!(reason().await, Some(WaitingReason::NoRunnerMatchesLabels));
}
