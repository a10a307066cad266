//! One HTTP exchange with the control plane: bounded in time and size, and sorted by what to do after it failed.
//! It never repeats a request and never follows a redirect; errors carry neither addresses nor secrets.

use super::{
    Address, Error,
    carrier::{Answer, Carrier, Parcel, Way},
    pool::Pool,
    tls,
};
use crate::claim::lease::BootInstant;
use bytes::BytesMut;
use checkfu_shared::{
    problem::{Code, Problem},
    protocol,
};
use reqwest::{Method, Response, header};
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// No reply is larger: a page of history may carry some events of half a MiB each.
const REPLY_BYTES_MAX: usize = 64 << 20;
const REASON_CHARS_MAX: usize = 400;

/// A request, ready to be sent any number of times.
#[derive(Debug, Clone)]
pub(crate) struct Outgoing {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) query: Vec<(&'static str, String)>,
    pub(crate) body: Option<bytes::Bytes>,
    pub(crate) timeout: Duration,
}

impl Outgoing {
    pub(crate) const fn post(path: String, body: bytes::Bytes, timeout: Duration) -> Self {
        Self { method: Method::POST, path, query: Vec::new(), body: Some(body), timeout }
    }

    fn parcel(&self, token: Option<&str>) -> Parcel {
        let query: Vec<String> = self.query.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let target =
            if query.is_empty() { self.path.clone() } else { format!("{}?{}", self.path, query.join("&")) };
        let token = token.map(str::to_owned);
        Parcel { method: self.method.clone(), target, token, body: self.body.clone() }
    }
}

/// Why one exchange failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The token is not accepted.
    Unauthenticated(String),
    /// Anything else.
    Other(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

/// Connections to the control plane. They live on the runtime that first uses them.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    pub(crate) address: Address,
    way: Way,
    heard_ms: Arc<AtomicU64>,
}

impl Link {
    /// Prepares connections; nothing is sent yet.
    pub(crate) fn new(address: Address, extra_ca: Option<&Path>) -> Result<Self, super::SetupError> {
        let http = Pool::new(tls::config(extra_ca)?, address.is_loopback());
        let http = http.map_err(|error| super::SetupError::Client(chain(&error)))?;
        Ok(Self { address, way: Way::Http(http), heard_ms: Arc::default() })
    }

    /// A link whose requests somebody else carries.
    pub(crate) fn carried(address: Address, carrier: Arc<dyn Carrier>) -> Self {
        Self { address, way: Way::Carried(carrier), heard_ms: Arc::default() }
    }

    /// When the control plane last answered anything; `None` before the first answer.
    pub(crate) fn heard(&self) -> Option<BootInstant> {
        Some(self.heard_ms.load(Ordering::Relaxed)).filter(|&ms| ms > 0).map(BootInstant::from_ms)
    }

    /// How requests travel.
    pub(crate) const fn way(&self) -> &Way {
        &self.way
    }

