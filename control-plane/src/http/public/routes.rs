//! `/v1/model-routes`: names that agents use as their model, each with its candidates in order.

use crate::{
    domain::grant::{
        Kind::Workspace,
        Permission::{Admin, Read},
    },
    gateway::price::Price,
    http::{
        Plane,
        auth::Caller,
        body::Json,
        fields::{Fields, wrong},
        path::{At, not_found},
        query::{Listed, Query},
        reply::{self, Answer},
        route::{Guard, Routes},
    },
    registry::{Filter, Once, RouteCandidate, RouteChange, RouteRecord},
};
use axum::extract::State;
use checkfu_shared::{agent::Effort, id::ModelRouteId, problem::Problem};
use serde_json::Value;

const NAME_CHARS_MAX: usize = 256;
const CANDIDATES_MAX: usize = 8;
/// A price above this is a mistake: 10,000 USD for a million tokens.
const PRICE_MAX: u64 = 10_000_000_000;

/// The routes.
pub(crate) fn routes() -> Routes {
    Routes::new()
        .get("/v1/model-routes", Guard::all(Read, Workspace), list)
        .post("/v1/model-routes", Guard::all(Admin, Workspace), create)
        .get("/v1/model-routes/{route}", Guard::all(Read, Workspace), read)
        .post("/v1/model-routes/{route}", Guard::all(Admin, Workspace), update)
        .delete("/v1/model-routes/{route}", Guard::all(Admin, Workspace), archive)
        .post("/v1/model-routes/{route}/archive", Guard::all(Admin, Workspace), archive)
}

async fn create(State(plane): State<Plane>, caller: Caller, body: Json) -> Answer {
    let once = Once::of(&caller, "POST", "/v1/model-routes", &body.sha256);
    let mut fields = body.fields(caller.dialect)?;
    let name = fields.required_text("name", 1, NAME_CHARS_MAX)?;
    let candidates = candidates(&mut fields)?.ok_or_else(|| wrong("candidates", "is required"))?;
    fields.end()?;
    let new = RouteChange { name, candidates };
    Ok(reply::text(plane.registry.create_route(caller.workspace_id, new, once, plane.clock.now()).await?))
}

async fn update(State(plane): State<Plane>, caller: Caller, At(id): At<ModelRouteId>, body: Json) -> Answer {
    let mut fields = body.fields(caller.dialect)?;
    let name = fields.has("name").then(|| fields.required_text("name", 1, NAME_CHARS_MAX)).transpose()?;
    let candidates = candidates(&mut fields)?;
    fields.end()?;
    let apply = move |found: &RouteRecord| {
        Ok(RouteChange {
            name: name.unwrap_or_else(|| found.name.clone()),
            candidates: candidates.unwrap_or_else(|| found.candidates.clone()),
        })
    };
    Ok(reply::text(plane.registry.update_route(caller.workspace_id, id, apply, plane.clock.now()).await?))
}

fn candidates(fields: &mut Fields) -> Result<Option<Vec<RouteCandidate>>, Problem> {
    let dialect = fields.dialect();
    let Some(entries) = fields.list("candidates", CANDIDATES_MAX)? else { return Ok(None) };
    if entries.is_empty() {
        return Err(wrong("candidates", "must have at least one entry"));
    }
    let read =
        |(at, entry): (usize, Value)| candidate(Fields::of(entry, &format!("candidates[{at}]"), dialect)?);
    entries.into_iter().enumerate().map(read).collect::<Result<_, _>>().map(Some)
}

fn candidate(mut fields: Fields) -> Result<RouteCandidate, Problem> {
    let provider_id = fields.id("provider_id")?;
    let model = fields.required_text("model", 1, NAME_CHARS_MAX)?;
    let effort_path = fields.path("effort");
    let effort = match fields.text("effort")? {
        None => None,
        Some(text) => Some(
            effort(&text).ok_or_else(|| wrong(&effort_path, "must be minimal, low, medium, high or max"))?,
        ),
    };
    let price = fields.object("price")?.map(price).transpose()?;
    let context_window_tokens = fields.whole("context_window_tokens", 1_000, 100_000_000)?;
    fields.end()?;
    Ok(RouteCandidate { provider_id, model, effort, price, context_window_tokens })
}

fn effort(text: &str) -> Option<Effort> {
    serde_json::from_value(Value::from(text)).ok()
}

/// A price in micro-USD for a million tokens; what the cache costs follows from the input when it is not said.
fn price(mut fields: Fields) -> Result<Price, Problem> {
    let mut required = |name: &str| {
        let path = fields.path(name);
        fields
            .whole(name, 0, PRICE_MAX)?
            .ok_or_else(|| wrong(&path, "is required: micro-USD for a million tokens"))
    };
    let (input, output) = (required("input")?, required("output")?);
    let cache_read = fields.whole("cache_read", 0, PRICE_MAX)?.unwrap_or(input);
    let cache_write = fields.whole("cache_write", 0, PRICE_MAX)?.unwrap_or(input);
    fields.end()?;
    Ok(Price { input, output, cache_read, cache_write })
}

async fn list(State(plane): State<Plane>, caller: Caller, query: Query) -> Answer {
    let limit = query.limit(20, 100)?;
    let filter = Filter::read(&query, "model routes", limit)?;
    let rows = plane.registry.routes(caller.workspace_id, filter).await?;
    let page = Listed::cut(rows, limit, "model routes", true, |row| row.id.to_string());
    reply::ok(&page.map(|route: RouteRecord| route.wire()))
}

async fn read(State(plane): State<Plane>, caller: Caller, At(id): At<ModelRouteId>) -> Answer {
    let found = plane.registry.route(caller.workspace_id, id).await?;
    reply::ok(&found.ok_or_else(|| not_found("model route"))?.wire())
}

async fn archive(State(plane): State<Plane>, caller: Caller, At(id): At<ModelRouteId>) -> Answer {
    Ok(reply::text(plane.registry.archive_route(caller.workspace_id, id, plane.clock.now()).await?))
}
