//! The API over a real store in a temporary directory, asked through the router itself.

mod agents;
mod audit;
mod authority;
mod basics;
mod budgets;
mod environments;
mod files;
mod hostile;
mod policies;
mod providers;
mod retries;
mod runners;
mod sessions;
mod sockets;
mod streams;

use super::*;
use axum::{
    body::Body,
    http::{HeaderMap, Method, Request, StatusCode},
};
use checkfu_shared::time::{ManualClock, Timestamp};
use serde_json::{Value, json};
use tempfile::TempDir;
use tower::ServiceExt;

/// A server without a socket.
pub(super) struct Bench {
    plane: Plane,
    pub(super) clock: Arc<ManualClock>,
    router: Router,
    key: String,
    dir: TempDir,
}

/// What came back.
#[derive(Debug)]
pub(super) struct Got {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Value,
}

impl Got {
    pub(super) fn code(&self) -> &str {
        self.body["error"]["details"]["error_code"].as_str().unwrap_or("")
    }

    /// The body of a success.
    #[track_caller]
    pub(super) fn ok(self) -> Value {
        assert_eq!(self.status, StatusCode::OK, "{}", self.body);
        self.body
    }

    /// Asserts a refusal.
    #[track_caller]
    pub(super) fn refused(&self, status: u16, code: &str) {
        assert_eq!((self.status.as_u16(), self.code()), (status, code), "{}", self.body);
    }
}

pub(super) const OURS: [(&str, &str); 2] =
    [("checkfu-version", "2026-08-29"), ("checkfu-beta", "managed-agents")];
pub(super) const SDK: [(&str, &str); 1] = [("anthropic-version", "2026-10-21")];

impl Bench {
    pub(super) async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(Timestamp::from_ms(1_796_083_200_000)));
        let mut config = Config::new(dir.path());
        config.keep_alive = std::time::Duration::from_millis(50);
        let plane = crate::serve::open(config, clock.clone(), CancellationToken::new()).await.unwrap();
        let key = std::fs::read_to_string(dir.path().join(crate::serve::KEY_FILE)).unwrap();
        let router = router(plane.clone());
        Self { plane, clock, router, key: key.trim().to_owned(), dir }
    }

    pub(super) async fn raw(&self, request: Request<Body>) -> axum::response::Response {
        self.router.clone().oneshot(request).await.unwrap()
    }

    pub(super) fn request(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
    ) -> axum::http::request::Builder {
        let mut request = Request::builder().method(method).uri(path);
        if !headers.iter().any(|(name, _)| *name == "authorization" || *name == "x-api-key") {
            request = request.header("authorization", format!("Bearer {}", self.key));
        }
        headers.iter().fold(request, |request, (name, value)| request.header(*name, *value))
    }

    pub(super) async fn ask(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<Value>,
    ) -> Got {
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        read(self.raw(self.request(method, path, headers).body(body).unwrap()).await).await
    }

    pub(super) async fn get(&self, path: &str) -> Got {
        self.ask(Method::GET, path, &OURS, None).await
    }

    pub(super) async fn post(&self, path: &str, body: Value) -> Got {
        self.ask(Method::POST, path, &OURS, Some(body)).await
    }

    pub(super) async fn sdk(&self, path: &str, body: Value) -> Got {
        self.ask(Method::POST, path, &SDK, Some(body)).await
    }

    /// The one workspace.
    pub(super) async fn workspace(&self) -> checkfu_shared::id::WorkspaceId {
        let read = |conn: &rusqlite::Connection| {
            Ok(conn.query_row("select id from workspaces", [], |row| row.get::<_, String>(0))?)
        };
        self.plane.store.read(read).await.unwrap().parse().unwrap()
    }

    /// A fresh agent's id.
    pub(super) async fn agent(&self) -> String {
        let made = self.post("/v1/agents", json!({"name": "a", "model": "m"})).await.ok();
        made["id"].as_str().unwrap().to_owned()
    }
}

pub(super) async fn read(response: axum::response::Response) -> Got {
    let (parts, body) = response.into_parts();
    let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    Got { status: parts.status, headers: parts.headers, body }
}
