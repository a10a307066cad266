//! The outbox against a control plane that loses replies, refuses for a while and restarts; exactly once, in order.

use super::*;
use crate::{
    claim::lease::clock,
    rig::{Dice, Fault, Rig, claim, message, proposal, until},
};
use checkfu_shared::{content::Block, problem::Code};
use tokio::task::JoinHandle;

struct Opened {
    outbox: Outbox,
    lease: watch::Sender<State>,
    sending: JoinHandle<()>,
    dir: tempfile::TempDir,
}

impl Opened {
    /// Ends everything but the directory, as the end of the daemon does.
    async fn restart(self) -> tempfile::TempDir {
        self.sending.abort();
        let _ = self.sending.await;
        self.dir
    }
}

fn held() -> State {
    clock::granted(BootInstant::now(), 600_000, 1_000)
}

async fn open(rig: &Rig, dir: tempfile::TempDir, acked: u64, quota: Arc<Quota>) -> Opened {
    open_watched(rig, dir, acked, quota, false).await
}

async fn open_watched(
    rig: &Rig,
    dir: tempfile::TempDir,
    acked: u64,
    quota: Arc<Quota>,
    watched: bool,
) -> Opened {
    let (lease, watching) = watch::channel(held());
    let (outbox, backlog) = Outbox::open(dir.path(), acked, quota, watching).await.unwrap();
    let claim = claim(1);
    let route = Route {
        plane: Arc::clone(&rig.plane),
        claim: claim.id,
        epoch: claim.epoch,
        watched: watch::Sender::new(watched),
    };
    let sending = tokio::spawn(run(backlog, route));
    Opened { outbox, lease, sending, dir }
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
                    opened = open(&rig, opened.dir, acked, Arc::default()).await;
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

fn gaps(log: &[Appended]) -> Vec<(usize, u64)> {
    let gap = |event: &Appended| match event.body {
        Body::StreamGap { bytes } => Some(bytes),
        _ => None,
    };
    log.iter().enumerate().filter_map(|(at, event)| Some((at, gap(event)?))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spool_at_its_cap_drops_live_text_only_and_says_how_much_before_what_comes_next() {
    const LARGE: usize = 100 << 10;
    let rig = Rig::start().await;
    rig.faults(|path| if path.ends_with("/claims") { Fault::None } else { Fault::Status(503) });
    let quota = || Arc::new(Quota::new(5 << 20, 1 << 30));
    let opened = open_watched(&rig, tempfile::tempdir().unwrap(), 0, quota(), true).await;
    let (outbox, text) = (opened.outbox.clone(), "x".repeat(LARGE));
    let numbered = move |n: usize| message(&format!("{n} {text}"));
    let large = numbered.clone();
    let writing = tokio::spawn(async move {
        for n in 0..250 {
            outbox.append(vec![large(n)]).await.unwrap();
        }
    });
    opened.outbox.progress().wait_for(|now| now.stall == Some(Stall::SpoolFull)).await.unwrap();
    let taken = opened.outbox.next_index();
    assert!((30..60).contains(&taken), "{taken} events of 100 KiB under a cap of 5 MiB");
    // While the session stands still, its message goes on: what the queue does not hold is dropped.
    let streaming = EventId::mint();
    for offset in 0..1_000 {
        opened.outbox.deltas(streaming, offset * 10, "0123456789".to_owned());
    }
    writing.abort();
    let _ = writing.await;

    // The daemon is started again; everything that was taken is still there, and the rest follows.
    let dir = opened.restart().await;
    let taken = Spool::open(dir.path(), 0).unwrap().next();
    let opened = open_watched(&rig, dir, 0, quota(), true).await;
    for offset in 0..1_000 {
        opened.outbox.deltas(streaming, offset * 10, "0123456789".to_owned());
    }
    rig.faults(|_| Fault::None);
    let from = usize::try_from(taken).unwrap();
    for n in from..250 {
        opened.outbox.append(vec![numbered(n)]).await.unwrap();
    }
    opened.outbox.flush().await.unwrap();
    let world = rig.world();
    let gaps = gaps(&world.log);
    assert_eq!(gaps[0].0, from, "the gap is told before what comes next: {gaps:?}");
    let dropped: u64 = gaps.iter().map(|(_, bytes)| bytes).sum();
    assert!(dropped > 0 && dropped.is_multiple_of(10) && dropped < 10_000, "{gaps:?}");
    let number = |content: &[Block]| match content {
        [Block::Text { text }] => text.split(' ').next().unwrap().parse::<usize>().unwrap(),
        other => panic!("{other:?}"),
    };
    let numbers = world.log.iter().filter_map(|event| match &event.body {
        Body::AgentMessage { content } => Some(number(content)),
        _ => None,
    });
    // No event of the catalogue was dropped, doubled or moved.
    assert_eq!(numbers.collect::<Vec<_>>(), (0..250).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn live_text_that_nobody_watches_or_that_arrives_leaves_no_gap() {
    for watched in [false, true] {
        let rig = Rig::start().await;
        let opened = open_watched(&rig, tempfile::tempdir().unwrap(), 0, Arc::default(), watched).await;
        let id = EventId::mint();
        for offset in 0..50 {
            opened.outbox.deltas(id, offset, "x".to_owned());
            tokio::task::yield_now().await;
        }
        opened.outbox.append(vec![message("said")]).await.unwrap();
        opened.outbox.flush().await.unwrap();
        assert_eq!(gaps(&rig.world().log), [], "watched {watched}");
    }
}
