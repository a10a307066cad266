//! What the daemon tells about itself at one instant: for `status`, for its metrics and for nothing else.

use crate::{
    claim::{
        Stop,
        hold::Host,
        lease::BootInstant,
        poll::Idle,
        table::{Counts, Shown},
    },
    plane::Standing,
};
use checkfu_shared::{
    id::{InstanceId, RunnerId},
    time::{Clock as _, SystemClock, Timestamp},
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tokio::sync::watch;

/// The daemon at one instant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// When this was so.
    pub written_at: Timestamp,
    /// The daemon's version.
    #[serde(default)]
    pub version: String,
    /// The daemon's process.
    pub pid: u32,
    /// Which start it is.
    pub instance_id: InstanceId,
    /// Who it is.
    pub runner_id: RunnerId,
    /// Its name.
    pub name: String,
    /// Its control plane.
    pub plane: String,
    /// One word: `starting`, `ready`, `full`, `waiting`, `unready`, `drained`, `draining`, `revoked`.
    pub state: String,
    /// Why no work is taken, in a sentence.
    pub reason: Option<String>,
    /// How many sessions fit.
    pub max_sessions: u32,
    /// Seconds since the control plane last answered anything.
    pub last_contact_s: Option<u64>,
    /// Seconds since it last answered a request for work.
    #[serde(default)]
    pub last_poll_s: Option<u64>,
    /// Whether `checkfu-runner drain` is in force.
    #[serde(default)]
    pub drained: bool,
    /// Bytes on this disk that the control plane has not taken yet.
    #[serde(default)]
    pub spool_bytes: u64,
    /// How many there may be.
    #[serde(default)]
    pub spool_bytes_max: u64,
    /// What happened since the start.
    #[serde(default)]
    pub counts: Counts,
    /// What is held.
    pub sessions: Vec<Shown>,
}

/// Knows the daemon's state at any time. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Reporter {
    pub(crate) host: Arc<Host>,
    pub(crate) idle: watch::Receiver<Idle>,
    pub(crate) drained: watch::Receiver<bool>,
    /// What does not change.
    pub(crate) template: Status,
}

impl Reporter {
    /// How it is now.
    pub(crate) fn now(&self) -> Status {
        let (host, now) = (&self.host, BootInstant::now());
        let (word, reason) = word(&self.idle.borrow(), *host.stop.borrow(), &host.plane.standing().borrow());
        Status {
            written_at: SystemClock.now(),
            state: word.to_owned(),
            reason,
            last_contact_s: host.plane.heard().map(|heard| now.since_ms(heard) / 1_000),
            last_poll_s: host.table.polled().map(|polled| now.since_ms(polled) / 1_000),
            drained: *self.drained.borrow(),
            spool_bytes: host.quota.used(),
            spool_bytes_max: host.quota.most(),
            counts: host.table.counts(),
            sessions: host.table.shown(),
            ..self.template.clone()
        }
    }
}

/// The one word for a state, and why no work is taken.
fn word(idle: &Idle, stop: Stop, standing: &Standing) -> (&'static str, Option<String>) {
    let (word, reason) = match idle {
        _ if stop > Stop::Go => ("draining", Some("the runner is stopping".to_owned())),
        Idle::Stopping => ("draining", Some("an interrupted drain is completed".to_owned())),
        Idle::Asking => ("ready", None),
        Idle::Full => ("full", Some("every slot is taken".to_owned())),
        Idle::Unready(reason) => ("unready", Some(reason.clone())),
        Idle::Away(reason) => ("waiting", Some(reason.clone())),
        Idle::Drained => ("drained", Some("the control plane wants no work to be taken".to_owned())),
        Idle::DrainedHere => {
            ("drained", Some("it was drained here; `checkfu-runner undrain` ends that".to_owned()))
        }
        Idle::Revoked => ("revoked", Some("this runner was revoked".to_owned())),
    };
    // A poll that hangs says nothing yet; the token tells earlier how we stand.
    match (standing, word) {
        (Standing::Revoked, _) => ("revoked", Some("this runner was revoked".to_owned())),
        (Standing::InUse { reason }, _) => ("waiting", Some(reason.clone())),
        (Standing::Pending { reason: Some(reason) }, "ready") => ("waiting", Some(reason.clone())),
        _ => (word, reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_keeps_work_away_is_said_and_the_stronger_reason_wins() {
        let pending = |reason: Option<&str>| Standing::Pending { reason: reason.map(str::to_owned) };
        let away = || Idle::Away("no route".to_owned());
        for (idle, stop, standing, state, reason) in [
            (Idle::Asking, Stop::Go, pending(None), "ready", None),
            (Idle::Asking, Stop::Go, pending(Some("no token")), "waiting", Some("no token")),
            (away(), Stop::Go, pending(Some("no token")), "waiting", Some("no route")),
            (Idle::Asking, Stop::Go, Standing::Revoked, "revoked", Some("revoked")),
            (Idle::Full, Stop::Go, pending(None), "full", Some("slot")),
            (Idle::Unready("no Docker".to_owned()), Stop::Go, pending(None), "unready", Some("Docker")),
            (Idle::DrainedHere, Stop::Go, pending(None), "drained", Some("undrain")),
            (Idle::Asking, Stop::Drain, pending(None), "draining", Some("stopping")),
        ] {
            let (got, why) = word(&idle, stop, &standing);
            assert_eq!(got, state, "{idle:?}");
            assert_eq!(why.is_some(), reason.is_some(), "{idle:?}");
            assert!(why.unwrap_or_default().contains(reason.unwrap_or_default()), "{idle:?}");
        }
    }
}
