//! Model routes in the store: a name that agents use as their model, and the candidates behind it in order.

use super::{
    Filter, Once, ProviderRecord, Registry, archived, document, instant, maybe_instant, parsed, providers,
};
use crate::{gateway::price::Price, http::path::not_found, store};
use checkfu_shared::{
    agent::Effort,
    id::{ModelRouteId, ProviderId, WorkspaceId},
    problem::{Code, Problem},
    time::Timestamp,
};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// One way to answer requests of a route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteCandidate {
    /// Who is asked; `None` is the provider that the server was started with.
    pub provider_id: Option<ProviderId>,
    /// The provider's own name of the model.
    pub model: String,
    /// How hard it thinks when the agent does not say.
    pub effort: Option<Effort>,
    /// What it costs, in the place of the catalogue's price.
    pub price: Option<Price>,
    /// How many tokens it takes, in the place of the catalogue's number.
    pub context_window_tokens: Option<u64>,
}

/// What a route is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteChange {
    /// The name, unique in the workspace.
    pub name: String,
    /// The candidates in order; at least one.
    pub candidates: Vec<RouteCandidate>,
}

/// A route as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteRecord {
    /// Its id.
    pub id: ModelRouteId,
    /// The name, unique in the workspace.
    pub name: String,
    /// The candidates in order.
    pub candidates: Vec<RouteCandidate>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was changed last.
    pub updated_at: Timestamp,
    /// When it was archived.
    pub archived_at: Option<Timestamp>,
}

impl RouteRecord {
    /// The API's form of it.
    #[must_use]
    pub fn wire(&self) -> Value {
        json!({
            "id": self.id,
            "type": "model_route",
            "name": self.name,
            "candidates": self.candidates,
            "created_at": self.created_at,
            "updated_at": self.updated_at,
            "archived_at": self.archived_at,
        })
    }
}

/// A candidate with its provider; `None` where the server's own provider is meant.
pub type Routed = (RouteCandidate, Option<ProviderRecord>);

const COLUMNS: &str = "select id, name, candidates, created_at, updated_at, archived_at from model_routes";

fn record(row: &Row<'_>) -> rusqlite::Result<RouteRecord> {
    Ok(RouteRecord {
        id: parsed(row, 0)?,
        name: row.get(1)?,
        candidates: document(row, 2)?,
        created_at: instant(row, 3)?,
        updated_at: instant(row, 4)?,
        archived_at: maybe_instant(row, 5)?,
    })
}

fn find(
    connection: &Connection,
    workspace: WorkspaceId,
    id: ModelRouteId,
) -> Result<Option<RouteRecord>, store::Error> {
    let mut statement =
        connection.prepare_cached(&format!("{COLUMNS} where workspace_id = ?1 and id = ?2"))?;
    Ok(statement.query_row(params![workspace.to_string(), id.to_string()], record).optional()?)
}

/// The route that agents of this workspace mean by `name`.
pub fn named(
    connection: &Connection,
    workspace: WorkspaceId,
    name: &str,
) -> Result<Option<RouteRecord>, store::Error> {
    let mut statement = connection.prepare_cached(&format!(
        "{COLUMNS} where workspace_id = ?1 and name = ?2 and archived_at is null"
    ))?;
    Ok(statement.query_row(params![workspace.to_string(), name], record).optional()?)
}

