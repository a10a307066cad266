//! What model requests were billed: one row each, kept from the moment the provider's numbers are known, and a running sum
//! for each session that budgets are judged by. A row is told in the log exactly once.

use super::log;
use crate::{
    domain::budget::{Spend, tokens},
    store,
};
use checkfu_shared::event::{Bill, ModelUsage};
use rusqlite::{Connection, OptionalExtension, params};

/// What one request came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metered {
    /// The tokens.
    pub usage: ModelUsage,
    /// Who was paid, and how much.
    pub bill: Bill,
}

/// Puts a request on record; a repetition replaces it. A row that the log tells of stays as it is.
pub(super) fn record(
    tx: &Connection,
    session: i64,
    request: &str,
    metered: &Metered,
) -> Result<(), store::Error> {
    let sql = "select cost_micro_usd, tokens, logged from model_usage where session = ?1 and request_id = ?2";
    let known: Option<(i64, i64, bool)> = tx
        .prepare_cached(sql)?
        .query_row(params![session, request], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    let (cost_before, tokens_before) = match known {
        Some((_, _, true)) => return Ok(()),
        Some((cost, tokens, false)) => (cost, tokens),
        None => (0, 0),
    };
    let cost = whole(metered.bill.list_cost_micro_usd.unwrap_or(0));
    let tokens = whole(tokens(&metered.usage));
    tx.prepare_cached(
        "insert or replace into model_usage (session, request_id, model, usage, bill, cost_micro_usd, tokens) \
         values (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![
        session,
        request,
        metered.bill.model,
        serde_json::to_string(&metered.usage)?,
        serde_json::to_string(&metered.bill)?,
        cost,
        tokens
    ])?;
    tx.prepare_cached(
        "insert into spends (session, micro_usd, tokens) values (?1, ?2, ?3) on conflict (session) do update \
         set micro_usd = micro_usd + excluded.micro_usd, tokens = tokens + excluded.tokens",
    )?
    .execute(params![session, cost - cost_before, tokens - tokens_before])?;
    Ok(())
}

fn whole(number: u64) -> i64 {
    // Sums of a session stay far below this, so that adding never overflows.
    i64::try_from(number).unwrap_or(i64::MAX).min(1 << 52)
}

/// What a session used so far.
pub(super) fn spend(conn: &Connection, session: i64) -> Result<Spend, store::Error> {
    let found: Option<(i64, i64)> = conn
        .prepare_cached("select micro_usd, tokens from spends where session = ?1")?
        .query_row([session], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let (micro_usd, tokens) = found.unwrap_or_default();
    Ok(Spend { micro_usd: micro_usd.cast_unsigned(), tokens: tokens.cast_unsigned() })
}

/// What a request came to, for the one event of the log that tells it.
pub(super) fn take(tx: &Connection, session: i64, request: &str) -> Result<Option<Metered>, store::Error> {
    let sql = "update model_usage set logged = 1 where session = ?1 and request_id = ?2 and logged = 0 \
               returning usage, bill, model";
    let row = tx.prepare_cached(sql)?.query_row(params![session, request], raw).optional()?;
    row.map(parse).transpose()
}

/// All requests that the log does not tell of, as one: their ends were lost with the runner that asked.
pub(super) fn strays(tx: &Connection, loaded: &log::Loaded) -> Result<Option<Metered>, store::Error> {
    // Without a request in the log there is none whose end could be told.
    if loaded.state.last_request.is_none() {
        return Ok(None);
    }
    let sql =
        "update model_usage set logged = 1 where session = ?1 and logged = 0 returning usage, bill, model";
    let mut statement = tx.prepare_cached(sql)?;
    let rows = statement.query_map([loaded.key], raw)?.collect::<Result<Vec<_>, _>>()?;
    let mut sum: Option<Metered> = None;
    for row in rows {
        let next = parse(row)?;
        sum = Some(match sum {
            None => next,
            Some(sum) => together(sum, next),
        });
    }
    Ok(sum)
}

fn together(mut sum: Metered, next: Metered) -> Metered {
    let (usage, more) = (&mut sum.usage, next.usage);
    usage.input_tokens += more.input_tokens;
    usage.output_tokens += more.output_tokens;
    usage.cache_creation_input_tokens += more.cache_creation_input_tokens;
    usage.cache_read_input_tokens += more.cache_read_input_tokens;
    let (costs, cost) = (&mut sum.bill.list_cost_micro_usd, next.bill.list_cost_micro_usd);
    *costs = costs.map_or(cost, |sum| Some(sum + cost.unwrap_or(0)));
    sum.bill.is_cut |= next.bill.is_cut;
    sum
}

type Raw = (String, Option<String>, String);

fn raw(row: &rusqlite::Row<'_>) -> rusqlite::Result<Raw> {
    Ok((row.get(0)?, row.get(1)?, row.get(2)?))
}

fn parse((usage, bill, model): Raw) -> Result<Metered, store::Error> {
    let bill = match bill {
        Some(bill) => serde_json::from_str(&bill)?,
        // A row from before bills were kept.
        None => Bill { model, ..Bill::default() },
    };
    Ok(Metered { usage: serde_json::from_str(&usage)?, bill })
}
