//! What a request asks for, in one spelling. Anything with two readings is refused: somebody else may read it the
//! other way.

use std::{fmt, net::IpAddr};

/// A host in its one spelling: lower case, no trailing dot, A-labels, addresses in canonical form.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Host {
    Name(String),
    Address(IpAddr),
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
            Self::Address(address) => write!(f, "{address}"),
        }
    }
}

/// Why a text is no authority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Error {
    #[error("not a host with an optional port")]
    Malformed,
    #[error("an address in an unusual spelling")]
    OddAddress,
    #[error("a name of this machine")]
    Local,
}

const MAX_NAME_BYTES: usize = 253;
const MAX_LABEL_BYTES: usize = 63;

/// Reads one host, without a port.
pub(super) fn host(text: &str) -> Result<Host, Error> {
    if let Some(inner) = text.strip_prefix('[') {
        let address = inner.strip_suffix(']').and_then(|inner| inner.parse().ok());
        return address.map(|address| Host::Address(IpAddr::V6(address))).ok_or(Error::Malformed);
    }
    // A percent sign could hide any other spelling, an underscore is common in real names.
    if text.is_empty() || text.contains(['%', '@', '/', '\\', ':', '?', '#']) {
        return Err(Error::Malformed);
    }
    let bare = text.strip_suffix('.').unwrap_or(text);
    match url::Host::parse(bare).map_err(|_| odd_or_malformed(bare))? {
        url::Host::Ipv4(address) if address.to_string() == text => Ok(Host::Address(address.into())),
        url::Host::Ipv4(_) | url::Host::Ipv6(_) => Err(Error::OddAddress),
        url::Host::Domain(name) => domain(name),
    }
}

fn odd_or_malformed(text: &str) -> Error {
    let numeric =
        text.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_hexdigit()));
    if numeric && text.starts_with(|first: char| first.is_ascii_digit()) {
        Error::OddAddress
    } else {
        Error::Malformed
    }
}

fn domain(name: String) -> Result<Host, Error> {
    let label_ok = |label: &str| {
        (1..=MAX_LABEL_BYTES).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    if name.len() > MAX_NAME_BYTES || !name.split('.').all(label_ok) {
        return Err(Error::Malformed);
    }
    if name == "localhost" || name.ends_with(".localhost") {
        return Err(Error::Local);
    }
    Ok(Host::Name(name))
}

/// Reads `host`, `host:port` or `[address]:port`.
pub(super) fn authority(text: &str) -> Result<(Host, Option<u16>), Error> {
    let split = match text.rfind(']') {
        Some(end) => text.split_at(end + 1),
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let (name, rest) = split;
    let port = match rest.strip_prefix(':') {
        None if rest.is_empty() => None,
        Some(digits) if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            let port: u16 = digits.parse().map_err(|_| Error::Malformed)?;
            Some(port).filter(|port| *port != 0).ok_or(Error::Malformed).map(Some)?
        }
        _ => return Err(Error::Malformed),
    };
    Ok((host(name)?, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(text: &str) -> Result<String, Error> {
        host(text).map(|host| host.to_string())
    }

    #[test]
    fn spellings_of_one_name_become_one() {
        for text in ["Example.COM", "example.com.", "example.com", "EXAMPLE.com."] {
            assert_eq!(name(text).unwrap(), "example.com", "{text}");
        }
        assert_eq!(name("bücher.example").unwrap(), "xn--bcher-kva.example");
        assert_eq!(name("a_b.example").unwrap(), "a_b.example");
    }

    #[test]
    fn addresses_have_one_spelling() {
        assert_eq!(name("127.0.0.1").unwrap(), "127.0.0.1");
        assert_eq!(name("[::1]").unwrap(), "[::1]");
        for text in
            ["0x7f.1", "127.1", "2130706433", "017700000001", "0177.0.0.1", "127.0.0.1.", "127.00.0.1", "0"]
        {
            assert_eq!(name(text), Err(Error::OddAddress), "{text}");
        }
    }

    #[test]
    fn what_has_two_readings_is_refused() {
        for text in [
            "",
            ".",
            "a..b",
            "user@host",
            "a b",
            "a%2eb",
            "a/b",
            "a\\b",
            "::1",
            "[::1",
            "[::1]x",
            "a?b",
            "a#b",
            "256.256.256.256",
        ] {
            assert!(host(text).is_err(), "{text:?} was read as {:?}", host(text));
        }
        for text in ["localhost", "LOCALHOST.", "a.localhost"] {
            assert_eq!(name(text), Err(Error::Local));
        }
        assert!(host(&format!("{}.example", "a".repeat(64))).is_err());
        assert!(host(&"a.".repeat(130)).is_err());
    }

    #[test]
    fn authorities_have_an_optional_port() {
        let read = |text: &str| authority(text).map(|(host, port)| (host.to_string(), port));
        assert_eq!(read("a.test:8443").unwrap(), ("a.test".to_owned(), Some(8443)));
        assert_eq!(read("a.test").unwrap(), ("a.test".to_owned(), None));
        assert_eq!(read("[::1]:80").unwrap(), ("[::1]".to_owned(), Some(80)));
        for text in [
            "a.test:",
            "a.test:0",
            "a.test:65536",
            "a.test:+1",
            "a.test:80:80",
            ":80",
            "[::1]80",
            "u@a.test:1",
        ] {
            assert!(authority(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn reading_is_stable_and_never_panics(text in "\\PC{0,40}") {
            if let Ok(first) = host(&text) {
                prop_assert_eq!(host(&first.to_string()), Ok(first));
            }
            let _ = authority(&text);
        }

        #[test]
        fn no_spelling_of_an_address_is_a_name(bits: u32, octal in 0u8..4) {
            let [a, b, c, d] = bits.to_be_bytes();
            let text = match octal {
                0 => format!("{bits}"),
                1 => format!("0x{bits:x}"),
                2 => format!("0{a:o}.{b}.{c}.{d}"),
                _ => format!("{a}.{b}.{}", u16::from_be_bytes([c, d])),
            };
            prop_assert!(!matches!(host(&text), Ok(Host::Name(_))), "{} is a name", text);
        }
    }
}
