//! After a runner's restart: which of its claims go on, and which sandboxes nobody wants any more.

use super::{
    Caller, Cx, Engine, claims,
    lease::{self, Held, Hold, Loss},
    log::{self, Loaded},
};
use crate::store;
use checkfu_shared::{
    id::{ClaimId, InstanceId, RunnerId},
    problem::Problem,
    protocol::recover::{HeldClaim, Inventory, InventoryReply, Recover, Recovered, SandboxFate, Verdict},
};
use rusqlite::{Connection, params};

impl Engine {
    /// Says what becomes of each claim that a restarted runner found on its disk; live ones that it does not list go back.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub async fn recover(&self, caller: Caller, request: Recover) -> Result<Recovered, Problem> {
        let compact_at_percent = self.0.compact_at_percent;
        self.change(move |tx, cx| {
            let mut verdicts = Vec::with_capacity(request.claims.len());
            let mut kept = Vec::new();
            for held in &request.claims {
                let mut verdict = judge(tx, cx, &caller, held)?;
                if let Verdict::Resume { claim, .. } = &mut verdict {
                    claim.context.compact_at_percent = compact_at_percent;
                    kept.push(held.id);
                }
                verdicts.push(verdict);
            }
            release_older(tx, cx, &caller, &kept)?;
            Ok(Recovered { claims: verdicts })
        })
        .await
    }

    /// Which of the sandboxes that a runner has can go.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn inventory(&self, caller: Caller, request: Inventory) -> Result<InventoryReply, Problem> {
        let read = move |conn: &Connection| {
            let mut remove = Vec::new();
            for session in request.sandboxes {
                if !wanted(log::load(conn, session)?.as_ref(), caller.runner_id) {
                    remove.push(session);
                }
            }
            Ok(InventoryReply { remove })
        };
        Ok(self.store().read(read).await?)
    }

    /// This start of the runner takes no more work: its offers go back and its open poll ends empty.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub async fn close_instance(&self, caller: Caller, instance: InstanceId) -> Result<(), Problem> {
        self.change(move |tx, cx| {
            tx.execute(
                "insert or ignore into closed_instances (instance_id, at) values (?1, ?2)",
                params![instance.to_string(), cx.now.as_ms()],
            )?;
            let rest = "where runner_id = ?1 and instance_id = ?2 and state = 'offered'";
            let arguments = (caller.runner_id.to_string(), instance.to_string());
            for held in lease::select(tx, rest, &[&arguments.0, &arguments.1])? {
                lease::take_back(tx, cx, &held)?;
            }
            Ok(())
        })
        .await?;
        self.0.wakes.look_again();
        Ok(())
    }
}

fn judge(tx: &Connection, cx: &mut Cx, caller: &Caller, held: &HeldClaim) -> Result<Verdict, store::Error> {
    let row = lease::select(tx, "where id = ?1", &[&held.id.to_string()])?.pop();
    let Some(row) = row.filter(|row| row.runner_id == caller.runner_id && row.epoch == held.epoch) else {
        return Ok(Verdict::Fenced { sandbox: SandboxFate::Keep });
    };
    let loaded = log::load_key(tx, row.session)?;
    match row.hold {
        Hold::Settled => Ok(Verdict::Settled),
        // A spool that ends before what is logged is behind; the history tells the difference.
        Hold::Live => resume(tx, cx, caller, &row),
        Hold::Lost if lease::waiting_attempt(&loaded, &row).is_some() => {
            lease::confirm(tx, cx, &row)?;
            resume(tx, cx, caller, &row)
        }
        Hold::Offered | Hold::Lost | Hold::Returned | Hold::Fenced => {
            let wanted = wanted(Some(&loaded), caller.runner_id);
            Ok(Verdict::Fenced { sandbox: if wanted { SandboxFate::Keep } else { SandboxFate::Remove } })
        }
    }
}

fn resume(tx: &Connection, cx: &Cx, caller: &Caller, row: &Held) -> Result<Verdict, store::Error> {
    tx.execute(
        "update claims set instance_id = ?2 where id = ?1",
        params![row.id.to_string(), caller.instance_id.to_string()],
    )?;
    lease::extend(tx, cx, row.id)?;
    let loaded = log::load_key(tx, row.session)?;
    let claim = Box::new(claims::wire(tx, &loaded, row, &cx.tempo)?);
    Ok(Verdict::Resume { acked: row.next_index, claim })
}

/// What an older start of this runner held and this one did not list.
fn release_older(
    tx: &Connection,
    cx: &mut Cx,
    caller: &Caller,
    kept: &[ClaimId],
) -> Result<(), store::Error> {
    // The request may arrive again, late, when this start holds claims that it could not list yet.
    let rest = "where runner_id = ?1 and instance_id = ?2";
    let (runner, instance) = (caller.runner_id.to_string(), caller.instance_id.to_string());
    let own = lease::select(tx, rest, &[&runner, &instance])?;
    let kept: Vec<ClaimId> = own.iter().map(|held| held.id).chain(kept.iter().copied()).collect();
    lease::release_all(tx, cx, caller.runner_id, &kept, Loss::Forgotten)
}

/// Whether the session may still use its sandbox on this runner.
fn wanted(loaded: Option<&Loaded>, runner: RunnerId) -> bool {
    loaded.is_some_and(|loaded| loaded.archived_at.is_none() && loaded.sandbox_runner == Some(runner))
}
