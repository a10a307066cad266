//! What the gateway asks: whom a capability belongs to, and where it puts what a request used. A capability is good exactly
//! as long as its claim's lease.

use super::{Engine, Metered, budgets, fenced, lease, ledger, log};
use crate::{
    domain::budget::{Limit, Spend},
    store,
};
use checkfu_shared::{
    agent::Model,
    id::{ClaimId, PrincipalId, RunId, SessionId, WorkspaceId},
    problem::{Code, Problem},
    protocol::append::sha256_hex,
    time::Timestamp,
};
use rusqlite::{Connection, OptionalExtension};

/// Whose model request it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Capability {
    /// The claim that it dies with.
    pub claim_id: ClaimId,
    /// The claim's fencing token.
    pub epoch: u64,
    /// Whose session.
    pub session_id: SessionId,
    /// Which run.
    pub run_id: RunId,
    /// Whose rights.
    pub principal_id: PrincipalId,
    /// Whose workspace.
    pub workspace_id: WorkspaceId,
    /// The model as pinned by the session's agent.
    pub model: Model,
    /// The limits of its budgets that hold now.
    pub limits: Vec<Limit>,
    /// What it used so far.
    pub spend: Spend,
}

impl Engine {
    /// Whom this capability belongs to. Checked afresh for every request.
    ///
    /// # Errors
    /// [`Code::Unauthenticated`] when nobody's, [`Code::Fenced`] when its claim is over, [`Code::ClaimLapsed`] when its
    /// lease ended.
    pub async fn capability(&self, token: &str) -> Result<Capability, Problem> {
        let (hash, now) = (sha256_hex(token.as_bytes()), self.now());
        Ok(self.store().read(move |conn| find(conn, &hash, now)).await?)
    }

    /// Keeps what a model request used, until the runner's `span.model_request_end` takes it up. A repetition replaces.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub async fn record_usage(
        &self,
        capability: &Capability,
        model_request_id: String,
        metered: Metered,
    ) -> Result<(), Problem> {
        let session = capability.session_id;
        self.change(move |tx, _| {
            let sql = "select key from sessions where id = ?1";
            let key: Option<i64> =
                tx.prepare_cached(sql)?.query_row([session.to_string()], |row| row.get(0)).optional()?;
            if let Some(key) = key {
                ledger::record(tx, key, &model_request_id, &metered)?;
            }
            Ok(())
        })
        .await
    }
}

fn find(conn: &Connection, hash: &str, now: Timestamp) -> Result<Capability, store::Error> {
    let Some(held) = lease::select(conn, "where gateway_hash = ?1", &[&hash])?.pop() else {
        return Err(Problem::new(
            Code::Unauthenticated,
            "The model gateway takes only the capability of a live claim. Renew the claim to get one.",
        )
        .into());
    };
    if held.hold != lease::Hold::Live {
        return Err(fenced().into());
    }
    if held.lease_until < now {
        return Err(Problem::new(
            Code::ClaimLapsed,
            "The claim's lease ended, so the model is not asked. Renew the claim, then try again.",
        )
        .into());
    }
    let loaded = log::load_key(conn, held.session)?;
    Ok(Capability {
        claim_id: held.id,
        epoch: held.epoch,
        session_id: loaded.id,
        run_id: held.run_id,
        principal_id: loaded.definition.principal_id,
        workspace_id: loaded.workspace_id,
        model: loaded.definition.agent.model,
        limits: budgets::limits(&loaded.budgets),
        spend: ledger::spend(conn, loaded.key)?,
    })
}
