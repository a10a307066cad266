//! Events and deltas of a claim's holder: each event is logged exactly once, in order, whatever is repeated.

use super::{
    Caller, Cx, Engine,
    lease::{self, Held},
    ledger, log,
};
use crate::{domain, fanout::Preview, store};
use checkfu_shared::{
    event::{Bill, Body, ModelUsage},
    id::{ClaimId, EventId, SessionId},
    problem::{Code, Problem},
    protocol::append::{
        AppendReply, AppendRequest, Appended, BATCH_EVENTS_MAX, Decision, Deltas, EVENT_BYTES_MAX, Misfit,
        digest_of, place, runner_may_append,
    },
};
use rusqlite::{Connection, OptionalExtension, params};
use serde_json::Value;
use std::collections::HashMap;

type Logged = HashMap<u64, (EventId, String, Option<Decision>)>;

impl Engine {
    /// Logs a batch. What of it is logged already must be the same; the rest is added.
    ///
    /// # Errors
    /// [`Code::Fenced`], [`Code::EventsGap`], [`Code::EventsConflict`], [`Code::PermissionDenied`] for a kind that a
    /// runner may not append, [`Code::TooLarge`].
    pub async fn append(
        &self,
        caller: Caller,
        id: ClaimId,
        request: AppendRequest,
    ) -> Result<AppendReply, Problem> {
        check_sizes(&request.events)?;
        let digests: Vec<(EventId, String)> =
            request.events.iter().map(|event| (event.id, digest_of(event))).collect();
        let (session, mut reply) =
            self.change(move |tx, cx| append(tx, cx, &caller, id, request, &digests)).await?;
        reply.watched = self.fanout().watched(session);
        Ok(reply)
    }

    /// Forwards a part of a message that is still being written to whoever watches.
    ///
    /// # Errors
    /// [`Code::Fenced`] when the claim is over.
    pub async fn deltas(&self, caller: Caller, id: ClaimId, deltas: Deltas) -> Result<(), Problem> {
        let epoch = deltas.epoch;
        let session = self
            .store()
            .read(move |conn| {
                let held = lease::fence(conn, &caller, id, epoch)?;
                Ok(log::load_key(conn, held.session)?.id)
            })
            .await?;
        let Deltas { event_id, offset, text, .. } = deltas;
        self.fanout().preview(session, Preview { event_id, thread_id: None, offset, text });
        Ok(())
    }
}

fn check_sizes(events: &[Appended]) -> Result<(), Problem> {
    if events.len() > BATCH_EVENTS_MAX {
        return Err(Problem::new(
            Code::TooLarge,
            format!("A batch holds at most {BATCH_EVENTS_MAX} events. Split it."),
        ));
    }
    for event in events {
        if !runner_may_append(&event.body) {
            return Err(Problem::new(
                Code::PermissionDenied,
                format!("A runner may not append `{}`; only the control plane does.", event.body.kind()),
            ));
        }
        let bytes = serde_json::to_vec(event).map_or(usize::MAX, |json| json.len());
        if bytes > EVENT_BYTES_MAX {
            return Err(Problem::new(
                Code::TooLarge,
                format!(
                    "Event {} has {bytes} bytes; at most {EVENT_BYTES_MAX} are taken. Shorten it.",
                    event.id
                ),
            ));
        }
    }
    Ok(())
}

fn append(
    tx: &Connection,
    cx: &mut Cx,
    caller: &Caller,
    id: ClaimId,
    request: AppendRequest,
    digests: &[(EventId, String)],
) -> Result<(SessionId, AppendReply), store::Error> {
    let held = lease::fence(tx, caller, id, request.epoch)?;
    let count = digests.len() as u64;
    let logged = logged(tx, id, request.first, request.first.saturating_add(count))?;
    let known = place(held.next_index, request.first, digests, |index| {
        logged.get(&index).map(|(event, digest, _)| (*event, digest.clone()))
    })
    .map_err(misfit)?;
    let overlap = request.first..request.first.saturating_add(known as u64);
    let mut decisions: Vec<Decision> = overlap
        .filter_map(|index| logged.get(&index).and_then(|(_, _, decision)| decision.clone()))
        .collect();
    let mut loaded = log::load_key(tx, held.session)?;
    let fresh: Vec<Appended> = request.events.into_iter().skip(known).collect();
    let acked = held.next_index + fresh.len() as u64;
    if !fresh.is_empty() {
        let metered = metered(tx, held.session, &fresh)?;
        let proposals = proposals(tx, held.session, &fresh)?;
        let (made, _, hint) = loaded.decide(tx, cx.now, |draft| {
            let told = fresh.into_iter().zip(metered).zip(proposals);
            told.map(|((event, usage), proposal)| domain::append::append(draft, event, usage, proposal))
                .collect::<Result<Vec<_>, _>>()
        })?;
        cx.hints.push(hint);
        number(tx, &held, &digests[known..], &made)?;
        decisions.extend(made.into_iter().flatten());
    }
    Ok((loaded.id, AppendReply { acked, last_seq: loaded.state.seq, decisions, watched: false }))
}

