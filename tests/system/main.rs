//! System tests: real binaries, real Docker, real SQLite; only the model provider is scripted, over real HTTP.
//! They are few and whole; what can be shown by a pure test is shown there. They need what `tests/run.sh` prepares.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod administration;
mod approvals;
mod confines;
mod disks;
mod docker;
mod gateway;
mod hostile;
mod kills;
mod leases;
mod links;
mod loads;
mod pairings;
mod refusals;
mod restarts;
mod spine;
mod steering;
mod streams;
mod wires;
