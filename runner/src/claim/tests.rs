//! Claims from the poll to their end, against a control plane that fails in every way.

use super::{
    hold::Host,
    lease::{Loss, State, thread::LeaseThread},
    poll::{Idle, Poll},
    *,
};
use crate::{
    plane::Standing,
    rig::{Fault, Rig, claim, message, until},
    session::Ended,
    spools::{Meta, Spools},
    state,
    supervisor::Executor,
};
use checkfu_shared::{
    id::SessionId,
    problem::{Code, Problem},
    protocol::{
        claim::Notice,
        recover::{SandboxFate, Verdict},
    },
};
use futures_util::future::BoxFuture;
use std::sync::Mutex;
use tokio::{
    sync::Semaphore,
    task::{JoinHandle, JoinSet},
};

/// A claim loop of one slot over a control plane, with an executor that the test writes.
struct Loop {
    rig: Rig,
    host: Arc<Host>,
    slots: Arc<Semaphore>,
    stop: watch::Sender<Stop>,
    ready: watch::Sender<Result<(), String>>,
    disposed: Arc<Mutex<Vec<SessionId>>>,
    idle: watch::Sender<Idle>,
    drained: watch::Sender<bool>,
    leases: Option<LeaseThread>,
}

impl Drop for Loop {
    fn drop(&mut self) {
        if let Some(leases) = self.leases.take() {
            leases.stop();
        }
    }
}

impl Loop {
    async fn new(run: impl Fn(Held) -> BoxFuture<'static, Ended> + Send + Sync + 'static) -> Self {
        let rig = Rig::start().await;
        let (stop, stopping) = watch::channel(Stop::Go);
        let (ready, readiness) = watch::channel(Ok(()));
        let disposed = Arc::new(Mutex::new(Vec::new()));
        let gone = Arc::clone(&disposed);
        let executor = Executor {
            run: Arc::new(run),
            dispose: Arc::new(move |session| {
                gone.lock().unwrap().push(session);
                Box::pin(async {})
            }),
            list: Arc::new(|| Box::pin(async { Some(Vec::new()) })),
            collect: Arc::new(|_| Box::pin(async { Ok(Vec::new()) })),
            ready: readiness,
        };
        let leases = LeaseThread::start().unwrap();
        let host = Arc::new(Host {
            plane: Arc::clone(&rig.plane),
            executor,
            leases: leases.handle(),
            spools: Spools::open(&state::State::open(rig.dir.path()).unwrap()).unwrap(),
            quota: Arc::default(),
            table: table::Table::default(),
            stop: stopping,
        });
        let idle = watch::Sender::new(Idle::Asking);
        Self {
            rig,
            host,
            slots: Arc::new(Semaphore::new(1)),
            stop,
            ready,
            disposed,
            idle,
            drained: watch::Sender::new(false),
            leases: Some(leases),
        }
    }

    fn start(&self) -> JoinHandle<()> {
        let poll = Poll {
            host: Arc::clone(&self.host),
            slots: Arc::clone(&self.slots),
            labels: vec!["gpu".to_owned()],
            idle: self.idle.clone(),
            drained: self.drained.subscribe(),
            once: None,
        };
        tokio::spawn(poll.run(JoinSet::new()))
    }

    async fn end(&self, polling: JoinHandle<()>) {
        self.stop.send_replace(Stop::Drain);
        polling.await.unwrap();
    }
}

