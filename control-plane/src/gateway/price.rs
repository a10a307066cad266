//! What model requests cost by the price list. Pure, whole numbers only: prices are micro-USD per million tokens, costs are
//! micro-USD, and a cost is rounded up once, over all its parts.

use checkfu_shared::event::ModelUsage;
use serde::{Deserialize, Serialize};

/// The prices of one model, each in micro-USD for a million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Read afresh.
    pub input: u64,
    /// Written.
    pub output: u64,
    /// Taken from the provider's cache.
    pub cache_read: u64,
    /// Put into the provider's cache for five minutes.
    pub cache_write: u64,
}

impl Price {
    /// What `usage` costs, in micro-USD.
    #[must_use]
    pub fn cost_micro_usd(&self, usage: &ModelUsage) -> u64 {
        let parts = [
            (usage.input_tokens, self.input),
            (usage.output_tokens, self.output),
            (usage.cache_read_input_tokens, self.cache_read),
            (usage.cache_creation_input_tokens, self.cache_write),
        ];
        let sum: u128 = parts.iter().map(|(tokens, price)| u128::from(*tokens) * u128::from(*price)).sum();
        u64::try_from(sum.div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRICE: Price =
        Price { input: 3_000_000, output: 15_000_000, cache_read: 300_000, cache_write: 3_750_000 };

    #[test]
    fn a_cost_is_the_sum_of_its_parts_rounded_up_once() {
        let usage = |input_tokens, output_tokens, cache_read, cache_write| ModelUsage {
            input_tokens,
            output_tokens,
            cache_read_input_tokens: cache_read,
            cache_creation_input_tokens: cache_write,
        };
        for (used, want) in [
            (usage(0, 0, 0, 0), 0),
            (usage(1, 0, 0, 0), 3),
            (usage(0, 0, 1, 0), 1),
            (usage(0, 0, 3, 0), 1),
            (usage(0, 0, 4, 0), 2),
            (usage(1_000_000, 1_000_000, 1_000_000, 1_000_000), 22_050_000),
            (usage(u64::MAX, u64::MAX, 0, 0), u64::MAX),
        ] {
            assert_eq!(PRICE.cost_micro_usd(&used), want, "{used:?}");
        }
    }
}
