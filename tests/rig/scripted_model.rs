//! A model provider that plays scripts: a real HTTP server speaking Anthropic Messages and, below the same address,
//! OpenAI Chat Completions, streamed and whole.
//! It refuses a malformed conversation with the status and words of the real API and remembers each refusal, so that
//! every test that drives a session also proves the conversation stayed well formed. It never thinks: what it
//! says is the script (`script`), chosen by what the conversation holds, so many sessions share one server.

mod chat;
pub mod demo;
mod playback;
mod record;
pub mod request;
pub mod rules;
pub mod script;
mod server;
mod sse;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use record::{Outcome, Recorded};
use script::Script;
use server::Shared;

/// What a scripted model is started with.
#[derive(Debug)]
pub struct Settings {
    /// Where to listen; port 0 picks a free one.
    pub listen: SocketAddr,
    /// The rules for user texts that carry no script of their own.
    pub script: Script,
    /// The one accepted key, as `x-api-key` or as a bearer; `None` accepts any that is not empty.
    pub key: Option<String>,
    /// Requests counted above this many tokens are refused as too long, as the real service does.
    pub context_window_tokens: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            script: Script::default(),
            key: None,
            context_window_tokens: 200_000,
        }
    }
}

/// A running scripted model; dropping it ends its server at once.
#[derive(Debug)]
pub struct ScriptedModel {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: CancellationToken,
    task: JoinHandle<io::Result<()>>,
}

impl ScriptedModel {
    /// Binds and serves; fails only when the address cannot be bound.
    pub async fn start(settings: Settings) -> io::Result<Self> {
        let listener = TcpListener::bind(settings.listen).await?;
        let address = listener.local_addr()?;
        let stop = CancellationToken::new();
        let shared = Arc::new(Shared::new(settings));
        let router = server::router(Arc::clone(&shared));
        let serving = axum::serve(listener, router).with_graceful_shutdown(stop.clone().cancelled_owned());
        let task = tokio::spawn(async move { serving.await });
        Ok(Self { address, shared, stop, task })
    }

    /// The base URL clients are given, without a trailing slash.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What was asked so far, oldest first; only the latest requests are kept.
    #[must_use]
    pub fn requests(&self) -> Vec<Recorded> {
        self.shared.record.requests()
    }

    /// The sentence of each refusal so far. An honest client causes none.
    #[must_use]
    pub fn refusals(&self) -> Vec<String> {
        self.shared.record.refusals()
    }

    /// Lets every present and future reply waiting at the hold called `name` go on.
    pub fn release(&self, name: &str) {
        self.shared.holds.release(name);
    }

    /// Whether some reply has reached the hold called `name`; look at it through `wait_until`.
    #[must_use]
    pub fn has_reached(&self, name: &str) -> bool {
        self.shared.holds.has_reached(name)
    }

    /// Panics with all refusals when there was any.
    ///
    /// # Panics
    /// When a request was refused: the client under test sent a malformed conversation.
    pub fn assert_no_refusals(&self) {
        let refusals = self.refusals();
        assert!(refusals.is_empty(), "the scripted model refused requests:\n{}", refusals.join("\n"));
    }

    /// Serves until the server ends by itself; for the stand-alone program.
    pub async fn serve_forever(mut self) -> io::Result<()> {
        (&mut self.task).await.map_err(io::Error::other)?
    }

    /// Stops taking requests, gives replies under way five seconds, then drops them.
    pub async fn stop(mut self) {
        self.stop.cancel();
        if tokio::time::timeout(Duration::from_secs(5), &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}

impl Drop for ScriptedModel {
    fn drop(&mut self) {
        self.stop.cancel();
        self.task.abort();
    }
}

#[cfg(test)]
mod tests;
