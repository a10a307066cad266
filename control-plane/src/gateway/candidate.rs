//! Where one model request may go: a provider, the name that the provider knows the model by, and what it costs there.
//! A route is a list of these in order; the next one is asked only while the client has seen nothing of a reply.

use super::{
    price::Price,
    provider::Provider,
    request::Given,
    wire::{Spoken, ask::Target},
};
use axum::http::StatusCode;
use checkfu_shared::{agent::Effort, id::ProviderId, problem::Problem};
use serde_json::Value;
use std::sync::Arc;

/// One way to answer a model request.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// Who is asked.
    pub provider: Arc<Provider>,
    /// Its row; `None` for the provider that the server was started with.
    pub provider_id: Option<ProviderId>,
    /// The provider's own name of the model.
    pub upstream_model: String,
    /// How hard the model thinks: the agent's own word, or else the candidate's.
    pub effort: Option<Effort>,
    /// What it costs; `None` when nobody knows.
    pub price: Option<Price>,
}

impl Candidate {
    /// The body that this candidate is asked with, in the words of its provider's wire.
    ///
    /// # Errors
    /// `unsupported` when the request cannot be translated to that wire.
    pub fn body(&self, given: &Given) -> Result<Value, Problem> {
        let limit_member = self.provider.limit_member();
        let target = Target { model: &self.upstream_model, effort: self.effort, limit_member };
        given.body(self.spoken(), &target)
    }

    /// What its provider speaks.
    #[must_use]
    pub fn spoken(&self) -> Spoken {
        self.provider.kind().spoken()
    }
}

/// Whether another provider may do better than the one that answered with `status`.
#[must_use]
pub fn is_worth_another(status: StatusCode) -> bool {
    status.is_server_error()
        || matches!(
            status,
            StatusCode::UNAUTHORIZED
                | StatusCode::PAYMENT_REQUIRED
                | StatusCode::FORBIDDEN
                | StatusCode::NOT_FOUND
                | StatusCode::REQUEST_TIMEOUT
                | StatusCode::TOO_MANY_REQUESTS
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_another_provider_may_do_better_goes_on() {
        for (status, want) in [
            (200, false),
            (400, false),
            (401, true),
            (402, true),
            (403, true),
            (404, true),
            (413, false),
            (429, true),
            (500, true),
            (529, true),
        ] {
            assert_eq!(is_worth_another(StatusCode::from_u16(status).unwrap()), want, "{status}");
        }
    }
}
