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
    /// It leads into a private network, and nobody allowed that.
    #[error("the address is private, which is dialled only where `allow_private` says so")]
    Private,
    /// The TLS client cannot be set up.
    #[error("TLS cannot be set up")]
    Tls(#[source] rustls::Error),
    /// The HTTP client cannot be set up.
    #[error("the HTTP client cannot be set up")]
    Client(#[source] reqwest::Error),
}

/// How far an address may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Public addresses only.
    Public,
    /// Private and loopback addresses too, because the operator said so.
    Private,
}

/// Refuses a literal address that lies beyond `reach`; names are judged when they are resolved.
///
/// # Errors
/// [`Error::Private`].
pub fn within(url: &Url, reach: Reach) -> Result<(), Error> {
    let beyond = is_loopback(url) || literal(url).is_some_and(is_private);
    if reach == Reach::Public && beyond { Err(Error::Private) } else { Ok(()) }
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
    reaching(base, Reach::Private)
}

/// Like [`client`], within `reach`. Behind a proxy of the environment it is the proxy that resolves names and judges them.
///
/// # Errors
/// [`Error::Private`] for a literal address beyond `reach`; else as [`client`].
pub fn reaching(base: &Url, reach: Reach) -> Result<reqwest::Client, Error> {
    within(base, reach)?;
    let mut builder = reqwest::Client::builder()
        .tls_backend_preconfigured(tls()?)
        .redirect(redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .dns_resolver(Checked(reach))
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

/// Whether the address lies in a network that is not public.
fn is_private(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            let [a, b, c, _] = v4.octets();
            let shared = a == 100 && (64..128).contains(&b);
            let special =
                a == 0 || a >= 240 || (a == 192 && b == 0 && c == 0) || (a == 198 && b & 0xfe == 18);
            v4.is_private() || v4.is_loopback() || shared || special
        }
        IpAddr::V6(v6) => {
            // Addresses that embed an IPv4 one lead where that one leads.
            let embedded = match v6.segments() {
                [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => Some((high, low)),
                _ => None,
            };
            let embedded = embedded.is_some_and(|(high, low)| {
                let [a, b] = high.to_be_bytes();
                let [c, d] = low.to_be_bytes();
                let v4 = IpAddr::from([a, b, c, d]);
                is_private(v4) || is_forbidden(v4)
            });
            v6.is_loopback() || v6.is_unique_local() || embedded || v6.segments()[0] & 0xffc0 == 0xfec0
        }
    }
}

/// Resolves by the system and passes on what may be dialled.
#[derive(Debug, Clone, Copy)]
struct Checked(Reach);

impl Resolve for Checked {
    fn resolve(&self, name: Name) -> Resolving {
        let reach = self.0;
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let some: Vec<SocketAddr> = found.filter(|address| !is_forbidden(address.ip())).collect();
            if some.is_empty() {
                return Err(Box::new(Error::Forbidden).into());
            }
            let fits = |address: &SocketAddr| reach == Reach::Private || !is_private(address.ip());
            let allowed: Vec<SocketAddr> = some.into_iter().filter(fits).collect();
            if allowed.is_empty() {
                return Err(Box::new(Error::Private).into());
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

    #[tokio::test]
    async fn private_addresses_are_dialled_only_where_that_is_allowed() {
        for private in [
            "http://127.0.0.1:1",
            "http://localhost",
            "http://10.0.0.1",
            "http://172.16.0.1",
            "http://192.168.1.1",
            "http://100.64.0.1",
            "http://0.1.2.3",
            "http://198.18.0.1",
            "http://[::1]",
            "http://[fd12::1]",
            "http://[::ffff:10.0.0.1]",
            "http://[64:ff9b::10.0.0.1]",
            "http://[2002:a00:1::1]",
            "http://2130706433",
        ] {
            let url = base(private).unwrap();
            assert!(matches!(reaching(&url, Reach::Public), Err(Error::Private)), "{private}");
            assert!(reaching(&url, Reach::Private).is_ok(), "{private}");
        }
        for public in ["https://api.anthropic.com", "http://1.1.1.1", "http://[2606:4700::1111]"] {
            assert!(reaching(&base(public).unwrap(), Reach::Public).is_ok(), "{public}");
        }
        let name = |text: &str| text.parse::<Name>().unwrap();
        assert!(Checked(Reach::Public).resolve(name("localhost")).await.is_err());
        assert!(Checked(Reach::Private).resolve(name("localhost")).await.is_ok());
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
