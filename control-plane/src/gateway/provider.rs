//! The model provider: its address, the real key, and the one request that goes there.
//! The key leaves this module in the request's header and nowhere else: it is no part of any error, log line or reply.

use super::wire::Spoken;
use crate::dial::{self, Reach};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use bytes::{Bytes, BytesMut};
use checkfu_shared::{
    id::RequestId,
    problem::{Code, Problem},
    secret::Secret,
};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tokio::time::timeout;

/// Where model requests go unless the operator says otherwise.
pub const DEFAULT_BASE_URL: &str = "https://api.anthropic.com";
/// The version of the Messages wire that the gateway speaks to the provider.
const WIRE_VERSION: HeaderValue = HeaderValue::from_static("2023-06-01");
/// A reply that is not streamed may have at most this many bytes.
const REPLY_BYTES_MAX: usize = 32 << 20;
/// The header by which a client sees the provider's own name of the request.
pub(super) const PROVIDER_REQUEST_ID: HeaderName = HeaderName::from_static("provider-request-id");
/// How long the test of a provider may take.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);
/// The headers of the provider's reply that the runner sees.
const PASSED_HEADERS: [&str; 4] = ["content-type", "retry-after", "retry-after-ms", "x-should-retry"];

/// How long the gateway waits for a provider.
#[derive(Debug, Clone, Copy)]
pub struct Waits {
    /// For the head of a reply, from the sending of the request.
    pub head: Duration,
    /// Between two pieces of a reply.
    pub piece: Duration,
}

impl Default for Waits {
    fn default() -> Self {
        Self { head: Duration::from_mins(10), piece: Duration::from_mins(5) }
    }
}

/// What a provider speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI Chat Completions, as OpenAI, vLLM, Ollama and llama.cpp have it; the base address ends before
    /// `/chat/completions`, mostly with `/v1`.
    OpenaiCompatible,
}

impl Kind {
    /// The wire of its requests and replies.
    #[must_use]
    pub const fn spoken(self) -> Spoken {
        match self {
            Self::Anthropic => Spoken::Messages,
            Self::OpenaiCompatible => Spoken::Chat,
        }
    }

    /// The stored text.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenaiCompatible => "openai_compatible",
        }
    }

    /// The kind with this text.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        [Self::Anthropic, Self::OpenaiCompatible].into_iter().find(|kind| kind.as_str() == text)
    }

    /// The path of its list of models, which costs nothing to ask for.
    const fn list_path(self) -> &'static str {
        match self {
            Self::Anthropic => "/v1/models",
            Self::OpenaiCompatible => "/models",
        }
    }

    /// The path of model requests below the base address.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Self::Anthropic => "/v1/messages",
            Self::OpenaiCompatible => "/chat/completions",
        }
    }
}

/// One provider.
#[derive(Debug)]
pub struct Provider {
    kind: Kind,
    http: reqwest::Client,
    url: String,
    list_url: String,
    key: Option<Key>,
    waits: Waits,
}

/// What a provider is reached by.
#[derive(Debug)]
pub struct Address<'a> {
    /// What it speaks.
    pub kind: Kind,
    /// Its base address.
    pub base_url: &'a str,
    /// Its key, if it wants one.
    pub key: Option<Secret>,
    /// How far the address may reach.
    pub reach: Reach,
}

/// The key in both forms that are needed; neither prints.
#[derive(Debug)]
struct Key {
    name: HeaderName,
    header: HeaderValue,
    text: Secret,
}

/// Why a provider cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its address cannot be dialled.
    #[error("the model provider's address cannot be used")]
    Dial(#[source] dial::Error),
    /// Its key holds what no header may hold.
    #[error("the model provider's key holds characters that no HTTP header may hold")]
    Key,
}

/// A reply whose head is there.
#[derive(Debug)]
pub struct Reply {
    /// The provider's status.
    pub status: StatusCode,
    /// The headers that the runner sees.
    pub headers: HeaderMap,
    /// The first piece of a stream, which is there before the reply is passed on at all.
    pub first: Option<Bytes>,
    /// The rest of the body, still to be read.
    pub body: reqwest::Response,
}

impl Reply {
    /// Whether the provider streams this reply.
    #[must_use]
    pub fn is_stream(&self) -> bool {
        let kind = self.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        self.status.is_success() && kind.is_some_and(|kind| kind.starts_with("text/event-stream"))
    }
}

impl Reply {
    /// Whether a reply of this status says that the provider does not take the key.
    #[must_use]
    pub fn refuses_key(status: StatusCode) -> bool {
        matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
    }
}

