//! The toolbox: PID 1 of a sandbox, and the language the runner speaks with it.
//! The runner uses `wire`, `message`, `call` and `bound`; the rest is what the binary does.

pub mod bound;
pub mod call;
pub mod capture;
pub mod lease;
pub mod message;
pub mod procfs;
pub mod report;
pub mod shell;
pub mod spill;
pub mod supervise;
pub mod wire;
