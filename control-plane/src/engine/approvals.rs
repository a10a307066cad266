//! Approvals as rows: list, get, answer, expire. An answer is a decision on the session's log; the rows follow from it.

use super::{
    Cx, Engine,
    log::{self, Loaded},
    replay,
    standing::{self, StandingWish},
};
use crate::{
    domain::{
        approval::{self, Answered, Open},
        draft::Said,
        grant::{Kind, Permission},
    },
    http::path::not_found,
    record::Replay,
    registry::assignments,
    store,
};
use checkfu_shared::{
    event::{ApprovalStatus, Cause, Confirmation, ToolConfirmation},
    id::{ApprovalId, EventId, PrincipalId, SessionId, WorkspaceId},
    problem::{Code, Problem},
    protocol::append::{hex, sha256_hex},
    secret::Secret,
    time::Timestamp,
};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::{Value, json};

/// How many approvals one transaction expires.
const CHUNK: u32 = 100;

/// By what right somebody answers.
#[derive(Debug, Clone)]
pub enum Credential {
    /// As a principal who may answer.
    Principal(PrincipalId),
    /// With a token that was made for one answer.
    Token(Secret),
}

/// An answer to an approval.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Yes or no.
    pub decision: Confirmation,
    /// By what right.
    pub credential: Credential,
    /// What is said beside it; on a denial the model reads it.
    pub note: Option<String>,
    /// What is to stand from now on; with a yes only.
    pub standing: Option<StandingWish>,
    /// What made it happen.
    pub caused_by: Cause,
}

/// Which approvals to list, newest first.
#[derive(Debug, Clone, Default)]
pub struct ApprovalQuery {
    /// Only this one.
    pub only: Option<ApprovalId>,
    /// Only those that are so far.
    pub status: Option<String>,
    /// Only this session's.
    pub session: Option<SessionId>,
    /// Only ids that sort before this one.
    pub before: Option<String>,
    /// How many rows.
    pub rows: i64,
}

const COLUMNS: &str = "select a.id, sessions.id, a.tool_use_id, a.principal_id, a.agent_id, a.resource_kind, a.tool, \
    a.arguments, a.arguments_sha256, a.reason, a.other_responder, a.requested_at, a.expires_at, a.status, a.responder, \
    a.responded_at, a.note from action_approvals a join sessions on sessions.key = a.session";

fn wire(row: &Row<'_>) -> rusqlite::Result<(String, Value)> {
    let text = |at: usize| row.get::<_, Option<String>>(at);
    let at = |at: usize| row.get::<_, Option<i64>>(at).map(|ms| ms.map(Timestamp::from_ms));
    let id: String = row.get(0)?;
    let arguments: Value = serde_json::from_str(&row.get::<_, String>(7)?).unwrap_or_default();
    let wire = json!({
        "id": id,
        "type": "action_approval",
        "session_id": text(1)?,
        "tool_use_id": text(2)?,
        "principal_id": text(3)?,
        "agent_id": text(4)?,
        "resource_kind": text(5)?,
        "tool": text(6)?,
        "arguments": arguments,
        "arguments_sha256": text(8)?,
        "connection": null,
        "policy_rule": text(9)?,
        "other_responder": row.get::<_, bool>(10)?,
        "requested_at": at(11)?,
        "expires_at": at(12)?,
        "status": text(13)?,
        "responder": text(14)?,
        "responded_at": at(15)?,
        "note": text(16)?,
    });
    Ok((id, wire))
}

