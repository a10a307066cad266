//! The claim poll: a runner with a free slot hangs here until a run fits it. The epoch is minted with the offer.

use super::{
    Caller, Cx, Engine,
    lease::{self, Held, Hold},
    log::{self, Loaded},
    ms, offer, tokens,
};
use crate::{gateway::catalogue, registry::routes, store};
use checkfu_shared::{
    id::{ClaimId, WorkspaceId},
    problem::Problem,
    protocol::{
        Tempo,
        claim::{Claim, ClaimReply, ClaimRequest, ContextLimits, Notice, SettlementLimits},
    },
    time::Timestamp,
};
use rusqlite::{Connection, OptionalExtension, params};
use std::time::Duration;
use tokio::time::Instant;

/// What a look at the queue came to.
enum Look {
    /// Answer now.
    Answer(Box<ClaimReply>),
    /// Something fits: try to take it.
    Take,
    /// Sandboxes of this runner can go.
    Dispose,
    /// Nothing fits; whether the runner is to drain.
    Wait { draining: bool },
}

impl Engine {
    /// Offers a run to this runner, at most `wait_ms` after the request.
    ///
    /// # Errors
    /// When the runner was revoked meanwhile, or the store cannot be used.
    pub async fn claim(&self, caller: Caller, request: ClaimRequest) -> Result<ClaimReply, Problem> {
        let mut reply = self.offer(caller, request).await?;
        if let Some(claim) = &mut reply.claim {
            claim.context.compact_at_percent = self.0.compact_at_percent;
        }
        Ok(reply)
    }

    async fn offer(&self, caller: Caller, request: ClaimRequest) -> Result<ClaimReply, Problem> {
        let wait = Duration::from_millis(request.wait_ms.min(self.tempo().poll_wait_ms));
        let deadline = Instant::now() + wait;
        let mut queue = self.0.wakes.queue.subscribe();
        self.note_labels(caller, &request).await?;
        let mut drained_before = None;
        loop {
            queue.borrow_and_update();
            match self.look(caller, &request).await? {
                Look::Answer(reply) => return Ok(*reply),
                Look::Take => {
                    if let Some(reply) = self.take(caller, &request).await? {
                        return Ok(reply);
                    }
                }
                Look::Dispose => return self.dispose(caller).await,
                Look::Wait { draining } => {
                    if draining && drained_before == Some(false) {
                        return Ok(self.empty_reply(true));
                    }
                    drained_before = Some(draining);
                    tokio::select! {
                        changed = queue.changed() => if changed.is_err() { return Ok(self.empty_reply(draining)) },
                        () = tokio::time::sleep_until(deadline) => return Ok(self.empty_reply(draining)),
                    }
                }
            }
        }
    }

    fn empty_reply(&self, draining: bool) -> ClaimReply {
        let notices = draining.then_some(Notice::Drain).into_iter().collect();
        ClaimReply { claim: None, lapsed: false, notices, tempo: self.tempo() }
    }

    /// Tells the runner which sandboxes it can remove. A reply that is lost costs time only: its inventory asks again.
    async fn dispose(&self, caller: Caller) -> Result<ClaimReply, Problem> {
        self.change(move |tx, cx| {
            let sql = "delete from disposals where runner_id = ?1 returning session_id";
            let mut statement = tx.prepare_cached(sql)?;
            let rows = statement.query_map([caller.runner_id.to_string()], |row| row.get::<_, String>(0))?;
            let notices = rows.map(|session| Ok(Notice::Dispose { session_id: log::parsed(&session?)? }));
            let notices = notices.collect::<Result<_, store::Error>>()?;
            Ok(ClaimReply { claim: None, lapsed: false, notices, tempo: cx.tempo })
        })
        .await
    }

    async fn look(&self, caller: Caller, request: &ClaimRequest) -> Result<Look, Problem> {
        let (request, tempo, now) = (request.clone(), self.tempo(), self.now());
        Ok(self.store().read(move |conn| look(conn, &caller, &request, &tempo, now)).await?)
    }

    async fn take(&self, caller: Caller, request: &ClaimRequest) -> Result<Option<ClaimReply>, Problem> {
        let (request, id) = (request.clone(), ClaimId::mint());
        // One claim has one epoch, so binding the capability to the claim binds it to the epoch.
        let hash = self.gateway_hash(id);
        self.change(move |tx, cx| take(tx, cx, &caller, &request, id, &hash)).await
    }

    /// A runner may call itself more than its pairing did; the waiting reasons must know.
    async fn note_labels(&self, caller: Caller, request: &ClaimRequest) -> Result<(), Problem> {
        let mut labels = request.labels.clone();
        labels.sort();
        labels.dedup();
        let (runner, said) = (caller.runner_id.to_string(), serde_json::json!(labels).to_string());
        let (looked, same) = (runner.clone(), said.clone());
        let read = move |conn: &Connection| {
            let sql = "select said_labels = ?2 from runners where id = ?1";
            Ok(conn.query_row(sql, params![looked, same], |row| row.get::<_, bool>(0)).optional()?)
        };
        if self.store().read(read).await? == Some(false) {
            self.change(move |tx, _| {
                tx.execute("update runners set said_labels = ?2 where id = ?1", params![runner, said])?;
                Ok(())
            })
            .await?;
        }
        Ok(())
    }
}

