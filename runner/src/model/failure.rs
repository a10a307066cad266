//! What went wrong with a model request and whether asking again helps. Pure: status, headers and body in, a verdict out.

use checkfu_shared::problem::{Code, Problem};
use serde_json::Value;

/// Why there is no reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// It may go better the next time.
    #[error("{message}")]
    Retry {
        /// The `type` that the session shows.
        kind: &'static str,
        /// What failed.
        message: String,
        /// How long the provider wants to be left alone.
        after_ms: Option<u64>,
    },
    /// Asking again with the same conversation cannot help.
    #[error("{message}")]
    Fatal {
        /// The `type` that the session shows.
        kind: &'static str,
        /// What failed.
        message: String,
    },
    /// The conversation is longer than the model's window, or larger than a request may be.
    #[error("the conversation is too long for the model")]
    TooLong,
    /// The session's budget is spent.
    #[error("the budget of the session is spent")]
    Budget,
    /// The claim is not this runner's any more.
    #[error("the claim ended")]
    Fenced,
}

const FAILED: &str = "model_request_failed_error";

/// A stream that broke off or made no sense.
#[must_use]
pub fn broken(what: &str) -> Failure {
    Failure::Retry { kind: FAILED, message: format!("The model's reply was lost: {what}."), after_ms: None }
}

/// The gateway or the provider could not be reached.
#[must_use]
pub fn unreachable(what: &str) -> Failure {
    Failure::Retry {
        kind: FAILED,
        message: format!("The model could not be reached: {what}."),
        after_ms: None,
    }
}

/// An `error` event inside a stream.
#[must_use]
pub fn of_stream(error: &Value) -> Failure {
    let kind = error.get("type").and_then(Value::as_str).unwrap_or("api_error");
    let message = error.get("message").and_then(Value::as_str).unwrap_or("no message");
    judge(status_of(kind), kind, message, None)
}

/// An answer that is no stream.
#[must_use]
pub fn of_answer(status: u16, retry_after_ms: Option<u64>, body: &[u8]) -> Failure {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    if let Some(problem) = Problem::from_body(&body) {
        return of_problem(&problem, retry_after_ms);
    }
    let error = body.get("error");
    let text = |name: &str| error.and_then(|error| error.get(name)).and_then(Value::as_str);
    let message = text("message").map_or_else(|| format!("status {status} without an error body"), short);
    judge(status, text("type").unwrap_or_default(), &message, retry_after_ms)
}

/// A refusal by the gateway itself.
#[must_use]
pub fn of_problem(problem: &Problem, retry_after_ms: Option<u64>) -> Failure {
    match problem.code {
        Code::BudgetReached => Failure::Budget,
        Code::Fenced | Code::RunnerRevoked => Failure::Fenced,
        // A lease that ended can be revived until a newer epoch is out; the renewals find out which it is.
        Code::ClaimLapsed => unreachable("the claim's lease has to be renewed first"),
        // The capability is renewed with the lease, so a refused one may be replaced a moment later.
        Code::Unauthenticated => unreachable("its gateway did not accept the claim's token"),
        // Only who runs the server can mend these: nothing about the request is wrong, and time does not help.
        Code::ProviderMissing | Code::ProviderKeyRefused => {
            Failure::Fatal { kind: FAILED, message: sentence(&problem.message) }
        }
        code => judge(code.status(), code.kind(), &problem.message, retry_after_ms),
    }
}

fn judge(status: u16, kind: &str, message: &str, after_ms: Option<u64>) -> Failure {
    let message = short(message);
    let retry = |kind, message| Failure::Retry { kind, message, after_ms };
    match status {
        429 => retry("model_rate_limited_error", format!("The model's provider limits the rate: {message}")),
        503 | 529 => {
            retry("model_overloaded_error", format!("The model's provider is overloaded: {message}"))
        }
        413 => Failure::TooLong,
        400 if is_too_long(&message) => Failure::TooLong,
        408 | 500..=599 => retry(FAILED, format!("The model's provider failed: {message}")),
        402 => Failure::Fatal {
            kind: "billing_error",
            message: format!("The model's provider asks for payment: {message}"),
        },
        401 | 403 => Failure::Fatal {
            kind: FAILED,
            message: format!(
                "The model's provider refused the server's key ({kind}): {} Whoever runs the server has to look at the \
                 provider's key and its rights.",
                sentence(&message)
            ),
        },
        _ => Failure::Fatal {
            kind: FAILED,
            message: format!(
                "The model's provider refused the request ({kind}): {} Asking again cannot help: look at the \
                 agent's model and tools and at the last messages, and send a new message once that is put right.",
                sentence(&message)
            ),
        },
    }
}

