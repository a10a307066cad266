//! Model providers in the store. Their keys go in and never come out: they are sealed in the transaction that takes them,
//! and only [`Registry::unsealed`] opens one, for the gateway.

use super::{Filter, Once, Registry, archived, instant, maybe_instant, parsed};
use crate::{
    gateway::provider::Kind,
    http::{fields::Patch, path::not_found, reply},
    seal::{self, Seals},
    store,
};
use checkfu_shared::{
    id::{ProviderId, WorkspaceId},
    problem::{Code, Problem},
    secret::Secret,
    time::Timestamp,
};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::{Value, json};

/// A provider to be made.
#[derive(Debug, Clone)]
pub struct NewProvider {
    /// A name, unique in the workspace.
    pub name: String,
    /// What it speaks.
    pub kind: Kind,
    /// Its base address.
    pub base_url: String,
    /// Its key, when it wants one.
    pub key: Option<Secret>,
    /// Whether it may lie in a private network.
    pub allow_private: bool,
}

/// What an update changes; `None` leaves a member as it is.
#[derive(Debug, Clone)]
pub struct ProviderPatch {
    /// The new name.
    pub name: Option<String>,
    /// The new base address. The key has to be given again with it, so that no key goes where it was not meant to.
    pub base_url: Option<String>,
    /// The new key.
    pub key: Patch<Secret>,
    /// Whether it may lie in a private network.
    pub allow_private: Option<bool>,
}

/// A provider as stored; its key only as sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderRecord {
    /// Its id.
    pub id: ProviderId,
    /// A name, unique in the workspace.
    pub name: String,
    /// What it speaks.
    pub kind: Kind,
    /// Its base address.
    pub base_url: String,
    /// Whether it may lie in a private network.
    pub allow_private: bool,
    /// Its key under the master key.
    pub sealed_key: Option<String>,
    /// When the key was given.
    pub key_set_at: Option<Timestamp>,
    /// Grows with each change.
    pub revision: u32,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was changed last.
    pub updated_at: Timestamp,
    /// When it was archived; its key is gone from then on.
    pub archived_at: Option<Timestamp>,
}

impl ProviderRecord {
    /// The API's form of it.
    #[must_use]
    pub fn wire(&self) -> Value {
        json!({
            "id": self.id,
            "type": "provider",
            "name": self.name,
            "kind": self.kind,
            "base_url": self.base_url,
            "allow_private": self.allow_private,
            "has_key": self.sealed_key.is_some(),
            "key_set_at": self.key_set_at,
            "created_at": self.created_at,
            "updated_at": self.updated_at,
            "archived_at": self.archived_at,
        })
    }

    fn seal(&mut self, seals: &Seals, key: Option<Secret>, now: Timestamp) -> Result<(), Problem> {
        let sealed = key.map(|key| seals.seal(&self.id.to_string(), &key)).transpose();
        self.sealed_key = sealed.map_err(|error| reply::internal(&error))?;
        self.key_set_at = self.sealed_key.as_ref().map(|_| now);
        Ok(())
    }
}

const COLUMNS: &str =
    "select id, name, kind, base_url, allow_private, sealed_key, key_set_at, revision, created_at,
      updated_at, archived_at from providers";

fn record(row: &Row<'_>) -> rusqlite::Result<ProviderRecord> {
    let kind: String = row.get(2)?;
    Ok(ProviderRecord {
        id: parsed(row, 0)?,
        name: row.get(1)?,
        kind: Kind::from_text(&kind).ok_or(rusqlite::Error::InvalidQuery)?,
        base_url: row.get(3)?,
        allow_private: row.get(4)?,
        sealed_key: row.get(5)?,
        key_set_at: maybe_instant(row, 6)?,
        revision: row.get(7)?,
        created_at: instant(row, 8)?,
        updated_at: instant(row, 9)?,
        archived_at: maybe_instant(row, 10)?,
    })
}

/// The provider with this id, archived or not.
pub(super) fn find(
    connection: &Connection,
    workspace: WorkspaceId,
    id: ProviderId,
) -> Result<Option<ProviderRecord>, store::Error> {
    let mut statement =
        connection.prepare_cached(&format!("{COLUMNS} where workspace_id = ?1 and id = ?2"))?;
    Ok(statement.query_row(params![workspace.to_string(), id.to_string()], record).optional()?)
}

fn put(connection: &Connection, workspace: WorkspaceId, made: &ProviderRecord) -> Result<(), store::Error> {
    let taken = connection
        .prepare_cached("select 1 from providers where workspace_id = ?1 and name = ?2 and id <> ?3 and archived_at is null")?
        .exists(params![workspace.to_string(), made.name, made.id.to_string()])?;
    if taken && made.archived_at.is_none() {
        let message = format!("A provider named `{}` exists already. Choose another name.", made.name);
        return Err(Problem::new(Code::Conflict, message).with("field", "name").into());
    }
    connection.execute(
        "insert or replace into providers (id, workspace_id, name, kind, base_url, allow_private, sealed_key,
           key_set_at, revision, created_at, updated_at, archived_at)
         values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
        params![
            made.id.to_string(),
            workspace.to_string(),
            made.name,
            made.kind.as_str(),
            made.base_url,
            made.allow_private,
            made.sealed_key,
            made.key_set_at.map(Timestamp::as_ms),
            made.revision,
            made.created_at.as_ms(),
            made.updated_at.as_ms(),
            made.archived_at.map(Timestamp::as_ms)
        ],
    )?;
    Ok(())
}

