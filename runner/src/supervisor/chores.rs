//! What goes on beside the sessions: the inventory of sandboxes, the end of everything after a revocation, the status file.

use crate::{
    backoff::spread,
    claim::{Stop, hold::Host, lease::BootInstant, poll::Idle},
    machine,
    plane::Standing,
    state::State,
    status::{self, Status},
};
use checkfu_shared::time::{Clock as _, SystemClock, Timestamp};
use std::{sync::Arc, time::Duration};
use tokio::sync::watch;

const INVENTORY: Duration = Duration::from_secs(300);
/// How old the status file may get while nothing changes.
const REPORT: Duration = Duration::from_secs(10);

pub(super) fn now() -> Timestamp {
    SystemClock.now()
}

/// Tells the control plane which sandboxes are here and removes those nobody wants any more.
pub(super) async fn inventory(host: Arc<Host>) {
    loop {
        tokio::time::sleep(spread(INVENTORY, 10)).await;
        // Saying "none" when Docker is away would give up sandboxes that are still there.
        let Some(sandboxes) = (host.executor.list)().await else { continue };
        match host.plane.inventory(sandboxes.clone()).await {
            Ok(reply) => {
                // Only what we named: an answer can never reach further than the question.
                for session in reply.remove.into_iter().filter(|session| sandboxes.contains(session)) {
                    tracing::info!(%session, "the sandbox is not needed any more");
                    (host.executor.dispose)(session).await;
                }
            }
            Err(error) => tracing::debug!(%error, "the inventory is told later"),
        }
    }
}

/// Removes every sandbox when the runner is revoked; each session notices by its lease.
pub(super) async fn revocation(host: Arc<Host>) {
    let mut standing = host.plane.standing();
    loop {
        if standing.wait_for(|standing| matches!(standing, Standing::Revoked)).await.is_err() {
            return;
        }
        match (host.executor.list)().await {
            Some(sessions) => {
                for session in sessions {
                    (host.executor.dispose)(session).await;
                }
            }
            None => {
                // Docker is away; nothing can run meanwhile, and it is asked again.
                tokio::time::sleep(Duration::from_secs(5)).await;
                continue;
            }
        }
        if standing.wait_for(|standing| !matches!(standing, Standing::Revoked)).await.is_err() {
            return;
        }
    }
}

/// Keeps the status file current.
pub(super) async fn report(state: State, host: Arc<Host>, mut idle: watch::Receiver<Idle>, template: Status) {
    let mut stop = host.stop.clone();
    let mut standing = host.plane.standing();
    loop {
        let now_showing =
            shown(&host, &idle.borrow_and_update(), *stop.borrow_and_update(), template.clone());
        let directory = state.clone();
        let written = machine::blocking(move || status::write(&directory, &now_showing)).await;
        if let Ok(Err(error)) = written {
            tracing::warn!(%error, "the status file cannot be written");
        }
        // Not more than once in a while, however often something changes.
        tokio::time::sleep(Duration::from_millis(200)).await;
        tokio::select! {
            changed = idle.changed() => if changed.is_err() { tokio::time::sleep(REPORT).await },
            _ = stop.changed() => {}
            Ok(()) = standing.changed() => {}
            () = tokio::time::sleep(REPORT) => {}
        }
    }
}

fn shown(host: &Host, idle: &Idle, stop: Stop, template: Status) -> Status {
    let (word, reason) = match idle {
        _ if stop > Stop::Go => ("draining", None),
        Idle::Stopping => ("draining", Some("an interrupted drain is completed".to_owned())),
        Idle::Asking => ("ready", None),
        Idle::Full => ("full", Some("every slot is taken".to_owned())),
        Idle::Unready(reason) => ("unready", Some(reason.clone())),
        Idle::Away(reason) => ("waiting", Some(reason.clone())),
        Idle::Drained => ("drained", Some("the control plane wants no work to be taken".to_owned())),
        Idle::Revoked => ("revoked", Some("this runner was revoked".to_owned())),
    };
    // A poll that hangs says nothing yet; the token tells earlier how we stand.
    let (word, reason) = match (&*host.plane.standing().borrow(), word) {
        (Standing::Revoked, _) => ("revoked", Some("this runner was revoked".to_owned())),
        (Standing::InUse { reason }, _) => ("waiting", Some(reason.clone())),
        (Standing::Pending { reason: Some(reason) }, "ready") => ("waiting", Some(reason.clone())),
        _ => (word, reason),
    };
    let last_contact_s = host.plane.heard().map(|heard| BootInstant::now().since_ms(heard) / 1_000);
    Status {
        written_at: now(),
        state: word.to_owned(),
        reason,
        last_contact_s,
        sessions: host.table.shown(),
        ..template
    }
}
