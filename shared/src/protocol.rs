//! The runner protocol, version 1: every body of `/v1/runner/*`, and the pure checkers that both ends run.
//! Only durations travel (`*_ms`), never instants to compare: the server's clock alone judges validity.

pub mod append;
pub mod claim;
pub mod pairing;
pub mod recover;
pub mod renew;
pub mod settlement;

use serde::{Deserialize, Serialize};

/// The header that both sides send with [`VERSION`].
pub const HEADER: &str = "checkfu-protocol";
/// The protocol's version.
pub const VERSION: &str = "1";

/// How fast things go. The server sets it in every reply and can slow a whole fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tempo {
    /// How long a claim poll hangs.
    pub poll_wait_ms: u64,
    /// How often a lease is renewed.
    pub renew_ms: u64,
    /// How long a directives poll hangs.
    pub directives_wait_ms: u64,
    /// How long a lease lasts.
    pub lease_ms: u64,
    /// How much before its end a runner freezes the session.
    pub freeze_margin_ms: u64,
    /// How long an unconfirmed offer stands.
    pub offer_ms: u64,
    /// How long a session is offered only to the runner that has its sandbox.
    pub affinity_ms: u64,
    /// How long a frozen sandbox is kept.
    pub keep_ms: u64,
    /// The shortest wait after an error.
    pub error_backoff_min_ms: u64,
    /// The longest wait after an error.
    pub error_backoff_max_ms: u64,
}

impl Default for Tempo {
    fn default() -> Self {
        Self {
            poll_wait_ms: 25_000,
            renew_ms: 10_000,
            directives_wait_ms: 15_000,
            lease_ms: 60_000,
            freeze_margin_ms: 10_000,
            offer_ms: 10_000,
            affinity_ms: 60_000,
            keep_ms: 1_800_000,
            error_backoff_min_ms: 500,
            error_backoff_max_ms: 30_000,
        }
    }
}
