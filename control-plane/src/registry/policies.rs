//! Action policies in the store. A change takes hold with the next tool call, since every decision reads them anew.

use super::{Filter, Once, Registry, archived, document, instant, maybe_instant, parsed};
use crate::{
    domain::policy::{Rule, Source, Sourced},
    http::path::not_found,
    store,
};
use checkfu_shared::{
    id::{PolicyId, WorkspaceId},
    problem::{Code, Problem},
    time::Timestamp,
};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::{Value, json};

/// What a policy says.
#[derive(Debug, Clone)]
pub struct NewPolicy {
    /// A name, unique among those in force.
    pub name: String,
    /// Its rules; their order does not matter.
    pub rules: Vec<Rule>,
}

/// A policy as stored.
#[derive(Debug, Clone)]
pub struct PolicyRecord {
    /// Its id.
    pub id: PolicyId,
    /// A name, unique among those in force.
    pub name: String,
    /// Which version this is, from 1.
    pub version: u32,
    /// Its rules.
    pub rules: Vec<Rule>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was changed last.
    pub updated_at: Timestamp,
    /// When it was put out of force.
    pub archived_at: Option<Timestamp>,
}

impl PolicyRecord {
    /// The API's form of it.
    #[must_use]
    pub fn wire(&self) -> Value {
        json!({
            "id": self.id,
            "type": "action_policy",
            "name": self.name,
            "version": self.version,
            "rules": self.rules,
            "created_at": self.created_at,
            "updated_at": self.updated_at,
            "archived_at": self.archived_at,
        })
    }
}

const COLUMNS: &str =
    "select id, name, version, rules, created_at, updated_at, archived_at from action_policies";

fn record(row: &Row<'_>) -> rusqlite::Result<PolicyRecord> {
    Ok(PolicyRecord {
        id: parsed(row, 0)?,
        name: row.get(1)?,
        version: row.get(2)?,
        rules: document(row, 3)?,
        created_at: instant(row, 4)?,
        updated_at: instant(row, 5)?,
        archived_at: maybe_instant(row, 6)?,
    })
}

fn find(
    connection: &Connection,
    workspace: WorkspaceId,
    id: PolicyId,
) -> Result<Option<PolicyRecord>, store::Error> {
    let mut statement =
        connection.prepare_cached(&format!("{COLUMNS} where workspace_id = ?1 and id = ?2"))?;
    Ok(statement.query_row(params![workspace.to_string(), id.to_string()], record).optional()?)
}

/// Every rule in force, each with where it comes from.
///
/// # Errors
/// The database's own failures.
pub(crate) fn rules(connection: &Connection, workspace: WorkspaceId) -> Result<Vec<Sourced>, store::Error> {
    let mut statement =
        connection.prepare_cached(&format!("{COLUMNS} where workspace_id = ?1 and archived_at is null"))?;
    let rows = statement.query_map([workspace.to_string()], record)?;
    let mut rules = Vec::new();
    for row in rows {
        let policy = row?;
        for (rule, says) in (0u32..).zip(policy.rules) {
            let source = Source::ActionPolicy { policy_id: policy.id, name: policy.name.clone(), rule };
            rules.push((source, says));
        }
    }
    Ok(rules)
}

fn refuse_taken(
    connection: &Connection,
    workspace: WorkspaceId,
    name: &str,
    but: Option<PolicyId>,
) -> Result<(), store::Error> {
    let taken = connection
        .prepare_cached(
            "select 1 from action_policies where workspace_id = ?1 and name = ?2 and archived_at is null and id is not ?3",
        )?
        .exists(params![workspace.to_string(), name, but.map(|id| id.to_string())])?;
    if taken {
        let message = format!("A policy named `{name}` is in force already. Choose another name.");
        return Err(Problem::new(Code::Conflict, message).with("field", "name").into());
    }
    Ok(())
}

