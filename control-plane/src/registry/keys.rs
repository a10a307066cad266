//! API keys: random, shown once, stored as SHA-256 only. Every request looks its key up anew; only the note of its last
//! use is late, by at most a minute.

use super::{
    Filter, NewPrincipal, Once, PrincipalKind, Registry, assignments, instant, maybe_instant, parsed,
    principals,
};
use crate::{
    audit,
    domain::grant::{Grants, Role},
    http::path::not_found,
    store,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use checkfu_shared::{
    id::{KeyId, PrincipalId, WorkspaceId},
    problem::{Code, Problem},
    protocol::append::sha256_hex,
    secret::Secret,
    time::Timestamp,
};
use ring::rand::{SecureRandom, SystemRandom};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::{Value, json};
use std::sync::PoisonError;

const PREFIX: &str = "ck_";
const RANDOM_BYTES: usize = 32;
const HINT_CHARS: usize = 9;
const LAST_USED_MS: i64 = 60_000;
/// How many keys' last uses are remembered between two notes.
const REMEMBERED_MAX: usize = 10_000;

/// A key to be made.
#[derive(Debug, Clone)]
pub struct NewKey {
    /// A name for people.
    pub name: String,
    /// As whom its calls are made.
    pub principal_id: PrincipalId,
    /// When it stops being good.
    pub expires_at: Option<Timestamp>,
}

/// A key as stored; never the key itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRecord {
    /// Its row.
    pub id: KeyId,
    /// A name for people.
    pub name: String,
    /// As whom its calls are made.
    pub principal_id: PrincipalId,
    /// Its first characters.
    pub hint: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it stops being good.
    pub expires_at: Option<Timestamp>,
    /// When it was used last, to the minute.
    pub last_used_at: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
}

impl KeyRecord {
    /// The API's form of it.
    #[must_use]
    pub fn wire(&self) -> Value {
        json!({
            "id": self.id,
            "type": "api_key",
            "name": self.name,
            "principal_id": self.principal_id,
            "hint": self.hint,
            "created_at": self.created_at,
            "expires_at": self.expires_at,
            "last_used_at": self.last_used_at,
            "revoked_at": self.revoked_at,
        })
    }
}

/// Whose key a request carries.
#[derive(Debug, Clone)]
pub struct Authenticated {
    /// The key's row.
    pub id: KeyId,
    /// The tenant.
    pub workspace_id: WorkspaceId,
    /// As whom.
    pub principal_id: PrincipalId,
    /// What the principal may do now.
    pub grants: Grants,
    /// When it was used last, as noted.
    last_used_at: Option<Timestamp>,
}

const COLUMNS: &str =
    "select id, name, principal_id, hint, created_at, expires_at, last_used_at, revoked_at from api_keys";

fn record(row: &Row<'_>) -> rusqlite::Result<KeyRecord> {
    Ok(KeyRecord {
        id: parsed(row, 0)?,
        name: row.get(1)?,
        principal_id: parsed(row, 2)?,
        hint: row.get(3)?,
        created_at: instant(row, 4)?,
        expires_at: maybe_instant(row, 5)?,
        last_used_at: maybe_instant(row, 6)?,
        revoked_at: maybe_instant(row, 7)?,
    })
}

fn insert(
    connection: &Connection,
    workspace: WorkspaceId,
    new: NewKey,
    key: &Secret,
    now: Timestamp,
) -> Result<KeyRecord, store::Error> {
    let made = KeyRecord {
        id: KeyId::mint(),
        name: new.name,
        principal_id: new.principal_id,
        hint: key.reveal().chars().take(HINT_CHARS).collect(),
        created_at: now,
        expires_at: new.expires_at,
        last_used_at: None,
        revoked_at: None,
    };
    connection.execute(
        "insert into api_keys (id, workspace_id, principal_id, name, hint, sha256, created_at, expires_at)
         values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        params![
            made.id.to_string(),
            workspace.to_string(),
            made.principal_id.to_string(),
            made.name,
            made.hint,
            sha256_hex(key.reveal().as_bytes()),
            now.as_ms(),
            made.expires_at.map(Timestamp::as_ms)
        ],
    )?;
    Ok(made)
}