impl Provider {
    /// The provider at an address.
    ///
    /// # Errors
    /// [`Error`] when the address or the key cannot be used at all; nothing is dialled here.
    pub fn new(address: Address<'_>, waits: Waits) -> Result<Self, Error> {
        let Address { kind, base_url, key, reach } = address;
        let base = dial::base(base_url).map_err(Error::Dial)?;
        let http = dial::reaching(&base, reach).map_err(Error::Dial)?;
        let key = key.map(|key| Key::new(kind, key)).transpose()?;
        let (url, list_url) = (dial::below(&base, kind.path()), dial::below(&base, kind.list_path()));
        Ok(Self { kind, http, url, list_url, key, waits })
    }

    /// Asks for the list of models, which shows whether the address and the key are good; how many there are, when the
    /// provider says so.
    ///
    /// # Errors
    /// `provider_unreachable`, or `provider_key_refused`.
    pub async fn test(&self) -> Result<Option<usize>, Problem> {
        let request = self.signed(self.http.get(&self.list_url)).timeout(TEST_TIMEOUT);
        let reply = request.send().await.map_err(|error| unreachable(&broken_off(&error)))?;
        let status = reply.status();
        if Reply::refuses_key(status) {
            return Err(key_refused());
        }
        if !status.is_success() {
            return Err(unreachable(&format!(
                "it answered the request for its models with {}",
                status.as_u16()
            )));
        }
        let body: serde_json::Value = serde_json::from_slice(&self.read(reply).await?).unwrap_or_default();
        Ok(body["data"].as_array().map(Vec::len))
    }

    fn signed(&self, mut request: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
        if self.kind == Kind::Anthropic {
            request = request.header("anthropic-version", WIRE_VERSION);
        }
        match &self.key {
            Some(key) => request.header(key.name.clone(), key.header.clone()),
            None => request,
        }
    }

    /// What it speaks.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// The member of a Chat request that limits the reply: newer models of OpenAI refuse `max_tokens`, which is all that
    /// some compatible servers know.
    #[must_use]
    pub fn limit_member(&self) -> &'static str {
        if self.url.starts_with("https://api.openai.com/") { "max_completion_tokens" } else { "max_tokens" }
    }

    /// How long this provider is waited for.
    #[must_use]
    pub const fn waits(&self) -> Waits {
        self.waits
    }

    /// Sends one request and waits for the head of its reply, and for the first piece when it is a stream.
    ///
    /// # Errors
    /// `provider_unreachable` when there is no reply in time, or a redirect, which is never followed, or a stream that
    /// ends before its first piece.
    pub async fn ask(&self, body: &serde_json::Value, id: RequestId) -> Result<Reply, Problem> {
        self.post(&self.url, body, id).await
    }

    /// Asks a provider of the Messages wire how many tokens a request has.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub async fn count(&self, body: &serde_json::Value, id: RequestId) -> Result<Reply, Problem> {
        self.post(&format!("{}/count_tokens", self.url), body, id).await
    }

    async fn post(&self, url: &str, body: &serde_json::Value, id: RequestId) -> Result<Reply, Problem> {
        let request = self.http.post(url).header("x-client-request-id", id.to_string()).json(body);
        let sent = timeout(self.waits.head, self.signed(request).send()).await;
        let body = sent.map_err(|_| unreachable("it did not answer in time"))?;
        let body = body.map_err(|error| unreachable(&broken_off(&error)))?;
        let status = body.status();
        if status.is_redirection() || status.is_informational() {
            return Err(unreachable("it answered with a redirect, which is not followed"));
        }
        if Reply::refuses_key(status) {
            tracing::error!(%status, model_request_id = %id, "the model provider refuses the configured key");
        }
        let headers = passed(body.headers());
        let mut reply = Reply { status, headers, first: None, body };
        if reply.is_stream() {
            let piece = timeout(self.waits.piece, reply.body.chunk()).await;
            let piece = piece.map_err(|_| unreachable("its reply stalled before it began"))?;
            reply.first = piece.map_err(|_| unreachable("its reply broke off before it began"))?;
            if reply.first.is_none() {
                return Err(unreachable("its reply is empty"));
            }
        }
        Ok(reply)
    }

    /// Reads a reply that is not streamed, with the key taken out wherever it is repeated.
    ///
    /// # Errors
    /// `provider_unreachable` when it breaks off, stalls or is too large.
    pub async fn read(&self, mut body: reqwest::Response) -> Result<Bytes, Problem> {
        let mut read = BytesMut::new();
        loop {
            let piece = timeout(self.waits.piece, body.chunk())
                .await
                .map_err(|_| unreachable("its reply stalled"))?
                .map_err(|_| unreachable("its reply broke off"))?;
            let Some(piece) = piece else { return Ok(self.without_key(read.freeze())) };
            if read.len() + piece.len() > REPLY_BYTES_MAX {
                return Err(unreachable("its reply is larger than 32 MiB"));
            }
            read.extend_from_slice(&piece);
        }
    }

    fn without_key(&self, body: Bytes) -> Bytes {
        let Some(key) = self.key.as_ref().map(|key| key.text.reveal()) else { return body };
        match std::str::from_utf8(&body) {
            Ok(text) if text.contains(key) => Bytes::from(text.replace(key, "[secret]")),
            _ => body,
        }
    }
}

