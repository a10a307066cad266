//! The one place that dials out: resolve, check every address, dial a checked one, follow no redirect.
//! Link-local addresses (cloud metadata lives there) are never dialled. Private and loopback ones only where the
//! operator's own configuration names the host, as it does for a model provider and for the command line's server.

use reqwest::{
    Url,
    dns::{Addrs, Name, Resolve, Resolving},
    redirect,
};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use std::{
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

/// How long a connection may take to stand, TLS included.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Why an address cannot be dialled.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text is no address.
    #[error("the address is not a URL")]
    NotAUrl,
    /// Another scheme than http and https, or no host, or a user name and password in it.
    #[error("the address must be http:// or https:// with a host and without a user name or password")]
    Shape,
    /// It leads where nothing may be dialled.
    #[error("the address is link-local, which is never dialled")]
    Forbidden,
    /// The TLS client cannot be set up.
    #[error("TLS cannot be set up")]
    Tls(#[source] rustls::Error),
    /// The HTTP client cannot be set up.
    #[error("the HTTP client cannot be set up")]
    Client(#[source] reqwest::Error),
}

/// Reads a base address that the operator configured.
///
/// # Errors
/// [`Error::NotAUrl`], [`Error::Shape`], or [`Error::Forbidden`] when the host is a literal address that is never dialled.
pub fn base(text: &str) -> Result<Url, Error> {
    let url = Url::parse(text.trim()).map_err(|_| Error::NotAUrl)?;
    let plain = url.username().is_empty() && url.password().is_none();
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() || !plain {
        return Err(Error::Shape);
    }
    if literal(&url).is_some_and(is_forbidden) {
        return Err(Error::Forbidden);
    }
    Ok(url)
}

/// The address of `path` below `base`, keeping the base's own path.
#[must_use]
pub fn below(base: &Url, path: &str) -> String {
    format!("{}{path}", base.as_str().split(['?', '#']).next().unwrap_or_default().trim_end_matches('/'))
}

/// An HTTP client for `base`: system and bundled roots, no redirects, no proxy for loopback.
///
/// # Errors
/// [`Error::Tls`] or [`Error::Client`] when the machine lacks what they need.
pub fn client(base: &Url) -> Result<reqwest::Client, Error> {
    let mut builder = reqwest::Client::builder()
        .tls_backend_preconfigured(tls()?)
        .redirect(redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .dns_resolver(Checked)
        .user_agent(concat!("checkfu/", env!("CARGO_PKG_VERSION")));
    if is_loopback(base) {
        builder = builder.no_proxy();
    }
    builder.build().map_err(Error::Client)
}

fn tls() -> Result<ClientConfig, Error> {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    // A damaged system certificate costs itself only; the bundled roots still stand.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(Error::Tls)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn literal(url: &Url) -> Option<IpAddr> {
    url.host_str()?.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// Whether the host of `url` is this machine.
#[must_use]
pub fn is_loopback(url: &Url) -> bool {
    url.host_str() == Some("localhost") || literal(url).is_some_and(|address| address.is_loopback())
}

fn is_forbidden(address: IpAddr) -> bool {
    /// The metadata service of AWS has a unique-local address.
    const METADATA_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_unspecified() || v4.is_broadcast() || v4.is_multicast(),
        IpAddr::V6(v6) => {
            v6.is_unicast_link_local() || v6.is_unspecified() || v6.is_multicast() || v6 == METADATA_V6
        }
    }
}

/// Resolves by the system and passes on what may be dialled.
#[derive(Debug, Clone, Copy)]
struct Checked;

impl Resolve for Checked {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let allowed: Vec<SocketAddr> =
                found.into_iter().filter(|address| !is_forbidden(address.ip())).collect();
            if allowed.is_empty() {
                return Err(Box::new(Error::Forbidden).into());
            }
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_must_be_http_with_a_host_and_without_credentials() {
        for good in
            ["https://api.anthropic.com", "http://127.0.0.1:9/prefix/", "http://[::1]:80", " http://x "]
        {
            assert!(base(good).is_ok(), "{good}");
        }
        for bad in ["", "api.anthropic.com", "ftp://host", "http://", "http://user:pass@host", "file:///etc"]
        {
            assert!(base(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn link_local_and_metadata_addresses_are_never_dialled() {
        for bad in [
            "http://169.254.169.254/latest",
            "http://[fe80::1]",
            "http://[::ffff:169.254.169.254]",
            "http://[fd00:ec2::254]",
            "http://0.0.0.0",
            "http://2852039166",
        ] {
            assert!(matches!(base(bad), Err(Error::Forbidden)), "{bad}");
        }
    }

    #[test]
    fn a_path_goes_below_the_base_and_keeps_its_prefix() {
        let base = base("http://host/prefix/?q=1").unwrap();
        assert_eq!(below(&base, "/v1/messages"), "http://host/prefix/v1/messages");
    }

    #[test]
    fn a_client_can_be_built() {
        assert!(client(&base("https://localhost").unwrap()).is_ok());
    }
}
