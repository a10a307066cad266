//! The connections of one link. A pool cannot know that a router or a proxy has forgotten its connections; after a request on
//! which nothing came back in its time, later ones begin on new connections. It sends nothing itself.

use reqwest::Client;
use rustls::ClientConfig;
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// An HTTP client that can be replaced under its users; clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    settings: Arc<Settings>,
    current: Arc<Mutex<Current>>,
}

#[derive(Debug)]
struct Settings {
    tls: ClientConfig,
    /// Nothing on this machine is reached through a proxy.
    is_loopback: bool,
}

#[derive(Debug)]
struct Current {
    client: Client,
    generation: u64,
}

impl Pool {
    /// Prepares connections; nothing is sent yet.
    pub(crate) fn new(tls: ClientConfig, is_loopback: bool) -> Result<Self, reqwest::Error> {
        let settings = Settings { tls, is_loopback };
        let current = Current { client: settings.client()?, generation: 0 };
        Ok(Self { settings: Arc::new(settings), current: Arc::new(Mutex::new(current)) })
    }

    /// The client to send with now, and which one it is.
    pub(crate) fn client(&self) -> (Client, u64) {
        let current = self.current();
        (current.client.clone(), current.generation)
    }

    /// Leaves the connections of this generation to their users; a second word about the same one changes nothing.
    pub(crate) fn distrust(&self, generation: u64) {
        let mut current = self.current();
        if current.generation != generation {
            return;
        }
        match self.settings.client() {
            Ok(client) => *current = Current { client, generation: generation + 1 },
            Err(error) => tracing::warn!(%error, "the connections cannot be replaced"),
        }
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Settings {
    fn client(&self) -> Result<Client, reqwest::Error> {
        let mut builder = Client::builder()
            .tls_backend_preconfigured(self.tls.clone())
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("checkfu-runner/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_keepalive(Duration::from_secs(15))
            // A peer that acknowledges nothing is given up long before the system would.
            .tcp_user_timeout(Duration::from_secs(20))
            .http2_keep_alive_interval(Duration::from_secs(20))
            .http2_keep_alive_timeout(Duration::from_secs(10))
            .pool_idle_timeout(Duration::from_secs(60));
        if self.is_loopback {
            builder = builder.no_proxy();
        }
        builder.build()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plane::tls;

    #[test]
    fn connections_are_replaced_once_however_many_complain() {
        let pool = Pool::new(tls::config(None).unwrap(), true).unwrap();
        let (_, first) = pool.client();
        pool.distrust(first);
        pool.distrust(first);
        assert_eq!(pool.client().1, first + 1);
        assert_eq!(pool.clone().client().1, first + 1, "clones share the connections");
    }
}
