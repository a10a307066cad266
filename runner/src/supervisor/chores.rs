//! What goes on beside the sessions: the inventory of sandboxes, and the end of everything after a revocation.

use crate::{backoff::spread, claim::hold::Host, plane::Standing};
use std::{sync::Arc, time::Duration};

const INVENTORY: Duration = Duration::from_secs(300);

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
