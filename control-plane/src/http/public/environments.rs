//! `/v1/environments`: what sandboxes are made of. A changed configuration is a new revision; its type never changes.

mod config;
mod hosts;

pub(super) use config::labels;

use crate::{
    domain::grant::{
        Kind::Environment,
        Permission::{Read, Write},
    },
    http::{
        Plane,
        auth::Caller,
        body::Json,
        fields::{Fields, Patch, wrong},
        path::{At, not_found},
        public::metadata,
        query::{Listed, Query},
        reply::{self, Answer},
        route::{Guard, Routes},
    },
    registry::{EnvironmentChange, EnvironmentRecord, Filter, Once},
};
use axum::extract::State;
use checkfu_shared::{id::EnvironmentId, problem::Problem};

const NAME_CHARS_MAX: usize = 256;
const DESCRIPTION_CHARS_MAX: usize = 2_048;

/// The routes.
pub(crate) fn routes() -> Routes {
    Routes::new()
        .get("/v1/environments", Guard::all(Read, Environment), list)
        .post("/v1/environments", Guard::all(Write, Environment), create)
        .get("/v1/environments/{environment}", Guard::named(Read, Environment, "environment"), read)
        .post("/v1/environments/{environment}", Guard::named(Write, Environment, "environment"), update)
        .delete("/v1/environments/{environment}", Guard::named(Write, Environment, "environment"), delete)
        .post(
            "/v1/environments/{environment}/archive",
            Guard::named(Write, Environment, "environment"),
            archive,
        )
}

async fn create(State(plane): State<Plane>, caller: Caller, body: Json) -> Answer {
    let once = Once::of(&caller, "POST", "/v1/environments", &body.sha256);
    let new = draft(body.fields(caller.dialect)?)?;
    let now = plane.clock.now();
    Ok(reply::text(plane.registry.create_environment(caller.workspace_id, new, once, now).await?))
}

fn draft(mut fields: Fields) -> Result<EnvironmentChange, Problem> {
    let new = EnvironmentChange {
        name: fields.required_text("name", 1, NAME_CHARS_MAX)?,
        description: fields.bounded_text("description", DESCRIPTION_CHARS_MAX)?,
        metadata: metadata::create(&mut fields)?,
        config: config::compile(fields.object("config")?)?,
    };
    scope(&mut fields)?;
    fields.end()?;
    Ok(new)
}

fn change(mut fields: Fields, old: &EnvironmentRecord) -> Result<EnvironmentChange, Problem> {
    let mut after = old.unchanged();
    match fields.patch_text("name", NAME_CHARS_MAX)? {
        Patch::Keep => {}
        Patch::Set(name) if !name.is_empty() => after.name = name,
        Patch::Set(_) | Patch::Clear => return Err(wrong("name", "cannot be cleared")),
    }
    after.description = fields
        .patch_text("description", DESCRIPTION_CHARS_MAX)?
        .over(after.description)
        .filter(|text| !text.is_empty());
    after.metadata = metadata::change(&mut fields, true)?.over(after.metadata)?;
    if let Some(inner) = fields.object("config")? {
        after.config = config::compile(Some(inner))?;
        config::same_type(&old.config, &after.config.0)?;
    }
    scope(&mut fields)?;
    fields.end()?;
    Ok(after)
}

/// `scope` is the SDK's; there is one workspace-wide scope here.
fn scope(fields: &mut Fields) -> Result<(), Problem> {
    match fields.text("scope")?.as_deref() {
        None | Some("organization" | "account") => Ok(()),
        Some(_) => Err(wrong("scope", "must be organization or account")),
    }
}

async fn read(State(plane): State<Plane>, caller: Caller, At(id): At<EnvironmentId>, query: Query) -> Answer {
    let revision = query.whole("revision", 1, u64::from(u32::MAX))?.and_then(|n| u32::try_from(n).ok());
    let found = plane.registry.environment(caller.workspace_id, id, revision).await?;
    reply::ok(&found.ok_or_else(|| not_found("environment"))?.wire())
}

async fn list(State(plane): State<Plane>, caller: Caller, query: Query) -> Answer {
    let limit = query.limit(20, 100)?;
    let filter = Filter::read(&query, "environments", limit)?;
    let rows = plane.registry.environments(caller.workspace_id, filter).await?;
    let page = Listed::cut(rows, limit, "environments", true, |row| row.id.to_string());
    reply::ok(&page.map(|environment: EnvironmentRecord| environment.wire()))
}

async fn update(State(plane): State<Plane>, caller: Caller, At(id): At<EnvironmentId>, body: Json) -> Answer {
    let once = Once::of(&caller, "POST", &format!("/v1/environments/{id}"), &body.sha256);
    let fields = body.fields(caller.dialect)?;
    let apply = move |old: &EnvironmentRecord| change(fields, old);
    let now = plane.clock.now();
    Ok(reply::text(plane.registry.update_environment(caller.workspace_id, id, apply, once, now).await?))
}

async fn archive(State(plane): State<Plane>, caller: Caller, At(id): At<EnvironmentId>) -> Answer {
    let now = plane.clock.now();
    Ok(reply::text(plane.registry.archive_environment(caller.workspace_id, id, now).await?))
}

async fn delete(State(plane): State<Plane>, caller: Caller, At(id): At<EnvironmentId>) -> Answer {
    let once = Once::of(&caller, "DELETE", &format!("/v1/environments/{id}"), "");
    let now = plane.clock.now();
    Ok(reply::text(plane.registry.delete_environment(caller.workspace_id, id, once, now).await?))
}
