//! Sandboxes on the real Docker daemon of this machine. Each test has an instance of its own and removes what it made.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a failed step of a test ends the test")]

mod calls;
mod captures;
mod confinement;
mod hostile;
mod lifecycle;
mod network;
mod packages;
mod relay;
mod rig;
