//! Pairings: minting a code, redeeming it once, and what wrong tries cost. A code's secret is kept as a keyed digest only.

use super::{
    Engine, log, replay,
    tokens::{Signed, revoked},
};
use crate::{
    audit::{self, Outcome},
    domain::pairing::{self, Offered, PairingCode, Try},
    record::{MintedPairing, NewPairing, Replay},
    store,
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use checkfu_shared::{
    id::{PairingId, RunnerId},
    problem::{Code, Problem},
    protocol::pairing::{Pair, Paired},
    secret::Secret,
    time::Timestamp,
};
use rusqlite::{Connection, OptionalExtension, params};
use std::net::IpAddr;

/// How long a wrong try counts.
const MISS_WINDOW_MS: i64 = 60_000;
/// The longest time that a code is good for.
const TTL_SECONDS_MAX: u32 = 3_600;
/// The longest name of a runner, in characters.
const NAME_CHARS: usize = 100;

struct Row {
    id: String,
    offered: Offered,
    runner_id: Option<String>,
    secret_hmac: String,
    name: Option<String>,
    labels: String,
    max_sessions: Option<u32>,
}

impl Engine {
    /// Mints a pairing code; with `replay`, a repetition gets the same pairing without its code.
    ///
    /// # Errors
    /// [`Code::InvalidRequest`] for a time outside 1 to 3600 s; [`Code::IdempotencyConflict`]; when the store cannot be written.
    pub async fn mint_pairing(
        &self,
        new: NewPairing,
        replay: Option<Replay>,
    ) -> Result<MintedPairing, Problem> {
        if !(1..=TTL_SECONDS_MAX).contains(&new.ttl_seconds) {
            return Err(Problem::new(Code::InvalidRequest, "`ttl_seconds` must be from 1 to 3600."));
        }
        let no_random = |_| Problem::new(Code::Internal, "The server has no random bytes now. Try again.");
        for _ in 0..16 {
            let code = PairingCode::from_random(self.0.key.random::<12>().map_err(no_random)?);
            let secret_hmac = self.0.key.sign("pairing", &code.secret);
            let (new, replay) = (new.clone(), replay.clone());
            // The answer is kept with the pairing: a crash in between would let a repetition mint a second code.
            let minted = self.change(move |tx, cx| {
                if let Some(first) = replay::find::<MintedPairing>(tx, replay.as_ref(), cx.now)? {
                    return Ok(Some(first));
                }
                let Some(minted) = insert(tx, &new, &code, &secret_hmac, cx.now)? else { return Ok(None) };
                replay::keep(tx, replay.as_ref(), cx.now, &minted)?;
                Ok(Some(minted))
            });
            if let Some(minted) = minted.await? {
                return Ok(minted);
            }
        }
        Err(Problem::new(
            Code::Overloaded,
            "Too many pairing codes are open. Wait until some are past their time.",
        ))
    }

    /// Redeems a code. `authority` is the host and port that the runner sees the server at.
    ///
    /// # Errors
    /// [`Code::PairingCodeInvalid`], [`Code::PairingCodeExpired`], [`Code::RateLimited`] or [`Code::Unauthenticated`].
    pub async fn pair(&self, request: Pair, authority: &str, peer: IpAddr) -> Result<Paired, Problem> {
        self.check_signature(&Signed {
            purpose: "pair",
            authority,
            subject: &request.public_key,
            instance: request.instance_id,
            nonce: &request.nonce,
            public_key: &request.public_key,
            signature: &request.signature,
        })?;
        let code = PairingCode::parse(request.code.reveal());
        let secret_hmac = code.as_ref().map(|code| self.0.key.sign("pairing", &code.secret));
        let tried = code.zip(secret_hmac).map(|(code, hmac)| (code.selector, hmac));
        let source = pairing::source(peer);
        // A refusal that counts a miss must be kept, so it is a value of the job and not its failure.
        self.change(move |tx, cx| redeem(tx, tried, &request, &source, cx.now)).await?
    }
}

fn insert(
    tx: &Connection,
    new: &NewPairing,
    code: &PairingCode,
    secret_hmac: &str,
    now: Timestamp,
) -> Result<Option<MintedPairing>, store::Error> {
    tx.execute(
        "delete from pairings where selector = ?1 and expires_at <= ?2",
        params![code.selector, now.as_ms()],
    )?;
    let (id, expires_at) = (PairingId::mint(), now.plus_ms(i64::from(new.ttl_seconds) * 1_000));
    let inserted = tx.execute(
        "insert or ignore into pairings (id, workspace_id, principal_id, created_by, selector, secret_hmac, created_at, \
         expires_at, name, labels, max_sessions, ephemeral) values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
        params![
            id.to_string(),
            new.workspace_id.to_string(),
            new.principal_id.to_string(),
            new.created_by.to_string(),
            code.selector,
            secret_hmac,
            now.as_ms(),
            expires_at.as_ms(),
            new.name,
            serde_json::to_string(&new.labels)?,
            new.max_sessions,
            new.ephemeral,
        ],
    )?;
    let code = Some(Secret::new(code.show()));
    Ok((inserted > 0).then_some(MintedPairing { id, code, created_at: now, expires_at }))
}

fn redeem(
    tx: &Connection,
    tried: Option<(String, String)>,
    request: &Pair,
    source: &str,
    now: Timestamp,
) -> Result<Result<Paired, Problem>, store::Error> {
    if let Err(problem) = throttle(tx, source, now)? {
        return Ok(Err(problem));
    }
    let found = match &tried {
        Some((selector, _)) => row(tx, selector)?,
        None => None,
    };
    let Some((row, (_, hmac))) = found.zip(tried) else {
        miss(tx, None, source, now)?;
        return Ok(Err(pairing::wrong()));
    };
    // Both sides are digests under a key that nobody else has, so how long the comparison takes tells nothing.
    let fits = row.secret_hmac == hmac;
    match pairing::judge(&row.offered, fits, &request.public_key, now) {
        Err(problem) => Ok(Err(problem)),
        Ok(Try::Miss) => {
            miss(tx, Some(&row.id), source, now)?;
            Ok(Err(pairing::wrong()))
        }
        Ok(Try::Redeem) => enrol(tx, &row, request, now).map(Ok),
        Ok(Try::Repeat) => repeat(tx, &row),
    }
}

fn throttle(tx: &Connection, source: &str, now: Timestamp) -> Result<Result<(), Problem>, store::Error> {
    let since = now.as_ms() - MISS_WINDOW_MS;
    let (misses, oldest): (u32, Option<i64>) = tx
        .prepare_cached("select count(*), min(at) from pair_misses where source = ?1 and at > ?2")?
        .query_row(params![source, since], |row| Ok((row.get(0)?, row.get(1)?)))?;
    if misses < pairing::SOURCE_MISSES_MAX {
        return Ok(Ok(()));
    }
    let wait_ms = oldest.map_or(MISS_WINDOW_MS, |oldest| oldest - since);
    Ok(Err(Problem::new(
        Code::RateLimited,
        "Too many wrong pairing codes came from this address. Wait a minute, then type the code with care.",
    )
    .with("retry_after_seconds", wait_ms.max(1) / 1_000 + 1)))
}

fn miss(tx: &Connection, id: Option<&str>, source: &str, now: Timestamp) -> Result<(), store::Error> {
    tx.execute("delete from pair_misses where at <= ?1", [now.as_ms() - MISS_WINDOW_MS])?;
    tx.execute("insert into pair_misses (source, at) values (?1, ?2)", params![source, now.as_ms()])?;
    if let Some(id) = id {
        tx.execute("update pairings set misses = misses + 1 where id = ?1", [id])?;
        note(tx, id, "runner_pairing.refused", None, Outcome::Denied, now)?;
    }
    Ok(())
}

/// Tells the audit what became of a pairing, as an act of the principal that the runner is to act as. Wrong codes that name no
/// pairing belong to no workspace; those that do are few, since a pairing is burnt after some.
fn note(
    tx: &Connection,
    pairing: &str,
    action: &str,
    runner: Option<RunnerId>,
    outcome: Outcome,
    now: Timestamp,
) -> Result<(), store::Error> {
    let (workspace, principal): (String, String) = tx
        .prepare_cached("select workspace_id, principal_id from pairings where id = ?1")?
        .query_row([pairing], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let entry = audit::Entry {
        actor: log::parsed(&principal)?,
        action: action.to_owned(),
        resource: runner.map_or_else(|| pairing.to_owned(), |runner| format!("{pairing} {runner}")),
        outcome,
        before_sha256: None,
        after_sha256: None,
        request_id: None,
    };
    audit::append(tx, log::parsed(&workspace)?, now, entry)
}

fn row(tx: &Connection, selector: &str) -> Result<Option<Row>, store::Error> {
    let sql = "select id, misses, expires_at, public_key, runner_id, secret_hmac, name, labels, max_sessions \
               from pairings where selector = ?1";
    let found = tx.prepare_cached(sql)?.query_row([selector], |row| {
        Ok(Row {
            id: row.get(0)?,
            offered: Offered {
                misses: row.get(1)?,
                expires_at: Timestamp::from_ms(row.get(2)?),
                redeemed_by: row.get(3)?,
            },
            runner_id: row.get(4)?,
            secret_hmac: row.get(5)?,
            name: row.get(6)?,
            labels: row.get(7)?,
            max_sessions: row.get(8)?,
        })
    });
    Ok(found.optional()?)
}

fn enrol(tx: &Connection, row: &Row, request: &Pair, now: Timestamp) -> Result<Paired, store::Error> {
    let key = BASE64_STANDARD.decode(&request.public_key).map(|key| key.len());
    if key != Ok(32) {
        return Err(Problem::new(Code::InvalidRequest, "`public_key` is no Ed25519 key in base64.").into());
    }
    let said: String = request.name.chars().filter(|c| !c.is_control()).take(NAME_CHARS).collect();
    let name = row
        .name
        .clone()
        .or_else(|| (!said.is_empty()).then_some(said))
        .unwrap_or_else(|| "runner".to_owned());
    let runner_id = RunnerId::mint();
    tx.execute(
        "insert into runners (id, workspace_id, principal_id, pairing_id, public_key, name, labels, max_sessions, \
         ephemeral, host, instance_id, created_at, last_seen) \
         select ?1, workspace_id, principal_id, id, ?2, ?3, labels, max_sessions, ephemeral, ?4, ?5, ?6, ?6 \
         from pairings where id = ?7",
        params![
            runner_id.to_string(),
            request.public_key,
            name,
            serde_json::to_string(&request.host)?,
            request.instance_id.to_string(),
            now.as_ms(),
            row.id
        ],
    )?;
    tx.execute(
        "update pairings set public_key = ?2, runner_id = ?3 where id = ?1",
        params![row.id, request.public_key, runner_id.to_string()],
    )?;
    note(tx, &row.id, "runner.paired", Some(runner_id), Outcome::Done, now)?;
    Ok(Paired { runner_id, name, max_sessions: row.max_sessions, labels: serde_json::from_str(&row.labels)? })
}

fn repeat(tx: &Connection, row: &Row) -> Result<Result<Paired, Problem>, store::Error> {
    let sql = "select name, revoked_reason from runners where id = ?1";
    let (name, reason): (String, Option<String>) =
        tx.query_row(sql, [row.runner_id.as_deref()], |row| Ok((row.get(0)?, row.get(1)?)))?;
    if let Some(reason) = reason {
        return Ok(Err(revoked(&reason)));
    }
    Ok(Ok(Paired {
        runner_id: log::parsed(row.runner_id.as_deref().unwrap_or_default())?,
        name,
        max_sessions: row.max_sessions,
        labels: serde_json::from_str(&row.labels)?,
    }))
}
