//! A developer's client of the public API, as plain as curl. It asserts on statuses so that tests read as what they check.
//! It never looks behind the API.

use crate::wait;
use futures_util::StreamExt as _;
use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::{Value, json};
use std::time::Duration;

/// How long a test waits for something that takes seconds at most on a loaded machine.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// A client with one API key.
#[derive(Debug, Clone)]
pub struct Api {
    http: Client,
    base: String,
    key: String,
}

impl Api {
    /// A client of the server at `base`, acting with `key`.
    #[must_use]
    pub fn new(base: &str, key: &str) -> Self {
        Self { http: crate::http_client(), base: base.to_owned(), key: key.to_owned() }
    }

    /// A request with the version headers and the key; nothing is sent yet.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http
            .request(method, format!("{}{path}", self.base))
            .bearer_auth(&self.key)
            .header("checkfu-version", "2026-08-29")
            .header("checkfu-beta", "managed-agents")
    }

    /// Sends a request and reads status and JSON; a server that is away gives status 0.
    pub async fn send(&self, method: Method, path: &str, body: Option<Value>) -> (u16, Value) {
        let request = self.request(method, path);
        let request = match body {
            Some(body) => request.json(&body),
            None => request,
        };
        match request.send().await {
            Ok(response) => {
                let status = response.status().as_u16();
                (status, response.json().await.unwrap_or(Value::Null))
            }
            Err(_) => (0, Value::Null),
        }
    }

    /// Reads; anything but success fails the test.
    pub async fn get(&self, path: &str) -> Value {
        let (status, body) = self.send(Method::GET, path, None).await;
        assert_eq!(status, 200, "GET {path}: {body}");
        body
    }

    /// Posts; anything but success fails the test.
    pub async fn post(&self, path: &str, body: Value) -> Value {
        let (status, reply) = self.send(Method::POST, path, Some(body)).await;
        assert!((200..300).contains(&status), "POST {path}: {status} {reply}");
        reply
    }

    /// Makes an agent that may use every tool without asking; gives its id.
    pub async fn agent(&self) -> String {
        self.agent_with(json!({"type": "always_allow"})).await
    }

    /// Makes an agent whose tools carry this permission policy; gives its id.
    pub async fn agent_with(&self, policy: Value) -> String {
        self.agent_on("scripted-1", policy).await
    }

    /// The same on this model.
    pub async fn agent_on(&self, model: &str, policy: Value) -> String {
        let toolset = json!({"type": "agent_toolset_20260401", "default_config": {"enabled": true, "permission_policy": policy}});
        let body =
            json!({"name": unique("agent"), "model": model, "system": "Be brief.", "tools": [toolset]});
        text(&self.post("/v1/agents", body).await["id"])
    }

    /// Makes an environment with the default image and no network; gives its id.
    pub async fn environment(&self) -> String {
        self.environment_with(json!({"type": "self_hosted"})).await
    }

    /// Makes an environment with this configuration; gives its id.
    pub async fn environment_with(&self, config: Value) -> String {
        text(
            &self.post("/v1/environments", json!({"name": unique("environment"), "config": config})).await["id"],
        )
    }

    /// Makes a session that starts with `message`; gives its id.
    pub async fn session(&self, agent: &str, environment: &str, message: &str) -> String {
        let first = json!({"type": "user.message", "content": [{"type": "text", "text": message}]});
        let body = json!({"agent": agent, "environment_id": environment, "initial_events": [first]});
        text(&self.post("/v1/sessions", body).await["id"])
    }

    /// Says something to a session; gives the echo.
    pub async fn say(&self, session: &str, message: &str) -> Value {
        let event = json!({"type": "user.message", "content": [{"type": "text", "text": message}]});
        self.input(session, event).await
    }

    /// Sends one input in the batch form; gives the echo.
    pub async fn input(&self, session: &str, event: Value) -> Value {
        let reply = self.post(&format!("/v1/sessions/{session}/events"), json!({"events": [event]})).await;
        reply["data"][0].clone()
    }

    /// The whole log of a session, in order.
    pub async fn events(&self, session: &str) -> Vec<Value> {
        let mut all: Vec<Value> = Vec::new();
        loop {
            let after = all.last().map_or(0, |event| event["seq"].as_u64().unwrap());
            let page = self.get(&format!("/v1/sessions/{session}/events?limit=1000&after_seq={after}")).await;
            let page = page["data"].as_array().unwrap().clone();
            if page.is_empty() {
                return all;
            }
            all.extend(page);
        }
    }

    /// The events of one type.
    pub async fn of_type(&self, session: &str, kind: &str) -> Vec<Value> {
        self.events(session).await.into_iter().filter(|event| event["type"] == kind).collect()
    }

    /// Waits until the log holds `count` idle events; gives the log.
    pub async fn idle(&self, session: &str, count: usize) -> Vec<Value> {
        let what = format!("session {session} to be idle {count} times");
        wait::until_within(PATIENCE, &what, async || {
            let events = self.events_if_up(session).await?;
            let idle = events.iter().filter(|event| event["type"] == "session.status_idle").count();
            (idle >= count).then_some(events)
        })
        .await
    }

    /// Waits until the log holds an event that `wanted` accepts; gives that event.
    pub async fn event(&self, session: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        wait::until_within(PATIENCE, &format!("{what} in session {session}"), async || {
            self.events_if_up(session).await?.into_iter().find(|event| wanted(event))
        })
        .await
    }

    async fn events_if_up(&self, session: &str) -> Option<Vec<Value>> {
        let (status, page) =
            self.send(Method::GET, &format!("/v1/sessions/{session}/events?limit=1000"), None).await;
        (status == 200).then(|| page["data"].as_array().unwrap().clone())
    }

    /// Opens a session's stream after position `after`.
    pub async fn stream(&self, session: &str, after: u64) -> Stream {
        self.stream_at(&format!("/v1/sessions/{session}/events/stream"), after).await
    }

    /// Opens the stream at `path` after position `after`.
    pub async fn stream_at(&self, path: &str, after: u64) -> Stream {
        let response =
            self.request(Method::GET, path).header("last-event-id", after.to_string()).send().await.unwrap();
        assert_eq!(response.status(), 200);
        Stream { response: Some(response), buffer: String::new() }
    }
}

