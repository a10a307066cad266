//! What the proxy refused, added up, so that a busy loop inside a sandbox makes one record and not a thousand.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};
use tokio::sync::Notify;

/// Different targets that are told apart between two readings; further ones are added up as one.
const MAX_TARGETS: usize = 256;
const MAX_HOST_CHARS: usize = 255;

/// Why a request was refused; the text form is what the 403 carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// No rule names the host.
    NotListed,
    /// Rules name the host, none the port.
    PortNotListed,
    /// The request names no host that can be read in one way only.
    BadAuthority,
    /// The host resolves to an address that is not public.
    PrivateAddress,
    /// `Host` and the requested authority differ.
    HostMismatch,
    /// The TLS handshake names another host than the tunnel.
    SniMismatch,
    /// The TLS handshake names no host.
    NoSni,
    /// The tunnel does not begin with a TLS handshake.
    NotTls,
}

impl Reason {
    /// The machine-readable form.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotListed => "host_not_listed",
            Self::PortNotListed => "port_not_listed",
            Self::BadAuthority => "bad_authority",
            Self::PrivateAddress => "private_address",
            Self::HostMismatch => "host_mismatch",
            Self::SniMismatch => "sni_mismatch",
            Self::NoSni => "no_sni",
            Self::NotTls => "not_tls",
        }
    }
}

/// Requests that were refused alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// The host as asked for, escaped and cut; `(others)` when there were too many to tell apart.
    pub host: String,
    /// The port asked for, 0 when there was none.
    pub port: u16,
    /// Why.
    pub reason: Reason,
    /// How often.
    pub count: u64,
}

#[derive(Debug, Default)]
pub(super) struct Denials {
    counts: Mutex<BTreeMap<(String, u16, Reason), u64>>,
    news: Notify,
}

impl Denials {
    pub(super) fn add(&self, host: &str, port: u16, reason: Reason) {
        let host: String = host.escape_default().take(MAX_HOST_CHARS).collect();
        {
            let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
            let key = (host, port, reason);
            let full = counts.len() >= MAX_TARGETS && !counts.contains_key(&key);
            let key = if full { ("(others)".to_owned(), 0, reason) } else { key };
            *counts.entry(key).or_default() += 1;
        }
        self.news.notify_one();
    }

    pub(super) async fn take(&self) -> Vec<Denial> {
        loop {
            let taken = std::mem::take(&mut *self.counts.lock().unwrap_or_else(PoisonError::into_inner));
            if !taken.is_empty() {
                return taken
                    .into_iter()
                    .map(|((host, port, reason), count)| Denial { host, port, reason, count })
                    .collect();
            }
            self.news.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn equal_refusals_are_added_up_and_the_rest_is_bounded() {
        let denials = Denials::default();
        for _ in 0..3 {
            denials.add("evil.test", 443, Reason::NotListed);
        }
        denials.add("a\nb", 1, Reason::BadAuthority);
        let taken = denials.take().await;
        assert_eq!(taken.len(), 2);
        assert_eq!(taken[0].host, "a\\nb");
        assert_eq!((taken[1].host.as_str(), taken[1].count), ("evil.test", 3));
        for port in 0..1_000 {
            denials.add("x.test", port, Reason::NotListed);
        }
        let taken = denials.take().await;
        assert!(taken.len() <= MAX_TARGETS + 1);
        assert_eq!(taken.iter().map(|denial| denial.count).sum::<u64>(), 1_000);
    }
}
