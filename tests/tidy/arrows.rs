//! Who may depend on whom: `runner -> shared`, `control-plane -> shared`, `tests -> all`, and nothing else.
//! Read from Cargo's own view of the manifests, so renames and target tables cannot hide an arrow.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

use super::tree;

const OURS: [&str; 5] = ["checkfu", "checkfu-runner", "checkfu-toolbox", "checkfu-shared", "checkfu-tests"];
/// The contract is data and pure checks; whoever needs these does something else.
const KEPT_FROM_SHARED: [&str; 8] =
    ["tokio", "axum", "hyper", "reqwest", "tracing", "rusqlite", "tokio-postgres", "bollard"];
/// The toolbox runs as process 1 of a stranger's image: no runtime, no network library, no logging.
const KEPT_FROM_TOOLBOX: [&str; 7] = ["tokio", "axum", "hyper", "reqwest", "tracing", "rusqlite", "bollard"];

/// A direct dependency and whether only the tests of its package have it.
type Arrow = (String, bool);

/// Package name to its direct dependencies, in any kind.
fn arrows() -> BTreeMap<String, BTreeSet<Arrow>> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(tree::root())
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let name = |value: &Value| value["name"].as_str().unwrap().to_owned();
    let arrow = |value: &Value| (name(value), value["kind"] == "dev");
    let packages = metadata["packages"].as_array().unwrap();
    packages
        .iter()
        .map(|package| {
            (name(package), package["dependencies"].as_array().unwrap().iter().map(arrow).collect())
        })
        .collect()
}

/// Our own packages are kept apart in every kind; foreign ones only from what is shipped.
fn check(package: &str, allowed: &[&str], kept_out: &[&str]) {
    let arrows = arrows();
    let wrong: Vec<String> = arrows[package]
        .iter()
        .filter(|(name, is_for_tests)| {
            let name = name.as_str();
            (OURS.contains(&name) && !allowed.contains(&name)) || (kept_out.contains(&name) && !is_for_tests)
        })
        .map(|(name, _)| format!("{package} -> {name}"))
        .collect();
    tree::none(&wrong, "an arrow that must not be");
}

#[test]
fn the_workspace_is_the_five_packages() {
    let found: Vec<String> = arrows().into_keys().collect();
    let mut expected = OURS.map(str::to_owned);
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn shared_depends_on_neither_side_and_does_nothing() {
    check("checkfu-shared", &[], &KEPT_FROM_SHARED);
}

#[test]
fn the_toolbox_stands_alone() {
    check("checkfu-toolbox", &[], &KEPT_FROM_TOOLBOX);
}

#[test]
fn the_runner_never_depends_on_the_control_plane() {
    check("checkfu-runner", &["checkfu-shared", "checkfu-toolbox"], &["axum", "rusqlite"]);
}

#[test]
fn the_control_plane_never_depends_on_the_runner() {
    check("checkfu", &["checkfu-shared"], &["bollard"]);
}
