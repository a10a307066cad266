//! One admitted model request: whose it is, judged anew while its reply streams, and where its count goes.

use super::{
    candidate::Candidate,
    meter::Reading,
    price::Price,
    provider::{self, Reply},
};
use crate::engine::{Capability, Engine, Metered};
use checkfu_shared::{
    event::Bill,
    id::{ProviderId, RequestId},
    problem::{Code, Problem},
    secret::Secret,
};
use std::time::Duration;
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{MissedTickBehavior, interval_at, sleep},
};

/// How often a streaming reply's capability is judged again, at the latest.
const RECHECK: Duration = Duration::from_secs(5);
/// How quickly at most, however fast the session's log grows.
const RECHECK_PAUSE: Duration = Duration::from_millis(250);

/// One admitted request and what is needed to go on judging it.
pub(super) struct Call {
    pub(super) engine: Engine,
    pub(super) token: Secret,
    pub(super) capability: Capability,
    pub(super) id: RequestId,
    /// What of the request was not passed on.
    pub(super) dropped: Vec<String>,
    /// How large the request is, for an estimate where the provider's count never came.
    pub(super) request_bytes: usize,
    /// Held while the request is under way.
    pub(super) _slot: OwnedSemaphorePermit,
    /// The claim's own share of it.
    pub(super) _place: super::places::Place,
}

impl Call {
    /// Completes when the claim may not go on: judged anew with each change of its session, and at least every 5 s.
    pub(super) async fn fenced(&self) {
        let mut head = self.engine.fanout().watch(self.capability.session_id);
        let mut due = interval_at(tokio::time::Instant::now() + RECHECK, RECHECK);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = due.tick() => {}
                Ok(()) = head.changed() => sleep(RECHECK_PAUSE).await,
            }
            match self.engine.capability(self.token.reveal()).await {
                // A store that cannot be read just now says nothing about the claim.
                Err(problem) if problem.code != Code::Internal => return,
                _ => {}
            }
        }
    }

    /// Puts on record what was read of a reply of `candidate`; `false` when that failed.
    pub(super) async fn record(&self, reading: Reading, billed: &Billed) -> bool {
        let usage = reading.billed(self.request_bytes);
        let bill = Bill {
            model: billed.model.clone(),
            provider_id: billed.provider_id,
            list_cost_micro_usd: billed.price.map(|price| price.cost_micro_usd(&usage)),
            is_cut: !reading.is_complete,
            dropped: self.dropped.clone(),
            provider_request_id: billed.provider_request_id.clone(),
        };
        match self.engine.record_usage(&self.capability, self.id.to_string(), Metered { usage, bill }).await {
            Ok(()) => true,
            Err(problem) => {
                tracing::error!(claim_id = %self.capability.claim_id, %problem, "a model request's usage is not on record");
                false
            }
        }
    }
}

/// Who answered, and by which price it is billed.
#[derive(Debug, Clone)]
pub(super) struct Billed {
    model: String,
    provider_id: Option<ProviderId>,
    price: Option<Price>,
    provider_request_id: Option<String>,
}

impl Billed {
    /// The candidate that gave this reply.
    pub(super) fn of(candidate: &Candidate, reply: &Reply) -> Self {
        let id = reply.headers.get(provider::PROVIDER_REQUEST_ID).and_then(|id| id.to_str().ok());
        Self {
            model: candidate.upstream_model.clone(),
            provider_id: candidate.provider_id,
            price: candidate.price,
            provider_request_id: id.map(|id| id.chars().take(200).collect()),
        }
    }
}

/// The refusal of a request whose claim ended meanwhile.
pub(super) fn fenced() -> Problem {
    Problem::new(Code::Fenced, "The claim ended while the model was asked. Stop working on it.")
}
