//! From the model that a session pins to the candidates that may answer. Providers are read anew for every request, so a
//! change or an archive holds at once; only their connections are kept, as long as the row they stand for is unchanged.

use super::{
    Gateway,
    candidate::Candidate,
    catalogue,
    provider::{Address, Provider, Waits},
};
use crate::{
    dial::Reach,
    engine::Capability,
    registry::{ProviderRecord, Registry, RouteCandidate},
};
use checkfu_shared::{
    id::ProviderId,
    problem::{Code, Problem},
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

/// How many providers' connections are kept.
const KEPT_MAX: usize = 256;

/// The connections of providers as they are now.
#[derive(Debug, Default)]
pub(super) struct Connections(Mutex<HashMap<ProviderId, Kept>>);

/// A connection and the row that it stands for.
#[derive(Debug)]
struct Kept {
    revision: u32,
    sealed_key: Option<String>,
    provider: Arc<Provider>,
}

impl Gateway {
    /// A provider with its key, ready to be asked.
    ///
    /// # Errors
    /// `provider_unreachable` when its address or its sealed key cannot be used.
    pub fn connected(&self, registry: &Registry, row: &ProviderRecord) -> Result<Arc<Provider>, Problem> {
        let mut kept = self.0.connections.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = kept.get(&row.id)
            && found.revision == row.revision
            && found.sealed_key == row.sealed_key
        {
            return Ok(Arc::clone(&found.provider));
        }
        let address = Address {
            kind: row.kind,
            base_url: &row.base_url,
            key: registry.unsealed(row)?,
            reach: if row.allow_private { Reach::Private } else { Reach::Public },
        };
        let provider =
            Provider::new(address, Waits::default()).map(Arc::new).map_err(|error| unusable(&error))?;
        if kept.len() >= KEPT_MAX {
            kept.clear();
        }
        let (revision, sealed_key) = (row.revision, row.sealed_key.clone());
        kept.insert(row.id, Kept { revision, sealed_key, provider: Arc::clone(&provider) });
        Ok(provider)
    }

    /// Where requests of this capability may go, in order: its route's candidates, or else the server's own provider.
    ///
    /// # Errors
    /// `provider_unreachable` when there is none.
    pub(super) async fn candidates(
        &self,
        registry: &Registry,
        capability: &Capability,
    ) -> Result<Vec<Candidate>, Problem> {
        let model = &capability.model;
        let effort = model.effort.map(|effort| effort.level);
        let built_in = || self.0.built_in.clone().ok_or_else(none);
        let Some(routed) = registry.routed(capability.workspace_id, model.id.clone()).await? else {
            let price = catalogue::entry(&model.id).map(|entry| entry.price);
            return Ok(vec![Candidate {
                provider: built_in()?,
                provider_id: None,
                upstream_model: model.id.clone(),
                effort,
                price,
            }]);
        };
        let mut candidates = Vec::with_capacity(routed.len());
        let mut last = unrouted(&model.id);
        for (candidate, provider) in routed {
            let connected = match provider {
                Some(row) => self.connected(registry, &row),
                None => built_in(),
            };
            match connected {
                Ok(provider) => candidates.push(of(candidate, provider, effort)),
                Err(problem) => last = problem,
            }
        }
        if candidates.is_empty() { Err(last) } else { Ok(candidates) }
    }
}

fn of(
    routed: RouteCandidate,
    provider: Arc<Provider>,
    effort: Option<checkfu_shared::agent::Effort>,
) -> Candidate {
    let RouteCandidate { provider_id, model: upstream_model, price, .. } = routed;
    let price = price.or_else(|| catalogue::entry(&upstream_model).map(|entry| entry.price));
    Candidate { provider, provider_id, upstream_model, effort: effort.or(routed.effort), price }
}

fn none() -> Problem {
    Problem::new(
        Code::ProviderMissing,
        "The server has no model provider. Whoever runs it has to start it with --model-key-file, or with CHECKFU_MODEL_KEY, or add a provider and a route to it.",
    )
}

fn unrouted(name: &str) -> Problem {
    Problem::new(
        Code::ProviderMissing,
        format!("No provider of the model route `{name}` is there any more. Change its candidates."),
    )
}

fn unusable(error: &super::provider::Error) -> Problem {
    let cause = std::error::Error::source(error).map_or_else(String::new, |cause| format!(": {cause}"));
    Problem::new(Code::ProviderMissing, format!("The model provider cannot be used: {error}{cause}."))
}
