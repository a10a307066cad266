//! The public API, one file per resource.

mod agents;
mod capabilities;
mod environments;
mod keys;
mod metadata;
mod principals;

use super::Plane;
use axum::Router;

/// The routes.
pub fn routes() -> Router<Plane> {
    Router::new()
        .merge(agents::routes())
        .merge(capabilities::routes())
        .merge(environments::routes())
        .merge(keys::routes())
        .merge(principals::routes())
}
