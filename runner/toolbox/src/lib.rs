//! The toolbox: PID 1 of a sandbox, and the language the runner speaks with it.
//! The runner uses `wire`, `message`, `call` and `bound`; the rest is what the binary does.

pub mod call;
pub mod message;
pub mod wire;
