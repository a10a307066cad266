//! Who a runner is: nonces to sign, tokens to show, and the caller that a token makes. Every request is checked against the
//! store; nothing is cached.

use super::{Engine, log};
use crate::{domain::claim::OFFLINE_MS, store};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use checkfu_shared::{
    id::{InstanceId, PrincipalId, RunnerId, WorkspaceId},
    problem::{Code, Problem},
    protocol::{
        append::{hex, sha256_hex},
        pairing::{Host, Nonce, Token, TokenRequest, signed_bytes},
    },
    secret::Secret,
};
use ring::signature::{ED25519, UnparsedPublicKey};
use rusqlite::{Connection, OptionalExtension, params};

/// How long a token is good for.
const TOKEN_MS: i64 = 3_600_000;
/// How long a nonce is good for.
const NONCE_MS: i64 = 60_000;
/// How long an older token is good after a newer one was used.
const OVERLAP_MS: i64 = 60_000;
/// How exact `last_seen` is.
const SEEN_MS: i64 = 5_000;

/// The runner behind a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// Which runner.
    pub runner_id: RunnerId,
    /// Which start of it.
    pub instance_id: InstanceId,
    /// Whose workspace.
    pub workspace_id: WorkspaceId,
    /// Whose rights it has.
    pub principal_id: PrincipalId,
}

struct Known {
    public_key: String,
    instance: InstanceId,
    host: Host,
    last_seen: i64,
    revoked: Option<String>,
}

impl Engine {
    /// A value to sign, good for a minute; nothing is stored of it.
    #[must_use]
    pub fn nonce(&self) -> Nonce {
        let at = self.now().as_ms().to_string();
        Nonce { nonce: format!("{at}.{}", self.0.key.sign("nonce", &at)) }
    }

    /// Checks that `signature` was made by `public_key` for this server, lately.
    pub(super) fn check_signature(&self, signed: &Signed<'_>) -> Result<(), Problem> {
        let refused = |message: &str| Problem::new(Code::Unauthenticated, message);
        let fresh = signed.nonce.split_once('.').is_some_and(|(at, mac)| {
            let age = at.parse::<i64>().map(|at| self.now().as_ms().saturating_sub(at));
            self.0.key.verifies("nonce", at, mac) && age.is_ok_and(|age| (-NONCE_MS..NONCE_MS).contains(&age))
        });
        if !fresh {
            return Err(refused(
                "The nonce is not one of this server's, or older than a minute. Get a new one.",
            ));
        }
        let decoded =
            BASE64_STANDARD.decode(signed.public_key).ok().zip(BASE64_STANDARD.decode(signed.signature).ok());
        let Some((key, signature)) = decoded else {
            return Err(refused("The public key or the signature is not base64."));
        };
        // A proxy in front may speak TLS for this server, which cannot see that; the host is what is bound.
        let fits = ["http", "https"].iter().any(|scheme| {
            let origin = format!("{scheme}://{}", signed.authority);
            let bytes = signed_bytes(signed.purpose, &origin, signed.subject, signed.instance, signed.nonce);
            UnparsedPublicKey::new(&ED25519, &key).verify(&bytes, &signature).is_ok()
        });
        if fits {
            Ok(())
        } else {
            Err(refused(
                "The signature does not fit this key, this server's address and this nonce. Sign what was asked, or pair again.",
            ))
        }
    }

    /// Gives a runner a token. `authority` is the host and port that it sees the server at.
    ///
    /// # Errors
    /// [`Code::Unauthenticated`], [`Code::RunnerRevoked`], or [`Code::IdentityInUse`] while an instance on another machine
    /// is alive.
    pub async fn token(&self, request: TokenRequest, authority: &str) -> Result<Token, Problem> {
        let runner = request.runner_id;
        let known = self.store().read(move |conn| known(conn, runner)).await?;
        let Some(known) = known else {
            return Err(Problem::new(
                Code::Unauthenticated,
                "No runner with this id is known here. Pair again.",
            ));
        };
        self.check_signature(&Signed {
            purpose: "token",
            authority,
            subject: &runner.to_string(),
            instance: request.instance_id,
            nonce: &request.nonce,
            public_key: &known.public_key,
            signature: &request.signature,
        })?;
        let bytes =
            self.0.key.random::<32>().map_err(|_| Problem::new(Code::Internal, "No random bytes."))?;
        let token = Secret::new(format!("rtok_{}", hex(&bytes)));
        let hash = sha256_hex(token.reveal().as_bytes());
        self.change(move |tx, cx| admit(tx, &request, &hash, cx.now.as_ms())).await?;
        Ok(Token { token, expires_in_ms: TOKEN_MS.cast_unsigned() })
    }

    /// The runner behind a token.
    ///
    /// # Errors
    /// [`Code::Unauthenticated`] or [`Code::RunnerRevoked`].
    pub async fn authenticate(&self, token: &str) -> Result<Caller, Problem> {
        let (hash, now) = (sha256_hex(token.as_bytes()), self.now().as_ms());
        let looked = hash.clone();
        let (caller, stale) = self.store().read(move |conn| look_up(conn, &looked, now)).await?;
        if stale {
            self.change(move |tx, cx| touch(tx, &caller, &hash, cx.now.as_ms())).await?;
        }
        Ok(caller)
    }
}

