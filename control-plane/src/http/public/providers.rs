//! `/v1/providers`: who answers model requests. Keys go in and never come out; only owners make and change providers.

use crate::{
    dial::{self, Reach},
    domain::grant::{
        Kind::Workspace,
        Permission::{Admin, Read},
    },
    gateway::provider::Kind,
    http::{
        Plane,
        auth::Caller,
        body::Json,
        fields::{Fields, Patch, wrong},
        path::{At, not_found},
        query::{Listed, Query},
        reply::{self, Answer},
        route::{Guard, Routes},
    },
    registry::{Filter, NewProvider, Once, ProviderPatch, ProviderRecord},
};
use axum::extract::State;
use checkfu_shared::{id::ProviderId, problem::Problem, secret::Secret};
use serde_json::json;

const NAME_CHARS_MAX: usize = 128;
const URL_CHARS_MAX: usize = 2_000;
const KEY_CHARS_MAX: usize = 8_000;

/// The routes.
pub(crate) fn routes() -> Routes {
    Routes::new()
        .get("/v1/providers", Guard::all(Read, Workspace), list)
        .post("/v1/providers", Guard::all(Admin, Workspace), create)
        .post("/v1/providers/rotate-master-key", Guard::all(Admin, Workspace), rotate)
        .get("/v1/providers/{provider}", Guard::all(Read, Workspace), read)
        .post("/v1/providers/{provider}", Guard::all(Admin, Workspace), update)
        .delete("/v1/providers/{provider}", Guard::all(Admin, Workspace), archive)
        .post("/v1/providers/{provider}/archive", Guard::all(Admin, Workspace), archive)
        .post("/v1/providers/{provider}/test", Guard::all(Admin, Workspace), test)
}

async fn create(State(plane): State<Plane>, caller: Caller, body: Json) -> Answer {
    let once = Once::of(&caller, "POST", "/v1/providers", &body.sha256);
    let new = draft(body.fields(caller.dialect)?)?;
    let now = plane.clock.now();
    Ok(reply::text(plane.registry.create_provider(caller.workspace_id, new, once, now).await?))
}

fn draft(mut fields: Fields) -> Result<NewProvider, Problem> {
    let name = fields.required_text("name", 1, NAME_CHARS_MAX)?;
    let kind = fields.required_text("kind", 1, 64)?;
    let kind =
        Kind::from_text(&kind).ok_or_else(|| wrong("kind", "must be anthropic or openai_compatible"))?;
    let base_url = match (fields.text("base_url")?, kind) {
        (Some(url), _) => url,
        (None, Kind::Anthropic) => crate::gateway::provider::DEFAULT_BASE_URL.to_owned(),
        (None, Kind::OpenaiCompatible) => {
            return Err(wrong(
                "base_url",
                "is required: the address before /chat/completions, mostly ending in /v1",
            ));
        }
    };
    let allow_private = fields.flag("allow_private")?.unwrap_or(false);
    check_address(&base_url, Some(allow_private))?;
    let key = match fields.text("key")? {
        Some(key) => Some(secret(key)?),
        None => None,
    };
    fields.end()?;
    Ok(NewProvider { name, kind, base_url, key, allow_private })
}

/// Refuses what can never be dialled; a name is judged again whenever it is resolved.
fn check_address(base_url: &str, allow_private: Option<bool>) -> Result<(), Problem> {
    if base_url.chars().count() > URL_CHARS_MAX {
        return Err(wrong("base_url", "is too long"));
    }
    let refused = |error: dial::Error| wrong("base_url", &format!("cannot be used: {error}"));
    let url = dial::base(base_url).map_err(refused)?;
    match allow_private {
        Some(false) => dial::within(&url, Reach::Public).map_err(refused),
        _ => Ok(()),
    }
}

fn secret(key: String) -> Result<Secret, Problem> {
    let key = Secret::new(key);
    let plain = key.reveal().bytes().all(|byte| byte.is_ascii_graphic());
    if !plain || key.reveal().is_empty() || key.reveal().len() > KEY_CHARS_MAX {
        return Err(wrong("key", "must be 1 to 8000 printable ASCII characters without spaces"));
    }
    Ok(key)
}

async fn update(State(plane): State<Plane>, caller: Caller, At(id): At<ProviderId>, body: Json) -> Answer {
    let mut fields = body.fields(caller.dialect)?;
    let name = fields.has("name").then(|| fields.required_text("name", 1, NAME_CHARS_MAX)).transpose()?;
    let base_url = fields.text("base_url")?;
    let allow_private = fields.flag("allow_private")?;
    if let Some(url) = &base_url {
        check_address(url, allow_private)?;
    }
    let key = match fields.patch_text("key", KEY_CHARS_MAX)? {
        Patch::Keep => Patch::Keep,
        Patch::Clear => Patch::Clear,
        Patch::Set(key) => Patch::Set(secret(key)?),
    };
    fields.end()?;
    let patch = ProviderPatch { name, base_url, key, allow_private };
    Ok(reply::text(plane.registry.update_provider(caller.workspace_id, id, patch, plane.clock.now()).await?))
}

async fn list(State(plane): State<Plane>, caller: Caller, query: Query) -> Answer {
    let limit = query.limit(20, 100)?;
    let filter = Filter::read(&query, "providers", limit)?;
    let rows = plane.registry.providers(caller.workspace_id, filter).await?;
    let page = Listed::cut(rows, limit, "providers", true, |row| row.id.to_string());
    reply::ok(&page.map(|provider: ProviderRecord| provider.wire()))
}

async fn read(State(plane): State<Plane>, caller: Caller, At(id): At<ProviderId>) -> Answer {
    reply::ok(&own(&plane, &caller, id).await?.wire())
}

async fn own(plane: &Plane, caller: &Caller, id: ProviderId) -> Result<ProviderRecord, Problem> {
    plane.registry.provider(caller.workspace_id, id).await?.ok_or_else(|| not_found("provider"))
}

async fn archive(State(plane): State<Plane>, caller: Caller, At(id): At<ProviderId>) -> Answer {
    Ok(reply::text(plane.registry.archive_provider(caller.workspace_id, id, plane.clock.now()).await?))
}

/// Asks the provider for its list of models: whether it is reached and takes the key.
async fn test(State(plane): State<Plane>, caller: Caller, At(id): At<ProviderId>) -> Answer {
    let provider = own(&plane, &caller, id).await?;
    let tested = match plane.gateway.connected(&plane.registry, &provider) {
        Ok(connected) => connected.test().await,
        Err(problem) => Err(problem),
    };
    let (models, problem) = match tested {
        Ok(models) => (models, None),
        Err(problem) => (None, Some(json!({"error_code": problem.code, "message": problem.message}))),
    };
    reply::ok(&json!({
        "id": id, "type": "provider_test", "ok": problem.is_none(), "models": models, "problem": problem,
    }))
}

async fn rotate(State(plane): State<Plane>) -> Answer {
    let from_environment = !plane.config.master_keys.is_empty();
    let resealed = plane.registry.rotate_master_key(from_environment).await?;
    reply::ok(&json!({"type": "master_key_rotated", "resealed": resealed}))
}