impl Registry {
    /// Makes a provider; the answer is its wire form.
    ///
    /// # Errors
    /// `conflict` when the name is taken; `idempotency_conflict`.
    pub async fn create_provider(
        &self,
        workspace: WorkspaceId,
        new: NewProvider,
        once: Once,
        now: Timestamp,
    ) -> Result<String, Problem> {
        let seals = self.seals.clone();
        self.change(once, now, move |tx| {
            let mut made = ProviderRecord {
                id: ProviderId::mint(),
                name: new.name,
                kind: new.kind,
                base_url: new.base_url,
                allow_private: new.allow_private,
                sealed_key: None,
                key_set_at: None,
                revision: 1,
                created_at: now,
                updated_at: now,
                archived_at: None,
            };
            made.seal(&seals, new.key, now)?;
            put(tx, workspace, &made)?;
            Ok(made.wire())
        })
        .await
    }

    /// Changes a provider.
    ///
    /// # Errors
    /// `not_found`, `archived`, `conflict`, or `invalid_request` for a new address without its key.
    pub async fn update_provider(
        &self,
        workspace: WorkspaceId,
        id: ProviderId,
        patch: ProviderPatch,
        now: Timestamp,
    ) -> Result<String, Problem> {
        let seals = self.seals.clone();
        self.change(Once::NEVER, now, move |tx| {
            let mut found = find(tx, workspace, id)?.ok_or_else(|| not_found("provider"))?;
            if found.archived_at.is_some() {
                return Err(archived("provider").into());
            }
            let moves = patch.base_url.as_ref().is_some_and(|url| *url != found.base_url);
            if moves && found.sealed_key.is_some() && patch.key == Patch::Keep {
                let message =
                    "The key was given for the present address. Send `key` again with the new `base_url`.";
                return Err(Problem::new(Code::InvalidRequest, message).with("field", "key").into());
            }
            found.name = patch.name.unwrap_or(found.name);
            found.base_url = patch.base_url.unwrap_or(found.base_url);
            found.allow_private = patch.allow_private.unwrap_or(found.allow_private);
            match patch.key {
                Patch::Keep => {}
                Patch::Clear => found.seal(&seals, None, now)?,
                Patch::Set(key) => found.seal(&seals, Some(key), now)?,
            }
            found.revision += 1;
            found.updated_at = now;
            put(tx, workspace, &found)?;
            Ok(found.wire())
        })
        .await
    }

    /// Archives a provider and forgets its key; a second time changes nothing.
    ///
    /// # Errors
    /// `not_found`; the store's own failures.
    pub async fn archive_provider(
        &self,
        workspace: WorkspaceId,
        id: ProviderId,
        now: Timestamp,
    ) -> Result<String, Problem> {
        self.change(Once::NEVER, now, move |tx| {
            let mut found = find(tx, workspace, id)?.ok_or_else(|| not_found("provider"))?;
            if found.archived_at.is_none() {
                found.sealed_key = None;
                found.revision += 1;
                found.archived_at = Some(now);
                found.updated_at = now;
                put(tx, workspace, &found)?;
            }
            Ok(found.wire())
        })
        .await
    }

    /// One provider.
    ///
    /// # Errors
    /// The store's own failures.
    pub async fn provider(
        &self,
        workspace: WorkspaceId,
        id: ProviderId,
    ) -> Result<Option<ProviderRecord>, Problem> {
        Ok(self.store.read(move |connection| find(connection, workspace, id)).await?)
    }

    /// Providers, newest first.
    ///
    /// # Errors
    /// The store's own failures.
    pub async fn providers(
        &self,
        workspace: WorkspaceId,
        filter: Filter,
    ) -> Result<Vec<ProviderRecord>, Problem> {
        self.listed(COLUMNS, "archived_at", workspace, filter, record).await
    }

    /// The key of a provider, for the gateway alone.
    ///
    /// # Errors
    /// `provider_unreachable` when the master key that it is sealed under is not here.
    pub fn unsealed(&self, provider: &ProviderRecord) -> Result<Option<Secret>, Problem> {
        let sealed = provider.sealed_key.as_ref();
        sealed.map(|sealed| self.seals.open(&provider.id.to_string(), sealed)).transpose().map_err(|error| {
            tracing::error!(provider_id = %provider.id, %error, "a provider's key cannot be unsealed");
            Problem::new(
                Code::ProviderUnreachable,
                "The model provider's key cannot be unsealed. Whoever runs the server has to give it the master key that sealed it, or set the key again.",
            )
        })
    }

    /// Seals every key anew under the master key that seals now; how many were.
    ///
    /// # Errors
    /// `internal` when a key cannot be unsealed; then nothing is changed.
    pub async fn reseal(&self) -> Result<u64, Problem> {
        let seals = self.seals.clone();
        let work = move |tx: &rusqlite::Transaction<'_>| {
            let mut resealed = 0;
            for (id, sealed) in sealed_keys(tx)? {
                if seal::key_id(&sealed) == Some(seals.current_id().as_str()) {
                    continue;
                }
                let failed = |error| reply::internal(&error);
                let key = seals.open(&id, &sealed).map_err(failed)?;
                let anew = seals.seal(&id, &key).map_err(failed)?;
                tx.execute("update providers set sealed_key = ?2 where id = ?1", params![id, anew])?;
                resealed += 1;
            }
            Ok(resealed)
        };
        Ok(self.store.write(work).await?)
    }
}

/// All sealed keys with the ids of their providers.
pub(super) fn sealed_keys(connection: &Connection) -> Result<Vec<(String, String)>, store::Error> {
    let mut statement =
        connection.prepare("select id, sealed_key from providers where sealed_key is not null")?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}
