//! `glob`: paths that match a pattern, newest first.

use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use globset::GlobBuilder;
use ignore::WalkBuilder;

use super::{Answer, Context, over, place, text};
use crate::call::Glob;

const MAX_WALKED: usize = 500_000;
const MAX_MATCHES: usize = 100_000;
const MAX_SHOWN: usize = 1_000;

pub(super) fn run(input: &Glob, context: &Context<'_>) -> Answer {
    let (folder, pattern) = split(&input.pattern);
    let base = place::resolve(input.path.as_deref().unwrap_or(""), &context.workspace);
    let base = if folder.is_empty() { base } else { base.join(folder) };
    if pattern.split('/').any(|part| part == "..") {
        return Err("the pattern may not hold `..` after a wildcard; pass the folder as path".to_owned());
    }
    let matcher = GlobBuilder::new(pattern)
        .literal_separator(true)
        .build()
        .map_err(|error| format!("the pattern is not valid: {error}; correct it"))?
        .compile_matcher();
    if !base.is_dir() {
        return Err(format!("{} is no folder; give an existing folder as path", base.display()));
    }
    let begun = Instant::now();
    let (mut found, mut walked, mut complete) = (Vec::new(), 0_usize, true);
    let walk = WalkBuilder::new(&base)
        .standard_filters(false)
        .follow_links(false)
        .filter_entry(|entry| entry.file_name() != ".git")
        .build();
    for entry in walk.flatten() {
        walked += 1;
        if walked > MAX_WALKED || found.len() >= MAX_MATCHES || over(context, begun) {
            complete = false;
            break;
        }
        let relative = entry.path().strip_prefix(&base).unwrap_or_else(|_| entry.path());
        let folder = entry.file_type().is_some_and(|kind| kind.is_dir());
        if !folder && matcher.is_match(relative) {
            let modified = entry.metadata().ok().and_then(|found| found.modified().ok());
            found.push((modified.unwrap_or(SystemTime::UNIX_EPOCH), entry.into_path()));
        }
    }
    list(found, complete, &base)
}

fn list(mut found: Vec<(SystemTime, PathBuf)>, complete: bool, base: &Path) -> Answer {
    found.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let total = found.len();
    let mut shown = String::new();
    for (_, path) in found.iter().take(MAX_SHOWN) {
        shown.push_str(&path.to_string_lossy());
        shown.push('\n');
    }
    if total == 0 {
        shown = format!("no files match below {}\n", base.display());
    } else if total > MAX_SHOWN {
        shown.push_str(&format!(
            "({total} files match; the newest {MAX_SHOWN} are shown. Use a narrower pattern.)\n"
        ));
    }
    if !complete {
        shown.push_str("(the search stopped early: too many files or too long. Give a deeper path.)\n");
    }
    text(shown)
}

/// Separates the leading folders without wildcards from the rest of the pattern.
fn split(pattern: &str) -> (&str, &str) {
    let wild = pattern.find(['*', '?', '[', '{', '\\']).unwrap_or(pattern.len());
    match pattern.get(..wild).and_then(|plain| plain.rfind('/')) {
        Some(at) => (pattern.get(..=at).unwrap_or(""), pattern.get(at + 1..).unwrap_or("")),
        None => ("", pattern),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_folders_are_split_from_the_pattern() {
        for (pattern, expected) in [
            ("*.rs", ("", "*.rs")),
            ("src/**/*.rs", ("src/", "**/*.rs")),
            ("/etc/*", ("/etc/", "*")),
            ("/a/b.txt", ("/a/", "b.txt")),
            ("a{b/c,d}", ("", "a{b/c,d}")),
        ] {
            assert_eq!(split(pattern), expected);
        }
    }
}