/// What a signature covers and by whom it should be.
pub(super) struct Signed<'a> {
    pub(super) purpose: &'a str,
    pub(super) authority: &'a str,
    pub(super) subject: &'a str,
    pub(super) instance: InstanceId,
    pub(super) nonce: &'a str,
    pub(super) public_key: &'a str,
    pub(super) signature: &'a str,
}

/// The refusal of a revoked runner, which is its directive to stop.
pub(super) fn revoked(reason: &str) -> Problem {
    Problem::new(
        Code::RunnerRevoked,
        format!(
            "This runner was revoked: {reason}. It stops its sandboxes and takes no more work; pair again to use it."
        ),
    )
}

fn known(conn: &Connection, runner: RunnerId) -> Result<Option<Known>, store::Error> {
    let sql = "select public_key, instance_id, host, last_seen, revoked_reason from runners where id = ?1";
    let row: Option<(String, String, String, i64, Option<String>)> = conn
        .prepare_cached(sql)?
        .query_row([runner.to_string()], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
        })
        .optional()?;
    row.map(|(public_key, instance, host, last_seen, revoked)| {
        Ok(Known {
            public_key,
            instance: log::parsed(&instance)?,
            host: serde_json::from_str(&host)?,
            last_seen,
            revoked,
        })
    })
    .transpose()
}

fn admit(tx: &Connection, request: &TokenRequest, hash: &str, now: i64) -> Result<(), store::Error> {
    let Some(known) = known(tx, request.runner_id)? else {
        return Err(
            Problem::new(Code::Unauthenticated, "No runner with this id is known here. Pair again.").into()
        );
    };
    if let Some(reason) = &known.revoked {
        return Err(revoked(reason).into());
    }
    let another = known.instance != request.instance_id && known.host.machine != request.host.machine;
    if another && now - known.last_seen < OFFLINE_MS {
        return Err(Problem::new(
            Code::IdentityInUse,
            "Another machine uses this runner's identity and was heard less than 45 s ago. Pair this machine on its own; an identity is never copied.",
        )
        .into());
    }
    let (runner, instance) = (request.runner_id.to_string(), request.instance_id.to_string());
    tx.execute(
        "delete from runner_tokens where runner_id = ?1 and instance_id <> ?2",
        params![runner, instance],
    )?;
    tx.execute(
        "insert into runner_tokens (hash, runner_id, instance_id, created_at, expires_at) values (?1, ?2, ?3, ?4, ?5)",
        params![hash, runner, instance, now, now + TOKEN_MS],
    )?;
    tx.execute(
        "update runners set instance_id = ?2, host = ?3, last_seen = ?4 where id = ?1",
        params![runner, instance, serde_json::to_string(&request.host)?, now],
    )?;
    Ok(())
}

fn look_up(conn: &Connection, hash: &str, now: i64) -> Result<(Caller, bool), store::Error> {
    let sql = "select runner_tokens.runner_id, runner_tokens.instance_id, workspace_id, principal_id, expires_at, used, \
               last_seen, revoked_reason from runner_tokens join runners on runners.id = runner_id where hash = ?1";
    type Row = ((String, String, String, String), (i64, bool, i64, Option<String>));
    let row: Option<Row> = conn
        .prepare_cached(sql)?
        .query_row([hash], |row| {
            Ok((
                (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?),
                (row.get(4)?, row.get(5)?, row.get(6)?, row.get(7)?),
            ))
        })
        .optional()?;
    let unknown = || {
        Problem::new(
            Code::Unauthenticated,
            "The runner token is not valid any more. Get a new one with a signature.",
        )
    };
    let Some(((runner, instance, workspace, principal), (expires, used, seen, reason))) = row else {
        return Err(unknown().into());
    };
    if let Some(reason) = reason {
        return Err(revoked(&reason).into());
    }
    if now >= expires {
        return Err(unknown().into());
    }
    let caller = Caller {
        runner_id: log::parsed(&runner)?,
        instance_id: log::parsed(&instance)?,
        workspace_id: log::parsed(&workspace)?,
        principal_id: log::parsed(&principal)?,
    };
    Ok((caller, !used || now - seen >= SEEN_MS))
}

fn touch(tx: &Connection, caller: &Caller, hash: &str, now: i64) -> Result<(), store::Error> {
    let runner = caller.runner_id.to_string();
    tx.execute("update runners set last_seen = max(last_seen, ?2) where id = ?1", params![runner, now])?;
    let first = tx.execute("update runner_tokens set used = 1 where hash = ?1 and used = 0", [hash])?;
    if first > 0 {
        tx.execute(
            "update runner_tokens set expires_at = min(expires_at, ?3) where runner_id = ?1 and hash <> ?2 \
             and created_at < (select created_at from runner_tokens where hash = ?2)",
            params![runner, hash, now + OVERLAP_MS],
        )?;
    }
    Ok(())
}