impl Registry {
    /// Makes a policy; the answer is its wire form.
    ///
    /// # Errors
    /// `conflict` when the name is taken; `idempotency_conflict`.
    pub async fn create_policy(
        &self,
        workspace: WorkspaceId,
        new: NewPolicy,
        once: Once,
        now: Timestamp,
    ) -> Result<String, Problem> {
        self.change(once, now, move |tx| {
            refuse_taken(tx, workspace, &new.name, None)?;
            let made = PolicyRecord {
                id: PolicyId::mint(),
                name: new.name,
                version: 1,
                rules: new.rules,
                created_at: now,
                updated_at: now,
                archived_at: None,
            };
            tx.execute(
                "insert into action_policies (id, workspace_id, name, version, rules, created_at, updated_at)
                 values (?1, ?2, ?3, 1, ?4, ?5, ?5)",
                params![
                    made.id.to_string(),
                    workspace.to_string(),
                    made.name,
                    serde_json::to_string(&made.rules)?,
                    now.as_ms()
                ],
            )?;
            Ok(made.wire())
        })
        .await
    }

    /// Replaces what a policy says.
    ///
    /// # Errors
    /// `not_found`, `archived`, `conflict` when `expected` is not its version or the name is taken.
    pub async fn update_policy(
        &self,
        workspace: WorkspaceId,
        id: PolicyId,
        expected: Option<u32>,
        new: NewPolicy,
        once: Once,
        now: Timestamp,
    ) -> Result<String, Problem> {
        self.change(once, now, move |tx| {
            let mut policy = find(tx, workspace, id)?.ok_or_else(|| not_found("policy"))?;
            if policy.archived_at.is_some() {
                return Err(archived("policy").into());
            }
            if let Some(expected) = expected.filter(|expected| *expected != policy.version) {
                let current = policy.version;
                let message = format!("The policy has version {current}, the update is meant for version {expected}.");
                return Err(Problem::new(Code::Conflict, message).with("current_version", current).into());
            }
            refuse_taken(tx, workspace, &new.name, Some(id))?;
            policy = PolicyRecord { name: new.name, rules: new.rules, version: policy.version + 1, updated_at: now, ..policy };
            tx.execute(
                "update action_policies set name = ?2, rules = ?3, version = ?4, updated_at = ?5 where id = ?1",
                params![id.to_string(), policy.name, serde_json::to_string(&policy.rules)?, policy.version, now.as_ms()],
            )?;
            Ok(policy.wire())
        })
        .await
    }

    /// Puts a policy out of force; a second time changes nothing.
    ///
    /// # Errors
    /// `not_found`.
    pub async fn archive_policy(
        &self,
        workspace: WorkspaceId,
        id: PolicyId,
        now: Timestamp,
    ) -> Result<String, Problem> {
        self.change(Once::NEVER, now, move |tx| {
            tx.execute(
                "update action_policies set archived_at = coalesce(archived_at, ?3) where workspace_id = ?1 and id = ?2",
                params![workspace.to_string(), id.to_string(), now.as_ms()],
            )?;
            Ok(find(tx, workspace, id)?.ok_or_else(|| not_found("policy"))?.wire())
        })
        .await
    }

    /// One policy.
    ///
    /// # Errors
    /// The store's own failures.
    pub async fn policy(
        &self,
        workspace: WorkspaceId,
        id: PolicyId,
    ) -> Result<Option<PolicyRecord>, Problem> {
        Ok(self.store.read(move |connection| find(connection, workspace, id)).await?)
    }

    /// Policies, newest first.
    ///
    /// # Errors
    /// The store's own failures.
    pub async fn policies(
        &self,
        workspace: WorkspaceId,
        filter: Filter,
    ) -> Result<Vec<PolicyRecord>, Problem> {
        self.listed(COLUMNS, "archived_at", workspace, filter, record).await
    }

    /// Everything that a dry run of the policies has to know of a principal.
    ///
    /// # Errors
    /// The store's own failures.
    pub async fn policy_context(
        &self,
        workspace: WorkspaceId,
        principal: checkfu_shared::id::PrincipalId,
    ) -> Result<(Vec<Sourced>, Vec<checkfu_shared::id::PrincipalId>), Problem> {
        let work = move |connection: &Connection| {
            Ok((rules(connection, workspace)?, super::members::groups(connection, principal)?))
        };
        Ok(self.store.read(work).await?)
    }
}