fn look_up(
    connection: &Connection,
    sha256: &str,
    now: Timestamp,
) -> Result<Option<Authenticated>, store::Error> {
    let mut statement = connection.prepare_cached(
        "select k.id, k.workspace_id, k.principal_id, k.last_used_at
           from api_keys k join principals p on p.id = k.principal_id
          where k.sha256 = ?1 and k.revoked_at is null and p.archived_at is null
            and (k.expires_at is null or k.expires_at > ?2)",
    )?;
    let row = statement.query_row(params![sha256, now.as_ms()], |row| {
        Ok(Authenticated {
            id: parsed(row, 0)?,
            workspace_id: parsed(row, 1)?,
            principal_id: parsed(row, 2)?,
            grants: Grants::default(),
            last_used_at: maybe_instant(row, 3)?,
        })
    });
    let Some(mut key) = row.optional()? else { return Ok(None) };
    key.grants = assignments::grants(connection, key.workspace_id, key.principal_id, now)?;
    Ok(Some(key))
}

impl Registry {
    /// A fresh key, good for nothing until it is stored.
    ///
    /// # Errors
    /// When the system gives no random bytes.
    pub fn mint_key() -> Result<Secret, Problem> {
        let mut bytes = [0; RANDOM_BYTES];
        SystemRandom::new()
            .fill(&mut bytes)
            .map_err(|_| Problem::new(Code::Internal, "The system gave no random bytes. Try again."))?;
        Ok(Secret::new(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))))
    }

    /// Whether there is a workspace already.
    ///
    /// # Errors
    /// The store's own failures.
    pub async fn is_started(&self) -> Result<bool, Problem> {
        let work = |connection: &Connection| Ok(connection.prepare("select 1 from workspaces")?.exists([])?);
        Ok(self.store.read(work).await?)
    }

    /// Makes the workspace `default`, its owner `admin` and the owner's key.
    ///
    /// # Errors
    /// The store's own failures.
    pub async fn first_start(&self, key: &Secret, now: Timestamp) -> Result<(), Problem> {
        let key = key.clone();
        let work = move |tx: &rusqlite::Transaction<'_>| {
            let workspace = WorkspaceId::mint();
            tx.execute(
                "insert into workspaces (id, name, created_at) values (?1, 'default', ?2)",
                params![workspace.to_string(), now.as_ms()],
            )?;
            let admin =
                NewPrincipal { name: "admin".to_owned(), kind: PrincipalKind::User, role: Role::Owner };
            let admin = principals::insert(tx, workspace, admin, None, now)?;
            let new = NewKey { name: "first key".to_owned(), principal_id: admin.id, expires_at: None };
            insert(tx, workspace, new, &key, now)?;
            Ok(())
        };
        Ok(self.store.write(work).await?)
    }

    /// Whose key this is.
    ///
    /// # Errors
    /// `unauthenticated` when it is nobody's, revoked or expired.
    pub async fn authenticate(&self, token: &str, now: Timestamp) -> Result<Authenticated, Problem> {
        let sha256 = sha256_hex(token.as_bytes());
        let found = self.store.read(move |connection| look_up(connection, &sha256, now)).await?;
        let key = found.ok_or_else(|| {
            Problem::new(
                Code::Unauthenticated,
                "The API key is not valid: it is unknown, expired or revoked. Use another key.",
            )
        })?;
        if self.is_due(&key, now) {
            let id = key.id.to_string();
            let note = move |tx: &rusqlite::Transaction<'_>| {
                tx.execute("update api_keys set last_used_at = ?2 where id = ?1", params![id, now.as_ms()])?;
                Ok(())
            };
            if let Err(error) = self.store.write(note).await {
                tracing::warn!(key = %key.id, %error, "the last use of a key was not noted");
            }
        }
        Ok(key)
    }

    /// Whether the key is still good, by its row.
    ///
    /// # Errors
    /// The store's own failures.
    pub async fn is_good(&self, key: KeyId, now: Timestamp) -> Result<bool, Problem> {
        let work = move |connection: &Connection| {
            Ok(connection
                .prepare_cached(
                    "select 1 from api_keys k join principals p on p.id = k.principal_id
                      where k.id = ?1 and k.revoked_at is null and p.archived_at is null
                        and (k.expires_at is null or k.expires_at > ?2)",
                )?
                .exists(params![key.to_string(), now.as_ms()])?)
        };
        Ok(self.store.read(work).await?)
    }

    fn is_due(&self, key: &Authenticated, now: Timestamp) -> bool {
        let mut noted = self.last_used.lock().unwrap_or_else(PoisonError::into_inner);
        let last = noted.get(&key.id).copied().max(key.last_used_at);
        let due = last.is_none_or(|last| now.since_ms(last) >= LAST_USED_MS);
        if due {
            if noted.len() >= REMEMBERED_MAX {
                noted.clear();
            }
            noted.insert(key.id, now);
        }
        due
    }

    /// Makes a key. The answer shows it; the answer to a repetition does not.
    ///
    /// # Errors
    /// `idempotency_conflict`; the store's own failures.
    pub async fn create_key(
        &self,
        workspace: WorkspaceId,
        new: NewKey,
        once: Once,
        now: Timestamp,
    ) -> Result<Value, Problem> {
        let (key, act) = (Self::mint_key()?, audit::current());
        let work = move |tx: &rusqlite::Transaction<'_>| {
            if let Some(reply) = once.find(tx, now)? {
                return Ok(serde_json::from_str(&reply)?);
            }
            let mut wire = insert(tx, workspace, new, &key, now)?.wire();
            audit::note(tx, act.as_ref(), now, Some(sha256_hex(wire.to_string().as_bytes())))?;
            once.keep(tx, now, &wire.to_string())?;
            wire["key"] = key.reveal().into();
            Ok(wire)
        };
        Ok(self.store.write(work).await?)
    }

    /// Revokes a key; it is refused from the next request on. A second time changes nothing.
    ///
    /// # Errors
    /// `not_found`; the store's own failures.
    pub async fn revoke_key(
        &self,
        workspace: WorkspaceId,
        id: KeyId,
        now: Timestamp,
    ) -> Result<String, Problem> {
        self.change(Once::NEVER, now, move |tx| {
            tx.execute(
                "update api_keys set revoked_at = coalesce(revoked_at, ?3) where workspace_id = ?1 and id = ?2",
                params![workspace.to_string(), id.to_string(), now.as_ms()],
            )?;
            Ok(find(tx, workspace, id)?.ok_or_else(|| not_found("key"))?.wire())
        })
        .await
    }

    /// One key's row.
    ///
    /// # Errors
    /// The store's own failures.
    pub async fn key(&self, workspace: WorkspaceId, id: KeyId) -> Result<Option<KeyRecord>, Problem> {
        Ok(self.store.read(move |connection| find(connection, workspace, id)).await?)
    }

    /// The keys' rows, newest first; revoked ones count as archived.
    ///
    /// # Errors
    /// The store's own failures.
    pub async fn keys(&self, workspace: WorkspaceId, filter: Filter) -> Result<Vec<KeyRecord>, Problem> {
        self.listed(COLUMNS, "revoked_at", workspace, filter, record).await
    }
}

fn find(
    connection: &Connection,
    workspace: WorkspaceId,
    id: KeyId,
) -> Result<Option<KeyRecord>, store::Error> {
    let mut statement =
        connection.prepare_cached(&format!("{COLUMNS} where workspace_id = ?1 and id = ?2"))?;
    Ok(statement.query_row(params![workspace.to_string(), id.to_string()], record).optional()?)
}
