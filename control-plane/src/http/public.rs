//! The public API, one file per resource.

mod agents;
mod capabilities;
mod environments;
mod events;
mod files;
mod keys;
mod metadata;
mod principals;
mod runners;
mod sessions;
mod threads;

use super::Plane;
use axum::Router;

/// The routes.
pub fn routes() -> Router<Plane> {
    Router::new()
        .merge(agents::routes())
        .merge(capabilities::routes())
        .merge(environments::routes())
        .merge(events::routes())
        .merge(files::routes())
        .merge(keys::routes())
        .merge(principals::routes())
        .merge(runners::routes())
        .merge(sessions::routes())
        .merge(threads::routes())
}