fn settles(held: Held) -> BoxFuture<'static, Ended> {
    Box::pin(async move {
        held.outbox.append(vec![message("done")]).await.unwrap();
        held.outbox.flush().await.unwrap();
        Ended::Settled
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_is_asked_for_again_and_the_claim_runs_once() {
    let runs = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&runs);
    let this = Loop::new(move |held| {
        seen.lock().unwrap().push((held.claim.id, held.resumed));
        settles(held)
    })
    .await;
    this.rig.world().offers = vec![claim(7)];
    let mut polls = 0;
    this.rig.faults(move |path| {
        polls += usize::from(path.ends_with("/claims"));
        match (path.ends_with("/claims"), polls) {
            (true, 1) => Fault::LostReply,
            (true, 2) => Fault::Status(500),
            (true, 3) => Fault::Refuse(Problem::new(Code::RateLimited, "Slower.")),
            _ => Fault::None,
        }
    });
    let polling = this.start();
    until("the end of the claim", || (this.rig.world().requests.len() > 2).then_some(())).await;
    until("its event", || (!this.rig.world().log.is_empty()).then_some(())).await;
    this.end(polling).await;
    assert_eq!(*runs.lock().unwrap(), [(claim(7).id, false)]);
    let requests = this.rig.world().requests.clone();
    assert_eq!(requests[0], requests[1], "the same request id until a reply has come");
    assert_ne!(requests[1], requests[2]);
    assert!(this.host.spools.found().await.unwrap().is_empty(), "a settled spool goes");
    assert_eq!(this.rig.count("/close"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_asked_for_without_a_free_slot_or_without_docker() {
    let (release, released) = watch::channel(false);
    let this = Loop::new(move |held| {
        let mut released = released.clone();
        Box::pin(async move {
            let _held = held;
            released.wait_for(|released| *released).await.unwrap();
            Ended::Settled
        })
    })
    .await;
    let _ = this.ready.send_replace(Err("no Docker at /run/docker.sock".to_owned()));
    this.rig.world().offers = vec![claim(1)];
    let polling = this.start();
    let mut idle = this.idle.subscribe();
    idle.wait_for(|idle| matches!(idle, Idle::Unready(why) if why.contains("docker.sock"))).await.unwrap();
    assert_eq!(this.rig.count("/claims"), 0);
    let _ = this.ready.send_replace(Ok(()));
    idle.wait_for(|idle| *idle == Idle::Full).await.unwrap();
    assert_eq!(this.rig.count("/claims"), 1);
    until("the session", || (this.host.table.shown().len() == 1).then_some(())).await;
    // Renewals go on while it is held, polls do not.
    until("renewals", || (this.rig.count("/renew") >= 4).then_some(())).await;
    assert_eq!(this.rig.count("/claims"), 1);
    release.send_replace(true);
    until("the next poll", || (this.rig.count("/claims") >= 2).then_some(())).await;
    this.end(polling).await;
    assert!(this.host.table.shown().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_offer_that_cannot_be_confirmed_creates_nothing() {
    let this = Loop::new(|_| panic!("an unconfirmed claim must not run")).await;
    this.rig.world().offers = vec![claim(1)];
    this.rig.faults(|path| {
        if path.ends_with("/renew") {
            Fault::Refuse(Problem::new(Code::ClaimLapsed, "Too late."))
        } else {
            Fault::None
        }
    });
    let polling = this.start();
    until("a second poll", || (this.rig.count("/claims") >= 2).then_some(())).await;
    this.end(polling).await;
    assert!(this.host.spools.found().await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_freezes_when_renewal_fails_and_thaws_with_the_same_epoch() {
    let this = Loop::new(|mut held| {
        Box::pin(async move {
            held.lease.wait_for(|state| *state == State::Frozen).await.unwrap();
            assert!(!held.may_act());
            held.lease.wait_for(|state| matches!(state, State::Held { .. })).await.unwrap();
            held.outbox.append(vec![message("after the thaw")]).await.unwrap();
            held.outbox.flush().await.unwrap();
            Ended::Settled
        })
    })
    .await;
    let mut short = claim(3);
    short.lease_ms = 900;
    this.rig.world().offers = vec![short];
    this.rig.world().lease_ms = 900;
    let mut renewals = 0;
    this.rig.faults(move |path| {
        renewals += usize::from(path.ends_with("/renew"));
        if path.ends_with("/renew") && (2..40).contains(&renewals) { Fault::Status(503) } else { Fault::None }
    });
    let polling = this.start();
    until("the event", || (this.rig.world().log.len() == 1).then_some(())).await;
    this.end(polling).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fenced_claim_is_lost_at_once_and_its_spool_is_kept_aside() {
    let this = Loop::new(|mut held| {
        Box::pin(async move {
            held.outbox.append(vec![message("mine")]).await.unwrap();
            held.outbox.flush().await.unwrap();
            held.lease.wait_for(|state| matches!(state, State::Lost(_))).await.unwrap();
            assert!(held.outbox.append(vec![message("not mine any more")]).await.is_err());
            Ended::Lost(Loss::Fenced)
        })
    })
    .await;
    this.rig.world().offers = vec![claim(4)];
    let mut renewals = 0;
    this.rig.faults(move |path| {
        renewals += usize::from(path.ends_with("/renew"));
        if path.ends_with("/renew") && renewals > 5 {
            Fault::Refuse(Problem::new(Code::Fenced, "A newer epoch."))
        } else {
            Fault::None
        }
    });
    let polling = this.start();
    until("the spool aside", || {
        let aside = this.rig.dir.path().join("aside").join(claim(4).id.to_string());
        aside.exists().then_some(())
    })
    .await;
    this.end(polling).await;
    assert_eq!(this.rig.world().log.len(), 1);
    assert!(this.disposed.lock().unwrap().is_empty(), "the inventory decides about a fenced sandbox");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_runner_loses_its_claims_removes_their_sandboxes_and_parks() {
    let this = Loop::new(|mut held| {
        Box::pin(async move {
            let state = *held.lease.wait_for(|state| matches!(state, State::Lost(_))).await.unwrap();
            assert_eq!(state, State::Lost(Loss::Revoked));
            Ended::Lost(Loss::Revoked)
        })
    })
    .await;
    this.rig.world().offers = vec![claim(5)];
    let mut renewals = 0;
    this.rig.faults(move |path| {
        renewals += usize::from(path.ends_with("/renew"));
        if renewals > 3 { Fault::Refuse(Problem::new(Code::RunnerRevoked, "Revoked.")) } else { Fault::None }
    });
    let polling = this.start();
    let disposed = Arc::clone(&this.disposed);
    until("the sandbox to go", || (disposed.lock().unwrap().len() == 1).then_some(())).await;
    this.rig.plane.standing().wait_for(|standing| matches!(standing, Standing::Revoked)).await.unwrap();
    let mut idle = this.idle.subscribe();
    idle.wait_for(|idle| *idle == Idle::Revoked).await.unwrap();
    let calls = this.rig.world().calls.len();
    this.end(polling).await;
    assert_eq!(this.rig.world().calls.len(), calls, "a parked runner is silent");
}

#[tokio::test(flavor = "multi_thread")]
async fn notices_dispose_of_sandboxes_and_hold_back_polls() {
    let this = Loop::new(settles).await;
    let session = claim(9).session_id;
    this.rig.world().notices = vec![Notice::Dispose { session_id: session }, Notice::Drain];
    let polling = this.start();
    let mut idle = this.idle.subscribe();
    idle.wait_for(|idle| *idle == Idle::Drained).await.unwrap();
    until("the removal", || (!this.disposed.lock().unwrap().is_empty()).then_some(())).await;
    this.end(polling).await;
    assert_eq!(*this.disposed.lock().unwrap(), [session]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_takes_up_what_goes_on_and_clears_what_does_not() {
    let resumed = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&resumed);
    let this = Loop::new(move |held| {
        seen.lock().unwrap().push((held.claim.id, held.resumed, held.outbox.next_index()));
        settles(held)
    })
    .await;
    for n in 1..=4 {
        let dir = this.host.spools.begin(&Meta::from(&claim(n))).await.unwrap();
        let line = |text: &str| serde_json::to_vec(&message(text)).unwrap();
        crate::outbox::Spool::open(&dir, 0).unwrap().append(&[line("a"), line("b")]).unwrap();
    }
    this.rig.world().verdicts = vec![
        Verdict::Resume { acked: 0, claim: Box::new(claim(1)) },
        Verdict::Settled,
        Verdict::Fenced { sandbox: SandboxFate::Remove },
        Verdict::Fenced { sandbox: SandboxFate::Keep },
    ];
    let mut asked = 0;
    this.rig.faults(move |path| {
        asked += usize::from(path.ends_with("/recover"));
        if path.ends_with("/recover") && asked < 3 { Fault::Status(503) } else { Fault::None }
    });
    let mut holds = JoinSet::new();
    assert_eq!(recovery::recover(&this.host, &this.slots, &mut holds).await, 1);
    while holds.join_next().await.is_some() {}
    let asked: Vec<u64> = this.rig.world().recovered[0].claims.iter().map(|held| held.next_index).collect();
    assert_eq!(asked, [2, 2, 2, 2]);
    assert_eq!(*resumed.lock().unwrap(), [(claim(1).id, true, 2)]);
    assert_eq!(this.rig.world().log.len(), 3, "the spool is replayed, then the session goes on");
    assert_eq!(*this.disposed.lock().unwrap(), [claim(3).session_id]);
    assert!(this.host.spools.found().await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_defect_in_one_session_leaves_its_spool_and_the_runner_alive() {
    let this = Loop::new(|held| {
        Box::pin(async move {
            held.outbox.append(vec![message("before the defect")]).await.unwrap();
            panic!("a defect")
        })
    })
    .await;
    this.rig.world().offers = vec![claim(6)];
    let polling = this.start();
    until("another poll", || (this.rig.count("/claims") >= 2).then_some(())).await;
    this.end(polling).await;
    let found = this.host.spools.found().await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].next_index, 1);
}