/// How providers say that a conversation does not fit.
fn is_too_long(message: &str) -> bool {
    const WORDS: [&str; 4] = ["prompt is too long", "context length", "context window", "maximum context"];
    let message = message.to_ascii_lowercase();
    WORDS.iter().any(|words| message.contains(words))
}

fn status_of(kind: &str) -> u16 {
    match kind {
        "invalid_request_error" => 400,
        "authentication_error" => 401,
        "billing_error" => 402,
        "permission_error" => 403,
        "not_found_error" => 404,
        "request_too_large" => 413,
        "rate_limit_error" => 429,
        "overloaded_error" => 529,
        _ => 500,
    }
}

/// Foreign words as one sentence, so that ours can follow.
fn sentence(message: &str) -> String {
    let message = message.trim_end();
    if message.ends_with(['.', '!', '?']) { message.to_owned() } else { format!("{message}.") }
}

fn short(message: &str) -> String {
    message.chars().take(1_000).collect()
}

/// How often one request is sent at most.
pub const ATTEMPTS_MAX: u32 = 8;
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_the_operator_can_mend_says_so_and_blames_nobody_else() {
        let provider = br#"{"error":{"type":"authentication_error","message":"invalid x-api-key"}}"#;
        for failure in [
            of_answer(401, None, provider),
            of_problem(&Problem::new(Code::ProviderKeyRefused, "The server's key is refused"), None),
            of_problem(&Problem::new(Code::ProviderMissing, "The server has no model provider."), None),
        ] {
            let Failure::Fatal { message, .. } = failure else { panic!("{failure:?}") };
            assert!(message.contains("server") && !message.contains("agent"), "{message}");
            assert!(message.ends_with('.') && !message.contains(".."), "{message}");
        }
    }

    #[test]
    fn foreign_words_end_before_ours_begin() {
        let refused = br#"{"error":{"type":"invalid_request_error","message":"max_tokens: too large"}}"#;
        assert!(of_answer(400, None, refused).to_string().contains("too large. Asking again"));
    }

    #[test]
    fn each_answer_has_its_verdict() {
        let provider =
            |kind: &str| format!(r#"{{"type":"error","error":{{"type":"{kind}","message":"m"}}}}"#);
        let gateway = |code| Problem::new(code, "m").body("req").to_string();
        let table = [
            (400, provider("invalid_request_error"), "fatal"),
            (401, provider("authentication_error"), "fatal"),
            (413, provider("request_too_large"), "too long"),
            (
                400,
                r#"{"error":{"type":"invalid_request_error","message":"prompt is too long: 3 tokens > 2 maximum"}}"#.into(),
                "too long",
            ),
            (402, provider("billing_error"), "fatal"),
            (429, provider("rate_limit_error"), "retry"),
            (500, provider("api_error"), "retry"),
            (502, "<html>".to_owned(), "retry"),
            (529, provider("overloaded_error"), "retry"),
            (400, gateway(Code::BudgetReached), "budget"),
            (400, gateway(Code::Unsupported), "fatal"),
            (401, gateway(Code::Unauthenticated), "retry"),
            (409, gateway(Code::Fenced), "fenced"),
            (403, gateway(Code::RunnerRevoked), "fenced"),
            (409, gateway(Code::ClaimLapsed), "retry"),
            (502, gateway(Code::ProviderUnreachable), "retry"),
            (400, gateway(Code::ProviderMissing), "fatal"),
            (403, gateway(Code::ProviderKeyRefused), "fatal"),
            (503, gateway(Code::Stopping), "retry"),
        ];
        for (status, body, want) in table {
            let got = match of_answer(status, None, body.as_bytes()) {
                Failure::Retry { .. } => "retry",
                Failure::Fatal { .. } => "fatal",
                Failure::TooLong => "too long",
                Failure::Budget => "budget",
                Failure::Fenced => "fenced",
            };
            assert_eq!(got, want, "{status} {body}");
        }
    }
}