fn put(connection: &Connection, workspace: WorkspaceId, made: &RouteRecord) -> Result<(), store::Error> {
    let taken = named(connection, workspace, &made.name)?.is_some_and(|found| found.id != made.id);
    if taken && made.archived_at.is_none() {
        let message = format!("A model route named `{}` exists already. Choose another name.", made.name);
        return Err(Problem::new(Code::Conflict, message).with("field", "name").into());
    }
    for (at, candidate) in made.candidates.iter().enumerate() {
        let Some(id) = candidate.provider_id else { continue };
        if providers::find(connection, workspace, id)?.is_none_or(|found| found.archived_at.is_some()) {
            let message = format!("There is no provider {id} in this workspace. Check `candidates`.");
            let field = format!("candidates[{at}].provider_id");
            return Err(Problem::new(Code::UnknownReference, message).with("field", field).into());
        }
    }
    connection.execute(
        "insert or replace into model_routes (id, workspace_id, name, candidates, created_at, updated_at, archived_at)
         values (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![
            made.id.to_string(),
            workspace.to_string(),
            made.name,
            serde_json::to_string(&made.candidates)?,
            made.created_at.as_ms(),
            made.updated_at.as_ms(),
            made.archived_at.map(Timestamp::as_ms)
        ],
    )?;
    Ok(())
}

impl Registry {
    /// Makes a route; the answer is its wire form.
    ///
    /// # Errors
    /// `conflict` when the name is taken, `unknown_reference` for a provider that is not there.
    pub async fn create_route(
        &self,
        workspace: WorkspaceId,
        new: RouteChange,
        once: Once,
        now: Timestamp,
    ) -> Result<String, Problem> {
        self.change(once, now, move |tx| {
            let made = RouteRecord {
                id: ModelRouteId::mint(),
                name: new.name,
                candidates: new.candidates,
                created_at: now,
                updated_at: now,
                archived_at: None,
            };
            put(tx, workspace, &made)?;
            Ok(made.wire())
        })
        .await
    }

    /// Changes a route; it holds for the next model request.
    ///
    /// # Errors
    /// `not_found`, `archived`, `conflict`, `unknown_reference`, or the refusal of `apply`.
    pub async fn update_route<F>(
        &self,
        workspace: WorkspaceId,
        id: ModelRouteId,
        apply: F,
        now: Timestamp,
    ) -> Result<String, Problem>
    where
        F: FnOnce(&RouteRecord) -> Result<RouteChange, Problem> + Send + 'static,
    {
        self.change(Once::NEVER, now, move |tx| {
            let mut found = find(tx, workspace, id)?.ok_or_else(|| not_found("model route"))?;
            if found.archived_at.is_some() {
                return Err(archived("model route").into());
            }
            let change = apply(&found)?;
            (found.name, found.candidates) = (change.name, change.candidates);
            found.updated_at = now;
            put(tx, workspace, &found)?;
            Ok(found.wire())
        })
        .await
    }

    /// Archives a route; its name is free, and models of that name go to the server's own provider.
    ///
    /// # Errors
    /// `not_found`; the store's own failures.
    pub async fn archive_route(
        &self,
        workspace: WorkspaceId,
        id: ModelRouteId,
        now: Timestamp,
    ) -> Result<String, Problem> {
        self.change(Once::NEVER, now, move |tx| {
            let mut found = find(tx, workspace, id)?.ok_or_else(|| not_found("model route"))?;
            if found.archived_at.is_none() {
                (found.archived_at, found.updated_at) = (Some(now), now);
                tx.execute(
                    "update model_routes set archived_at = ?2, updated_at = ?2 where id = ?1",
                    params![id.to_string(), now.as_ms()],
                )?;
            }
            Ok(found.wire())
        })
        .await
    }

    /// One route.
    ///
    /// # Errors
    /// The store's own failures.
    pub async fn route(
        &self,
        workspace: WorkspaceId,
        id: ModelRouteId,
    ) -> Result<Option<RouteRecord>, Problem> {
        Ok(self.store.read(move |connection| find(connection, workspace, id)).await?)
    }

    /// Routes, newest first.
    ///
    /// # Errors
    /// The store's own failures.
    pub async fn routes(&self, workspace: WorkspaceId, filter: Filter) -> Result<Vec<RouteRecord>, Problem> {
        self.listed(COLUMNS, "archived_at", workspace, filter, record).await
    }

    /// What the name of a model leads to: candidates whose providers are there, or `None` when it is no route.
    ///
    /// # Errors
    /// The store's own failures.
    pub async fn routed(
        &self,
        workspace: WorkspaceId,
        model: String,
    ) -> Result<Option<Vec<Routed>>, Problem> {
        let work = move |connection: &Connection| {
            let Some(route) = named(connection, workspace, &model)? else { return Ok(None) };
            let mut routed = Vec::with_capacity(route.candidates.len());
            for candidate in route.candidates {
                let Some(id) = candidate.provider_id else {
                    routed.push((candidate, None));
                    continue;
                };
                let found = providers::find(connection, workspace, id)?;
                if let Some(provider) = found.filter(|provider| provider.archived_at.is_none()) {
                    routed.push((candidate, Some(provider)));
                }
            }
            Ok(Some(routed))
        };
        Ok(self.store.read(work).await?)
    }
}
