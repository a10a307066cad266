//! Whether a session's budget lets one more model request begin. Pure; the engine keeps what was spent.
//! A request under way is never cut by it: the one in flight completes and is counted.

use checkfu_shared::{
    event::Usage,
    problem::{Code, Problem},
};
use serde_json::Value;

/// Refuses when what was spent by the price list has reached the limit.
///
/// # Errors
/// `budget_reached`, with the limit and what was spent in whole cents.
pub fn admits(limit_cents: u64, usage: Option<&Usage>) -> Result<(), Problem> {
    let spent_cents = usage.and_then(|usage| usage.list_cost.amount.parse::<u64>().ok()).unwrap_or(0);
    if spent_cents < limit_cents {
        return Ok(());
    }
    Err(Problem::new(
        Code::BudgetReached,
        format!(
            "The session spent {spent_cents} of its {limit_cents} cents. Raise its budget to let it go on."
        ),
    )
    .with("limit_cents", limit_cents)
    .with("spent_cents", spent_cents))
}

/// The limit of a budget in whole cents, when it has one.
#[must_use]
pub fn limit_cents(budget: &Value) -> Option<u64> {
    budget.pointer("/max_list_cost/amount")?.as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use checkfu_shared::event::Money;
    use serde_json::json;

    #[test]
    fn the_limit_is_read_in_whole_cents() {
        let budget = json!({"type": "limit", "max_list_cost": {"amount": "125", "currency": "USD"}});
        assert_eq!(limit_cents(&budget), Some(125));
        for none in [json!(null), json!({}), json!({"max_list_cost": {"amount": "1.5"}})] {
            assert_eq!(limit_cents(&none), None, "{none}");
        }
    }

    #[test]
    fn a_spent_budget_admits_nothing_more() {
        for (spent, admitted) in [("0", true), ("124", true), ("125", false), ("126", false)] {
            let list_cost = Money { amount: spent.to_owned(), ..Money::default() };
            let usage = Usage { list_cost, ..Usage::default() };
            assert_eq!(admits(125, Some(&usage)).is_ok(), admitted, "{spent}");
        }
        assert!(admits(1, None).is_ok());
    }
}
