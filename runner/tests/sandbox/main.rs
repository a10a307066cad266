//! Sandboxes on the real Docker daemon of this machine. Each test has an instance of its own and removes what it made.

mod calls;
mod captures;
mod confinement;
mod lifecycle;
mod network;
mod rig;
