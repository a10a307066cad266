//! Where the control plane is. Plain `http` is refused off loopback: tokens and code would travel in the open.

use std::{fmt, net::IpAddr, str::FromStr};

/// Why an address is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It is not an address at all.
    #[error("`{0}` is not an address such as https://checkfu.example.com")]
    Malformed(String),
    /// Neither `https` nor `http`.
    #[error("`{0}:` is not supported; the address must begin with https://")]
    Scheme(String),
    /// Plain `http` to another machine.
    #[error("http:// to `{0}` is refused because it is not this machine; use https://")]
    Plain(String),
    /// Parts that would end up in logs or have no meaning.
    #[error("the address must have no user, password, query or fragment")]
    Parts,
}

/// The control plane's address: `https://host[:port][/prefix]`, without a slash at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    base: String,
    origin: String,
    loopback: bool,
}

impl Address {
    /// `scheme://host[:port]`, which signatures cover.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Whether it is this machine, so that no proxy may stand between.
    #[must_use]
    pub const fn is_loopback(&self) -> bool {
        self.loopback
    }

    /// The full address of an absolute path below it.
    #[must_use]
    pub fn at(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let malformed = || Error::Malformed(text.chars().filter(|c| !c.is_control()).take(100).collect());
        let url = reqwest::Url::parse(text).map_err(|_| malformed())?;
        if !url.username().is_empty()
            || url.password().is_some()
            || url.query().is_some()
            || url.fragment().is_some()
        {
            return Err(Error::Parts);
        }
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or_else(malformed)?;
        let loopback = host == "localhost"
            || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        match url.scheme() {
            "https" => {}
            "http" if loopback => {}
            "http" => return Err(Error::Plain(host.to_owned())),
            other => return Err(Error::Scheme(other.to_owned())),
        }
        let origin = url.origin().ascii_serialization();
        let base = format!("{origin}{}", url.path().trim_end_matches('/'));
        Ok(Self { base, origin, loopback })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_encrypted_or_local_addresses_are_taken() {
        for (text, base) in [
            ("https://plane.example.com", Some("https://plane.example.com")),
            ("https://plane.example.com:443/", Some("https://plane.example.com")),
            ("https://plane.example.com/checkfu/", Some("https://plane.example.com/checkfu")),
            ("http://127.0.0.1:8321", Some("http://127.0.0.1:8321")),
            ("http://127.8.8.8:8321", Some("http://127.8.8.8:8321")),
            ("http://[::1]:8321/", Some("http://[::1]:8321")),
            ("http://localhost:1", Some("http://localhost:1")),
            ("http://plane.example.com", None),
            ("http://localhost.example.com", None),
            ("http://10.0.0.1", None),
            ("https://user:pass@plane.example.com", None),
            ("https://plane.example.com/?a=1", None),
            ("ftp://plane.example.com", None),
            ("unix:/run/x", None),
            ("plane.example.com", None),
            ("", None),
        ] {
            let got = text.parse::<Address>();
            assert_eq!(got.as_ref().ok().map(ToString::to_string).as_deref(), base, "{text}: {got:?}");
        }
    }

    #[test]
    fn the_origin_leaves_the_prefix_out() {
        let address: Address = "https://Plane.Example.com:8443/x".parse().unwrap();
        assert_eq!(address.origin(), "https://plane.example.com:8443");
        assert_eq!(address.at("/v1/runner/nonce"), "https://plane.example.com:8443/x/v1/runner/nonce");
    }

    #[test]
    fn a_refused_address_does_not_echo_control_characters() {
        let error = "\u{1b}[31m".parse::<Address>().unwrap_err();
        assert!(!error.to_string().contains('\u{1b}'));
    }
}
