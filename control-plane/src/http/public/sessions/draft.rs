//! The body of a create in, a session to be made out: agent and environment looked up, everything else proven.

use super::{budget, narrow};
use crate::{
    domain::grant::{Kind, Permission},
    engine::NewSession,
    http::{
        Plane,
        auth::Caller,
        fields::{Fields, unsupported, wrong},
        public::{events::inputs, metadata},
    },
    registry::DeploymentRecord,
};
use checkfu_shared::{
    agent::{Agent, Tool},
    event::{Cause, CauseKind},
    id::{AgentId, DeploymentId, EnvironmentId, PrincipalId, VaultId},
    problem::{Code, Problem},
};
use serde_json::{Map, Value};

const TITLE_CHARS_MAX: usize = 512;

/// Reads a create and looks up what it names.
///
/// # Errors
/// A refusal naming the first member that breaks a rule.
pub(crate) async fn create(
    plane: &Plane,
    caller: &Caller,
    mut fields: Fields,
) -> Result<NewSession, Problem> {
    let principal_id = principal(plane, caller, &mut fields).await?;
    let deployment = deployment(plane, caller, &mut fields).await?;
    let (agent, instructions) = match &deployment {
        Some(deployment) => deployed(plane, caller, &mut fields, deployment).await?,
        None => agent(plane, caller, &mut fields).await?,
    };
    let (environment_id, environment_revision, environment) =
        environment(plane, caller, &mut fields, deployment.as_ref()).await?;
    let title = fields.bounded_text("title", TITLE_CHARS_MAX)?;
    let pairs = metadata::create(&mut fields)?;
    let budget =
        fields.value("budget").map(|value| budget::read(value, "budget", caller.dialect)).transpose()?;
    if let Some(limit) = budget {
        budget::check_priced(plane, caller.workspace_id, limit, &agent.model.id).await?;
    }
    let initial = inputs::initial(&mut fields, caller)?;
    not_there_yet(&mut fields)?;
    fields.end()?;
    Ok(NewSession {
        workspace_id: caller.workspace_id,
        principal_id,
        agent,
        environment_id,
        environment_revision,
        environment,
        title,
        metadata: pairs.into_iter().map(|(key, value)| (key, value.into())).collect::<Map<String, Value>>(),
        resources: Vec::new(),
        vault_ids: Vec::<VaultId>::new(),
        budget,
        instructions,
        initial,
        caused_by: Cause { kind: CauseKind::ApiRequest, id: caller.request_id.to_string() },
    })
}

fn not_there_yet(fields: &mut Fields) -> Result<(), Problem> {
    let refuse = |fields: &mut Fields, name: &str, what: &str| match fields.list(name, 500)? {
        Some(entries) if !entries.is_empty() => {
            let message = format!("{what} cannot be given to sessions yet. Leave `{name}` out.");
            Err(unsupported(&fields.path(name), &message))
        }
        _ => Ok(()),
    };
    refuse(fields, "resources", "Files, repositories and memory stores")?;
    refuse(fields, "vault_ids", "Vaults")?;
    Ok(())
}

async fn principal(plane: &Plane, caller: &Caller, fields: &mut Fields) -> Result<PrincipalId, Problem> {
    match fields.id::<PrincipalId>("principal")? {
        None => Ok(caller.principal_id),
        Some(principal) if principal == caller.principal_id => Ok(principal),
        Some(principal) => {
            caller.grants.check(Permission::ActAs, Kind::Principal, &principal.to_string())?;
            plane.registry.acting_principal(caller.workspace_id, principal).await.map(|found| found.id)
        }
    }
}

/// The deployment that the session is to be one of.
async fn deployment(
    plane: &Plane,
    caller: &Caller,
    fields: &mut Fields,
) -> Result<Option<DeploymentRecord>, Problem> {
    const FIELD: &str = "agent_deployment_id";
    let Some(id) = fields.id::<DeploymentId>(FIELD)? else { return Ok(None) };
    if let Some(other) = ["agent", "environment_id"].into_iter().find(|name| fields.has(name)) {
        return Err(wrong(other, "is pinned by the deployment; leave it out, or name no deployment"));
    }
    let found = plane.registry.deployment(caller.workspace_id, id).await?.ok_or_else(|| {
        let message = format!("There is no deployment {id} in this workspace. Check `{FIELD}`.");
        Problem::new(Code::UnknownReference, message).with("field", FIELD)
    })?;
    if found.archived_at.is_some() {
        let message =
            format!("The deployment {id} is archived and takes no new sessions. Choose another one.");
        return Err(Problem::new(Code::Archived, message).with("field", FIELD));
    }
    Ok(Some(found))
}

