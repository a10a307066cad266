//! A session's `budget`: a limit on its list cost in whole cents.

use crate::http::{
    auth::Dialect,
    fields::{Fields, wrong},
};
use checkfu_shared::{event::Usage, problem::Problem};
use serde_json::{Value, json};

/// Reads a budget.
///
/// # Errors
/// `invalid_request` when it breaks a rule.
pub(crate) fn read(value: Value, path: &str, dialect: Dialect) -> Result<Value, Problem> {
    let mut fields = Fields::of(value, path, dialect)?;
    if fields.required_text("type", 1, 64)? != "limit" {
        return Err(wrong(&fields.path("type"), "must be limit"));
    }
    let cost_path = fields.path("max_list_cost");
    let mut cost = fields.object("max_list_cost")?.ok_or_else(|| wrong(&cost_path, "is required"))?;
    let amount = cost.required_text("amount", 1, 15)?;
    let whole = amount.bytes().all(|byte| byte.is_ascii_digit()) && !amount.starts_with('0');
    if !whole {
        let rule = "must be whole cents as a text, more than 0, without leading zeros: \"125\" is 1.25 USD";
        return Err(wrong(&cost.path("amount"), rule));
    }
    if cost.required_text("currency", 1, 8)? != "USD" {
        return Err(wrong(&cost.path("currency"), "must be USD"));
    }
    cost.end()?;
    fields.end()?;
    Ok(json!({"type": "limit", "max_list_cost": {"amount": amount, "currency": "USD"}}))
}

/// Refuses a budget that is spent already.
///
/// # Errors
/// `invalid_request` with the reason `budget_not_raised`.
pub(crate) fn above(budget: &Value, usage: &Usage) -> Result<(), Problem> {
    let cents = |text: Option<&str>| text.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let limit = cents(budget["max_list_cost"]["amount"].as_str());
    let spent = cents(Some(&usage.list_cost.amount));
    if limit > spent {
        return Ok(());
    }
    let rule = format!("must be more than the {spent} cents that the session spent already");
    Err(wrong("budget.max_list_cost.amount", &rule).with("reason", "budget_not_raised"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use checkfu_shared::event::Money;

    #[test]
    fn a_budget_is_whole_cents_and_more_than_what_is_spent() {
        let with =
            |amount: Value| json!({"type": "limit", "max_list_cost": {"amount": amount, "currency": "USD"}});
        let budget = read(with(json!("125")), "budget", Dialect::Checkfu).unwrap();
        assert_eq!(budget, with(json!("125")));
        for bad in
            [json!("0"), json!("01"), json!("1.5"), json!("-1"), json!(""), json!(125), json!("9".repeat(16))]
        {
            assert!(read(with(bad.clone()), "budget", Dialect::Checkfu).is_err(), "{bad}");
        }
        let spent = |amount: &str| Usage {
            list_cost: Money { amount: amount.to_owned(), currency: "USD".to_owned() },
            ..Usage::default()
        };
        assert!(above(&budget, &spent("124")).is_ok());
        assert!(above(&budget, &spent("125")).is_err());
    }
}