fn select(
    conn: &Connection,
    workspace: WorkspaceId,
    query: &ApprovalQuery,
) -> Result<Vec<(String, Value)>, store::Error> {
    let mut statement = conn.prepare_cached(&format!(
        "{COLUMNS} where a.workspace_id = ?1 and (?2 is null or a.id = ?2) and (?3 is null or a.status = ?3)
           and (?4 is null or sessions.id = ?4) and (?5 is null or a.id < ?5) order by a.id desc limit ?6"
    ))?;
    let rows = statement.query_map(
        params![
            workspace.to_string(),
            query.only.map(|id| id.to_string()),
            query.status,
            query.session.map(|id| id.to_string()),
            query.before,
            query.rows
        ],
        wire,
    )?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn shown(conn: &Connection, workspace: WorkspaceId, id: ApprovalId) -> Result<Value, store::Error> {
    let query = ApprovalQuery { only: Some(id), rows: 1, ..ApprovalQuery::default() };
    let (_, found) = select(conn, workspace, &query)?.pop().ok_or_else(|| not_found("action approval"))?;
    Ok(found)
}

/// An approval's row with its call and its session.
struct Asked {
    id: ApprovalId,
    session: i64,
    call: EventId,
    open: Open,
}

fn asked(
    conn: &Connection,
    rest: &str,
    arguments: &[&dyn rusqlite::ToSql],
) -> Result<Vec<Asked>, store::Error> {
    let mut statement = conn.prepare_cached(&format!(
        "select id, session, tool_use_id, status, principal_id, other_responder, expires_at from action_approvals {rest}"
    ))?;
    let rows = statement.query_map(arguments, |row| {
        let ids: (String, i64, String, String, String) =
            (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?);
        Ok((ids, row.get::<_, bool>(5)?, row.get::<_, i64>(6)?))
    })?;
    rows.map(|row| {
        let ((id, session, call, status, principal), other_responder, expires_at) = row?;
        let open = Open {
            status: serde_json::from_value(status.into())?,
            principal: log::parsed(&principal)?,
            other_responder,
            expires_at: Timestamp::from_ms(expires_at),
        };
        Ok(Asked { id: log::parsed(&id)?, session, call: log::parsed(&call)?, open })
    })
    .collect()
}

/// Whether this principal may answer this approval.
fn may_respond(
    conn: &Connection,
    workspace: WorkspaceId,
    principal: PrincipalId,
    id: ApprovalId,
    now: Timestamp,
) -> Result<(), store::Error> {
    let grants = assignments::grants(conn, workspace, principal, now)?;
    Ok(grants.check(Permission::RespondApproval, Kind::ActionApproval, &id.to_string())?)
}

/// Checks an answer that came as an input of the session. A call that no approval was made of is the domain's alone.
pub(super) fn check_confirmation(
    tx: &Connection,
    loaded: &Loaded,
    answer: &ToolConfirmation,
    responder: PrincipalId,
    now: Timestamp,
) -> Result<(), store::Error> {
    let rest = "where session = ?1 and tool_use_id = ?2";
    let found = asked(tx, rest, &[&loaded.key, &answer.tool_use_id.to_string()])?.pop();
    let Some(found) = found else { return Ok(()) };
    may_respond(tx, loaded.workspace_id, responder, found.id, now)?;
    if found.open.status != ApprovalStatus::Pending {
        return Ok(());
    }
    match approval::judge(&found.open, answer.result, responder, now)? {
        Answered::First | Answered::Again => Ok(()),
        Answered::TooLate => Err(too_late().into()),
    }
}

fn too_late() -> Problem {
    Problem::new(
        Code::AlreadyResolved,
        "This approval is past its time and counts as denied. Ask the agent to make the call again.",
    )
    .with("status", "expired")
}

impl Engine {
    /// Approvals, newest first, each with its id.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn approvals(
        &self,
        workspace: WorkspaceId,
        query: ApprovalQuery,
    ) -> Result<Vec<(String, Value)>, Problem> {
        Ok(self.store().read(move |conn| select(conn, workspace, &query)).await?)
    }

    /// Answers an approval. The same answer again gets the first result.
    ///
    /// # Errors
    /// [`Code::NotFound`], [`Code::AlreadyResolved`] for another answer than the first or one past its time,
    /// [`Code::PermissionDenied`] for a responder who may not.
    pub async fn answer(
        &self,
        workspace: WorkspaceId,
        id: ApprovalId,
        answer: Answer,
    ) -> Result<Value, Problem> {
        // An answer that comes too late ends the approval, so its refusal is a value of the job and not its failure.
        self.change(move |tx, cx| respond(tx, cx, workspace, id, answer)).await?
    }

    /// A token good for one answer to this approval by this principal; shown once, and not to a repetition.
    ///
    /// # Errors
    /// [`Code::NotFound`], [`Code::AlreadyResolved`], [`Code::PermissionDenied`] when the principal may not answer.
    pub async fn response_token(
        &self,
        workspace: WorkspaceId,
        id: ApprovalId,
        principal: PrincipalId,
        replay: Option<Replay>,
    ) -> Result<Value, Problem> {
        let bytes = self.0.key.random::<32>();
        let bytes = bytes.map_err(|_| Problem::new(Code::Internal, "The server has no random bytes now."))?;
        let token = Secret::new(format!("rsp_{}", hex(&bytes)));
        let hash = sha256_hex(token.reveal().as_bytes());
        let (first, mut shown) = self
            .change(move |tx, cx| {
                if let Some(shown) = replay::find::<Value>(tx, replay.as_ref(), cx.now)? {
                    return Ok((false, shown));
                }
                let rest = "where workspace_id = ?1 and id = ?2";
                let found = asked(tx, rest, &[&workspace.to_string(), &id.to_string()])?.pop();
                let found = found.ok_or_else(|| not_found("action approval"))?;
                may_respond(tx, workspace, principal, id, cx.now)?;
                let first = approval::judge(&found.open, Confirmation::Allow, principal, cx.now)?;
                if first != Answered::First {
                    return Err(too_late().into());
                }
                tx.execute(
                    "insert into response_tokens (hash, approval_id, principal_id, expires_at) values (?1, ?2, ?3, ?4)",
                    params![hash, id.to_string(), principal.to_string(), found.open.expires_at.as_ms()],
                )?;
                let shown = json!({
                    "type": "response_token",
                    "approval_id": id,
                    "principal": principal,
                    "expires_at": found.open.expires_at,
                });
                replay::keep(tx, replay.as_ref(), cx.now, &shown)?;
                Ok((true, shown))
            })
            .await?;
        if first {
            shown["token"] = token.reveal().into();
        }
        Ok(shown)
    }

    /// Approvals that nobody answered in time are expired: their sessions go on with a denial.
    ///
    /// # Errors
    /// When the store cannot be used.
    pub async fn expire_approvals(&self) -> Result<(), Problem> {
        let now = self.now().as_ms();
        let sql =
            "select exists (select 1 from action_approvals where status = 'pending' and expires_at <= ?1)";
        if !self.any(sql, now).await? {
            return Ok(());
        }
        self.change(move |tx, cx| {
            let rest = "where status = 'pending' and expires_at <= ?1 limit ?2";
            for found in asked(tx, rest, &[&cx.now.as_ms(), &CHUNK])? {
                expire(tx, cx, &found)?;
            }
            tx.execute("delete from response_tokens where expires_at <= ?1", [cx.now.as_ms()])?;
            Ok(())
        })
        .await
    }
}