/// What is logged of this claim under these indexes.
fn logged(tx: &Connection, claim: ClaimId, from: u64, to: u64) -> Result<Logged, store::Error> {
    let mut statement = tx.prepare_cached(
        "select idx, event_id, digest, decision from claim_events where claim = ?1 and idx >= ?2 and idx < ?3",
    )?;
    let range = params![claim.to_string(), from.cast_signed(), to.cast_signed()];
    let rows = statement.query_map(range, |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, row.get(2)?, row.get::<_, Option<String>>(3)?))
    })?;
    rows.map(|row| {
        let (index, event, digest, decision) = row?;
        let decision = decision.map(|text| serde_json::from_str(&text)).transpose()?;
        Ok((index.cast_unsigned(), (log::parsed(&event)?, digest, decision)))
    })
    .collect()
}

fn number(
    tx: &Connection,
    held: &Held,
    digests: &[(EventId, String)],
    decisions: &[Option<Decision>],
) -> Result<(), store::Error> {
    let claim = held.id.to_string();
    let mut insert = tx.prepare_cached(
        "insert into claim_events (claim, idx, event_id, digest, decision) values (?1, ?2, ?3, ?4, ?5)",
    )?;
    let mut index = held.next_index;
    for ((event, digest), decision) in digests.iter().zip(decisions) {
        let decision = decision.as_ref().map(serde_json::to_string).transpose()?;
        insert.execute(params![claim, index.cast_signed(), event.to_string(), digest, decision])?;
        index += 1;
    }
    tx.prepare_cached("update claims set next_index = ?2 where id = ?1")?
        .execute(params![claim, index.cast_signed()])?;
    Ok(())
}

/// The gateway's own numbers for the model requests that end in this batch; each is told once.
fn metered(
    tx: &Connection,
    session: i64,
    events: &[Appended],
) -> Result<Vec<Option<(ModelUsage, Bill)>>, store::Error> {
    let mut metered = Vec::with_capacity(events.len());
    for event in events {
        let request = event.model_request_id.as_ref();
        let request = request.filter(|_| matches!(event.body, Body::SpanModelRequestEnd { .. }));
        let taken = match request {
            Some(request) => ledger::take(tx, session, request)?,
            None => None,
        };
        metered.push(taken.map(|metered| (metered.usage, metered.bill)));
    }
    Ok(metered)
}

/// The frozen arguments of the calls that this batch resumes and that an approval was made of.
fn proposals(tx: &Connection, session: i64, events: &[Appended]) -> Result<Vec<Option<Value>>, store::Error> {
    let mut select =
        tx.prepare_cached("select arguments from action_approvals where session = ?1 and tool_use_id = ?2")?;
    let mut found = Vec::with_capacity(events.len());
    for event in events {
        let arguments: Option<String> = match &event.body {
            Body::AgentToolResumed { tool_use_id, .. } => {
                select.query_row(params![session, tool_use_id.to_string()], |row| row.get(0)).optional()?
            }
            _ => None,
        };
        found.push(arguments.map(|text| serde_json::from_str(&text)).transpose()?);
    }
    Ok(found)
}

fn misfit(misfit: Misfit) -> Problem {
    match misfit {
        Misfit::Gap { expected, .. } => Problem::new(
            Code::EventsGap,
            format!("The batch skips events: index {expected} comes next. Send from there."),
        )
        .with("expected", expected),
        Misfit::Conflict { index } => Problem::new(
            Code::EventsConflict,
            format!("Index {index} is logged with another event. Read the history and go on after it."),
        )
        .with("index", index),
    }
}
