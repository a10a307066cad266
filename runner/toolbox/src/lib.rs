//! The toolbox: PID 1 of a sandbox, and the language the runner speaks with it.
//! The runner uses `wire`, `message`, `call` and `bound`; the rest is what the binary does.

pub mod bound;
pub mod call;
pub mod capture;
pub mod forward;
pub mod lease;
pub mod ledger;
pub mod message;
pub mod procfs;
pub mod report;
pub mod serve;
pub mod shell;
pub mod spill;
pub mod supervise;
pub mod tools;
pub mod wire;