fn expire(tx: &Connection, cx: &mut Cx, found: &Asked) -> Result<(), store::Error> {
    let mut loaded = log::load_key(tx, found.session)?;
    let ((), _, hint) = loaded.decide(tx, cx.now, |draft| {
        approval::expire(draft, found.id, found.call);
        Ok(())
    })?;
    cx.hints.push(hint);
    Ok(())
}

fn respond(
    tx: &Connection,
    cx: &mut Cx,
    workspace: WorkspaceId,
    id: ApprovalId,
    answer: Answer,
) -> Result<Result<Value, Problem>, store::Error> {
    let rest = "where workspace_id = ?1 and id = ?2";
    let found = asked(tx, rest, &[&workspace.to_string(), &id.to_string()])?.pop();
    let found = found.ok_or_else(|| not_found("action approval"))?;
    let responder = match &answer.credential {
        Credential::Principal(principal) => *principal,
        Credential::Token(token) => bearer(tx, id, token, cx.now)?,
    };
    may_respond(tx, workspace, responder, id, cx.now)?;
    match approval::judge(&found.open, answer.decision, responder, cx.now)? {
        Answered::Again => return shown(tx, workspace, id).map(Ok),
        Answered::TooLate => {
            expire(tx, cx, &found)?;
            return Ok(Err(too_late()));
        }
        Answered::First => {}
    }
    if let Credential::Token(token) = &answer.credential {
        let hash = sha256_hex(token.reveal().as_bytes());
        tx.execute("update response_tokens set used_at = ?2 where hash = ?1", params![hash, cx.now.as_ms()])?;
    }
    let deny_message = answer.note.clone().filter(|_| answer.decision == Confirmation::Deny);
    let confirmation = ToolConfirmation { tool_use_id: found.call, result: answer.decision, deny_message };
    let said = Said { authored_by: responder, caused_by: answer.caused_by };
    let note = answer.note;
    let mut loaded = log::load_key(tx, found.session)?;
    let ((), _, hint) = loaded.decide(tx, cx.now, |draft| {
        approval::answer(draft, confirmation, note, said);
        Ok(())
    })?;
    cx.hints.push(hint);
    let stands = match answer.standing {
        Some(wish) => Some(standing::mint(tx, &id.to_string(), responder, wish, cx.now)?),
        None => None,
    };
    let mut shown = shown(tx, workspace, id)?;
    shown["standing_approval_id"] = json!(stands);
    Ok(Ok(shown))
}

/// The principal whom a token lets answer.
fn bearer(
    tx: &Connection,
    id: ApprovalId,
    token: &Secret,
    now: Timestamp,
) -> Result<PrincipalId, store::Error> {
    let row: Option<(String, Option<i64>)> = tx
        .prepare_cached(
            "select principal_id, used_at from response_tokens where hash = ?1 and approval_id = ?2 and expires_at > ?3",
        )?
        .query_row(params![sha256_hex(token.reveal().as_bytes()), id.to_string(), now.as_ms()], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .optional()?;
    match row {
        Some((principal, None)) => log::parsed(&principal),
        Some((_, Some(_))) => {
            let message = "This response token was used already. It carries exactly one answer.";
            Err(Problem::new(Code::AlreadyResolved, message).into())
        }
        None => {
            let message = "The response token is not one of this approval, or past its time.";
            Err(Problem::new(Code::PermissionDenied, message).into())
        }
    }
}
