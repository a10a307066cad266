//! Which of our containers go. The decision is pure; the list it decides on is asked for by our own instance label,
//! and every entry is checked against that label again, so that nothing of anybody else is ever touched.

use super::{Docker, error::Error, spec};
use bollard::models::ContainerSummary;
use checkfu_shared::{id::SessionId, time::Timestamp};
use std::{collections::HashSet, time::Duration};

/// How long an unused sandbox keeps running.
pub const IDLE_STOP: Duration = Duration::from_secs(600);
/// How young a container is spared, because its creator may not have recorded it yet, in milliseconds.
pub const CREATION_GRACE_MS: i64 = 120_000;

/// One of our containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The session it belongs to.
    pub session_id: SessionId,
    /// Whose it is; always our own.
    pub instance: String,
    /// When it was created.
    pub created: Timestamp,
    /// Whether anything can run in it now; a paused one counts as running.
    pub running: bool,
}

/// What became, or in a dry run would become, of one container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reaped {
    /// The container.
    pub listed: Listed,
    /// Whether it goes.
    pub verdict: Verdict,
}

/// Whether a container goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Its session is still known.
    Kept,
    /// It is too young to judge.
    Young,
    /// Removed, or to be removed.
    Removed,
}

/// What happens to one container when these sessions are still known.
#[must_use]
pub fn judge(listed: &Listed, known: &HashSet<SessionId>, now: Timestamp) -> Verdict {
    if known.contains(&listed.session_id) {
        Verdict::Kept
    } else if now.since_ms(listed.created) < CREATION_GRACE_MS {
        Verdict::Young
    } else {
        Verdict::Removed
    }
}

/// Whether an unused sandbox should be stopped.
#[must_use]
pub fn is_idle(open: bool, running: bool, unused: Duration) -> bool {
    running && !open && unused >= IDLE_STOP
}

fn listed(summary: &ContainerSummary, instance: &str) -> Option<Listed> {
    let labels = summary.labels.as_ref()?;
    if labels.get(spec::LABEL_INSTANCE)? != instance {
        return None;
    }
    if labels.get(spec::LABEL_ROLE).is_some_and(|role| role != "sandbox") {
        return None;
    }
    // Without a readable creation it counts as created at the daemon's own instant, in seconds.
    let created = labels.get(spec::LABEL_CREATED).and_then(|text| text.parse().ok());
    let created = created
        .unwrap_or_else(|| Timestamp::from_ms(summary.created.unwrap_or_default().saturating_mul(1_000)));
    let state = summary.state.map(|state| state.to_string()).unwrap_or_default();
    Some(Listed {
        session_id: labels.get(spec::LABEL_SESSION)?.parse().ok()?,
        instance: instance.to_owned(),
        created,
        running: matches!(state.as_str(), "running" | "paused"),
    })
}

impl Docker {
    /// Our own containers, running or not.
    ///
    /// # Errors
    /// Those of the daemon.
    pub async fn list(&self) -> Result<Vec<Listed>, Error> {
        let instance = &self.inner.config.instance;
        let found = self.inner.engine.list(&format!("{}={instance}", spec::LABEL_INSTANCE)).await?;
        let listed = found.iter().filter_map(|summary| listed(summary, instance));
        let unlisted = self.unlisted();
        Ok(listed.filter(|listed| !unlisted.contains(&listed.session_id)).collect())
    }

    /// Removes our containers whose session is not among `known`, unless they are younger than the creation grace or
    /// open in this process. A dry run only tells.
    ///
    /// # Errors
    /// Those of the daemon.
    pub async fn gc(&self, known: &HashSet<SessionId>, dry_run: bool) -> Result<Vec<Reaped>, Error> {
        let now = self.inner.config.clock.now();
        let mut known = known.clone();
        known.extend(self.open_sessions());
        let mut reaped = Vec::new();
        for listed in self.list().await? {
            let verdict = judge(&listed, &known, now);
            if verdict == Verdict::Removed && !dry_run {
                self.remove_session(listed.session_id).await?;
            }
            reaped.push(Reaped { listed, verdict });
        }
        Ok(reaped)
    }

    /// Stops sandboxes that nobody has used for [`IDLE_STOP`]; their files stay. After a restart of the runner the
    /// wait begins anew. Gives the sessions it stopped.
    ///
    /// # Errors
    /// Those of the daemon.
    pub async fn stop_idle(&self) -> Result<Vec<SessionId>, Error> {
        let mut stopped = Vec::new();
        for listed in self.list().await? {
            let (open, unused) = self.use_of(listed.session_id);
            if is_idle(open, listed.running, unused) {
                self.stop_session(listed.session_id).await?;
                stopped.push(listed.session_id);
            }
        }
        Ok(stopped)
    }

    fn open_sessions(&self) -> Vec<SessionId> {
        let slots = self.slots();
        slots.iter().filter(|(_, slot)| slot.live.strong_count() > 0).map(|(session, _)| *session).collect()
    }

    fn use_of(&self, session: SessionId) -> (bool, Duration) {
        let mut slots = self.slots();
        match slots.get_mut(&session) {
            Some(slot) if slot.live.strong_count() > 0 => {
                slot.used = tokio::time::Instant::now();
                (true, Duration::ZERO)
            }
            Some(slot) => (false, slot.used.elapsed()),
            None => (false, self.inner.since.elapsed()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bollard::models::ContainerSummaryStateEnum;
    use std::collections::HashMap;

    fn summary(instance: &str, session: SessionId) -> ContainerSummary {
        let labels = [
            (spec::LABEL_INSTANCE, instance.to_owned()),
            (spec::LABEL_SESSION, session.to_string()),
            (spec::LABEL_CREATED, Timestamp::from_ms(1_000).to_string()),
        ];
        ContainerSummary {
            labels: Some(HashMap::from(labels.map(|(key, value)| (key.to_owned(), value)))),
            state: Some(ContainerSummaryStateEnum::PAUSED),
            ..Default::default()
        }
    }

    #[test]
    fn only_our_own_label_is_listed() {
        let session = SessionId::from_bytes([1; 16]);
        let ours = listed(&summary("me", session), "me").unwrap();
        assert_eq!((ours.session_id, ours.created, ours.running), (session, Timestamp::from_ms(1_000), true));
        assert_eq!(listed(&summary("you", session), "me"), None);
        assert_eq!(listed(&ContainerSummary::default(), "me"), None);
    }

    #[test]
    fn known_and_young_containers_stay() {
        let session = SessionId::from_bytes([1; 16]);
        let listed = listed(&summary("me", session), "me").unwrap();
        let known = HashSet::from([session]);
        let old = listed.created.plus_ms(CREATION_GRACE_MS);
        assert_eq!(judge(&listed, &known, old), Verdict::Kept);
        assert_eq!(judge(&listed, &HashSet::new(), old), Verdict::Removed);
        assert_eq!(judge(&listed, &HashSet::new(), old.plus_ms(-1)), Verdict::Young);
    }

    #[test]
    fn only_an_unused_running_sandbox_is_idle() {
        assert!(is_idle(false, true, IDLE_STOP));
        assert!(!is_idle(true, true, IDLE_STOP));
        assert!(!is_idle(false, false, IDLE_STOP));
        assert!(!is_idle(false, true, IDLE_STOP - Duration::from_millis(1)));
    }
}
