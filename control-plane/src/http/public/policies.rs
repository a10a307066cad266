//! `/v1/action-policies`: which actions run, ask or are refused, and a dry run that names the rule that decides.

use crate::{
    domain::{
        grant::{
            Kind::Workspace,
            Permission::{Admin, Read},
        },
        permission,
        policy::{
            self, Asked, Disposition, Resource, ResourceKind, Rule, Source, Subject, SubjectKind, agents_own,
        },
    },
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
    registry::{AgentRecord, Filter, NewPolicy, Once, PolicyRecord},
};
use axum::extract::State;
use checkfu_shared::{
    agent::PermissionPolicy,
    id::{AgentId, PolicyId, PrincipalId},
    problem::{Code, Problem},
    tool,
};
use serde_json::json;

const RULES_MAX: usize = 200;
const GLOB_CHARS_MAX: usize = 128;

/// The routes.
pub(crate) fn routes() -> Routes {
    let (reads, governs) = (Guard::all(Read, Workspace), Guard::all(Admin, Workspace));
    Routes::new()
        .get("/v1/action-policies", reads, list)
        .post("/v1/action-policies", governs, create)
        .post("/v1/action-policies/evaluate", reads, evaluate)
        .get("/v1/action-policies/{policy}", reads, read)
        .post("/v1/action-policies/{policy}", governs, update)
        .post("/v1/action-policies/{policy}/archive", governs, archive)
}

async fn create(State(plane): State<Plane>, caller: Caller, body: Json) -> Answer {
    let once = Once::of(&caller, "POST", "/v1/action-policies", &body.sha256);
    let mut fields = body.fields(caller.dialect)?;
    let new = draft(&mut fields)?;
    fields.end()?;
    let now = plane.clock.now();
    Ok(reply::text(plane.registry.create_policy(caller.workspace_id, new, once, now).await?))
}

async fn update(State(plane): State<Plane>, caller: Caller, At(id): At<PolicyId>, body: Json) -> Answer {
    let once = Once::of(&caller, "POST", &format!("/v1/action-policies/{id}"), &body.sha256);
    let mut fields = body.fields(caller.dialect)?;
    let expected = fields.whole("version", 1, u64::from(u32::MAX))?.and_then(|n| u32::try_from(n).ok());
    let new = draft(&mut fields)?;
    fields.end()?;
    let now = plane.clock.now();
    Ok(reply::text(plane.registry.update_policy(caller.workspace_id, id, expected, new, once, now).await?))
}

fn draft(fields: &mut Fields) -> Result<NewPolicy, Problem> {
    let name = fields.required_text("name", 1, 256)?;
    let path = fields.path("rules");
    let dialect = fields.dialect();
    let entries = fields.list("rules", RULES_MAX)?.unwrap_or_default().into_iter().enumerate();
    let rules = entries
        .map(|(at, value)| rule(Fields::of(value, &format!("{path}[{at}]"), dialect)?))
        .collect::<Result<Vec<_>, _>>()?;
    if rules.is_empty() {
        return Err(wrong(&path, "must have at least one rule"));
    }
    Ok(NewPolicy { name, rules })
}

fn closed<T>(
    fields: &mut Fields,
    name: &str,
    read: fn(&str) -> Option<T>,
    all: &[&str],
) -> Result<T, Problem> {
    let path = fields.path(name);
    let text = fields.required_text(name, 1, 64)?;
    read(&text).ok_or_else(|| wrong(&path, &format!("must be one of {}", all.join(", "))))
}

