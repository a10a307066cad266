//! The control plane: the durable log of sessions, who may work on them, and what everybody may see of them.

pub mod dial;
pub mod engine;
pub mod fanout;
pub mod gateway;
pub mod sse;
pub mod store;
