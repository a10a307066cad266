//! Ids on a path. A malformed one names nothing, so it is `not_found` like an unknown one.

use super::{Plane, reply::Refusal};
use axum::{
    extract::{FromRequestParts, RawPathParams},
    http::request::Parts,
};
use checkfu_shared::{
    id::{
        self, AgentId, ApprovalId, AssignmentId, BudgetId, DeploymentId, EnvironmentId, FileId, KeyId,
        ModelRouteId, PairingId, PolicyId, PrincipalId, ProviderId, RunnerId, SessionId, StandingId,
        ThreadId,
    },
    problem::{Code, Problem},
};
use std::str::FromStr;

/// An id that routes may carry.
pub trait InPath: FromStr<Err = id::Error> + Send {
    /// The name of the parameter in the route, which is what the caller reads too.
    const PARAM: &'static str;
}

macro_rules! in_path {
    ($($id:ident $param:literal;)*) => {$(impl InPath for $id { const PARAM: &'static str = $param; })*};
}

in_path! {
    SessionId "session";
    ThreadId "thread";
    AgentId "agent";
    EnvironmentId "environment";
    RunnerId "runner";
    PrincipalId "principal";
    KeyId "key";
    PairingId "pairing";
    ProviderId "provider";
    ModelRouteId "route";
    BudgetId "budget";
    AssignmentId "assignment";
    FileId "file";
    Member "member";
    PolicyId "policy";
    ApprovalId "approval";
    StandingId "standing";
    DeploymentId "deployment";
}

/// A second principal on a path.
#[derive(Debug, Clone, Copy)]
pub struct Member(pub PrincipalId);

impl FromStr for Member {
    type Err = id::Error;
    fn from_str(text: &str) -> Result<Self, id::Error> {
        text.parse().map(Self)
    }
}

/// The id on the path.
#[derive(Debug, Clone, Copy)]
pub struct At<T>(pub T);

/// Nothing of this kind has this id in this workspace.
#[must_use]
pub fn not_found(what: &str) -> Problem {
    let code = if what == EnvironmentId::PARAM { Code::EnvironmentNotFound } else { Code::NotFound };
    Problem::new(code, format!("There is no such {what} in this workspace. Check its id."))
}

impl<T: InPath> FromRequestParts<Plane> for At<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, plane: &Plane) -> Result<Self, Refusal> {
        let params = RawPathParams::from_request_parts(parts, plane).await;
        let params = params.map_err(|_| not_found(T::PARAM))?;
        let text = params.iter().find(|(name, _)| *name == T::PARAM).map(|(_, text)| text);
        let id = text.and_then(|text| text.parse().ok()).ok_or_else(|| not_found(T::PARAM))?;
        Ok(Self(id))
    }
}
