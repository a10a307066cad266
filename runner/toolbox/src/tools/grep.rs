//! `grep`: matching lines, with ripgrep's own crates and its idea of ignored files.

use std::path::Path;
use std::time::Instant;

use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkMatch};
use ignore::WalkBuilder;

use super::{Answer, Context, over, place};
use crate::call::{Block, Grep};

const MAX_LINE_BYTES: usize = 2_000;
const MAX_TEXT_BYTES: usize = 4 * 1024 * 1024;
const HEAP_BYTES: usize = 8 * 1024 * 1024;

pub(super) fn run(input: &Grep, context: &Context<'_>) -> Answer {
    let matcher = RegexMatcherBuilder::new()
        .line_terminator(Some(b'\n'))
        .size_limit(16 * 1024 * 1024)
        .build(&input.pattern)
        .map_err(|error| {
            format!(
                "the pattern is not a valid regular expression: {error}; escape special characters with \\"
            )
        })?;
    let path = place::resolve(input.path.as_deref().unwrap_or("."), &context.workspace);
    let found = std::fs::metadata(&path)
        .map_err(|error| format!("{} cannot be searched: {error}; look for it with glob", path.display()))?;
    let mut search = Search {
        matcher,
        searcher: SearcherBuilder::new()
            .binary_detection(BinaryDetection::quit(0))
            .heap_limit(Some(HEAP_BYTES))
            .line_number(true)
            .build(),
        shown: String::new(),
        skipped: 0,
        begun: Instant::now(),
        context,
    };
    let complete = if found.is_dir() {
        search.folder(&path, input.path.is_none().then_some(context.workspace.as_path()))
    } else {
        place::open_regular(&path)?;
        search.file(&path, &path.to_string_lossy());
        !search.full()
    };
    Ok(search.tell(complete, &path))
}

struct Search<'a> {
    matcher: RegexMatcher,
    searcher: Searcher,
    shown: String,
    skipped: usize,
    begun: Instant,
    context: &'a Context<'a>,
}

impl Search<'_> {
    fn full(&self) -> bool {
        self.shown.len() > MAX_TEXT_BYTES || over(self.context, self.begun)
    }

    /// Searches every file below; false when it had to stop before the end.
    fn folder(&mut self, path: &Path, shorten: Option<&Path>) -> bool {
        let walk = WalkBuilder::new(path)
            .hidden(false)
            .require_git(false)
            .follow_links(false)
            .sort_by_file_name(Ord::cmp)
            .filter_entry(|entry| entry.file_name() != ".git")
            .build();
        for entry in walk.flatten() {
            if self.full() {
                return false;
            }
            if entry.file_type().is_some_and(|kind| kind.is_file()) {
                let shown = shorten.and_then(|base| entry.path().strip_prefix(base).ok());
                let shown = shown.unwrap_or_else(|| entry.path()).to_string_lossy().into_owned();
                self.file(entry.path(), &shown);
            }
        }
        !self.full()
    }

    fn file(&mut self, path: &Path, shown_path: &str) {
        let Ok(file) = place::open_regular(path) else {
            self.skipped += 1;
            return;
        };
        let (context, begun) = (self.context, self.begun);
        let sink = Lines { shown: &mut self.shown, path: shown_path, over: || over(context, begun) };
        if self.searcher.search_file(&self.matcher, &file, sink).is_err() {
            self.skipped += 1;
        }
    }

    fn tell(mut self, complete: bool, path: &Path) -> Block {
        if self.shown.is_empty() {
            self.shown = format!("no matches in {}\n", path.display());
        }
        if !complete {
            self.shown.push_str("(the search stopped early: too many matches or too long. Give a narrower pattern or path.)\n");
        }
        if self.skipped > 0 {
            self.shown.push_str(&format!("({} file(s) could not be searched)\n", self.skipped));
        }
        Block::Text { text: self.shown }
    }
}

struct Lines<'a, F> {
    shown: &'a mut String,
    path: &'a str,
    over: F,
}

impl<F: Fn() -> bool> Sink for Lines<'_, F> {
    type Error = std::io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, Self::Error> {
        let line = found.bytes();
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let number = found.line_number().unwrap_or(0);
        let kept = line.get(..MAX_LINE_BYTES).unwrap_or(line);
        let cut = if kept.len() < line.len() { " [line cut]" } else { "" };
        self.shown.push_str(&format!("{}:{number}:{}{cut}\n", self.path, String::from_utf8_lossy(kept)));
        Ok(self.shown.len() <= MAX_TEXT_BYTES && !(self.over)())
    }
}
