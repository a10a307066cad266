//! What a claim's holder has to do, derived from the inputs that wait: nothing is stored of it, so nothing can be lost.
//! History belongs here too: it holds the bodies that directives name.

use super::{
    Caller, Engine, fenced,
    lease::{self, Hold},
    log, reads,
};
use crate::{
    domain::session::{InputKind, State},
    record::EventQuery,
    store,
};
use checkfu_shared::{
    id::{ClaimId, EventId, SessionId},
    problem::Problem,
    protocol::renew::{Directive, Directives, DirectivesRequest},
};
use rusqlite::Connection;
use std::time::Duration;
use tokio::time::Instant;

impl Engine {
    /// Hangs until there is something to do, at most `wait_ms`. Extends nothing.
    ///
    /// # Errors
    /// [`checkfu_shared::problem::Code::Fenced`] when the claim is over.
    pub async fn directives(
        &self,
        caller: Caller,
        id: ClaimId,
        request: DirectivesRequest,
    ) -> Result<Directives, Problem> {
        let wait = Duration::from_millis(request.wait_ms.min(self.tempo().directives_wait_ms));
        let deadline = Instant::now() + wait;
        let session = self.session_of(caller, id, request.epoch).await?;
        let mut head = self.fanout().watch(session);
        loop {
            head.borrow_and_update();
            let asked = request.clone();
            let found = self.store().read(move |conn| look(conn, &caller, id, &asked)).await?;
            if !found.directives.is_empty() {
                return Ok(found);
            }
            tokio::select! {
                changed = head.changed() => if changed.is_err() { return Ok(found) },
                () = tokio::time::sleep_until(deadline) => return Ok(found),
            }
        }
    }

    /// A page of the claim's session log as JSON members, and whether more follow.
    ///
    /// # Errors
    /// [`checkfu_shared::problem::Code::Fenced`] when the claim is over.
    pub async fn history(
        &self,
        caller: Caller,
        id: ClaimId,
        epoch: u64,
        after_seq: u64,
        limit: u32,
    ) -> Result<(Vec<String>, bool), Problem> {
        let session = self.session_of(caller, id, epoch).await?;
        let limit = limit.clamp(1, 1_000);
        let query = EventQuery { after_seq: Some(after_seq), limit, ..EventQuery::default() };
        let read = move |conn: &Connection| {
            let page = reads::events(conn, session, &query)?;
            let last = page.last().map_or(after_seq, |event| event.seq);
            let head = log::load(conn, session)?.map_or(last, |loaded| loaded.state.seq);
            Ok((page.into_iter().map(|event| event.json).collect(), last < head))
        };
        Ok(self.store().read(read).await?)
    }

    async fn session_of(&self, caller: Caller, id: ClaimId, epoch: u64) -> Result<SessionId, Problem> {
        let read = move |conn: &Connection| {
            let held = lease::own(conn, &caller, id, epoch)?;
            if !matches!(held.hold, Hold::Offered | Hold::Live) {
                return Err(fenced().into());
            }
            Ok(log::load_key(conn, held.session)?.id)
        };
        Ok(self.store().read(read).await?)
    }
}

fn look(
    conn: &Connection,
    caller: &Caller,
    id: ClaimId,
    request: &DirectivesRequest,
) -> Result<Directives, store::Error> {
    let cancel = |reason: &str| Directives {
        directives: vec![Directive::Cancel { reason: reason.to_owned() }],
        after: request.after,
    };
    let sql = "select revoked_at is not null from runners where id = ?1";
    if conn.prepare_cached(sql)?.query_row([caller.runner_id.to_string()], |row| row.get(0))? {
        return Ok(cancel("revoked"));
    }
    let Some(held) = lease::select(conn, "where id = ?1", &[&id.to_string()])?.pop() else {
        return Ok(cancel("deleted"));
    };
    if !matches!(held.hold, Hold::Offered | Hold::Live) {
        return Err(fenced().into());
    }
    let loaded = log::load_key(conn, held.session)?;
    if loaded.archived_at.is_some() {
        return Ok(cancel("archived"));
    }
    Ok(derive(&loaded.state, request.after))
}

/// What the waiting inputs later than `after` ask for.
fn derive(state: &State, after: u64) -> Directives {
    let fresh = || state.waiting.iter().filter(|input| input.seq > after);
    let said: Vec<EventId> =
        fresh().filter(|input| input.kind != InputKind::Interrupt).map(|input| input.id).collect();
    let mut directives = Vec::new();
    if fresh().any(|input| input.kind == InputKind::Interrupt) {
        directives.push(Directive::Interrupt { thread_id: None });
    }
    if !said.is_empty() {
        directives.push(Directive::Inputs { event_ids: said });
    }
    Directives { directives, after: fresh().map(|input| input.seq).max().unwrap_or(after) }
}
