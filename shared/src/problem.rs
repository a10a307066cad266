//! The one error body of every reply: a stable code, a sentence for the caller, and details that scripts may branch on.
//! A message never carries a stack, a path of the server, SQL or a secret.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident $text:literal $status:literal $kind:literal;)*) => {
        /// Every stable error code. The text form is the wire's `error_code` and never changes its meaning.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum Code { $($(#[$doc])* #[serde(rename = $text)] $name,)* }

        impl Code {
            /// All codes, for tests and documentation.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The wire's `error_code`.
            #[must_use]
            pub const fn as_str(self) -> &'static str { match self { $(Self::$name => $text,)* } }

            /// The HTTP status that carries it.
            #[must_use]
            pub const fn status(self) -> u16 { match self { $(Self::$name => $status,)* } }

            /// The `error.type` an SDK branches on.
            #[must_use]
            pub const fn kind(self) -> &'static str { match self { $(Self::$name => $kind,)* } }

            /// The code with this text.
            #[must_use]
            pub fn from_text(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$name),)* _ => None }
            }
        }
    };
}

codes! {
    /// The request is malformed or breaks a documented rule.
    InvalidRequest "invalid_request" 400 "invalid_request_error";
    /// A header is missing or has no known value.
    InvalidHeader "invalid_header" 400 "invalid_request_error";
    /// The body is not JSON.
    InvalidJson "invalid_json" 400 "invalid_request_error";
    /// The body has a field nobody knows.
    UnknownField "unknown_field" 400 "invalid_request_error";
    /// An id in a body does not name anything.
    UnknownReference "unknown_reference" 400 "invalid_request_error";
    /// The feature is known and not there yet.
    Unsupported "unsupported" 400 "invalid_request_error";
    /// The session's state does not allow it now.
    InvalidState "invalid_state" 400 "invalid_request_error";
    /// The kind of an environment never changes.
    InvalidConfigTypeChange "invalid_config_type_change" 400 "invalid_request_error";
    /// An archived resource takes no changes.
    Archived "archived" 400 "invalid_request_error";
    /// The environment is archived.
    EnvironmentArchived "environment_archived" 400 "invalid_request_error";
    /// Metadata breaks its limits.
    InvalidMetadata "invalid_metadata" 400 "invalid_request_error";
    /// A cursor does not fit the query.
    InvalidCursor "invalid_cursor" 400 "invalid_request_error";
    /// No credential, or one that is not valid any more.
    Unauthenticated "unauthenticated" 401 "authentication_error";
    /// The budget of the session is spent.
    BudgetReached "budget_reached" 400 "billing_error";
    /// The caller may not do this.
    PermissionDenied "permission_denied" 403 "permission_error";
    /// This runner was revoked; it stops its sandboxes and parks.
    RunnerRevoked "runner_revoked" 403 "permission_error";
    /// An older instance of this identity is alive on another machine.
    IdentityInUse "identity_in_use" 409 "conflict_error";
    /// Nothing with this id in this workspace.
    NotFound "not_found" 404 "not_found_error";
    /// No environment with this id in this workspace.
    EnvironmentNotFound "environment_not_found" 404 "not_found_error";
    /// No such route.
    UnknownRoute "unknown_route" 404 "not_found_error";
    /// The route exists, the method does not.
    MethodNotAllowed "method_not_allowed" 405 "invalid_request_error";
    /// A compare-and-set lost, or a name is taken.
    Conflict "conflict" 409 "conflict_error";
    /// The approval has another answer already.
    AlreadyResolved "already_resolved" 409 "conflict_error";
    /// The idempotency key was used with another body.
    IdempotencyConflict "idempotency_conflict" 409 "conflict_error";
    /// A newer epoch owns the session, or the claim ended.
    Fenced "fenced" 409 "conflict_error";
    /// The offer of this claim lapsed.
    ClaimLapsed "claim_lapsed" 409 "conflict_error";
    /// Events skip an index; `details.expected` names the wanted one.
    EventsGap "events_gap" 409 "conflict_error";
    /// An event differs from the one already logged under its index.
    EventsConflict "events_conflict" 409 "conflict_error";
    /// The upload starts elsewhere than the stored offset; `details.offset` names it.
    UploadOffset "upload_offset" 409 "conflict_error";
    /// The uploaded bytes do not have the announced digest or size.
    UploadMismatch "upload_mismatch" 409 "conflict_error";
    /// The body is larger than the limit.
    TooLarge "too_large" 413 "invalid_request_error";
    /// The requested byte range lies outside the file.
    RangeNotSatisfiable "range_not_satisfiable" 416 "invalid_request_error";
    /// The pairing code is wrong, used or burnt.
    PairingCodeInvalid "pairing_code_invalid" 400 "invalid_request_error";
    /// The pairing code is past its time.
    PairingCodeExpired "pairing_code_expired" 400 "invalid_request_error";
    /// Too many requests; `Retry-After` says when.
    RateLimited "rate_limited" 429 "rate_limit_error";
    /// A defect of ours; the request id finds it in the log.
    Internal "internal" 500 "api_error";
    /// The model provider cannot be reached or answered nonsense.
    ProviderUnreachable "provider_unreachable" 502 "api_error";
    /// The server has no model provider to ask.
    ProviderMissing "provider_missing" 400 "invalid_request_error";
    /// The model provider does not accept the key that the server holds for it.
    ProviderKeyRefused "provider_key_refused" 403 "permission_error";
    /// The server cannot take more now.
    Overloaded "overloaded" 503 "overloaded_error";
    /// The server is stopping.
    Stopping "stopping" 503 "overloaded_error";
}

/// One refusal, as the caller sees it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Problem {
    /// The stable code.
    pub code: Code,
    /// What failed, why, and what to do, in full sentences.
    pub message: String,
    /// Further members beside `error_code`.
    pub details: Map<String, Value>,
}

impl Problem {
    /// A refusal without further details.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: Map::new() }
    }

    /// The same refusal with one more detail.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.details.insert(name.to_owned(), value.into());
        self
    }

    /// The JSON body of the reply.
    #[must_use]
    pub fn body(&self, request_id: &str) -> Value {
        let mut details = self.details.clone();
        details.insert("error_code".to_owned(), self.code.as_str().into());
        serde_json::json!({
            "type": "error",
            "error": {"type": self.code.kind(), "message": self.message, "details": details},
            "request_id": request_id,
        })
    }

    /// Reads a reply's body back; `None` when it is not of our form.
    #[must_use]
    pub fn from_body(body: &Value) -> Option<Self> {
        let error = body.get("error")?;
        let mut details = error.get("details")?.as_object()?.clone();
        let code = Code::from_text(details.remove("error_code")?.as_str()?)?;
        Some(Self { code, message: error.get("message")?.as_str()?.to_owned(), details })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_survives_its_text_and_its_body() {
        for &code in Code::ALL {
            assert_eq!(Code::from_text(code.as_str()), Some(code));
            let problem = Problem::new(code, "No.").with("expected", 3);
            assert_eq!(Problem::from_body(&problem.body("req_1")), Some(problem));
        }
    }
}
