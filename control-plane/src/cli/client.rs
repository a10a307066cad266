//! The client of the public API: the headers every request carries, and what each kind of failure means to a person.
//! The key comes from the environment or a file, leaves in one header, and is part of no message.

use super::{exit::Exit, failure::Failure};
use checkfu::dial;
use checkfu_shared::{problem::Problem, secret::Secret};
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url, header::HeaderValue};
use serde::Serialize;
use serde_json::Value;
use std::time::Duration;

/// How long an ordinary request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);
/// A page of a list has at most this many rows.
const PAGE_ROWS: usize = 100;
/// The API's version that this program speaks.
const API_VERSION: &str = "2026-08-29";

/// Query parameters.
pub(crate) type Query<'a> = &'a [(&'a str, String)];

/// A client of one server.
#[derive(Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    base: Url,
    authorization: Option<HeaderValue>,
}

impl Client {
    /// A client of the server at `url`; nothing is dialled here.
    pub(crate) fn new(url: &str, key: Option<&Secret>) -> Result<Self, Failure> {
        let base = dial::base(url).map_err(|error| {
            Failure::usage(format!("The server's address {url} cannot be used: {error}."))
        })?;
        let http = dial::client(&base).map_err(|error| Failure::local(format!("{error}.")))?;
        let authorization = key.map(authorization).transpose()?;
        Ok(Self { http, base, authorization })
    }

    /// The server's address as it was given.
    pub(crate) fn url(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// Reads one thing.
    pub(crate) async fn get(&self, path: &str, query: Query<'_>) -> Result<Value, Failure> {
        self.json(self.request(Method::GET, path).query(query)).await
    }

    /// Asks for a change.
    pub(crate) async fn post(&self, path: &str, body: &(impl Serialize + Sync)) -> Result<Value, Failure> {
        self.json(self.request(Method::POST, path).json(body)).await
    }

    /// Removes one thing.
    pub(crate) async fn delete(&self, path: &str) -> Result<Value, Failure> {
        self.json(self.request(Method::DELETE, path)).await
    }

    /// Reads the first `limit` rows of a list, page by page.
    pub(crate) async fn list(
        &self,
        path: &str,
        query: Query<'_>,
        limit: usize,
    ) -> Result<Vec<Value>, Failure> {
        let mut rows = Vec::new();
        let mut page: Option<String> = None;
        while rows.len() < limit {
            let mut query = query.to_vec();
            query.push(("limit", (limit - rows.len()).min(PAGE_ROWS).to_string()));
            query.extend(page.take().map(|page| ("page", page)));
            let mut reply = self.get(path, &query).await?;
            if let Some(Value::Array(data)) = reply.get_mut("data").map(Value::take) {
                rows.extend(data);
            }
            page = reply.get("next_page").and_then(Value::as_str).map(str::to_owned);
            if page.is_none() {
                break;
            }
        }
        rows.truncate(limit);
        Ok(rows)
    }

    /// Opens a stream of events after `seq`; its end and its pauses are the caller's to judge.
    pub(crate) async fn stream(&self, path: &str, query: Query<'_>, seq: u64) -> Result<Response, Failure> {
        let request = self.common(Method::GET, path).query(query).header("last-event-id", seq);
        self.accepted(request).await
    }

    /// Reads a window of bytes.
    pub(crate) async fn window(&self, path: &str, query: Query<'_>) -> Result<Response, Failure> {
        self.accepted(self.request(Method::GET, path).query(query)).await
    }

    fn common(&self, method: Method, path: &str) -> RequestBuilder {
        let mut request = self
            .http
            .request(method, dial::below(&self.base, path))
            .header("checkfu-version", API_VERSION)
            .header("checkfu-beta", "managed-agents");
        if let Some(value) = &self.authorization {
            request = request.header("authorization", value.clone());
        }
        request
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.common(method, path).timeout(REQUEST_TIMEOUT)
    }

    async fn json(&self, request: RequestBuilder) -> Result<Value, Failure> {
        let reply = self.accepted(request).await?;
        let body = reply.bytes().await.map_err(|error| self.unreachable(&error))?;
        serde_json::from_slice(&body).map_err(|_| self.foreign("its answer is not JSON"))
    }

    async fn accepted(&self, request: RequestBuilder) -> Result<Response, Failure> {
        let reply = request.send().await.map_err(|error| self.unreachable(&error))?;
        if reply.status().is_success() {
            return Ok(reply);
        }
        let status = reply.status();
        let request_id = reply
            .headers()
            .get("request-id")
            .and_then(|id| id.to_str().ok())
            .unwrap_or("not given")
            .to_owned();
        let body = reply.bytes().await.map_err(|error| self.unreachable(&error))?;
        let problem = serde_json::from_slice::<Value>(&body).ok().as_ref().and_then(Problem::from_body);
        Err(problem.map_or_else(
            || self.no_problem(status),
            |problem| Failure::refused(status.as_u16(), &problem, &request_id),
        ))
    }

    fn no_problem(&self, status: StatusCode) -> Failure {
        if status.is_server_error() {
            return Failure::new(
                Exit::Unavailable,
                format!("{} answered {status}. Try again later.", self.url()),
            );
        }
        self.foreign(&format!("it answered {status} in a form this program does not know"))
    }

    fn foreign(&self, why: &str) -> Failure {
        Failure::local(format!(
            "{} does not seem to be a Checkfu server: {why}. Check --url or CHECKFU_URL.",
            self.url()
        ))
    }

    /// What a connection that fails or breaks off means.
    pub(crate) fn unreachable(&self, error: &reqwest::Error) -> Failure {
        let url = self.url();
        let message = if error.is_timeout() {
            format!(
                "The server at {url} did not answer in time. Try again, and check that it is not overloaded."
            )
        } else if error.is_connect() {
            format!(
                "The server at {url} cannot be reached. Check that `checkfu serve` runs there, or give its address with --url or CHECKFU_URL."
            )
        } else {
            format!("The connection to {url} broke off. Try again.")
        };
        Failure::new(Exit::Unreachable, message)
    }
}

fn authorization(key: &Secret) -> Result<HeaderValue, Failure> {
    let mut value = HeaderValue::from_str(&format!("Bearer {}", key.reveal())).map_err(|_| {
        Failure::usage("The API key holds characters that no key has. Check CHECKFU_API_KEY or its file.")
    })?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests;
