//! The end of a claim: manifest, uploads, and the one transaction that makes files and terminal events visible.

use crate::{
    event::{CaptureStatus, SettledOutcome, StopReason},
    id::{SettlementId, UploadId},
};
use serde::{Deserialize, Serialize};

/// `POST /v1/runner/claims/{id}/settlement`; idempotent by claim, epoch and manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettlementRequest {
    /// The claim's fencing token.
    pub epoch: u64,
    /// The captured files.
    pub files: Vec<ManifestFile>,
}

/// One captured file of a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestFile {
    /// Names it within the settlement.
    pub key: String,
    /// Its path below the outputs directory: raw bytes in base64.
    pub path_b64: String,
    /// Bytes.
    pub size: u64,
    /// Lowercase hexadecimal.
    pub sha256: String,
}

/// The answer to [`SettlementRequest`]: what still has to be uploaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettlementReply {
    /// Names the settlement.
    pub settlement_id: SettlementId,
    /// Files whose bytes are not in custody yet.
    pub uploads: Vec<Upload>,
}

/// One file to upload: `PUT /v1/runner/uploads/{upload_id}?epoch&offset`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upload {
    /// The manifest's key.
    pub key: String,
    /// Where to put it.
    pub upload_id: UploadId,
    /// How much is there already.
    pub offset: u64,
}

/// The answer to an upload: how much is durable now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadReply {
    /// Bytes.
    pub offset: u64,
}

/// `POST /v1/runner/claims/{id}/settle`. Exactly one per epoch; a repeat gets the first answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settle {
    /// The claim's fencing token.
    pub epoch: u64,
    /// From the settlement; `None` when nothing was captured.
    pub settlement_id: Option<SettlementId>,
    /// How many events the claim appended: they are all durable before it ends.
    pub events: u64,
    /// How it ended.
    pub outcome: SettledOutcome,
    /// Every file that was found.
    pub files: Vec<SettledFile>,
    /// The sandbox stays on this runner for the next run.
    pub keeps_sandbox: bool,
}

/// What became of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettledFile {
    /// Its path below the outputs directory: raw bytes in base64.
    pub path_b64: String,
    /// Bytes, as far as known.
    pub size: u64,
    /// Lowercase hexadecimal, when captured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Captured, or why not.
    pub status: CaptureStatus,
}

/// The answer to [`Settle`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settled {
    /// What the session shows; `None` when it was queued again.
    pub stop_reason: Option<StopReason>,
    /// The log's last `seq`.
    pub last_seq: u64,
}
