//! Keeps one lease: confirms it, renews it, freezes it in time, revives it, and says when it is lost.
//! Its task runs on the lease thread and does nothing else, so that a busy host cannot starve it.

use super::{BootInstant, Loss, State, clock};
use crate::{
    backoff::Backoff,
    plane::{self, Plane, Standing},
};
use checkfu_shared::{
    id::ClaimId,
    problem::Code,
    protocol::renew::{Gateway, Renewed},
};
use std::{sync::Arc, time::Duration};
use tokio::sync::watch;

/// The machine may sleep, so the boot clock is asked again this often.
const TICK: Duration = Duration::from_millis(500);

/// What renewals publish.
#[derive(Debug, Clone)]
pub(crate) struct Published {
    pub(crate) lease: watch::Sender<State>,
    pub(crate) gateway: watch::Sender<Gateway>,
    pub(crate) watched: watch::Sender<bool>,
}

/// One claim to keep.
#[derive(Debug, Clone)]
pub(crate) struct Renewal {
    pub(crate) plane: Arc<Plane>,
    pub(crate) claim: ClaimId,
    pub(crate) epoch: u64,
    pub(crate) lease_ms: u64,
}

impl Renewal {
    /// The first renewal, which confirms an offer or takes a claim up again. Repeats until `give_up`, counted from now.
    pub(crate) async fn confirm(&self, give_up: Option<Duration>) -> Result<Published, Loss> {
        let begun = BootInstant::now();
        loop {
            match self.attempt().await {
                Ok((sent, renewed)) => {
                    return Ok(Published {
                        lease: watch::Sender::new(self.granted(sent, &renewed)),
                        gateway: watch::Sender::new(renewed.gateway),
                        watched: watch::Sender::new(renewed.watched),
                    });
                }
                Err(error) => {
                    if let Some(loss) = loss(&error) {
                        return Err(loss);
                    }
                }
            }
            let waited = Duration::from_millis(BootInstant::now().since_ms(begun));
            if give_up.is_some_and(|most| waited >= most) {
                return Err(Loss::Lapsed);
            }
            tokio::time::sleep(clock::next_renewal(self.period_ms(), true)).await;
        }
    }

    /// Renews until the claim is lost or nobody holds it any more.
    pub(crate) async fn keep(self, published: Published) {
        let mut standing = self.plane.standing();
        let mut failures = Failures { count: 0, backoff: Backoff::from(self.plane.tempo()) };
        let mut sent = BootInstant::now();
        loop {
            let wait = failures.wait(&self, *published.lease.borrow());
            tokio::select! {
                () = ageing(&published.lease, sent.plus_ms(millis(wait))) => {}
                () = revoked(&mut standing) => return self.lose(&published, Loss::Revoked),
                () = published.lease.closed() => return,
            }
            sent = BootInstant::now();
            let outcome = tokio::select! {
                outcome = self.attempt() => outcome,
                never = forever(&published.lease) => match never {},
                () = published.lease.closed() => return,
            };
            match outcome {
                Ok((sent, renewed)) => {
                    failures = Failures { count: 0, backoff: Backoff::from(self.plane.tempo()) };
                    self.publish(&published, sent, renewed);
                }
                Err(error) => {
                    if let Some(loss) = loss(&error) {
                        return self.lose(&published, loss);
                    }
                    failures.count += 1;
                    tracing::warn!(claim = %self.claim, %error, "the lease was not renewed");
                }
            }
        }
    }

    fn publish(&self, published: &Published, sent: BootInstant, renewed: Renewed) {
        let state = self.granted(sent, &renewed);
        let before = published.lease.send_replace(state);
        if before == State::Frozen && state != State::Frozen {
            tracing::info!(claim = %self.claim, "the lease is renewed, the session goes on");
        }
        published.gateway.send_replace(renewed.gateway);
        let watched = renewed.watched;
        published.watched.send_if_modified(|now| std::mem::replace(now, watched) != watched);
    }

    fn lose(&self, published: &Published, loss: Loss) {
        tracing::warn!(claim = %self.claim, epoch = self.epoch, reason = %loss, "the claim is lost");
        published.lease.send_replace(State::Lost(loss));
    }

    fn granted(&self, sent: BootInstant, renewed: &Renewed) -> State {
        let state = clock::granted(sent, renewed.lease_ms, self.plane.tempo().freeze_margin_ms);
        clock::aged(state, BootInstant::now())
    }

    /// How often to renew. The claim tells its lease before any reply has told the tempo.
    fn period_ms(&self) -> u64 {
        self.plane.tempo().renew_ms.min(self.lease_ms / 3)
    }

    async fn attempt(&self) -> Result<(BootInstant, Renewed), plane::Error> {
        // Several attempts have to fit into one lease.
        let timeout = Duration::from_millis((self.lease_ms / 4).clamp(200, 10_000));
        self.plane.renew(self.claim, self.epoch, timeout).await
    }
}

struct Failures {
    count: u32,
    backoff: Backoff,
}

impl Failures {
    /// Fast while the lease can still be saved, then at the pace of everybody who waits for the control plane.
    fn wait(&mut self, renewal: &Renewal, state: State) -> Duration {
        let fast = clock::next_renewal(renewal.period_ms(), self.count > 0);
        let tries = renewal.lease_ms / millis(fast).max(1);
        if state == State::Frozen && u64::from(self.count) > tries { self.backoff.next(None) } else { fast }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Waits until `until` on the boot clock, freezing the lease when its time comes.
async fn ageing(lease: &watch::Sender<State>, until: BootInstant) {
    loop {
        age(lease);
        let left = until.after(BootInstant::now());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(TICK).min(until_freeze(lease))).await;
    }
}

/// Freezes the lease when its time comes, for as long as it is asked.
async fn forever(lease: &watch::Sender<State>) -> std::convert::Infallible {
    loop {
        age(lease);
        tokio::time::sleep(TICK.min(until_freeze(lease))).await;
    }
}

fn until_freeze(lease: &watch::Sender<State>) -> Duration {
    match *lease.borrow() {
        State::Held { until, .. } => until.after(BootInstant::now()).max(Duration::from_millis(1)),
        State::Frozen | State::Lost(_) => TICK,
    }
}

fn age(lease: &watch::Sender<State>) {
    let now = BootInstant::now();
    let frozen = lease.send_if_modified(|state| {
        let before = std::mem::replace(state, clock::aged(*state, now));
        before != *state
    });
    if frozen {
        tracing::warn!("a lease could not be renewed in time: its session stands still");
    }
}

async fn revoked(standing: &mut watch::Receiver<Standing>) {
    let found = standing.wait_for(|standing| matches!(standing, Standing::Revoked)).await.is_ok();
    if !found {
        // The keeper of the token is gone; renewals tell the rest.
        std::future::pending::<()>().await;
    }
}

/// Whether an error ends the claim. Everything else may pass.
fn loss(error: &plane::Error) -> Option<Loss> {
    match error {
        plane::Error::Fenced => Some(Loss::Fenced),
        plane::Error::Revoked => Some(Loss::Revoked),
        plane::Error::Refused(problem) if problem.code == Code::ClaimLapsed => Some(Loss::Lapsed),
        plane::Error::Refused(_) => Some(Loss::Refused),
        plane::Error::Unreachable { .. } => None,
    }
}
