//! A claim's row: who holds it, whether it is over, and how its lease is kept, lost and revived. Every write of a runner
//! passes [`fence`] in its own transaction.

use super::{
    Caller, Cx, Engine, fenced, ledger,
    log::{self, Loaded},
    ms,
};
use crate::{
    domain::{claim, settlement},
    record::RunStatus,
    store,
};
use checkfu_shared::{
    event::RunClaimed,
    id::{ClaimId, InstanceId, RunId, RunnerId},
    problem::{Code, Problem},
    protocol::{
        append::sha256_hex,
        renew::{Gateway, Renew, Renewed},
    },
    secret::Secret,
    time::Timestamp,
};
use rusqlite::{Connection, OptionalExtension, params};
use serde::{Deserialize, Serialize};

/// How far a claim is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Hold {
    /// Offered, not confirmed.
    Offered,
    /// Confirmed; its lease may have ended.
    Live,
    /// Given up as lost; revivable until a newer epoch is offered.
    Lost,
    /// The offer lapsed.
    Returned,
    /// It ended with a settlement.
    Settled,
    /// It will not come back.
    Fenced,
}

impl Hold {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Offered => "offered",
            Self::Live => "live",
            Self::Lost => "lost",
            Self::Returned => "returned",
            Self::Settled => "settled",
            Self::Fenced => "fenced",
        }
    }
}

/// Why claims end without their holder saying so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    /// Nobody renewed.
    Silent,
    /// The runner started again and does not know the claim.
    Forgotten,
    /// The runner was revoked.
    Revoked,
    /// The runner's principal may not hold it any more.
    Unentitled,
}

/// A claim's row.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) id: ClaimId,
    pub(super) session: i64,
    pub(super) run_id: RunId,
    pub(super) runner_id: RunnerId,
    pub(super) instance_id: InstanceId,
    pub(super) epoch: u64,
    pub(super) attempt: u32,
    pub(super) hold: Hold,
    pub(super) lease_until: Timestamp,
    pub(super) next_index: u64,
    pub(super) settled: Option<String>,
}

/// The claims of a query over `claims`, whose text after `from claims` is `rest`.
pub(super) fn select(
    conn: &Connection,
    rest: &str,
    arguments: &[&dyn rusqlite::ToSql],
) -> Result<Vec<Held>, store::Error> {
    let mut statement = conn.prepare_cached(&format!(
        "select id, session, run_id, runner_id, instance_id, epoch, attempt, state, lease_until, next_index, settled \
         from claims {rest}"
    ))?;
    let rows = statement.query_map(arguments, |row| {
        let ids: (String, i64, String, String, String) =
            (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?);
        let rest: (i64, u32, String, i64, i64, Option<String>) =
            (row.get(5)?, row.get(6)?, row.get(7)?, row.get(8)?, row.get(9)?, row.get(10)?);
        Ok((ids, rest))
    })?;
    rows.map(|row| {
        let ((id, session, run, runner, instance), (epoch, attempt, hold, lease, next, settled)) = row?;
        Ok(Held {
            id: log::parsed(&id)?,
            session,
            run_id: log::parsed(&run)?,
            runner_id: log::parsed(&runner)?,
            instance_id: log::parsed(&instance)?,
            epoch: epoch.cast_unsigned(),
            attempt,
            hold: serde_json::from_value(hold.into())?,
            lease_until: Timestamp::from_ms(lease),
            next_index: next.cast_unsigned(),
            settled,
        })
    })
    .collect()
}

/// The claim of this caller with this epoch, however far it is.
///
/// # Errors
/// [`Code::Fenced`] when it is another's or has another epoch.
pub(super) fn own(conn: &Connection, caller: &Caller, id: ClaimId, epoch: u64) -> Result<Held, store::Error> {
    let found = select(conn, "where id = ?1", &[&id.to_string()])?.pop();
    let own = found.filter(|held| {
        held.runner_id == caller.runner_id && held.instance_id == caller.instance_id && held.epoch == epoch
    });
    own.ok_or_else(|| fenced().into())
}

