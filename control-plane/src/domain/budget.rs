//! Budgets: whether a session may begin one more model request. Pure. A request under way is never cut: it completes and is
//! counted, so what goes beyond a limit is at most what was under way when the limit was reached.

use checkfu_shared::{
    event::ModelUsage,
    problem::{Code, Problem},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Micro-USD in one cent.
pub const MICRO_USD_PER_CENT: u64 = 10_000;

/// What a budget limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// What the model requests cost by the price list, in micro-USD.
    ModelSpend,
    /// The tokens that providers counted: read, written, and put into or taken from their caches.
    ModelTokens,
}

impl Metric {
    /// The wire's text.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ModelSpend => "model_spend",
            Self::ModelTokens => "model_tokens",
        }
    }

    /// The metric with this text.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        [Self::ModelSpend, Self::ModelTokens].into_iter().find(|metric| metric.as_str() == text)
    }
}

/// What a budget allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// Of what.
    pub metric: Metric,
    /// How much, in the metric's unit.
    pub amount: u64,
}

/// What a session used so far, on record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spend {
    /// By the price list.
    pub micro_usd: u64,
    /// As providers counted.
    pub tokens: u64,
}

impl Spend {
    /// What counts against a limit on `metric`.
    #[must_use]
    pub const fn of(&self, metric: Metric) -> u64 {
        match metric {
            Metric::ModelSpend => self.micro_usd,
            Metric::ModelTokens => self.tokens,
        }
    }
}

/// All tokens of a request, which is what a limit on tokens counts.
#[must_use]
pub const fn tokens(usage: &ModelUsage) -> u64 {
    usage
        .input_tokens
        .saturating_add(usage.output_tokens)
        .saturating_add(usage.cache_creation_input_tokens)
        .saturating_add(usage.cache_read_input_tokens)
}

/// Refuses one more request when a limit is reached. Paused budgets are not among `limits`.
///
/// # Errors
/// `budget_reached`, with the limit and what was used.
pub fn admits(limits: impl IntoIterator<Item = Limit>, spend: Spend) -> Result<(), Problem> {
    for limit in limits {
        let used = spend.of(limit.metric);
        if used >= limit.amount {
            let unit = if limit.metric == Metric::ModelSpend { "micro-USD" } else { "tokens" };
            let message = format!(
                "The session used {used} of its {} {unit}. Raise or pause its budget to let it go on.",
                limit.amount
            );
            return Err(Problem::new(Code::BudgetReached, message)
                .with("metric", limit.metric.as_str())
                .with("limit", limit.amount)
                .with("used", used));
        }
    }
    Ok(())
}

/// The Session's `budget` member: whole cents as CMA writes them, and what CMA cannot say in our own members.
#[must_use]
pub fn member(limits: &[Limit]) -> Option<Value> {
    let limit = limits.iter().min_by_key(|limit| limit.metric)?;
    let cents = limit.amount / MICRO_USD_PER_CENT;
    if limit.metric == Metric::ModelSpend && cents * MICRO_USD_PER_CENT == limit.amount {
        return Some(
            json!({"type": "limit", "max_list_cost": {"amount": cents.to_string(), "currency": "USD"}}),
        );
    }
    Some(json!({"type": "limit", "limit": limit.amount, "metric": limit.metric}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn limit(metric: Metric, amount: u64) -> Limit {
        Limit { metric, amount }
    }

    #[test]
    fn the_member_is_cmas_where_cma_can_say_it() {
        let cents = json!({"type": "limit", "max_list_cost": {"amount": "125", "currency": "USD"}});
        let spend = limit(Metric::ModelSpend, 1_250_000);
        let tokens = limit(Metric::ModelTokens, 1_000);
        assert_eq!(member(&[tokens, spend]), Some(cents));
        assert_eq!(
            member(&[tokens]),
            Some(json!({"type": "limit", "limit": 1_000, "metric": "model_tokens"}))
        );
        let odd = json!({"type": "limit", "limit": 5, "metric": "model_spend"});
        assert_eq!(member(&[limit(Metric::ModelSpend, 5)]), Some(odd));
        assert_eq!(member(&[]), None);
    }

    /// What may happen to a session with one budget; a request begins, ends with a cost, or the limit changes.
    #[derive(Debug, Clone)]
    enum Step {
        Begin,
        End(prop::sample::Index, u64),
        Limit(u64),
        Pause(bool),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => Just(Step::Begin),
            4 => (any::<prop::sample::Index>(), 0u64..40).prop_map(|(which, cost)| Step::End(which, cost)),
            1 => (1u64..120).prop_map(Step::Limit),
            1 => any::<bool>().prop_map(Step::Pause),
        ]
    }

    proptest! {
        /// Any interleaving of requests of any number of claims: one begins only below the limit, so that what goes beyond
        /// it is no more than the requests that were under way when it was reached.
        #[test]
        fn no_interleaving_overshoots_by_more_than_what_was_under_way(
            first in 1u64..120,
            steps in prop::collection::vec(step(), 0..120),
        ) {
            let (mut amount, mut paused, mut used, mut under_way) = (first, false, 0u64, 0usize);
            // What was used while at the limit, by requests that had begun below it.
            let (mut beyond, mut owed) = (0u64, 0usize);
            for step in steps {
                let is_reached = !paused && used >= amount;
                match step {
                    Step::Begin => {
                        let limits = (!paused).then_some(limit(Metric::ModelSpend, amount));
                        let begun = admits(limits, Spend { micro_usd: used, tokens: 0 }).is_ok();
                        prop_assert_eq!(begun, !is_reached);
                        under_way += usize::from(begun);
                    }
                    Step::End(which, cost) if under_way > 0 => {
                        let _ = which.index(under_way);
                        under_way -= 1;
                        used += cost;
                        if is_reached {
                            prop_assert!(owed > 0, "a request ended that nobody knew of when the limit was reached");
                            owed -= 1;
                            beyond += cost;
                        }
                    }
                    Step::End(..) => {}
                    Step::Limit(to) => amount = to,
                    Step::Pause(to) => paused = to,
                }
                let reached_now = !paused && used >= amount;
                if reached_now && !is_reached {
                    (beyond, owed) = (0, under_way);
                }
                if reached_now {
                    prop_assert!(under_way <= owed);
                    prop_assert!(beyond <= used);
                }
            }
        }

        #[test]
        fn a_limit_above_what_was_used_always_lets_work_go_on(used in 0u64..1 << 40, more in 1u64..1 << 20) {
            let spend = Spend { micro_usd: used, tokens: used };
            for metric in [Metric::ModelSpend, Metric::ModelTokens] {
                prop_assert!(admits([limit(metric, used + more)], spend).is_ok());
                prop_assert!(admits([limit(metric, used)], spend).is_err());
            }
        }
    }
}
