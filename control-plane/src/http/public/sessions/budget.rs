//! A `budget` in its two forms: CMA's limit in whole cents, and our own `{limit, metric}` in micro-USD or tokens.

use crate::{
    domain::budget::{Limit, MICRO_USD_PER_CENT, Metric},
    gateway::catalogue,
    http::{
        Plane,
        auth::Dialect,
        fields::{Fields, wrong},
    },
};
use checkfu_shared::{id::WorkspaceId, problem::Problem};
use serde_json::Value;

/// No budget is larger: about 4.5 billion USD.
pub(crate) const AMOUNT_MAX: u64 = 1 << 52;

/// Reads a budget in either form.
///
/// # Errors
/// `invalid_request` when it breaks a rule.
pub(crate) fn read(value: Value, path: &str, dialect: Dialect) -> Result<Limit, Problem> {
    let mut fields = Fields::of(value, path, dialect)?;
    if fields.has("limit") {
        let limit = limit(&mut fields)?;
        // What a Session shows may be sent back as it is.
        if fields.text("type")?.is_some_and(|kind| kind != "limit") {
            return Err(wrong(&fields.path("type"), "must be limit"));
        }
        fields.end()?;
        return Ok(limit);
    }
    if fields.required_text("type", 1, 64)? != "limit" {
        return Err(wrong(&fields.path("type"), "must be limit"));
    }
    let cost_path = fields.path("max_list_cost");
    let mut cost = fields.object("max_list_cost")?.ok_or_else(|| wrong(&cost_path, "is required"))?;
    let amount = cost.required_text("amount", 1, 11)?;
    let whole = amount.bytes().all(|byte| byte.is_ascii_digit()) && !amount.starts_with('0');
    let cents = amount.parse::<u64>().ok().filter(|_| whole).ok_or_else(|| {
        let rule = "must be whole cents as a text, more than 0, without leading zeros: \"125\" is 1.25 USD";
        wrong(&cost.path("amount"), rule)
    })?;
    if cost.required_text("currency", 1, 8)? != "USD" {
        return Err(wrong(&cost.path("currency"), "must be USD"));
    }
    cost.end()?;
    fields.end()?;
    Ok(Limit { metric: Metric::ModelSpend, amount: cents * MICRO_USD_PER_CENT })
}

/// Reads `limit` and `metric`; without a metric it is money.
///
/// # Errors
/// `invalid_request` when one of them breaks a rule.
pub(crate) fn limit(fields: &mut Fields) -> Result<Limit, Problem> {
    let (limit_path, metric_path) = (fields.path("limit"), fields.path("metric"));
    let amount = fields
        .whole("limit", 1, AMOUNT_MAX)?
        .ok_or_else(|| wrong(&limit_path, "is required: micro-USD, or tokens with `metric: model_tokens`"))?;
    let metric = match fields.text("metric")? {
        None => Metric::ModelSpend,
        Some(text) => Metric::from_text(&text)
            .ok_or_else(|| wrong(&metric_path, "must be model_spend or model_tokens"))?,
    };
    Ok(Limit { metric, amount })
}

/// Refuses money as a limit where nobody knows what the model costs.
///
/// # Errors
/// `invalid_request` with the reason `model_not_budgetable`.
pub(crate) async fn check_priced(
    plane: &Plane,
    workspace: WorkspaceId,
    limit: Limit,
    model: &str,
) -> Result<(), Problem> {
    if limit.metric == Metric::ModelTokens {
        return Ok(());
    }
    let known = |model: &str| catalogue::entry(model).is_some();
    let priced = match plane.registry.routed(workspace, model.to_owned()).await? {
        None => known(model),
        Some(routed) => {
            routed.iter().all(|(candidate, _)| candidate.price.is_some() || known(&candidate.model))
        }
    };
    if priced {
        return Ok(());
    }
    let rule = format!(
        "cannot be in money, because the price of the model {model} is not known. Give it one with a model route, or limit its tokens with `metric: model_tokens`"
    );
    Err(wrong("budget", &rule).with("reason", "model_not_budgetable"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn both_forms_are_read() {
        let cents =
            |amount: Value| json!({"type": "limit", "max_list_cost": {"amount": amount, "currency": "USD"}});
        let of = |value: Value| read(value, "budget", Dialect::Checkfu);
        let spend = |amount| Ok(Limit { metric: Metric::ModelSpend, amount });
        assert_eq!(of(cents(json!("125"))), spend(1_250_000));
        assert_eq!(of(json!({"limit": 5})), spend(5));
        assert_eq!(of(json!({"type": "limit", "limit": 5, "metric": "model_spend"})), spend(5));
        let tokens = Limit { metric: Metric::ModelTokens, amount: 7 };
        assert_eq!(of(json!({"limit": 7, "metric": "model_tokens"})), Ok(tokens));
        for bad in
            [json!("0"), json!("01"), json!("1.5"), json!("-1"), json!(""), json!(125), json!("9".repeat(12))]
        {
            assert!(of(cents(bad.clone())).is_err(), "{bad}");
        }
        for bad in [
            json!({"limit": 0}),
            json!({"limit": 1.5}),
            json!({"limit": 1, "metric": "x"}),
            json!({}),
            json!(3),
        ] {
            assert!(of(bad.clone()).is_err(), "{bad}");
        }
    }
}
