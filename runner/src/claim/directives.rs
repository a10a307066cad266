//! Fetches what the control plane tells a claim. A directive that gets lost is derived again, so nothing is kept here.

use crate::{
    backoff::Backoff,
    plane::{Error, Plane},
};
use checkfu_shared::{
    id::ClaimId,
    protocol::renew::{Directive, DirectivesRequest},
};
use std::{sync::Arc, time::Duration};
use tokio::{sync::mpsc, time::Instant};

/// How many directives may wait for the session.
pub(crate) const QUEUED: usize = 64;
/// An answer this quick without content is a server that does not hang; it is not asked without pause.
const QUICK: Duration = Duration::from_millis(200);

/// Polls until the claim is over or nobody listens any more.
pub(crate) async fn run(plane: Arc<Plane>, claim: ClaimId, epoch: u64, told: mpsc::Sender<Directive>) {
    let mut backoff = Backoff::from(plane.tempo());
    let mut after = 0;
    loop {
        let begun = Instant::now();
        let request = DirectivesRequest { epoch, after, wait_ms: plane.tempo().directives_wait_ms };
        let outcome = tokio::select! {
            outcome = plane.directives(claim, &request) => outcome,
            () = told.closed() => return,
        };
        match outcome {
            Ok(reply) => {
                backoff.reset();
                let empty = reply.directives.is_empty();
                after = reply.after;
                for directive in reply.directives {
                    // A session that is slow to listen slows the polling.
                    if told.send(directive).await.is_err() {
                        return;
                    }
                }
                if empty && begun.elapsed() < QUICK {
                    tokio::time::sleep(QUICK).await;
                }
            }
            Err(Error::Unreachable { reason, retry_after, .. }) => {
                tracing::debug!(%claim, %reason, "directives are asked for again");
                tokio::time::sleep(backoff.next(retry_after)).await;
            }
            // The lease finds out the same and says it to everybody.
            Err(Error::Fenced | Error::Revoked | Error::Refused(_)) => return,
        }
    }
}
