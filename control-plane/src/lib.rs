//! The control plane: the durable log of sessions, who may work on them, and what everybody may see of them.

pub mod audit;
pub mod config;
pub mod dial;
pub mod domain;
pub mod engine;
pub mod export;
pub mod fanout;
pub mod files;
pub mod gateway;
pub mod http;
mod metrics;
pub mod record;
pub mod registry;
pub mod seal;
mod serve;
pub mod sse;
pub mod store;
mod supervisor;
pub mod sweeps;

pub use serve::{DATABASE_FILE, Error, KEY_FILE, assemble, serve, serve_and_tell};