    /// Starts a request over HTTP with what every request carries.
    pub(crate) fn request(
        &self,
        http: &reqwest::Client,
        method: Method,
        path: &str,
        token: Option<&str>,
    ) -> reqwest::RequestBuilder {
        let request = http.request(method, self.address.at(path)).header(protocol::HEADER, protocol::VERSION);
        match token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    /// Sends a request once and reads its whole reply.
    pub(crate) async fn attempt(
        &self,
        outgoing: &Outgoing,
        token: Option<&str>,
    ) -> Result<bytes::Bytes, Failure> {
        let pool = match &self.way {
            Way::Http(pool) => pool,
            Way::Carried(carrier) => {
                let carried = carrier.carry(outgoing.parcel(token));
                let answer = tokio::time::timeout(outgoing.timeout, carried).await;
                return self.answered(answer.unwrap_or_else(|_| Err("no answer in time".to_owned())));
            }
        };
        let (http, generation) = pool.client();
        let mut request = self
            .request(&http, outgoing.method.clone(), &outgoing.path, token)
            .timeout(outgoing.timeout)
            .query(&outgoing.query);
        if let Some(body) = &outgoing.body {
            request = request.header(header::CONTENT_TYPE, "application/json").body(body.clone());
        }
        let response = request.send().await.map_err(|error| {
            if error.is_timeout() && !error.is_connect() {
                pool.distrust(generation);
            }
            unreachable(&error)
        })?;
        self.finish(response).await
    }

    /// Reads the reply to a request that was sent otherwise.
    pub(crate) async fn finish(&self, mut response: Response) -> Result<bytes::Bytes, Failure> {
        let status = response.status().as_u16();
        let retry_after = retry_after(&response);
        let mut body = BytesMut::new();
        while let Some(piece) = response.chunk().await.map_err(|error| unreachable(&error))? {
            if body.len() + piece.len() > REPLY_BYTES_MAX {
                return Err(
                    unreached(format!("the reply is larger than {REPLY_BYTES_MAX} bytes"), None).into()
                );
            }
            body.extend_from_slice(&piece);
        }
        self.judged(status, retry_after, body.freeze())
    }

    /// Takes in what a carrier brought.
    pub(crate) fn answered(&self, answer: Result<Answer, String>) -> Result<bytes::Bytes, Failure> {
        let answer = answer.map_err(|reason| unreached(reason, None))?;
        self.judged(answer.status, answer.retry_after, answer.body)
    }

    fn judged(
        &self,
        status: u16,
        retry_after: Option<Duration>,
        body: bytes::Bytes,
    ) -> Result<bytes::Bytes, Failure> {
        let problem = serde_json::from_slice(&body).ok().as_ref().and_then(Problem::from_body);
        if (200..300).contains(&status) || problem.is_some() {
            let now = BootInstant::now().since_ms(BootInstant::from_ms(0));
            self.heard_ms.store(now, Ordering::Relaxed);
        }
        if (200..300).contains(&status) { Ok(body) } else { Err(sorted(status, problem, retry_after)) }
    }
}

/// What an unsuccessful status means. Only a body of our own form counts as a refusal: proxies answer 4xx, too.
pub(crate) fn sorted(status: u16, problem: Option<Problem>, retry_after: Option<Duration>) -> Failure {
    match problem {
        Some(problem) if matches!(status, 408 | 429 | 500..) => {
            unreached(format!("it answers {status}: {}", problem.message), retry_after).into()
        }
        Some(problem) => match problem.code {
            Code::Unauthenticated => Failure::Unauthenticated(problem.message),
            Code::Fenced => Error::Fenced.into(),
            Code::RunnerRevoked => Error::Revoked.into(),
            _ => Error::Refused(problem).into(),
        },
        None if (300..400).contains(&status) => {
            unreached(format!("it answers {status}, a redirect; give the final address"), retry_after).into()
        }
        None => {
            unreached(format!("it answers {status} with a body that is not the control plane's"), retry_after)
                .into()
        }
    }
}

pub(crate) const fn unreached(reason: String, retry_after: Option<Duration>) -> Error {
    Error::Unreachable { reason, retry_after, passes: true }
}

/// An exchange that brought no answer.
pub(crate) fn unreachable(error: &reqwest::Error) -> Error {
    let reason = chain(error);
    let passes = !distrusts(error) && !reason.contains("proxy authorization required");
    Error::Unreachable { reason, retry_after: None, passes }
}

/// Whether the other side's certificate was not accepted.
fn distrusts(error: &reqwest::Error) -> bool {
    let is_about_trust = |error: &(dyn std::error::Error + 'static)| {
        let tls = error.downcast_ref::<rustls::Error>();
        tls.is_some_and(|tls| matches!(tls, rustls::Error::InvalidCertificate(_) | rustls::Error::Other(_)))
    };
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        // An I/O error names what it wraps as no source of its own.
        let wrapped = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        if is_about_trust(error) || wrapped.is_some_and(|inner| is_about_trust(inner)) {
            return true;
        }
        cause = error.source();
    }
    false
}

fn retry_after(response: &Response) -> Option<Duration> {
    let seconds = response.headers().get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// The error and its causes in one line, without the address (which a proxy's password may be part of).
fn chain(error: &reqwest::Error) -> String {
    let mut text = if error.is_timeout() {
        "no answer in time".to_owned()
    } else if error.is_connect() {
        "no connection".to_owned()
    } else {
        "the exchange broke off".to_owned()
    };
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text.chars().filter(|c| !c.is_control()).take(REASON_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_is_sorted_by_what_to_do_next() {
        let ours = |code: Code| Some(Problem::new(code, "No."));
        for (status, problem, wanted) in [
            (409, ours(Code::Fenced), "fenced"),
            (403, ours(Code::RunnerRevoked), "revoked"),
            (401, ours(Code::Unauthenticated), "unauthenticated"),
            (409, ours(Code::EventsGap), "refused"),
            (404, ours(Code::NotFound), "refused"),
            (413, ours(Code::TooLarge), "refused"),
            (429, ours(Code::RateLimited), "unreachable"),
            (500, ours(Code::Internal), "unreachable"),
            (503, ours(Code::Stopping), "unreachable"),
            // What stands between answers in its own form: that is no refusal of the control plane.
            (401, None, "unreachable"),
            (403, None, "unreachable"),
            (404, None, "unreachable"),
            (302, None, "unreachable"),
            (502, None, "unreachable"),
        ] {
            let got = match sorted(status, problem, None) {
                Failure::Unauthenticated(_) => "unauthenticated",
                Failure::Other(Error::Fenced) => "fenced",
                Failure::Other(Error::Revoked) => "revoked",
                Failure::Other(Error::Refused(_)) => "refused",
                Failure::Other(Error::Unreachable { .. }) => "unreachable",
            };
            assert_eq!(got, wanted, "{status}");
        }
    }
}
