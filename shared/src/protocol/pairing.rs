//! Pairing and identity: code, nonce, signature, token.

use crate::{
    id::{InstanceId, RunnerId},
    secret::Secret,
};
use serde::{Deserialize, Serialize};

/// `GET /v1/runner/nonce`: a stateless value to sign, good for 60 s.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Nonce {
    /// The value.
    pub nonce: String,
}

/// `POST /v1/runner/pair`. The same code with the same key gives the same answer within the code's time.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pair {
    /// The code as typed.
    pub code: Secret,
    /// Ed25519 public key, base64.
    pub public_key: String,
    /// From `GET /v1/runner/nonce`.
    pub nonce: String,
    /// Over [`signed_bytes`] with purpose `pair` and the public key as subject, base64.
    pub signature: String,
    /// This start of the runner.
    pub instance_id: InstanceId,
    /// A name for people.
    pub name: String,
    /// What machine it is.
    pub host: Host,
}

/// What machine a runner is on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Host {
    /// Its host name.
    pub hostname: String,
    /// A digest of its machine id, which tells a copied identity from a restart.
    pub machine: String,
    /// Such as `linux/x86_64`.
    pub platform: String,
    /// The runner program's version.
    pub version: String,
}

/// The answer to [`Pair`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Paired {
    /// The runner's id from now on.
    pub runner_id: RunnerId,
    /// The name it got.
    pub name: String,
    /// How many sessions it may run at once, when the pairing says so.
    pub max_sessions: Option<u32>,
    /// The labels the pairing gave it.
    pub labels: Vec<String>,
}

/// `POST /v1/runner/token`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TokenRequest {
    /// Who asks.
    pub runner_id: RunnerId,
    /// This start of it.
    pub instance_id: InstanceId,
    /// From `GET /v1/runner/nonce`.
    pub nonce: String,
    /// Over [`signed_bytes`] with purpose `token` and the runner id as subject, base64.
    pub signature: String,
    /// What machine it is.
    pub host: Host,
}

/// The answer to [`TokenRequest`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Token {
    /// Opaque; sent as a bearer.
    pub token: Secret,
    /// How long it is good for.
    pub expires_in_ms: u64,
}

/// The bytes that a runner signs: `checkfu-runner-v1 | purpose | server origin | subject | instance id | nonce`.
#[must_use]
pub fn signed_bytes(
    purpose: &str,
    origin: &str,
    subject: &str,
    instance: InstanceId,
    nonce: &str,
) -> Vec<u8> {
    format!("checkfu-runner-v1|{purpose}|{origin}|{subject}|{instance}|{nonce}").into_bytes()
}