fn look(
    conn: &Connection,
    caller: &Caller,
    request: &ClaimRequest,
    tempo: &Tempo,
    now: Timestamp,
) -> Result<Look, store::Error> {
    let reason: Option<String> = conn
        .prepare_cached("select revoked_reason from runners where id = ?1")?
        .query_row([caller.runner_id.to_string()], |row| row.get(0))?;
    if let Some(reason) = reason {
        return Err(tokens::revoked(&reason).into());
    }
    if let Some(reply) = known(conn, caller, request, tempo)? {
        return Ok(Look::Answer(Box::new(reply)));
    }
    let Some((runner, owner)) = offer::candidate(conn, caller.runner_id)? else {
        return Ok(Look::Wait { draining: true });
    };
    let sql = "select exists (select 1 from disposals where runner_id = ?1)";
    if conn.prepare_cached(sql)?.query_row([caller.runner_id.to_string()], |row| row.get(0))? {
        return Ok(Look::Dispose);
    }
    let fits = request.free_slots > 0 && offer::pick(conn, &runner, owner, tempo, now)?.is_some();
    Ok(if fits { Look::Take } else { Look::Wait { draining: runner.is_barred() } })
}

/// The answer that needs no choice: a closed instance, or a request that was answered before.
fn known(
    conn: &Connection,
    caller: &Caller,
    request: &ClaimRequest,
    tempo: &Tempo,
) -> Result<Option<ClaimReply>, store::Error> {
    let empty = ClaimReply { claim: None, lapsed: false, notices: Vec::new(), tempo: *tempo };
    if lease::is_closed(conn, request.instance_id)? {
        return Ok(Some(empty));
    }
    let Some(held) = lease::by_request(conn, caller.runner_id, &request.request_id.to_string())? else {
        return Ok(None);
    };
    if matches!(held.hold, Hold::Offered | Hold::Live) && held.instance_id == caller.instance_id {
        let claim = wire(conn, &log::load_key(conn, held.session)?, &held, tempo)?;
        return Ok(Some(ClaimReply { claim: Some(claim), ..empty }));
    }
    Ok(Some(ClaimReply { lapsed: true, ..empty }))
}

fn take(
    tx: &Connection,
    cx: &mut Cx,
    caller: &Caller,
    request: &ClaimRequest,
    id: ClaimId,
    gateway_hash: &str,
) -> Result<Option<ClaimReply>, store::Error> {
    if let Some(reply) = known(tx, caller, request, &cx.tempo)? {
        return Ok(Some(reply));
    }
    let Some((runner, owner)) = offer::candidate(tx, caller.runner_id)? else { return Ok(None) };
    let Some(session) = offer::pick(tx, &runner, owner, &cx.tempo, cx.now)? else { return Ok(None) };
    let loaded = log::load_key(tx, session)?;
    let Some(run) = &loaded.state.run else { return Ok(None) };
    let held = Held {
        id,
        session,
        run_id: run.record.id,
        runner_id: caller.runner_id,
        instance_id: caller.instance_id,
        epoch: loaded.epoch + 1,
        attempt: run.record.attempt,
        hold: Hold::Offered,
        lease_until: cx.now,
        next_index: 0,
        settled: None,
    };
    tx.prepare_cached(
        "insert into claims (id, session, run_id, runner_id, instance_id, request_id, epoch, attempt, state, \
         offered_until, lease_until, gateway_hash) values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 'offered', ?9, ?10, ?11)",
    )?
    .execute(params![
        id.to_string(),
        session,
        held.run_id.to_string(),
        held.runner_id.to_string(),
        held.instance_id.to_string(),
        request.request_id.to_string(),
        held.epoch.cast_signed(),
        held.attempt,
        cx.now.plus_ms(ms(cx.tempo.offer_ms)).as_ms(),
        held.lease_until.as_ms(),
        gateway_hash,
    ])?;
    tx.prepare_cached("update sessions set epoch = ?2 where key = ?1")?
        .execute(params![session, held.epoch.cast_signed()])?;
    tx.prepare_cached("update queue set claim = ?2 where session = ?1")?
        .execute(params![session, id.to_string()])?;
    // A newer epoch is out: what was lost before cannot be revived any more.
    tx.prepare_cached("update claims set state = 'fenced' where session = ?1 and state = 'lost'")?
        .execute([session])?;
    let claim = wire(tx, &loaded, &held, &cx.tempo)?;
    Ok(Some(ClaimReply { claim: Some(claim), lapsed: false, notices: Vec::new(), tempo: cx.tempo }))
}

/// The claim as a runner sees it.
pub(super) fn wire(
    conn: &Connection,
    loaded: &Loaded,
    held: &Held,
    tempo: &Tempo,
) -> Result<Claim, store::Error> {
    let definition = &loaded.definition;
    let mut agent = definition.agent.clone();
    if definition.instructions.is_some() {
        agent.system = definition.instructions.clone();
    }
    let window_tokens = window_tokens(conn, loaded.workspace_id, &agent.model.id)?;
    Ok(Claim {
        id: held.id,
        epoch: held.epoch,
        attempt: held.attempt,
        lease_ms: tempo.lease_ms,
        session_id: loaded.id,
        thread_id: definition.thread_id,
        run_id: held.run_id,
        agent,
        environment_id: definition.environment_id,
        environment_revision: definition.environment_revision,
        environment: definition.environment.clone(),
        last_seq: loaded.state.seq,
        settlement: SettlementLimits::default(),
        context: ContextLimits {
            window_tokens: window_tokens.unwrap_or_else(|| ContextLimits::default().window_tokens),
            ..ContextLimits::default()
        },
    })
}

/// How many tokens the model takes: of a route the fewest that any of its candidates takes.
fn window_tokens(
    conn: &Connection,
    workspace: WorkspaceId,
    model: &str,
) -> Result<Option<u64>, store::Error> {
    let known = |model: &str| catalogue::entry(model).map(|entry| entry.context_window_tokens);
    let Some(route) = routes::named(conn, workspace, model)? else { return Ok(known(model)) };
    let windows = route.candidates.iter();
    Ok(windows
        .filter_map(|candidate| candidate.context_window_tokens.or_else(|| known(&candidate.model)))
        .min())
}