/// The live claim of this caller with this epoch: the one gate of every write.
///
/// # Errors
/// [`Code::Fenced`] when it is over, [`Code::ClaimLapsed`] when it was not confirmed.
pub(super) fn fence(
    conn: &Connection,
    caller: &Caller,
    id: ClaimId,
    epoch: u64,
) -> Result<Held, store::Error> {
    let held = own(conn, caller, id, epoch)?;
    match held.hold {
        Hold::Live => Ok(held),
        Hold::Offered => Err(Problem::new(
            Code::ClaimLapsed,
            "This claim is not confirmed. Renew it first; nothing is taken before.",
        )
        .into()),
        Hold::Returned => Err(lapsed().into()),
        Hold::Lost | Hold::Settled | Hold::Fenced => Err(fenced().into()),
    }
}

fn lapsed() -> Problem {
    Problem::new(
        Code::ClaimLapsed,
        "The offer was not confirmed in time and went back. Ask for another claim.",
    )
}

/// Sets how far a claim is.
pub(super) fn set_hold(tx: &Connection, id: ClaimId, hold: Hold) -> Result<(), store::Error> {
    tx.prepare_cached("update claims set state = ?2 where id = ?1")?
        .execute(params![id.to_string(), hold.as_str()])?;
    Ok(())
}

/// An offer goes back to the queue.
pub(super) fn take_back(tx: &Connection, cx: &mut Cx, held: &Held) -> Result<(), store::Error> {
    set_hold(tx, held.id, Hold::Returned)?;
    tx.prepare_cached("update queue set claim = null where claim = ?1")?.execute([held.id.to_string()])?;
    let loaded = log::load_key(tx, held.session)?;
    cx.hints.push(log::Hint { session: loaded.id, head: loaded.state.seq, queue: true, durable: Vec::new() });
    Ok(())
}

/// A live claim is lost: its run goes back to the queue, or is given up.
pub(super) fn lose(tx: &Connection, cx: &mut Cx, held: &Held, loss: Loss) -> Result<(), store::Error> {
    let (hold, counts, reason) = match loss {
        Loss::Silent => (Hold::Lost, true, "its runner was not heard any more"),
        Loss::Forgotten => (Hold::Fenced, true, "its runner started again without it"),
        Loss::Revoked => (Hold::Fenced, false, "its runner was revoked"),
        Loss::Unentitled => (Hold::Fenced, false, "its runner may not hold it any more"),
    };
    set_hold(tx, held.id, hold)?;
    let mut loaded = log::load_key(tx, held.session)?;
    let strays = ledger::strays(tx, &loaded)?;
    let ((), _, hint) = loaded.decide(tx, cx.now, |draft| {
        if let Some(strays) = strays {
            settlement::tell_strays(draft, strays.usage, strays.bill);
        }
        claim::lose(draft, held.epoch, counts, reason);
        Ok(())
    })?;
    if loaded.state.phase() != Some(RunStatus::Queued) {
        set_hold(tx, held.id, Hold::Fenced)?;
    }
    cx.hints.push(hint);
    Ok(())
}

/// Everything a runner holds goes back, but for `kept`.
pub(super) fn release_all(
    tx: &Connection,
    cx: &mut Cx,
    runner: RunnerId,
    kept: &[ClaimId],
    loss: Loss,
) -> Result<(), store::Error> {
    let rest = "where runner_id = ?1 and state in ('offered', 'live', 'lost')";
    for held in select(tx, rest, &[&runner.to_string()])? {
        match held.hold {
            _ if kept.contains(&held.id) => {}
            Hold::Offered => take_back(tx, cx, &held)?,
            Hold::Live => lose(tx, cx, &held, loss)?,
            _ => set_hold(tx, held.id, Hold::Fenced)?,
        }
    }
    Ok(())
}

