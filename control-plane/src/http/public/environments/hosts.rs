//! What `allowed_hosts` may say: names and `*.suffix`, optionally with a port, in one normal form. Never an address:
//! a name is checked again when it is dialled, a number has too many spellings.

use crate::http::fields::wrong;
use checkfu_shared::problem::Problem;

/// The hosts that `allow_package_managers` stands for.
pub(crate) const PACKAGE_HOSTS: [&str; 14] = [
    "archive.ubuntu.com",
    "crates.io",
    "deb.debian.org",
    "files.pythonhosted.org",
    "index.crates.io",
    "index.rubygems.org",
    "ports.ubuntu.com",
    "proxy.golang.org",
    "pypi.org",
    "registry.npmjs.org",
    "rubygems.org",
    "security.debian.org",
    "security.ubuntu.com",
    "static.crates.io",
];

/// The normal form of one entry.
///
/// # Errors
/// `invalid_request` with what is wrong with it.
pub(crate) fn normal(text: &str, path: &str) -> Result<String, Problem> {
    let shown: String = text.chars().take(80).collect();
    let refuse = |what: &str| wrong(path, &format!("is `{shown}`, which {what}"));
    if text.contains("//") || text.contains('/') {
        return Err(refuse("is an address; write the host name only, without scheme and path"));
    }
    if text.contains('@') || text.contains('?') || text.contains('#') || text.contains('[') {
        return Err(refuse("is no host name"));
    }
    let (host, port) = match text.split_once(':') {
        None => (text, None),
        Some((host, port)) => {
            let number: Option<u16> =
                port.parse().ok().filter(|number| *number != 0 && port.bytes().all(|b| b.is_ascii_digit()));
            (host, Some(number.ok_or_else(|| refuse("has no port from 1 to 65535 after the colon"))?))
        }
    };
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    let name = host.strip_prefix("*.").unwrap_or(&host);
    if name.contains('*') {
        return Err(refuse("has a star elsewhere than in front; write `*.example.com`"));
    }
    if !name.is_ascii() {
        return Err(refuse("is not ASCII; write international names in their `xn--` form"));
    }
    if name.len() > 253 || !name.split('.').all(is_label) {
        return Err(refuse("is no host name"));
    }
    if name.rsplit('.').next().is_some_and(looks_like_a_number) {
        return Err(refuse("is an IP address; only names can be allowed"));
    }
    if !name.contains('.') && !host.starts_with("*.") {
        return Err(refuse("has no dot; write the full host name"));
    }
    if name == "localhost" || name.ends_with(".localhost") {
        return Err(refuse("is the sandbox itself"));
    }
    Ok(port.map_or_else(|| host.clone(), |port| format!("{host}:{port}")))
}

fn is_label(label: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
    (1..=63).contains(&label.len())
        && label.bytes().all(inner)
        && !label.starts_with('-')
        && !label.ends_with('-')
}

/// Whether resolvers read a name with this last label as an IPv4 address: `127.1`, `0x7f000001`, `2130706433`.
fn looks_like_a_number(label: &str) -> bool {
    label.bytes().all(|byte| byte.is_ascii_digit())
        || label.strip_prefix("0x").is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_have_one_normal_form() {
        for (text, want) in [
            ("Example.COM", "example.com"),
            ("example.com.", "example.com"),
            ("example.com:8443", "example.com:8443"),
            ("*.Ok.test", "*.ok.test"),
            ("xn--bcher-kva.example", "xn--bcher-kva.example"),
            ("a_b.example.com", "a_b.example.com"),
            ("*.corp", "*.corp"),
        ] {
            assert_eq!(normal(text, "h"), Ok(want.to_owned()), "{text}");
        }
    }

    #[test]
    fn addresses_schemes_and_odd_stars_are_refused() {
        for bad in [
            "",
            "https://example.com",
            "example.com/x",
            "user@example.com",
            "127.0.0.1",
            "127.1",
            "0x7f000001",
            "0x7f.1",
            "2130706433",
            "1.2.3.0x4",
            "[::1]",
            "::1",
            "fe80::1",
            "*",
            "*.",
            "**.example.com",
            "a.*.com",
            "*example.com",
            "example.*",
            "example.com:0",
            "example.com:99999",
            "example.com:+1",
            "example.com:",
            "localhost",
            "x.localhost",
            "host",
            "a..b",
            "-a.com",
            "a-.com",
            "a b.com",
            "bücher.example",
            "example.com..",
            ".example.com",
            "*.127.0.0.1",
        ] {
            assert!(normal(bad, "h").is_err(), "{bad} was taken");
        }
    }

    #[test]
    fn the_package_hosts_are_in_normal_form_and_sorted() {
        assert!(PACKAGE_HOSTS.is_sorted());
        assert!(PACKAGE_HOSTS.iter().all(|host| normal(host, "h").as_deref() == Ok(host)));
    }

    proptest! {
        #[test]
        fn a_normal_form_is_normal_and_no_address(text in "[a-zA-Z0-9.*:_x-]{0,30}") {
            if let Ok(form) = normal(&text, "h") {
                prop_assert_eq!(normal(&form, "h"), Ok(form.clone()));
                let host = form.split(':').next().unwrap().trim_start_matches("*.");
                prop_assert!(host.parse::<std::net::IpAddr>().is_err());
            }
        }
    }
}
