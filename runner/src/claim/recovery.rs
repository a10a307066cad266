//! What a start does with the claims of the start before it: asks the control plane about each, then goes on, keeps or clears.
//! Sandboxes stay frozen by their own leases meanwhile, so waiting for the answer costs nothing but time.

use super::hold::{Host, Origin, hold};
use crate::{
    plane::{Error, Standing},
    spools::Found,
};
use checkfu_shared::protocol::recover::{SandboxFate, Verdict};
use std::{sync::Arc, time::Duration};
use tokio::{sync::Semaphore, task::JoinSet};

const REFUSED_PAUSE: Duration = Duration::from_secs(30);

/// Asks until an answer comes and starts what goes on. Returns how many claims go on.
pub(crate) async fn recover(host: &Arc<Host>, slots: &Arc<Semaphore>, holds: &mut JoinSet<()>) -> usize {
    let found = loop {
        match host.spools.found().await {
            Ok(found) => break found,
            Err(error) => {
                tracing::error!(%error, "the spools cannot be listed; trying again");
                tokio::time::sleep(REFUSED_PAUSE).await;
            }
        }
    };
    let verdicts = ask(host, &found).await;
    if verdicts.len() != found.len() {
        tracing::error!(asked = found.len(), answered = verdicts.len(), "not every found claim was answered");
    }
    let mut going_on = 0;
    for (found, verdict) in found.iter().zip(verdicts) {
        match verdict {
            Verdict::Resume { acked, claim } => {
                tracing::info!(claim = %claim.id, session = %claim.session_id, acked, "a claim goes on");
                going_on += 1;
                // More claims than slots can only come from a smaller setting; they are finished all the same.
                let permit = Arc::clone(slots).try_acquire_owned().ok();
                let host = Arc::clone(host);
                holds.spawn(async move {
                    hold(host, *claim, Origin::Recovered { acked }).await;
                    drop(permit);
                });
            }
            Verdict::Settled => cleared(found, host.spools.remove(found.meta.claim_id).await),
            Verdict::Fenced { sandbox } => {
                tracing::info!(claim = %found.meta.claim_id, ?sandbox, "a claim found on this disk is over");
                if sandbox == SandboxFate::Remove {
                    (host.executor.dispose)(found.meta.session_id).await;
                }
                cleared(found, host.spools.set_aside(found.meta.claim_id).await);
            }
        }
    }
    going_on
}

async fn ask(host: &Arc<Host>, found: &[Found]) -> Vec<Verdict> {
    loop {
        match host.plane.recover(found.iter().map(Into::into).collect()).await {
            Ok(recovered) => return recovered.claims,
            Err(Error::Revoked) => {
                let mut standing = host.plane.standing();
                let _ = standing.wait_for(|standing| matches!(standing, Standing::Valid(_))).await;
            }
            Err(error) => {
                tracing::error!(%error, "the control plane does not say what becomes of the claims found here");
                tokio::time::sleep(REFUSED_PAUSE).await;
            }
        }
    }
}

fn cleared(found: &Found, outcome: std::io::Result<()>) {
    if let Err(error) = outcome {
        tracing::warn!(claim = %found.meta.claim_id, %error, "an old spool cannot be cleared away");
    }
}
