//! The rules for what is not Rust: the changelog, the shell scripts, the layout of the top directory.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use super::tree;

#[test]
fn the_changelog_has_an_unreleased_section_with_entries() {
    let changelog = tree::text("packaging/CHANGELOG.md");
    let section = changelog.split("\n## ").find(|section| section.starts_with("Unreleased")).unwrap();
    assert!(section.lines().any(|line| line.starts_with("- ")), "Unreleased says nothing");
}

#[test]
fn scripts_parse_run_and_stop_at_errors() {
    let mut wrong = Vec::new();
    for path in tree::files("sh") {
        let full = tree::root().join(&path);
        let parses = Command::new("bash").arg("-n").arg(&full).output().unwrap();
        if !parses.status.success() {
            wrong.push(String::from_utf8_lossy(&parses.stderr).into_owned());
        }
        let text = tree::text(&path);
        if !text.lines().any(|line| line.starts_with("set -") && line.contains("uo pipefail")) {
            wrong.push(format!("{}: sets neither -u nor pipefail", path.display()));
        }
        if fs::metadata(&full).unwrap().permissions().mode() & 0o111 == 0 {
            wrong.push(format!("{}: cannot be executed", path.display()));
        }
    }
    tree::none(&wrong, "shell scripts");
}

#[test]
fn the_top_directory_holds_only_what_it_should() {
    let allowed = BTreeSet::from([
        "Cargo.lock",
        "Cargo.toml",
        "LICENSE",
        "README.md",
        "control-plane",
        "packaging",
        "runner",
        "rust-toolchain.toml",
        "shared",
        "systemd",
        "tests",
    ]);
    let listed = Command::new("git").current_dir(tree::root()).args(["ls-files", "-z"]).output();
    // A tarball of the source has no history; there is nothing to compare with then.
    let Some(listed) = listed.ok().filter(|listed| listed.status.success()) else { return };
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    let wrong: BTreeSet<String> = text
        .split('\0')
        .filter_map(|path| path.split('/').next())
        .filter(|top| !top.is_empty() && !top.starts_with('.') && !allowed.contains(top))
        .map(str::to_owned)
        .collect();
    tree::none(&wrong.into_iter().collect::<Vec<_>>(), "new things belong into a directory that exists");
}
