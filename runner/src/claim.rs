//! Claims: asked for only with a free slot, held beside their lease, found again after a restart.
//! [`Held`] is what a session executor is given.

pub(crate) mod admission;
pub(crate) mod directives;
pub mod hold;
pub mod lease;
pub(crate) mod poll;
pub(crate) mod recovery;
pub mod table;

use crate::{outbox::Outbox, plane::Plane};
use checkfu_shared::protocol::{
    claim::Claim,
    renew::{Directive, Gateway},
};
use std::{path::PathBuf, sync::Arc};
use tokio::sync::{mpsc, watch};

/// How urgently a session has to end, beside the lease. It only ever grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stop {
    /// Work on.
    Go,
    /// Let running turns end; nothing new is taken.
    Drain,
    /// Stop now, with a bounded clean-up.
    Cancel,
}

/// A confirmed claim, with everything that its session needs. It is held until the executor returns.
#[derive(Debug)]
pub struct Held {
    /// What is to be done.
    pub claim: Claim,
    /// The way to the control plane.
    pub plane: Arc<Plane>,
    /// Where events go.
    pub outbox: Outbox,
    /// Whether the session may act.
    pub lease: watch::Receiver<lease::State>,
    /// How to reach the model; replaced at each renewal.
    pub gateway: watch::Receiver<Gateway>,
    /// Whether somebody watches the session live.
    pub watched: watch::Receiver<bool>,
    /// What the control plane tells this claim.
    pub directives: mpsc::Receiver<Directive>,
    /// Whether the runner is stopping.
    pub stop: watch::Receiver<Stop>,
    /// The claim was found on this disk at start: sandbox and open calls may exist.
    pub resumed: bool,
    /// A directory of this claim alone, removed after it settled.
    pub spool_dir: PathBuf,
}

impl Held {
    /// Whether something may be sent or dispatched right now, by the boot clock.
    #[must_use]
    pub fn may_act(&self) -> bool {
        self.lease.borrow().allows(lease::BootInstant::now())
    }
}

#[cfg(test)]
mod tests;