/// An open event stream, read frame by frame.
#[derive(Debug)]
pub struct Stream {
    response: Option<Response>,
    buffer: String,
}

/// One frame of a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    /// The position, when the frame has one.
    pub id: Option<u64>,
    /// The event's type.
    pub event: String,
    /// The envelope.
    pub data: Value,
}

impl Stream {
    /// The next frame that is no keep-alive; `None` when the stream ended.
    pub async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(end) = self.buffer.find("\n\n") {
                let text: String = self.buffer.drain(..end + 2).collect();
                if let Some(frame) = parse(&text) {
                    return Some(frame);
                }
                continue;
            }
            let response = self.response.take()?;
            let (chunk, response) = read_chunk(response).await?;
            self.buffer.push_str(&chunk);
            self.response = Some(response);
        }
    }
}

async fn read_chunk(mut response: Response) -> Option<(String, Response)> {
    let chunk =
        tokio::time::timeout(PATIENCE, response.chunk()).await.expect("a frame or a keep-alive").ok()??;
    Some((String::from_utf8_lossy(&chunk).into_owned(), response))
}

fn parse(text: &str) -> Option<Frame> {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    Some(Frame {
        id: field("id:").and_then(|id| id.parse().ok()),
        event: field("event:")?.to_owned(),
        data: serde_json::from_str(field("data:")?).unwrap(),
    })
}

/// The whole body of a response, in memory.
pub async fn body(response: Response) -> Vec<u8> {
    response
        .bytes_stream()
        .fold(Vec::new(), async |mut all, chunk| {
            all.extend_from_slice(&chunk.unwrap());
            all
        })
        .await
}

/// A JSON text as a `String`; the test fails on anything else.
#[must_use]
pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("a text was expected, not {value}")).to_owned()
}

/// The concatenated text blocks of an event's content.
#[must_use]
pub fn content(event: &Value) -> String {
    let blocks = event["content"].as_array().map_or(&[][..], Vec::as_slice);
    blocks.iter().filter_map(|block| block["text"].as_str()).collect()
}

/// A name that no other test uses.
#[must_use]
pub fn unique(what: &str) -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(1);
    format!("{what}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The message that makes the scripted model play `steps`.
#[must_use]
pub fn script(steps: &Value) -> String {
    format!("script:{steps}")
}
