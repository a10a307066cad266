//! A failure of a provider or of the gateway, read from one wire's error and written in another's.
//! Refusals of the key keep none of the provider's words, since providers quote parts of the key.

use serde_json::{Value, json};

/// What failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The class.
    pub kind: Kind,
    /// The sentence for the caller.
    pub message: String,
}

/// The classes that every wire can tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The request is wrong.
    Invalid,
    /// The conversation is larger than the model's window.
    TooLong,
    /// The credential is not accepted.
    Authentication,
    /// There is no money left.
    Billing,
    /// The credential may not do this.
    Permission,
    /// There is no such model.
    NotFound,
    /// The body is too large.
    TooLarge,
    /// Too many requests.
    RateLimit,
    /// Nothing came in time.
    Timeout,
    /// The provider cannot take more now.
    Overloaded,
    /// Anything else.
    Api,
}

/// The words by which clients of the Messages wire know that a conversation is too long.
const TOO_LONG: &str = "prompt is too long";
const WORDS_MAX: usize = 2_000;

impl Fault {
    /// A fault of this class.
    #[must_use]
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// A provider that broke off or broke the rules of its wire.
    pub(super) fn broken(message: &str) -> Self {
        Self::new(Kind::Api, message)
    }

    /// Reads the error reply of a provider of either wire.
    #[must_use]
    pub fn of_body(status: u16, body: &Value) -> Self {
        let error = error_of(body);
        let kind = Kind::of_words(error).unwrap_or_else(|| Kind::of_status(status));
        let kind = if matches!(status, 401 | 403) { Kind::of_status(status) } else { kind };
        Self::told(kind, error, &format!("The model provider answered with status {status}."))
    }

    /// Reads an error inside a stream.
    #[must_use]
    pub fn of_event(body: &Value) -> Self {
        let error = error_of(body);
        Self::told(Kind::of_words(error).unwrap_or(Kind::Api), error, "The model provider failed.")
    }

    fn told(kind: Kind, error: &Value, otherwise: &str) -> Self {
        if matches!(kind, Kind::Authentication | Kind::Permission) {
            return Self::new(
                kind,
                "The model provider refuses the server's key. Whoever runs the server must check it.",
            );
        }
        let words = error["message"].as_str().or_else(|| error.as_str()).unwrap_or(otherwise);
        let words: String = words.chars().take(WORDS_MAX).collect();
        if kind == Kind::TooLong && !words.starts_with(TOO_LONG) {
            return Self::new(kind, format!("{TOO_LONG}: {words}"));
        }
        Self::new(kind, words)
    }

    /// The body of an error reply, and the data of an error event, of the Messages wire.
    #[must_use]
    pub fn messages(&self, request_id: &str) -> Value {
        json!({
            "type": "error",
            "error": {"type": self.kind.messages(), "message": self.message},
            "request_id": request_id,
        })
    }

    /// The body of an error reply of both OpenAI wires.
    #[must_use]
    pub fn openai(&self) -> Value {
        let (kind, code) = self.kind.openai();
        json!({"error": {"message": self.message, "type": kind, "param": null, "code": code}})
    }

    /// The error of a failed Responses reply.
    pub(super) fn responses(&self) -> Value {
        json!({"code": self.kind.responses(), "message": self.message})
    }
}

fn error_of(body: &Value) -> &Value {
    match &body["error"] {
        Value::Null => body,
        error => error,
    }
}

impl Kind {
    /// The class that a status tells.
    #[must_use]
    pub const fn of_status(status: u16) -> Self {
        match status {
            401 => Self::Authentication,
            402 => Self::Billing,
            403 => Self::Permission,
            404 => Self::NotFound,
            408 | 504 => Self::Timeout,
            413 => Self::TooLarge,
            429 => Self::RateLimit,
            503 | 529 => Self::Overloaded,
            400..500 => Self::Invalid,
            _ => Self::Api,
        }
    }

