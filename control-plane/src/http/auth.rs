//! Credentials and version headers in, a [`Caller`] out. Every request reads the key's row anew, so a revocation holds at once.
//! Never logs a header.

use super::{Plane, reply::Refusal, route};
use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, header, request::Parts},
};
use checkfu_shared::{
    id::{KeyId, PrincipalId, RequestId, WorkspaceId},
    problem::{Code, Problem},
};

use crate::{domain::grant::Grants, engine};

/// The versions of our own dialect.
pub const VERSIONS: [&str; 1] = ["2026-08-29"];
const BETA: &str = "managed-agents";

/// Which rules of leniency the caller asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// `checkfu-version`: strict, attributed.
    Checkfu,
    /// `anthropic-version` alone: what the SDK expects.
    Sdk,
}

/// Who asks, after authentication.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The tenant.
    pub workspace_id: WorkspaceId,
    /// As whom.
    pub principal_id: PrincipalId,
    /// What the principal may do now.
    pub grants: Grants,
    /// With which key.
    pub key_id: KeyId,
    /// The request's own id.
    pub request_id: RequestId,
    /// Strict or lenient.
    pub dialect: Dialect,
    /// The `Idempotency-Key` header.
    pub idempotency_key: Option<String>,
    /// Whether an SDK says that it sends this request again.
    pub repeated: bool,
}

/// The credential of a request, from `Authorization: Bearer` or `x-api-key`.
#[must_use]
pub fn credential(headers: &HeaderMap) -> Option<&str> {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(|text| {
        let (scheme, token) = text.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    bearer
        .or_else(|| headers.get("x-api-key").and_then(|value| value.to_str().ok()).map(str::trim))
        .filter(|token| !token.is_empty())
}

/// Reads the version headers.
///
/// # Errors
/// `invalid_header` when neither is there, or the version or the beta is unknown.
pub fn dialect(headers: &HeaderMap) -> Result<Dialect, Problem> {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let Some(version) = text("checkfu-version") else {
        return if headers.contains_key("anthropic-version") {
            Ok(Dialect::Sdk)
        } else {
            Err(Problem::new(
                Code::InvalidHeader,
                format!(
                    "The request names no version. Send `checkfu-version: {}` with `checkfu-beta: {BETA}`, or `anthropic-version` as the Anthropic SDKs do.",
                    VERSIONS[0]
                ),
            ))
        };
    };
    if !VERSIONS.contains(&version.trim()) {
        let message =
            format!("`checkfu-version` has no such value. Known versions: {}.", VERSIONS.join(", "));
        return Err(Problem::new(Code::InvalidHeader, message).with("known_versions", VERSIONS.to_vec()));
    }
    let beta = text("checkfu-beta").unwrap_or_default();
    if beta.split(',').any(|entry| entry.trim() == BETA) {
        Ok(Dialect::Checkfu)
    } else {
        Err(Problem::new(
            Code::InvalidHeader,
            format!("`checkfu-version` needs `checkfu-beta: {BETA}` beside it. Add that header."),
        ))
    }
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    match value.to_str().map(str::trim) {
        Ok(key) if (1..=255).contains(&key.len()) => Ok(Some(key.to_owned())),
        _ => Err(Problem::new(
            Code::InvalidHeader,
            "`Idempotency-Key` must have 1 to 255 printable ASCII characters.",
        )),
    }
}

/// Who asks, by the key that the request carries.
///
/// # Errors
/// `unauthenticated`, or `invalid_header` for a header that makes no sense.
pub async fn caller(plane: &Plane, parts: &Parts) -> Result<Caller, Problem> {
    let headers = &parts.headers;
    let token = credential(headers).ok_or_else(|| {
        Problem::new(
            Code::Unauthenticated,
            "The request carries no API key. Send `Authorization: Bearer <key>` or `x-api-key: <key>`.",
        )
    })?;
    let key = plane.registry.authenticate(token, plane.clock.now()).await?;
    let retries = headers.get("x-stainless-retry-count").and_then(|value| value.to_str().ok());
    Ok(Caller {
        workspace_id: key.workspace_id,
        principal_id: key.principal_id,
        grants: key.grants,
        key_id: key.id,
        request_id: parts.extensions.get::<RequestId>().copied().unwrap_or_else(RequestId::mint),
        dialect: dialect(headers)?,
        idempotency_key: idempotency_key(headers)?,
        repeated: retries.is_some_and(|count| count.parse::<u32>().is_ok_and(|count| count > 0)),
    })
}

/// The runner behind the request, checked against the store.
///
/// # Errors
/// `unauthenticated` or `runner_revoked`.
pub async fn runner(plane: &Plane, parts: &Parts) -> Result<engine::Caller, Problem> {
    let Some(token) = credential(&parts.headers) else {
        return Err(Problem::new(
            Code::Unauthenticated,
            "A runner token is missing. Send it as `Authorization: Bearer`.",
        ));
    };
    plane.engine.authenticate(token).await
}

/// Whom the route's guard let in.
impl FromRequestParts<Plane> for Caller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &Plane) -> Result<Self, Refusal> {
        parts.extensions.get::<Self>().cloned().ok_or_else(route::no_caller)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn either_version_header_names_the_dialect_and_neither_is_refused_naming_both() {
        let ours = [("checkfu-version", "2026-08-29"), ("checkfu-beta", "x, managed-agents")];
        assert_eq!(dialect(&headers(&ours)), Ok(Dialect::Checkfu));
        for version in ["2023-06-01", "2026-10-21"] {
            assert_eq!(dialect(&headers(&[("anthropic-version", version)])), Ok(Dialect::Sdk));
        }
        let problem = dialect(&headers(&[])).unwrap_err();
        assert!(problem.message.contains("checkfu-version") && problem.message.contains("anthropic-version"));
        let problem =
            dialect(&headers(&[("checkfu-version", "2020-01-01"), ("anthropic-version", "x")])).unwrap_err();
        assert!(problem.message.contains("2026-08-29"));
        assert!(dialect(&headers(&ours[..1])).is_err());
    }

    #[test]
    fn a_credential_is_a_bearer_or_an_api_key_header() {
        for (pairs, want) in [
            (&[("authorization", "Bearer abc")][..], Some("abc")),
            (&[("authorization", "bearer  abc ")], Some("abc")),
            (&[("x-api-key", "abc")], Some("abc")),
            (&[("authorization", "Basic abc"), ("x-api-key", "def")], Some("def")),
            (&[("authorization", "Bearer ")], None),
            (&[], None),
        ] {
            assert_eq!(credential(&headers(pairs)), want, "{pairs:?}");
        }
    }
}
