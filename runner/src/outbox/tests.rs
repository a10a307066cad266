//! The outbox against a control plane that loses replies, refuses for a while and restarts; exactly once, in order.

use super::*;
use crate::{
    claim::lease::clock,
    rig::{Dice, Fault, Rig, claim, message, proposal, until},
};
use checkfu_shared::problem::Code;
use tokio::task::JoinHandle;

struct Opened {
    outbox: Outbox,
    lease: watch::Sender<State>,
    sending: JoinHandle<()>,
    _dir: tempfile::TempDir,
}

fn held() -> State {
    clock::granted(BootInstant::now(), 600_000, 1_000)
}

async fn open(rig: &Rig, dir: tempfile::TempDir, acked: u64, quota: Arc<Quota>) -> Opened {
    let (lease, watching) = watch::channel(held());
    let (outbox, backlog) = Outbox::open(dir.path(), acked, quota, watching).await.unwrap();
    let claim = claim(1);
    let route = Route {
        plane: Arc::clone(&rig.plane),
        claim: claim.id,
        epoch: claim.epoch,
        watched: watch::Sender::new(false),
    };
    let sending = tokio::spawn(run(backlog, route));
    Opened { outbox, lease, sending, _dir: dir }
}

async fn fresh(rig: &Rig) -> Opened {
    open(rig, tempfile::tempdir().unwrap(), 0, Arc::default()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_event_arrives_exactly_once_and_in_order_whatever_replies_are_lost() {
    for seed in 1..=12u64 {
        let rig = Rig::start().await;
        let mut faulty = Dice(seed * 7_919);
        rig.faults(move |path| match (path.ends_with("/events"), faulty.roll(6)) {
            (true, 0) => Fault::LostReply,
            (true, 1) => Fault::Status(500),
            (true, 2) => Fault::Refuse(Problem::new(Code::Overloaded, "Later.")),
            (true, 3) => Fault::Slow(Duration::from_millis(3)),
            _ => Fault::None,
        });
        let (mut dice, mut written) = (Dice(seed), Vec::new());
        let mut opened = fresh(&rig).await;
        for round in 0..30 {
            let events: Vec<Appended> = (0..=dice.roll(5))
                .map(|n| if dice.roll(4) == 0 { proposal() } else { message(&format!("{round}.{n}")) })
                .collect();
            written.extend(events.clone());
            let next = opened.outbox.append(events.clone()).await.unwrap();
            assert_eq!(next, written.len() as u64, "seed {seed}");
            match dice.roll(8) {
                0 => opened.outbox.flush().await.unwrap(),
                1 => {
                    // The process dies at an arbitrary moment and starts again with what the server has.
                    opened.sending.abort();
                    let _ = opened.sending.await;
                    let acked = rig.world().log.len() as u64;
                    opened = open(&rig, opened._dir, acked, Arc::default()).await;
                }
                2 => {
                    let calls: Vec<EventId> = events
                        .iter()
                        .filter(|event| matches!(event.body, Body::AgentToolProposed { .. }))
                        .map(|event| event.id)
                        .collect();
                    let decisions = opened.outbox.decisions(&calls).await.unwrap();
                    let decided: Vec<EventId> =
                        decisions.iter().map(|decision| decision.tool_use_id).collect();
                    assert_eq!(decided, calls, "seed {seed}");
                }
                _ => {}
            }
        }
        opened.outbox.flush().await.unwrap();
        assert_eq!(rig.world().log, written, "seed {seed}");
        assert_eq!(opened.outbox.acked(), written.len() as u64);
        opened.sending.abort();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_sent_or_taken_while_the_lease_is_frozen_and_all_of_it_afterwards() {
    let rig = Rig::start().await;
    let opened = fresh(&rig).await;
    opened.outbox.append(vec![message("before")]).await.unwrap();
    opened.outbox.flush().await.unwrap();
    opened.lease.send_replace(State::Frozen);
    let outbox = opened.outbox.clone();
    let waiting = tokio::spawn(async move { outbox.append(vec![message("frozen")]).await });
    let mut progress = opened.outbox.progress();
    progress.wait_for(|now| now.stall == Some(Stall::Frozen)).await.unwrap();
    assert_eq!((opened.outbox.next_index(), rig.count("/events")), (1, 1));
    opened.lease.send_replace(held());
    assert_eq!(waiting.await.unwrap().unwrap(), 2);
    opened.outbox.flush().await.unwrap();
    assert_eq!(rig.world().log.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_is_older_than_its_lease_permits_nothing() {
    let rig = Rig::start().await;
    let opened = fresh(&rig).await;
    // As after a long suspend: still marked as held, but its time is over.
    opened.lease.send_replace(State::Held { until: BootInstant::from_ms(1), ends: BootInstant::from_ms(2) });
    let outbox = opened.outbox.clone();
    let waiting = tokio::spawn(async move { outbox.append(vec![message("late")]).await });
    opened.outbox.progress().wait_for(|now| now.stall == Some(Stall::Frozen)).await.unwrap();
    opened.lease.send_replace(State::Lost(Loss::Fenced));
    assert!(matches!(waiting.await.unwrap(), Err(Error::Lost(Loss::Fenced))));
    assert_eq!(rig.count("/events"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_claim_seals_the_outbox_for_everybody_who_waits() {
    let rig = Rig::start().await;
    rig.faults(|path| if path.ends_with("/events") { Fault::Status(503) } else { Fault::None });
    let opened = fresh(&rig).await;
    opened.outbox.append(vec![proposal()]).await.unwrap();
    let outbox = opened.outbox.clone();
    let flushing = tokio::spawn(async move { outbox.flush().await });
    until("an attempt", || (rig.count("/events") > 0).then_some(())).await;
    opened.lease.send_replace(State::Lost(Loss::Revoked));
    assert!(matches!(flushing.await.unwrap(), Err(Error::Lost(Loss::Revoked))));
    opened.sending.await.unwrap();
    let sent = rig.count("/events");
    assert!(matches!(opened.outbox.append(vec![message("no")]).await, Err(Error::Lost(Loss::Revoked))));
    assert_eq!(rig.count("/events"), sent);
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_end_the_outbox_with_their_reason() {
    for (code, wanted) in [
        (Code::Fenced, "the claim is lost"),
        (Code::RunnerRevoked, "the claim is lost"),
        (Code::EventsConflict, "the control plane's log and the spool disagree: No."),
        (Code::InvalidRequest, "the control plane refuses the events: No."),
    ] {
        let rig = Rig::start().await;
        rig.faults(move |path| {
            if path.ends_with("/events") { Fault::Refuse(Problem::new(code, "No.")) } else { Fault::None }
        });
        let opened = fresh(&rig).await;
        opened.outbox.append(vec![message("x")]).await.unwrap();
        let error = opened.outbox.flush().await.unwrap_err();
        assert_eq!(error.to_string(), wanted, "{code:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_control_plane_that_forgot_acknowledged_events_is_noticed() {
    let rig = Rig::start().await;
    let opened = open(&rig, tempfile::tempdir().unwrap(), 5, Arc::default()).await;
    opened.outbox.append(vec![message("five")]).await.unwrap();
    assert!(matches!(opened.outbox.flush().await, Err(Error::Diverged(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_spool_holds_the_session_until_events_are_taken_and_loses_none() {
    let rig = Rig::start().await;
    rig.faults(|path| if path.ends_with("/events") { Fault::Status(503) } else { Fault::None });
    let opened = open(&rig, tempfile::tempdir().unwrap(), 0, Arc::new(Quota::new(2_000, 1 << 20))).await;
    let outbox = opened.outbox.clone();
    let writing = tokio::spawn(async move {
        for n in 0..40 {
            outbox.append(vec![message(&format!("{n} {}", "x".repeat(200)))]).await.unwrap();
        }
        outbox.flush().await
    });
    opened.outbox.progress().wait_for(|now| now.stall == Some(Stall::SpoolFull)).await.unwrap();
    assert!(opened.outbox.next_index() < 40);
    rig.faults(|_| Fault::None);
    writing.await.unwrap().unwrap();
    assert_eq!(rig.world().log.len(), 40);
    assert_eq!(opened.outbox.progress().borrow().stall, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_runner_may_not_say_is_not_even_written_down() {
    let rig = Rig::start().await;
    let opened = fresh(&rig).await;
    let forbidden = Appended { body: Body::SessionStatusRunning {}, ..message("") };
    assert!(matches!(opened.outbox.append(vec![forbidden]).await, Err(Error::Forbidden { .. })));
    let large = message(&"x".repeat(EVENT_BYTES_MAX));
    assert!(matches!(opened.outbox.append(vec![message("small"), large]).await, Err(Error::TooLarge { .. })));
    assert_eq!(opened.outbox.next_index(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_without_a_decision_is_not_waited_for_for_ever() {
    let rig = Rig::start().await;
    let opened = fresh(&rig).await;
    let event = message("no call");
    opened.outbox.append(vec![event.clone()]).await.unwrap();
    assert!(
        matches!(opened.outbox.decisions(&[event.id]).await, Err(Error::Undecided(id)) if id == event.id)
    );
}
