//! The session executor: one task owns one session from its claim to its settlement.

use crate::claim::lease::Loss;

/// How the executor's hold of a claim ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The settlement is acknowledged; nothing of the claim is needed any more.
    Settled,
    /// The claim is over for this runner.
    Lost(Loss),
    /// It stopped without a settlement; the spool stays for the next start.
    Unsettled,
}
