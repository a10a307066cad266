//! The whole route table and its layers. Handlers parse, call the engine or the registry, and shape the reply; nothing more.

pub mod auth;
pub mod body;
pub mod fields;
mod health;
pub mod listen;
mod openapi;
pub mod path;
pub mod public;
pub mod query;
pub mod reply;
pub mod route;
pub mod runner;
pub mod stream;

use crate::{
    config::Config,
    engine::Engine,
    gateway::{self, Gateway},
    registry::Registry,
    store::Store,
};
use axum::{Router, middleware};
use checkfu_shared::time::Clock;
use route::Routes;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// What every handler may use; clones share it.
#[derive(Debug, Clone)]
pub struct Plane {
    /// The writer of session logs.
    pub engine: Engine,
    /// Principals, keys, agents and environments.
    pub registry: Registry,
    /// The way to the model provider.
    pub gateway: Gateway,
    /// The database.
    pub store: Store,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// The settings.
    pub config: Arc<Config>,
    /// The order to stop; streams and long polls end on it.
    pub stop: CancellationToken,
}

/// The table of all routes with their guards.
#[must_use]
pub fn routes() -> Routes {
    Routes::new()
        .merge(health::routes())
        .merge(openapi::routes())
        .merge(public::routes())
        .merge(runner::routes())
        .merge(gateway::routes())
}

/// All routes, each behind its guard.
pub fn router(plane: Plane) -> Router {
    routes()
        .guarded(&plane)
        .fallback(reply::unknown_route)
        .layer(middleware::from_fn(runner::versioned))
        .layer(middleware::from_fn_with_state(plane.clone(), reply::stamp))
        .with_state(plane)
}

#[cfg(test)]
mod tests;