    fn of_words(error: &Value) -> Option<Self> {
        let word = |name: &str| error[name].as_str().unwrap_or_default();
        let message = word("message");
        if word("code") == "context_length_exceeded"
            || message.starts_with(TOO_LONG)
            || message.contains("maximum context length")
            || word("type") == "exceed_context_size_error"
        {
            return Some(Self::TooLong);
        }
        [word("type"), word("code")].into_iter().find_map(|word| {
            Some(match word {
                "authentication_error" | "invalid_api_key" => Self::Authentication,
                "billing_error" | "insufficient_quota" => Self::Billing,
                "permission_error" => Self::Permission,
                "not_found_error" | "model_not_found" => Self::NotFound,
                "request_too_large" => Self::TooLarge,
                "rate_limit_error" | "rate_limit_exceeded" => Self::RateLimit,
                "timeout_error" => Self::Timeout,
                "overloaded_error" | "server_is_overloaded" => Self::Overloaded,
                _ => return None,
            })
        })
    }

    const fn messages(self) -> &'static str {
        match self {
            Self::Invalid | Self::TooLong => "invalid_request_error",
            Self::Authentication => "authentication_error",
            Self::Billing => "billing_error",
            Self::Permission => "permission_error",
            Self::NotFound => "not_found_error",
            Self::TooLarge => "request_too_large",
            Self::RateLimit => "rate_limit_error",
            Self::Timeout => "timeout_error",
            Self::Overloaded => "overloaded_error",
            Self::Api => "api_error",
        }
    }

    const fn openai(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Invalid => ("invalid_request_error", None),
            Self::TooLong => ("invalid_request_error", Some("context_length_exceeded")),
            Self::Authentication => ("authentication_error", Some("invalid_api_key")),
            Self::Billing => ("insufficient_quota", Some("insufficient_quota")),
            Self::Permission => ("permission_error", None),
            Self::NotFound => ("invalid_request_error", Some("model_not_found")),
            Self::TooLarge => ("invalid_request_error", Some("request_too_large")),
            Self::RateLimit => ("rate_limit_error", Some("rate_limit_exceeded")),
            Self::Timeout => ("server_error", Some("timeout")),
            Self::Overloaded => ("server_error", Some("server_is_overloaded")),
            Self::Api => ("server_error", None),
        }
    }

    const fn responses(self) -> &'static str {
        match self.openai().1 {
            Some(code) => code,
            None => "server_error",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_survives_each_wire() {
        for (status, kind) in [
            (400, Kind::Invalid),
            (402, Kind::Billing),
            (404, Kind::NotFound),
            (413, Kind::TooLarge),
            (429, Kind::RateLimit),
            (529, Kind::Overloaded),
            (503, Kind::Overloaded),
            (500, Kind::Api),
            (504, Kind::Timeout),
        ] {
            let fault = Fault::of_body(status, &json!({"error": {"message": "m"}}));
            assert_eq!(fault, Fault::new(kind, "m"), "{status}");
            assert_eq!(Fault::of_body(status, &fault.messages("r")), fault);
            assert_eq!(Fault::of_body(status, &fault.openai()), fault);
        }
    }

    #[test]
    fn a_conversation_too_long_is_told_in_the_words_that_clients_know() {
        for body in [
            json!({"error": {"message": "This model's maximum context length is 8 tokens", "type": "invalid_request_error"}}),
            json!({"error": {"message": "x", "code": "context_length_exceeded"}}),
            json!({"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 9 > 8"}}),
        ] {
            let fault = Fault::of_body(400, &body);
            assert_eq!(fault.kind, Kind::TooLong, "{body}");
            assert!(fault.message.starts_with("prompt is too long"), "{fault:?}");
            assert_eq!(fault.openai()["error"]["code"], "context_length_exceeded");
        }
    }

    #[test]
    fn a_refused_key_keeps_none_of_the_providers_words() {
        let body = json!({"error": {"message": "Incorrect API key provided: sk-***tail", "code": "invalid_api_key"}});
        for status in [401, 403] {
            assert!(!Fault::of_body(status, &body).message.contains("tail"));
        }
        assert!(!Fault::of_event(&body).message.contains("tail"));
    }

    #[test]
    fn whatever_comes_makes_a_fault() {
        for body in [
            Value::Null,
            json!("plain"),
            json!([]),
            json!({"error": "words"}),
            json!({"error": {"message": 3}}),
        ] {
            assert!(!Fault::of_body(418, &body).message.is_empty(), "{body}");
        }
        assert_eq!(Fault::of_event(&json!({"error": "words"})).message, "words");
    }
}