/// The agent as deployed, with the session's own choice of tools and its instructions.
async fn deployed(
    plane: &Plane,
    caller: &Caller,
    fields: &mut Fields,
    deployment: &DeploymentRecord,
) -> Result<(Agent, Option<String>), Problem> {
    let version = Some(deployment.agent_version);
    let found = plane.registry.agent(caller.workspace_id, deployment.agent_id, version).await?;
    let found = found.filter(|agent| agent.archived_at.is_none()).ok_or_else(|| {
        let message = "The agent of this deployment is archived. Choose another deployment.";
        Problem::new(Code::Archived, message).with("field", "agent_deployment_id")
    })?;
    let mut agent = found.snapshot();
    narrow::select(fields, &mut agent)?;
    let instructions = narrow::instructions_named(fields, "instructions", &mut agent)?;
    runnable(&agent)?;
    Ok((agent, instructions))
}

async fn agent(
    plane: &Plane,
    caller: &Caller,
    fields: &mut Fields,
) -> Result<(Agent, Option<String>), Problem> {
    let (id, version, overrides) = named(fields)?;
    let found = plane.registry.agent(caller.workspace_id, id, version).await?;
    let found = found.ok_or_else(|| {
        let which = version.map_or_else(String::new, |version| format!(" in version {version}"));
        let message = format!("There is no agent {id}{which} in this workspace. Check `agent`.");
        Problem::new(Code::UnknownReference, message).with("field", "agent")
    })?;
    if found.archived_at.is_some() {
        let message = format!("The agent {id} is archived and takes no new sessions. Choose another agent.");
        return Err(Problem::new(Code::Archived, message).with("field", "agent"));
    }
    let mut agent = found.snapshot();
    let instructions = match overrides {
        Some(mut overrides) => {
            let instructions = narrow::apply(&mut overrides, &mut agent)?;
            overrides.end()?;
            instructions
        }
        None => None,
    };
    runnable(&agent)?;
    Ok((agent, instructions))
}

/// Which agent, in which version, and what is to be overridden.
fn named(fields: &mut Fields) -> Result<(AgentId, Option<u32>, Option<Fields>), Problem> {
    let path = fields.path("agent");
    let dialect = fields.dialect();
    let id = |text: &str| text.parse().map_err(|error| wrong(&path, &format!("is {error}")));
    match fields.value("agent") {
        None => Err(wrong(&path, "is required: an agent's id, or an object that names one")),
        Some(Value::String(text)) => Ok((id(&text)?, None, None)),
        Some(value) => {
            let mut inner = Fields::of(value, &path, dialect)?;
            let kind = inner.required_text("type", 1, 64)?;
            let agent = inner.id("id")?.ok_or_else(|| wrong(&inner.path("id"), "is required"))?;
            let version = inner.whole("version", 1, u64::from(u32::MAX))?.and_then(|n| u32::try_from(n).ok());
            match kind.as_str() {
                "agent" => inner.end().map(|()| (agent, version, None)),
                "agent_with_overrides" => Ok((agent, version, Some(inner))),
                _ => Err(wrong(&inner.path("type"), "must be agent or agent_with_overrides")),
            }
        }
    }
}

/// What is declared and cannot be run yet is refused here instead of being left out silently.
fn runnable(agent: &Agent) -> Result<(), Problem> {
    let what = if agent.tools.iter().any(|tool| matches!(tool, Tool::Mcp { .. })) {
        "MCP servers"
    } else if !agent.skills.is_empty() {
        "skills"
    } else {
        return Ok(());
    };
    let message = format!("The agent has {what}, which sessions cannot use yet. Take them off the agent.");
    Err(unsupported("agent", &message))
}

async fn environment(
    plane: &Plane,
    caller: &Caller,
    fields: &mut Fields,
    deployment: Option<&DeploymentRecord>,
) -> Result<(EnvironmentId, u32, checkfu_shared::environment::Spec), Problem> {
    let (id, revision) = match deployment {
        Some(pinned) => (pinned.environment_id, Some(pinned.environment_revision)),
        None => {
            let id = fields.id::<EnvironmentId>("environment_id")?;
            (id.ok_or_else(|| wrong("environment_id", "is required"))?, None)
        }
    };
    let found = plane.registry.environment(caller.workspace_id, id, revision).await?.ok_or_else(|| {
        let message = format!("There is no environment {id} in this workspace. Check `environment_id`.");
        Problem::new(Code::UnknownReference, message).with("field", "environment_id")
    })?;
    if found.archived_at.is_some() {
        let message =
            format!("The environment {id} is archived and takes no new sessions. Choose another one.");
        return Err(Problem::new(Code::EnvironmentArchived, message).with("field", "environment_id"));
    }
    Ok((id, found.revision, found.spec))
}
