//! The only key to dispatching a call: a permit, minted from a durable `allow` and from nothing else, used up by one dispatch.

use checkfu_shared::{
    id::EventId,
    protocol::append::{Decision, Disposition},
};

/// The right to run one call once.
#[derive(Debug)]
pub struct Permit {
    call: EventId,
}

/// What the control plane decided of a call.
#[derive(Debug)]
pub enum Ruling {
    /// It may run.
    Run(Permit),
    /// It may not; the model is told why.
    Deny {
        /// Why, in a sentence.
        reason: String,
    },
    /// Somebody has to answer first.
    Ask,
}

impl Permit {
    /// Which call it is for.
    #[must_use]
    pub const fn call(&self) -> EventId {
        self.call
    }
}

impl Ruling {
    /// What a decision amounts to. A decision reaches a runner only as the answer to a durable append.
    #[must_use]
    pub fn of(decision: Decision) -> Self {
        match decision.disposition {
            Disposition::Allow => Self::Run(Permit { call: decision.tool_use_id }),
            Disposition::Deny => Self::Deny { reason: decision.reason },
            Disposition::Ask => Self::Ask,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_allow_makes_a_permit_and_only_for_its_own_call() {
        let id = EventId::from_bytes([7; 16]);
        let ruling = |disposition| {
            Ruling::of(Decision { tool_use_id: id, disposition, approval_id: None, reason: "because".into() })
        };
        assert!(matches!(ruling(Disposition::Allow), Ruling::Run(permit) if permit.call() == id));
        assert!(matches!(ruling(Disposition::Deny), Ruling::Deny { reason } if reason == "because"));
        assert!(matches!(ruling(Disposition::Ask), Ruling::Ask));
    }
}