impl Engine {
    /// Keeps a claim's lease; the first time it confirms the claim, later it may revive a lost one.
    ///
    /// # Errors
    /// [`Code::Fenced`] when it is over, [`Code::ClaimLapsed`] when its offer went back.
    pub async fn renew(&self, caller: Caller, id: ClaimId, request: Renew) -> Result<Renewed, Problem> {
        let session = self
            .change(move |tx, cx| {
                let held = own(tx, &caller, id, request.epoch)?;
                match held.hold {
                    Hold::Live => {}
                    Hold::Offered | Hold::Lost => confirm(tx, cx, &held)?,
                    Hold::Returned => return Err(lapsed().into()),
                    Hold::Settled | Hold::Fenced => return Err(fenced().into()),
                }
                extend(tx, cx, id)?;
                Ok(log::load_key(tx, held.session)?.id)
            })
            .await?;
        let lease_ms = self.tempo().lease_ms;
        Ok(Renewed {
            lease_ms,
            gateway: Gateway {
                base_path: "/v1/gateway".to_owned(),
                token: self.gateway_token(id),
                expires_in_ms: lease_ms,
            },
            watched: self.fanout().watched(session),
        })
    }

    /// The capability of a claim: nobody can guess it, and it need not be kept to be told again.
    pub(super) fn gateway_token(&self, id: ClaimId) -> Secret {
        Secret::new(format!("cap_{}", self.0.key.sign("gateway", &id.to_string())))
    }

    /// What is stored of a claim's capability.
    pub(super) fn gateway_hash(&self, id: ClaimId) -> String {
        sha256_hex(self.gateway_token(id).reveal().as_bytes())
    }

    /// After a start nobody could renew before: every live claim gets one full lease.
    pub(super) async fn grant_full_leases(&self) -> Result<(), Problem> {
        self.change(|tx, cx| {
            let until = cx.now.plus_ms(ms(cx.tempo.lease_ms)).as_ms();
            tx.execute("update claims set lease_until = max(lease_until, ?1) where state = 'live'", [until])?;
            Ok(())
        })
        .await
    }
}

/// Gives a live claim one full lease from now on.
pub(super) fn extend(tx: &Connection, cx: &Cx, id: ClaimId) -> Result<(), store::Error> {
    tx.prepare_cached("update claims set lease_until = ?2 where id = ?1")?
        .execute(params![id.to_string(), cx.now.plus_ms(ms(cx.tempo.lease_ms)).as_ms()])?;
    Ok(())
}

/// Makes an offered or lost claim live, unless the session went on without it.
pub(super) fn confirm(tx: &Connection, cx: &mut Cx, held: &Held) -> Result<(), store::Error> {
    let mut loaded: Loaded = log::load_key(tx, held.session)?;
    let attempt = waiting_attempt(&loaded, held).ok_or_else(fenced)?;
    let claimed = RunClaimed { runner_id: held.runner_id, claim_id: held.id, epoch: held.epoch, attempt };
    let ((), _, hint) = loaded.decide(tx, cx.now, |draft| {
        claim::confirm(draft, claimed);
        Ok(())
    })?;
    cx.hints.push(hint);
    set_hold(tx, held.id, Hold::Live)?;
    tx.prepare_cached("update sessions set sandbox_runner = ?2 where key = ?1")?
        .execute(params![loaded.key, held.runner_id.to_string()])?;
    Ok(())
}

/// The attempt that a confirmation would start; `None` when the run is not this claim's to take any more.
pub(super) fn waiting_attempt(loaded: &Loaded, held: &Held) -> Option<u32> {
    let run = loaded.state.run.as_ref()?;
    let fits =
        loaded.epoch == held.epoch && run.record.id == held.run_id && run.record.status == RunStatus::Queued;
    fits.then_some(run.record.attempt)
}

/// The claim with this request id of this runner.
pub(super) fn by_request(
    conn: &Connection,
    runner: RunnerId,
    request_id: &str,
) -> Result<Option<Held>, store::Error> {
    let rest = "where runner_id = ?1 and request_id = ?2";
    Ok(select(conn, rest, &[&runner.to_string(), &request_id])?.pop())
}

/// Whether this start of a runner said that it takes no more work.
pub(super) fn is_closed(conn: &Connection, instance: InstanceId) -> Result<bool, store::Error> {
    let sql = "select 1 from closed_instances where instance_id = ?1";
    let found = conn.prepare_cached(sql)?.query_row([instance.to_string()], |_| Ok(())).optional()?;
    Ok(found.is_some())
}
