//! The end of a claim: capture the outputs, hand them over, then settle. Everything that was appended is durable before, and
//! nothing is appended after. A file that could not be handed over is never told as captured.

mod manifest;
mod veil;

use super::{ledger, place::Place};
use crate::{
    harness::{Halt, Log as _, News, turn},
    outputs::{self, Capture, CapturedFile, Limits},
    plane,
};
use checkfu_shared::{
    event::{RetryStatus, SettledOutcome},
    id::SettlementId,
    protocol::{
        claim::SettlementLimits,
        settlement::{Settle, Settled, SettlementRequest},
    },
};
use ledger::Ledger;
use std::path::Path;

/// What a settlement is made with.
pub(super) struct Settlement<'a, P> {
    pub(super) ledger: &'a Ledger,
    pub(super) place: &'a P,
    pub(super) spool_dir: &'a Path,
    pub(super) limits: SettlementLimits,
}

impl<P: Place> Settlement<'_, P> {
    /// Captures, hands over and settles.
    pub(super) async fn conclude(&self, outcome: SettledOutcome, captures: bool) -> Result<Settled, Halt> {
        let news = if captures { self.place.for_capture().await } else { News::default() };
        if let Some(event) = news.event {
            self.ledger.append(vec![turn::fresh(event)]).await?;
        }
        let captured = if captures { self.capture().await? } else { Vec::new() };
        let captured = veil::over(captured, self.ledger.plane.mask()).await;
        self.ledger.flush().await?;
        let (settlement_id, files) = self.hand_over(captured).await?;
        let settle = Settle {
            epoch: self.ledger.epoch,
            settlement_id,
            events: self.ledger.outbox.next_index(),
            outcome,
            files: files.iter().map(manifest::settled).collect(),
            keeps_sandbox: self.place.is_open(),
        };
        let settled = self.ledger.plane.settle(self.ledger.claim, &settle).await;
        settled.map_err(|error| ledger::of_plane(&error))
    }

    /// The files found; when they cannot be read, the session says so.
    async fn capture(&self) -> Result<Vec<CapturedFile>, Halt> {
        let limits = Limits {
            file_bytes: self.limits.file_bytes,
            total_bytes: self.limits.total_bytes,
            files: usize::try_from(self.limits.files).unwrap_or(usize::MAX),
            ..Limits::default()
        };
        match self.place.capture(&self.spool_dir.join("outputs"), limits).await {
            None => Ok(Vec::new()),
            Some(Ok(Capture { files, unlisted })) => {
                if unlisted > 0 {
                    self.complain(format!(
                        "{unlisted} more files lie in the outputs directory than are listed. Put them into an archive."
                    ))
                    .await?;
                }
                Ok(files)
            }
            Some(Err(error)) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "the outputs could not be captured");
                self.complain(uncaptured(&error)).await?;
                Ok(Vec::new())
            }
        }
    }

    async fn complain(&self, message: String) -> Result<(), Halt> {
        self.ledger.append(vec![turn::error("sandbox_error", message, RetryStatus::Exhausted)]).await
    }

    /// Brings the bytes of the captured files into the control plane's custody.
    async fn hand_over(
        &self,
        mut files: Vec<CapturedFile>,
    ) -> Result<(Option<SettlementId>, Vec<CapturedFile>), Halt> {
        let announced = manifest::announced(&files);
        if announced.is_empty() {
            return Ok((None, files));
        }
        let Ledger { plane, claim, epoch, .. } = self.ledger;
        let request = SettlementRequest { epoch: *epoch, files: announced };
        let reply = match plane.settlement(*claim, &request).await {
            Ok(reply) => reply,
            Err(plane::Error::Refused(problem)) => {
                self.complain(format!("The outputs were not accepted: {}", problem.message)).await?;
                self.ledger.flush().await?;
                files.iter_mut().for_each(manifest::withdraw);
                return Ok((None, files));
            }
            Err(error) => return Err(ledger::of_plane(&error)),
        };
        for upload in reply.uploads {
            let Some(file) = manifest::file(&mut files, &upload.key) else { continue };
            let Some(spool) = file.spool.clone() else { continue };
            match plane.upload(upload.upload_id, *epoch, &spool, file.size, upload.offset).await {
                Ok(()) => {}
                Err(error @ (plane::Error::Fenced | plane::Error::Revoked)) => {
                    return Err(ledger::of_plane(&error));
                }
                Err(error) => {
                    tracing::warn!(%error, "a captured file could not be handed over");
                    manifest::withdraw(file);
                }
            }
        }
        Ok((Some(reply.settlement_id), files))
    }
}

fn uncaptured(error: &outputs::Error) -> String {
    format!(
        "The outputs of this turn were not captured: {error}. They stay in the sandbox as long as it lives."
    )
}