impl Key {
    fn new(kind: Kind, text: Secret) -> Result<Self, Error> {
        let (name, header) = match kind {
            Kind::Anthropic => (HeaderName::from_static("x-api-key"), HeaderValue::from_str(text.reveal())),
            Kind::OpenaiCompatible => {
                (header::AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {}", text.reveal())))
            }
        };
        let mut header = header.map_err(|_| Error::Key)?;
        header.set_sensitive(true);
        Ok(Self { name, header, text })
    }
}

fn passed(given: &HeaderMap) -> HeaderMap {
    let names = PASSED_HEADERS.into_iter().map(HeaderName::from_static);
    let mut headers: HeaderMap =
        names.filter_map(|name| given.get(&name).map(|value| (name, value.clone()))).collect();
    // Its own `request-id` would pass for ours.
    if let Some(id) = given.get("request-id").or_else(|| given.get("x-request-id")) {
        headers.insert(PROVIDER_REQUEST_ID, id.clone());
    }
    headers
}

/// Why there was no reply, without the address, which is the operator's matter: that one goes to the log only.
fn broken_off(error: &reqwest::Error) -> String {
    let causes = causes(error);
    tracing::warn!(error = %causes, "the model provider cannot be reached");
    if causes.contains(&dial::Error::Private.to_string()) {
        return dial::Error::Private.to_string();
    }
    let why = if error.is_connect() { "no connection could be made" } else { "the request broke off" };
    why.to_owned()
}

fn unreachable(why: &str) -> Problem {
    Problem::new(
        Code::ProviderUnreachable,
        format!(
            "The model provider could not be used: {why}. Try again; if it persists, check the provider's address and the server's network."
        ),
    )
}

/// What stands in the place of a provider's own words about the key.
#[must_use]
pub(super) fn key_refused() -> Problem {
    Problem::new(
        Code::ProviderKeyRefused,
        "The model provider does not accept the key that the server holds for it. Whoever runs the server has to replace the key.",
    )
}

/// An error with all that caused it, in one line.
fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    std::iter::successors(Some(error), |error| error.source())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const CANARY: &str = "sk-canary-4711";

    fn at(base_url: &str, key: &str) -> Result<Provider, Error> {
        let key = Some(Secret::new(key));
        let address = Address { kind: Kind::Anthropic, base_url, key, reach: Reach::Private };
        Provider::new(address, Waits::default())
    }

    fn provider() -> Provider {
        at("http://127.0.0.1:1", CANARY).unwrap()
    }

    #[test]
    fn the_key_prints_nowhere() {
        assert!(!format!("{:?}", provider()).contains("canary"));
        let error = at("http://x", &format!("{CANARY}\n")).unwrap_err();
        assert!(!format!("{error:?} {error}").contains("canary"));
    }

    #[test]
    fn a_reply_that_repeats_the_key_loses_it() {
        let body = Bytes::from(format!("{{\"message\":\"invalid x-api-key {CANARY}\"}}"));
        assert_eq!(provider().without_key(body), "{\"message\":\"invalid x-api-key [secret]\"}");
    }

    #[tokio::test]
    async fn a_closed_port_is_a_problem_that_says_what_to_do() {
        let problem = provider().ask(&serde_json::json!({}), RequestId::mint()).await.unwrap_err();
        assert_eq!(problem.code, Code::ProviderUnreachable);
        assert!(problem.message.contains("no connection could be made"), "{problem}");
    }

    #[test]
    fn only_known_headers_pass() {
        let given: HeaderMap =
            [("retry-after", "3"), ("set-cookie", "x"), ("request-id", "req_p"), ("server", "s")]
                .into_iter()
                .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
                .collect();
        let mut names: Vec<String> = passed(&given).keys().map(ToString::to_string).collect();
        names.sort_unstable();
        assert_eq!(names, ["provider-request-id", "retry-after"]);
    }
}
