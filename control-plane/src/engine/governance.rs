//! What a workspace's policies say of a session, loaded for one decision; and what a decision means for approvals and the
//! audit, written in the transaction of the decision.

use super::{log::Loaded, standing};
use crate::{
    audit::{self, Outcome},
    domain::{draft::Decided, policy::Context},
    registry::{members, policies},
    store,
};
use checkfu_shared::{
    event::{ApprovalPending, ApprovalResolved, Body, Event},
    time::Timestamp,
};
use rusqlite::{Connection, params};
use serde_json::Value;

/// What has to be known of policies for a decision on this session.
pub(super) fn context(conn: &Connection, loaded: &Loaded, now: Timestamp) -> Result<Context, store::Error> {
    let (workspace, principal) = (loaded.workspace_id, loaded.definition.principal_id);
    let rules = policies::rules(conn, workspace)?;
    let groups = if rules.is_empty() { Vec::new() } else { members::groups(conn, principal)? };
    let standing = standing::of(conn, workspace, principal, loaded.definition.agent.id, now)?;
    Ok(Context { rules, groups, standing })
}

/// Keeps the rows of approvals equal to the log, and tells the audit what it has to know of the decision.
pub(super) fn record(
    tx: &Connection,
    loaded: &Loaded,
    now: Timestamp,
    decided: &Decided,
) -> Result<(), store::Error> {
    for event in &decided.events {
        match &event.body {
            Body::ActionApprovalPending(asked) => insert(tx, loaded, now, asked, &decided.events)?,
            Body::ActionApprovalResolved(end) => resolve(tx, loaded, now, end)?,
            _ => {}
        }
    }
    for noted in &decided.noted {
        let (tool, digest) = (&noted.tool, &noted.arguments_sha256);
        let (action, outcome) = match noted.evaluated.standing() {
            Some(standing) => {
                standing::use_one(tx, standing)?;
                (format!("standing_approval.used {standing}"), Outcome::Done)
            }
            None => ("tool_call.denied".to_owned(), Outcome::Denied),
        };
        let entry = audit::Entry {
            actor: loaded.definition.principal_id,
            action,
            resource: format!("{} {}/{tool}", loaded.id, noted.kind.as_str()),
            outcome,
            before_sha256: None,
            after_sha256: Some(digest.clone()),
            request_id: None,
        };
        audit::append(tx, loaded.workspace_id, now, entry)?;
    }
    Ok(())
}

/// The arguments of a call as its event in this decision holds them.
fn arguments<'e>(events: &'e [Event], asked: &ApprovalPending) -> Option<&'e Value> {
    let call = events.iter().find(|event| event.id == asked.tool_use_id)?;
    match &call.body {
        Body::AgentToolUse(call) => Some(&call.input),
        Body::AgentToolProposed { input, .. } => Some(input),
        _ => None,
    }
}

fn insert(
    tx: &Connection,
    loaded: &Loaded,
    now: Timestamp,
    asked: &ApprovalPending,
    events: &[Event],
) -> Result<(), store::Error> {
    let arguments = serde_json::to_string(arguments(events, asked).unwrap_or(&Value::Null))?;
    tx.prepare_cached(
        "insert into action_approvals (id, workspace_id, session, tool_use_id, principal_id, agent_id, resource_kind, tool,
           arguments, arguments_sha256, reason, other_responder, requested_at, expires_at, status)
         values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, 'pending')",
    )?
    .execute(params![
        asked.approval_id.to_string(),
        loaded.workspace_id.to_string(),
        loaded.key,
        asked.tool_use_id.to_string(),
        loaded.definition.principal_id.to_string(),
        loaded.definition.agent.id.to_string(),
        asked.resource_kind,
        asked.tool,
        arguments,
        asked.arguments_sha256,
        asked.reason,
        asked.other_responder,
        now.as_ms(),
        asked.expires_at.as_ms(),
    ])?;
    Ok(())
}

fn resolve(
    tx: &Connection,
    loaded: &Loaded,
    now: Timestamp,
    end: &ApprovalResolved,
) -> Result<(), store::Error> {
    tx.prepare_cached(
        "update action_approvals set status = ?2, responder = ?3, responded_at = ?4, note = ?5 where id = ?1",
    )?
    .execute(params![
        end.approval_id.to_string(),
        end.status.as_str(),
        end.responder.map(|id| id.to_string()),
        now.as_ms(),
        end.note,
    ])?;
    let entry = audit::Entry {
        actor: end.responder.unwrap_or(loaded.definition.principal_id),
        action: format!("action_approval.{}", end.status.as_str()),
        resource: format!("{} {}", loaded.id, end.approval_id),
        outcome: Outcome::Done,
        before_sha256: None,
        after_sha256: None,
        // The row of the request itself, in the same transaction, names it.
        request_id: None,
    };
    audit::append(tx, loaded.workspace_id, now, entry)
}
