//! `config show`: every effective setting and where it comes from, and what else of the environment this program obeys.

use super::exit::Exit;
use checkfu_runner::{
    config::keys::TABLE,
    settings::{Key, Setting, Settings, Source},
};
use std::path::Path;

/// What libraries below us read by themselves.
const FOREIGN: [&str; 11] = [
    "HTTPS_PROXY",
    "https_proxy",
    "HTTP_PROXY",
    "http_proxy",
    "ALL_PROXY",
    "all_proxy",
    "NO_PROXY",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "DOCKER_HOST",
];

pub(crate) fn show(settings: &Settings, file: Option<&Path>, json: bool) -> Exit {
    let foreign = FOREIGN.iter().filter_map(|name| Some((*name, std::env::var(name).ok()?)));
    let foreign = foreign.map(|(name, value)| (name, without_credentials(&value))).collect::<Vec<_>>();
    let rows = TABLE.keys.iter().filter_map(|key| Some((key, settings.get(key.name)?)));
    if json {
        let settings: serde_json::Map<_, _> = rows
            .map(|(key, setting)| {
                let place = place(key, setting, file);
                let value = serde_json::json!({
                    "value": value(key, setting), "source": setting.source.to_string(), "place": place,
                });
                (key.name.to_owned(), value)
            })
            .collect();
        let environment: serde_json::Map<_, _> =
            foreign.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
        println!("{}", serde_json::json!({"settings": settings, "environment": environment}));
        return Exit::Success;
    }
    for (key, setting) in rows {
        println!("{:<22} {}  ({})", key.name, value(key, setting), place(key, setting, file));
    }
    for (name, value) in foreign {
        println!("{name:<22} {value}  (environment, obeyed besides)");
    }
    Exit::Success
}

fn value(key: &Key, setting: &Setting) -> String {
    if setting.source == Source::Default { key.default.to_owned() } else { setting.values.join(", ") }
}

fn place(key: &Key, setting: &Setting, file: Option<&Path>) -> String {
    match setting.source {
        Source::Default => "default".to_owned(),
        Source::File => file.map(|path| path.display().to_string()).unwrap_or_default(),
        Source::Environment => format!("environment {}", key.variable),
        Source::Flag => format!("--{}", key.flag),
    }
}

/// A proxy's address without what stands before the `@`, in whatever scheme or none.
fn without_credentials(value: &str) -> String {
    let start = value.find("://").map_or(0, |scheme| scheme + 3);
    let (scheme, rest) = value.split_at(start);
    // A password may hold an unescaped slash or at-sign, so the last one counts wherever it stands.
    match rest.rfind('@') {
        Some(at) => format!("{scheme}***@{}", &rest[at + 1..]),
        None => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxys_credentials_are_not_shown() {
        for (value, shown) in [
            ("http://user:hunter2@proxy:3128", "http://***@proxy:3128"),
            ("user:hunter2@proxy:3128", "***@proxy:3128"),
            ("http://user:hun@ter2@proxy/", "http://***@proxy/"),
            ("http://user:hun/ter2@proxy", "http://***@proxy"),
            ("http://proxy:3128", "http://proxy:3128"),
            ("localhost,.example.com", "localhost,.example.com"),
            ("/etc/ssl/ca.pem", "/etc/ssl/ca.pem"),
        ] {
            assert_eq!(without_credentials(value), shown);
        }
    }
}