fn texts<T: Copy>(all: &[T], text: impl Fn(T) -> &'static str) -> Vec<&'static str> {
    all.iter().map(|&one| text(one)).collect()
}

fn resource_kind(fields: &mut Fields) -> Result<ResourceKind, Problem> {
    let all = texts(ResourceKind::ALL, ResourceKind::as_str);
    closed(fields, "kind", ResourceKind::from_text, &all)
}

fn part(fields: &mut Fields, name: &str) -> Result<Fields, Problem> {
    let path = fields.path(name);
    fields.object(name)?.ok_or_else(|| wrong(&path, "is required: `{\"kind\", \"id_glob\"}`"))
}

fn rule(mut fields: Fields) -> Result<Rule, Problem> {
    let mut subject = part(&mut fields, "subject")?;
    let kinds = texts(SubjectKind::ALL, SubjectKind::as_str);
    let subject_kind = closed(&mut subject, "kind", SubjectKind::from_text, &kinds)?;
    let subject_glob = subject.bounded_text("id_glob", GLOB_CHARS_MAX)?.unwrap_or_else(|| "*".to_owned());
    subject.end()?;
    let mut resource = part(&mut fields, "resource")?;
    let kind = resource_kind(&mut resource)?;
    let id_glob = resource.bounded_text("id_glob", GLOB_CHARS_MAX)?.unwrap_or_else(|| "*".to_owned());
    resource.end()?;
    let permission_glob =
        fields.bounded_text("permission_glob", GLOB_CHARS_MAX)?.unwrap_or_else(|| "*".to_owned());
    let dispositions = texts(Disposition::ALL, Disposition::as_str);
    let disposition = closed(&mut fields, "disposition", Disposition::from_text, &dispositions)?;
    let other_responder = fields.flag("other_responder")?.unwrap_or(false);
    let most = u64::from(crate::domain::approval::TTL_SECONDS_MAX);
    let ttl_seconds = fields.whole("ttl_seconds", 1, most)?.and_then(|n| u32::try_from(n).ok());
    if disposition != Disposition::RequireApproval && (other_responder || ttl_seconds.is_some()) {
        let path = fields.path(if other_responder { "other_responder" } else { "ttl_seconds" });
        return Err(wrong(&path, "goes with the disposition require_approval only"));
    }
    fields.end()?;
    Ok(Rule {
        subject: Subject { kind: subject_kind, id_glob: subject_glob },
        resource: Resource { kind, id_glob },
        permission_glob,
        disposition,
        other_responder,
        ttl_seconds,
    })
}

async fn list(State(plane): State<Plane>, caller: Caller, query: Query) -> Answer {
    let limit = query.limit(20, 100)?;
    let filter = Filter::read(&query, "action policies", limit)?;
    let rows = plane.registry.policies(caller.workspace_id, filter).await?;
    let page = Listed::cut(rows, limit, "action policies", true, |row| row.id.to_string());
    reply::ok(&page.map(|policy: PolicyRecord| policy.wire()))
}

async fn read(State(plane): State<Plane>, caller: Caller, At(id): At<PolicyId>) -> Answer {
    let found = plane.registry.policy(caller.workspace_id, id).await?;
    reply::ok(&found.ok_or_else(|| not_found("policy"))?.wire())
}

async fn archive(State(plane): State<Plane>, caller: Caller, At(id): At<PolicyId>) -> Answer {
    Ok(reply::text(plane.registry.archive_policy(caller.workspace_id, id, plane.clock.now()).await?))
}

/// The agent's own rule for a resource, as a session of it would have it.
fn own_rule(agent: &AgentRecord, kind: ResourceKind, id: &str) -> Option<policy::Sourced> {
    let snapshot = agent.snapshot();
    let disposition = match kind {
        ResourceKind::Tool => match snapshot.built_in(tool::Name::from_text(id)?)?? {
            PermissionPolicy::AlwaysAllow => Disposition::Allow,
            PermissionPolicy::AlwaysAsk => Disposition::RequireApproval,
        },
        ResourceKind::CustomTool if snapshot.has_custom(id) => Disposition::Allow,
        _ => return None,
    };
    Some(agents_own(agent.id, kind, id, disposition))
}

/// What would happen, and which rule says so; nothing happens.
async fn evaluate(State(plane): State<Plane>, caller: Caller, body: Json) -> Answer {
    let mut fields = body.fields(caller.dialect)?;
    let principal = fields.id::<PrincipalId>("principal")?.unwrap_or(caller.principal_id);
    let agent_id =
        fields.id::<AgentId>("agent")?.ok_or_else(|| wrong("agent", "is required: an agent's id"))?;
    let session = fields.id("session")?;
    let mut resource = part(&mut fields, "resource")?;
    let kind = resource_kind(&mut resource)?;
    let id = resource.required_text("id", 1, GLOB_CHARS_MAX)?;
    resource.end()?;
    let permission = fields.bounded_text("permission", 64)?.unwrap_or_else(|| policy::INVOKE.to_owned());
    fields.end()?;
    let agent = plane.registry.agent(caller.workspace_id, agent_id, None).await?.ok_or_else(|| {
        let message = format!("There is no agent {agent_id} in this workspace. Check `agent`.");
        Problem::new(Code::UnknownReference, message).with("field", "agent")
    })?;
    plane.registry.acting_principal(caller.workspace_id, principal).await?;
    let (mut rules, groups) = plane.registry.policy_context(caller.workspace_id, principal).await?;
    rules.extend(own_rule(&agent, kind, &id));
    let asked = Asked {
        principal,
        groups: &groups,
        agent: agent_id,
        session,
        kind,
        id: &id,
        permission: &permission,
    };
    let reads =
        kind == ResourceKind::Tool && tool::Name::from_text(&id).is_some_and(tool::Name::is_read_only);
    let resolved = policy::resolve(&rules, &asked, reads);
    let matched: Vec<&Source> =
        rules.iter().filter(|(_, rule)| rule.matches(&asked)).map(|(source, _)| source).collect();
    reply::ok(&json!({
        "type": "policy_evaluation",
        "disposition": resolved.disposition,
        "decided_by": resolved.by,
        "reason": permission::reason(&resolved),
        "other_responder": resolved.other_responder,
        "ttl_seconds": resolved.ttl_seconds,
        "matched": matched,
    }))
}
