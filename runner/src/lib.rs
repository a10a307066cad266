//! The runner: a daemon that asks a control plane for work, runs agent sessions in Docker and reports every step.
//! It only ever connects outwards. It never acts on an event before it is durable and never past its lease.
//!
//! ```text
//! pairing --> identity <-- plane
//! claim -- Held + stop --> session --> harness --> model
//!   |  lease: renew, or freeze and seal  |  +----> tools --> sandbox --> toolbox
//!   v                                    v events, then the settlement
//! plane <-------- batches, acks ------ outbox
//! ```

pub mod backoff;
pub mod claim;
pub mod config;
pub mod control;
pub mod doctor;
pub mod harness;
pub mod identity;
pub mod machine;
pub mod mask;
mod metrics;
pub mod model;
pub mod outbox;
pub mod outputs;
pub mod pairing;
pub mod plane;
#[cfg(test)]
mod rig;
pub mod sandbox;
pub mod session;
pub mod settings;
pub mod spools;
pub mod state;
pub mod status;
pub mod supervisor;
pub mod tools;
