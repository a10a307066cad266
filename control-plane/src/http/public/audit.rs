//! `/v1/audit`: every act of governance and every denial, in order, each row bound to the one before.

use crate::{
    audit::{self, GENESIS},
    domain::grant::{Kind::Workspace, Permission::Admin},
    http::{
        Plane,
        auth::Caller,
        fields::wrong,
        query::{Listed, Query},
        reply::{self, Answer},
        route::{Guard, Routes},
    },
};
use axum::extract::State;
use checkfu_shared::problem::Problem;
use serde_json::{Value, json};

/// The routes.
pub(crate) fn routes() -> Routes {
    let guard = Guard::all(Admin, Workspace);
    Routes::new().get("/v1/audit", guard, list).get("/v1/audit/verification", guard, verify)
}

async fn list(State(plane): State<Plane>, caller: Caller, query: Query) -> Answer {
    let limit = query.limit(100, 1_000)?;
    let from = query.cursor("audit", false)?.and_then(|cursor| cursor.position.parse::<u64>().ok());
    let after = query.whole("after_seq", 0, u64::MAX >> 1)?;
    let outcome = query.get("outcome").map(str::to_owned);
    if outcome.as_ref().is_some_and(|text| !["done", "denied"].contains(&text.as_str())) {
        return Err(wrong("outcome", "must be done or denied").into());
    }
    let wanted = audit::Query {
        after_seq: from.max(after).unwrap_or(0),
        actor: query.get("actor").map(str::to_owned),
        action: query.get("action").map(str::to_owned),
        outcome,
        rows: i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1),
    };
    let workspace = caller.workspace_id;
    let rows = plane.store.read(move |conn| audit::read(conn, workspace, &wanted)).await;
    let rows = rows.map_err(Problem::from)?;
    let page = Listed::cut(rows, limit, "audit", false, |row| row.seq.to_string());
    reply::ok(&page.map(|row| {
        let mut row = json!(row);
        row["type"] = "audit_record".into();
        row
    }))
}

/// Reads the whole chain and says where it breaks, if it does.
async fn verify(State(plane): State<Plane>, caller: Caller) -> Answer {
    const PAGE: i64 = 1_000;
    let workspace = caller.workspace_id;
    let (mut seq, mut hash) = (0, GENESIS.to_owned());
    loop {
        let query = audit::Query { after_seq: seq, rows: PAGE, ..audit::Query::default() };
        let rows = plane.store.read(move |conn| audit::read(conn, workspace, &query)).await;
        let rows = rows.map_err(Problem::from)?;
        if rows.is_empty() {
            // A checkpoint: whoever keeps it can show later that nothing before it was changed.
            let mut shown = verdict(seq, &hash, None);
            let signed = format!("checkfu.audit 1\n{workspace} {seq} {hash}");
            let (public_key, signature) = plane.engine.sign_export(&signed);
            shown["checkpoint"] = json!({"signed": signed, "public_key": public_key, "signature": signature});
            return reply::ok(&shown);
        }
        match audit::verify((seq, &hash), &rows) {
            Ok(head) => (seq, hash) = head,
            Err(broken) => return reply::ok(&verdict(seq, &hash, Some(broken))),
        }
    }
}

fn verdict(seq: u64, hash: &str, broken: Option<(u64, &'static str)>) -> Value {
    json!({
        "type": "audit_verification",
        "intact": broken.is_none(),
        "rows": seq,
        "head": hash,
        "broken_at": broken.map(|(seq, _)| seq),
        "reason": broken.map(|(_, reason)| reason),
    })
}
