//! The rules for a single source file: how it opens, what it is called, how long it may be.

use std::path::Path;

use super::tree;

const MAX_LINES: usize = 500;
const MAX_OPENING_LINES: usize = 8;
/// Names that say nothing about what a module owns.
const BANNED_NAMES: [&str; 11] =
    ["util", "utils", "common", "helper", "helpers", "misc", "core", "types", "manager", "service", "base"];
const BANNED_ENDINGS: [&str; 5] = ["_ext", "_util", "_utils", "_helpers", "_v2"];

fn offenders(is_wrong: impl Fn(&Path) -> Option<String>) -> Vec<String> {
    tree::files("rs")
        .iter()
        .filter_map(|path| is_wrong(path).map(|why| format!("{}: {why}", path.display())))
        .collect()
}

fn opening_fault(text: &str) -> Option<String> {
    let opening = text.lines().take_while(|line| line.starts_with("//!")).count();
    match opening {
        0 => Some("does not open with //!".to_owned()),
        _ if text.lines().next().is_none_or(|line| line.trim_start_matches("//!").trim().is_empty()) => {
            Some("opens with an empty comment".to_owned())
        }
        _ => None,
    }
}

fn name_fault(path: &Path) -> Option<String> {
    let stem = path.file_stem()?.to_str()?;
    let folders = path.parent()?.iter().filter_map(|part| part.to_str());
    std::iter::once(stem)
        .chain(folders)
        .find(|name| {
            BANNED_NAMES.contains(name) || BANNED_ENDINGS.iter().any(|ending| name.ends_with(ending))
        })
        .map(|name| format!("'{name}' says nothing about what it owns"))
}

#[test]
fn every_file_says_first_what_it_owns() {
    tree::none(&offenders(|path| opening_fault(&tree::text(path))), "each .rs file opens with //! lines");
}

#[test]
fn openings_of_plain_modules_are_short() {
    // A crate's map may be longer: its root is the page a newcomer reads first.
    let is_map = |path: &Path| path.ends_with("lib.rs");
    let too_long = offenders(|path| {
        let text = tree::text(path);
        let lines = text.lines().take_while(|line| line.starts_with("//!")).count();
        (lines > MAX_OPENING_LINES && !is_map(path) && !text.contains("//! ```"))
            .then(|| format!("{lines} lines, more than {MAX_OPENING_LINES}"))
    });
    tree::none(&too_long, "an opening without a diagram is short");
}

#[test]
fn modules_are_named_files_and_never_mod_rs() {
    let found = offenders(|path| path.ends_with("mod.rs").then(|| "use foo.rs beside foo/".to_owned()));
    tree::none(&found, "no mod.rs");
}

#[test]
fn no_module_has_a_name_that_means_nothing() {
    tree::none(&offenders(name_fault), "module names are nouns of the domain");
}

#[test]
fn no_file_is_longer_than_a_reader_can_hold() {
    let found = offenders(|path| {
        let lines = tree::text(path).lines().count();
        (lines > MAX_LINES).then(|| format!("{lines} lines, more than {MAX_LINES}"))
    });
    tree::none(&found, "files have a limit");
}

#[test]
fn the_rules_see_what_they_forbid() {
    assert!(opening_fault("use std::fs;\n").is_some());
    assert!(opening_fault("//!\n//! late\n").is_some());
    assert!(opening_fault("//! Owns the clock.\n").is_none());
    for wrong in ["runner/src/util.rs", "runner/src/helpers/x.rs", "shared/src/id_ext.rs"] {
        assert!(name_fault(Path::new(wrong)).is_some(), "{wrong}");
    }
    assert!(name_fault(Path::new("control-plane/src/store/writer.rs")).is_none());
}
