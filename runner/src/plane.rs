//! The typed client of the runner protocol. It knows HTTP so that nobody else does.

use checkfu_shared::{
    id::{ClaimId, UploadId},
    problem::Problem,
    protocol::{
        claim::History,
        renew::Gateway,
        settlement::{Settle, Settled, SettlementReply, SettlementRequest},
    },
};
use std::{path::Path, time::Duration};

/// Why a call to the control plane failed, by what to do next.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// A newer epoch owns the session, or the claim ended: stop and report nothing.
    #[error("a newer epoch owns the session, or the claim ended")]
    Fenced,
    /// This runner was revoked: stop every sandbox.
    #[error("this runner was revoked")]
    Revoked,
    /// The request is understood and refused; repeating it changes nothing.
    #[error("the control plane refuses: {0}")]
    Refused(Problem),
    /// No answer of ours: no connection, a time-out, overload or a defect. Worth repeating.
    #[error("the control plane cannot be reached: {reason}")]
    Unreachable {
        /// What happened, without secrets.
        reason: String,
        /// How long the server wants to be left alone.
        retry_after: Option<Duration>,
    },
}

/// The control plane as one runner reaches it.
#[derive(Debug)]
pub struct Plane {}

impl Plane {
    /// One page of the session's log after `after_seq`. Repeats until an answer comes.
    ///
    /// # Errors
    /// Any [`Error`] but [`Error::Unreachable`].
    pub async fn history(&self, claim: ClaimId, epoch: u64, after_seq: u64) -> Result<History, Error> {
        let _ = (claim, epoch, after_seq);
        std::future::pending().await
    }

    /// Announces the captured files; says which have to be uploaded. Repeats until an answer comes.
    ///
    /// # Errors
    /// Any [`Error`] but [`Error::Unreachable`].
    pub async fn settlement(
        &self,
        claim: ClaimId,
        request: &SettlementRequest,
    ) -> Result<SettlementReply, Error> {
        let _ = (claim, request);
        std::future::pending().await
    }

    /// Uploads the file at `spool` from `offset` on, in pieces, until the server has `size` bytes of it.
    ///
    /// # Errors
    /// Any [`Error`]; `Unreachable` only when the spool file cannot be read.
    pub async fn upload(
        &self,
        upload: UploadId,
        epoch: u64,
        spool: &Path,
        size: u64,
        offset: u64,
    ) -> Result<(), Error> {
        let _ = (upload, epoch, spool, size, offset);
        std::future::pending().await
    }

    /// Ends the claim: files and terminal events in one step. Repeats until an answer comes.
    ///
    /// # Errors
    /// Any [`Error`] but [`Error::Unreachable`].
    pub async fn settle(&self, claim: ClaimId, settle: &Settle) -> Result<Settled, Error> {
        let _ = (claim, settle);
        std::future::pending().await
    }

    /// `POST <gateway>/v1/messages` with a JSON body; the answer streams. Tried once.
    ///
    /// # Errors
    /// [`Error::Unreachable`] when no answer began. Any status is an answer: the caller reads it.
    pub async fn gateway_messages(
        &self,
        gateway: &Gateway,
        body: Vec<u8>,
    ) -> Result<reqwest::Response, Error> {
        let _ = (gateway, body);
        std::future::pending().await
    }
}
