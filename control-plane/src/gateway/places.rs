//! How many model requests each claim has under way. One claim cannot take the gateway from the others.

use checkfu_shared::{
    id::ClaimId,
    problem::{Code, Problem},
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

/// Model requests that one claim may have under way at once; a harness with subagents asks in parallel.
pub(super) const PER_CLAIM_MAX: u32 = 8;

/// The counts; clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Places(Arc<Mutex<HashMap<ClaimId, u32>>>);

/// One place of a claim, given back when dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Places,
    claim: ClaimId,
}

impl Places {
    /// Takes one place of `claim`.
    ///
    /// # Errors
    /// `rate_limited` when all of them are taken.
    pub(super) fn take(&self, claim: ClaimId) -> Result<Place, Problem> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(claim).or_default();
        if *count >= PER_CLAIM_MAX {
            return Err(Problem::new(
                Code::RateLimited,
                format!(
                    "This claim has {PER_CLAIM_MAX} model requests under way already. Try again when one of them is over."
                ),
            )
            .with("retry_after_seconds", 1));
        }
        *count += 1;
        drop(counts);
        Ok(Place { places: self.clone(), claim })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.places.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.claim) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.claim);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_has_so_many_places_and_gets_them_back() {
        let (places, claim) = (Places::default(), ClaimId::mint());
        let mut held: Vec<Place> = (0..PER_CLAIM_MAX).map(|_| places.take(claim).unwrap()).collect();
        assert_eq!(places.take(claim).unwrap_err().code, Code::RateLimited);
        assert!(places.take(ClaimId::mint()).is_ok());
        held.pop();
        assert!(places.take(claim).is_ok());
        drop(held);
        assert!(places.0.lock().unwrap().is_empty());
    }
}
