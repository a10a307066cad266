//! Which configurations compile, to what, and which are refused.

use super::*;
use crate::http::auth::Dialect;

fn compiled(config: Value) -> Result<Compiled, Problem> {
    compile(Some(Fields::of(config, "config", Dialect::Checkfu).unwrap()))
}

#[test]
fn self_hosted_and_nothing_mean_the_default_image_without_network() {
    for config in [compile(None), compiled(json!({"type": "self_hosted"}))] {
        let (shown, spec) = config.unwrap();
        assert_eq!(shown, json!({"type": "self_hosted"}));
        assert_eq!((spec.image, spec.network), (None, Network::None));
    }
}

#[test]
fn a_flag_is_compiled_into_hosts_that_can_be_read_back() {
    let (shown, spec) = compiled(json!({
        "type": "cloud",
        "networking": {"type": "limited", "allowed_hosts": ["API.example.com."], "allow_package_managers": true},
        "packages": {"pip": ["requests>=2,<3"], "apt": ["git"]},
    }))
    .unwrap();
    let hosts = shown["networking"]["allowed_hosts"].as_array().unwrap();
    assert!(hosts.contains(&json!("api.example.com")) && hosts.contains(&json!("pypi.org")));
    let Network::Limited { allowed_hosts } = spec.network else { panic!("{:?}", spec.network) };
    assert_eq!(json!(allowed_hosts), shown["networking"]["allowed_hosts"]);
    assert_eq!(spec.packages.pip, ["requests>=2,<3"]);
}

#[test]
fn what_is_read_back_compiles_to_the_same_again() {
    let config = json!({
        "type": "cloud",
        "networking": {"type": "limited", "allowed_hosts": ["b.test", "*.a.test:8080"], "allow_mcp_servers": true},
        "image": "debian:trixie",
        "resources": {"pids": 64},
        "profile": "locked",
        "placement": {"labels": ["gpu", "arch=arm64"]},
    });
    let first = compiled(config).unwrap();
    assert_eq!(compiled(first.0.clone()), Ok(first.clone()));
    assert_eq!(first.1.limits, Limits { pids: 64, ..Limits::default() });
    assert_eq!(first.1.placement_labels, ["arch=arm64", "gpu"]);
}

#[test]
fn bad_configurations_are_refused() {
    let limited = |networking: Value| {
        let mut networking = networking;
        networking["type"] = json!("limited");
        json!({"type": "cloud", "networking": networking})
    };
    for (config, code) in [
        (json!({}), Code::InvalidRequest),
        (json!({"type": "moon"}), Code::InvalidRequest),
        (limited(json!({})), Code::InvalidRequest),
        (limited(json!({"allowed_hosts": []})), Code::InvalidRequest),
        (limited(json!({"allow_mcp_servers": true})), Code::InvalidRequest),
        (limited(json!({"allowed_hosts": ["https://x.test"]})), Code::InvalidRequest),
        (limited(json!({"allowed_hosts": "x.test"})), Code::InvalidRequest),
        (json!({"type": "self_hosted", "networking": {"type": "none"}}), Code::UnknownField),
        (
            json!({"type": "cloud", "networking": {"type": "none"}, "packages": {"apt": ["git"]}}),
            Code::InvalidRequest,
        ),
        (json!({"type": "cloud", "packages": {"apt": ["-o"]}}), Code::InvalidRequest),
        (json!({"type": "cloud", "packages": {"apt": ["a b"]}}), Code::InvalidRequest),
        (json!({"type": "cloud", "packages": {"apt": ["$(x)"]}}), Code::InvalidRequest),
        (json!({"type": "cloud", "packages": {"go": ["x"]}}), Code::Unsupported),
        (json!({"type": "cloud", "resources": {"pids": 0}}), Code::InvalidRequest),
        (json!({"type": "cloud", "resources": {"memory_bytes": 1}}), Code::InvalidRequest),
        (json!({"type": "cloud", "resources": {"cpu_millis": -1}}), Code::InvalidRequest),
        (json!({"type": "cloud", "profile": "loose"}), Code::InvalidRequest),
        (json!({"type": "cloud", "image": ""}), Code::InvalidRequest),
        (json!({"type": "cloud", "retention": {"days": 1}}), Code::Unsupported),
        (json!({"type": "cloud", "placement": {"labels": ["a b"]}}), Code::InvalidRequest),
    ] {
        assert_eq!(compiled(config.clone()).unwrap_err().code, code, "{config}");
    }
}

#[test]
fn an_allowlist_that_only_has_the_mcp_flag_says_why_it_reaches_nothing() {
    let config = json!({"type": "cloud", "networking": {"type": "limited", "allow_mcp_servers": true}});
    assert!(compiled(config).unwrap_err().message.contains("allow_mcp_servers"));
}
