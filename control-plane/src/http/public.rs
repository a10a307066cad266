//! The public API, one file per resource.

mod agents;
mod approvals;
mod assignments;
mod audit;
mod budgets;
mod capabilities;
mod deployments;
mod environments;
mod events;
mod export;
mod files;
mod keys;
mod metadata;
mod policies;
mod principals;
mod providers;
mod routes;
mod runners;
mod sessions;
mod standing;
mod threads;

use super::route::Routes;

/// The routes.
pub fn routes() -> Routes {
    Routes::new()
        .merge(agents::routes())
        .merge(approvals::routes())
        .merge(budgets::routes())
        .merge(assignments::routes())
        .merge(audit::routes())
        .merge(capabilities::routes())
        .merge(deployments::routes())
        .merge(environments::routes())
        .merge(events::routes())
        .merge(export::routes())
        .merge(files::routes())
        .merge(keys::routes())
        .merge(policies::routes())
        .merge(principals::routes())
        .merge(providers::routes())
        .merge(routes::routes())
        .merge(runners::routes())
        .merge(sessions::routes())
        .merge(standing::routes())
        .merge(threads::routes())
}
