//! Events on their way up: exactly once, in order. Both ends run [`place`] to decide what of a batch is new.

use crate::{
    event::Body,
    id::{ApprovalId, EventId, ThreadId},
};
use ring::digest;
use serde::{Deserialize, Serialize};

/// One event may have at most this many bytes of JSON.
pub const EVENT_BYTES_MAX: usize = 512 << 10;
/// One batch may have at most this many bytes of JSON.
pub const BATCH_BYTES_MAX: usize = 1 << 20;
/// One batch may have at most this many events.
pub const BATCH_EVENTS_MAX: usize = 256;

/// An event as a runner appends it; the control plane stamps the rest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Appended {
    /// Minted by the runner, since previews need it before the append.
    pub id: EventId,
    /// Which thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<ThreadId>,
    /// For `span.model_request_end`: the gateway's request id, by which it stamps the usage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_request_id: Option<String>,
    /// What happened.
    #[serde(flatten)]
    pub body: Body,
}

/// `POST /v1/runner/claims/{id}/events`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AppendRequest {
    /// The claim's fencing token.
    pub epoch: u64,
    /// The claim-local index of the first event: 0, 1, 2, ... without gap.
    pub first: u64,
    /// The events.
    pub events: Vec<Appended>,
}

/// The answer to [`AppendRequest`]: all of it is durable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AppendReply {
    /// How many events of this claim are durable: the next index.
    pub acked: u64,
    /// The log's last `seq`.
    pub last_seq: u64,
    /// One for every tool use of the request, overlap included.
    pub decisions: Vec<Decision>,
    /// Whether somebody watches the session live.
    pub watched: bool,
}

/// What the policies say of one tool call. No tool runs without `allow`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// The call.
    pub tool_use_id: EventId,
    /// Yes, no, or somebody has to answer.
    pub disposition: Disposition,
    /// The approval that was made of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<ApprovalId>,
    /// Why, in a sentence the model may read.
    pub reason: String,
}

/// Yes, no, or somebody has to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Disposition {
    /// It may run.
    Allow,
    /// It may not.
    Deny,
    /// Somebody has to answer; the run is suspended meanwhile.
    Ask,
}

/// `POST /v1/runner/claims/{id}/deltas`: stream-only text, never stored, forwarded only while contiguous.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Deltas {
    /// The claim's fencing token.
    pub epoch: u64,
    /// The `agent.message` that will hold the text.
    pub event_id: EventId,
    /// How many bytes of the text came before.
    pub offset: u64,
    /// The next part.
    pub text: String,
}

/// Why a batch does not fit what is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// An index is skipped.
    #[error("the batch starts at index {first}, index {expected} was expected")]
    Gap {
        /// The batch's first index.
        first: u64,
        /// The wanted one.
        expected: u64,
    },
    /// An event differs from the one logged under its index.
    #[error("the event of index {index} differs from the one already logged")]
    Conflict {
        /// Where.
        index: u64,
    },
}

/// How many leading events of a batch are already logged.
///
/// `acked` is the next index the log expects; `logged(index)` is the id and digest logged under an earlier index.
///
/// # Errors
/// [`Misfit`] when the batch skips an index or differs from what is logged.
pub fn place(
    acked: u64,
    first: u64,
    batch: &[(EventId, String)],
    logged: impl Fn(u64) -> Option<(EventId, String)>,
) -> Result<usize, Misfit> {
    if first > acked {
        return Err(Misfit::Gap { first, expected: acked });
    }
    let overlap = usize::try_from(acked - first).unwrap_or(usize::MAX).min(batch.len());
    for (index, event) in (first..).zip(&batch[..overlap]) {
        if logged(index).as_ref() != Some(event) {
            return Err(Misfit::Conflict { index });
        }
    }
    Ok(overlap)
}

/// SHA-256 of an event as appended, lowercase hexadecimal. Both ends compute it over the same serialisation.
#[must_use]
pub fn digest_of(event: &Appended) -> String {
    // Serialising a value of our own types to memory cannot fail; an empty text would only make a conflict visible.
    sha256_hex(&serde_json::to_vec(event).unwrap_or_default())
}

/// SHA-256 of `bytes`, lowercase hexadecimal.
#[must_use]
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

/// `bytes` as lowercase hexadecimal.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().flat_map(|b| [b >> 4, b & 15]).map(|n| char::from(DIGITS[usize::from(n)])).collect()
}

/// Whether a runner may append events of this kind at all.
#[must_use]
pub const fn runner_may_append(body: &Body) -> bool {
    matches!(
        body,
        Body::AgentMessage { .. }
            | Body::AgentThinking {}
            | Body::AgentThreadContextCompacted { .. }
            | Body::AgentToolUse(_)
            | Body::AgentToolResult(_)
            | Body::AgentToolResumed { .. }
            | Body::AgentToolProposed { .. }
            | Body::SpanModelRequestStart {}
            | Body::SpanModelRequestEnd { .. }
            | Body::SandboxCreated { .. }
            | Body::SandboxRestarted {}
            | Body::SandboxReplaced { .. }
            | Body::SandboxLost { .. }
            | Body::SandboxEgressDenied { .. }
            | Body::SessionError { .. }
            | Body::SessionInputProcessed { .. }
            | Body::StreamGap { .. }
    )
}

/// Whether a batch with this event is sent at once instead of being held back for company.
#[must_use]
pub const fn is_urgent(body: &Body) -> bool {
    matches!(
        body,
        Body::AgentToolUse(_)
            | Body::AgentToolProposed { .. }
            | Body::AgentToolResumed { .. }
            | Body::SessionInputProcessed { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn event(n: u64) -> (EventId, String) {
        (EventId::from_bytes(u128::from(n).to_be_bytes()), format!("digest {n}"))
    }

    proptest! {
        #[test]
        fn a_batch_fits_exactly_when_it_leaves_no_gap_and_repeats_what_is_logged(
            acked in 0u64..20, first in 0u64..25, len in 0u64..10, wrong in proptest::option::of(0u64..30)
        ) {
            let batch: Vec<_> = (first..first + len)
                .map(|n| if wrong == Some(n) { event(n + 1000) } else { event(n) })
                .collect();
            let got = place(acked, first, &batch, |n| (n < acked).then(|| event(n)));
            let conflict = wrong.filter(|&n| n >= first && n < (first + len).min(acked));
            let want = if first > acked {
                Err(Misfit::Gap { first, expected: acked })
            } else if let Some(index) = conflict {
                Err(Misfit::Conflict { index })
            } else {
                Ok(usize::try_from((acked - first).min(len)).unwrap())
            };
            prop_assert_eq!(got, want);
        }
    }
}
