//! The control plane: the durable log of sessions, who may work on them, and what everybody may see of them.

pub mod engine;
pub mod fanout;
pub mod store;
