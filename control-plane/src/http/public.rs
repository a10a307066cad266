//! The public API, one file per resource.

mod agents;
mod assignments;
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

use super::route::Routes;

/// The routes.
pub fn routes() -> Routes {
    Routes::new()
        .merge(agents::routes())
        .merge(assignments::routes())
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
