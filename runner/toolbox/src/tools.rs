//! The file tools: read, write, edit, glob and grep.
//! They run inside PID 1, so a hostile file must never make them wait, grow or panic: only
//! regular files are read, never more than a bound, and every walk has a time limit.

mod edit;
mod glob;
mod grep;
mod place;
mod read;
mod seen;
mod write;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::bound;
use crate::call::{Block, Outcome, Tool};
use crate::spill::{self, Spill};
pub use seen::Seen;

/// Time a search or listing gets before it answers with what it has.
const WALK_TIME: Duration = Duration::from_secs(60);

/// What a file tool call works with.
#[derive(Debug)]
pub struct Context<'a> {
    /// Where relative paths begin.
    pub workspace: PathBuf,
    /// Folder of our own, for results that do not fit.
    pub root: PathBuf,
    /// The call.
    pub call_id: &'a str,
    /// The thread, for what it has read.
    pub thread: &'a str,
    /// What threads have read.
    pub seen: &'a Seen,
    /// Set when the call is cancelled.
    pub cancel: &'a AtomicBool,
}

/// What a tool gives back: text or a block for the model, or an error text that says what to do.
type Answer = Result<Block, String>;

fn text(text: impl Into<String>) -> Answer {
    Ok(Block::Text { text: text.into() })
}

/// Runs a file tool. A panic becomes an error result.
#[must_use]
pub fn run(tool: &Tool, context: &Context<'_>) -> Outcome {
    let begun = Instant::now();
    let answer = catch_unwind(AssertUnwindSafe(|| match tool {
        Tool::Read(input) => read::run(input, context),
        Tool::Write(input) => write::run(input, context),
        Tool::Edit(input) => edit::run(input, context),
        Tool::Glob(input) => glob::run(input, context),
        Tool::Grep(input) => grep::run(input, context),
        Tool::Bash(_) => Err("bash does not run here".to_owned()),
    }));
    let mut outcome = match answer {
        Ok(Ok(Block::Text { text })) => bounded(text, tool, context),
        Ok(Ok(block)) => Outcome { content: vec![block], ..Outcome::text("") },
        Ok(Err(error)) => Outcome::error(error),
        Err(_) => Outcome::error(format!("{} failed inside; try another way to do this", tool.name())),
    };
    outcome.cancelled = context.cancel.load(Ordering::Relaxed);
    outcome.duration_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    outcome
}

fn bounded(text: String, tool: &Tool, context: &Context<'_>) -> Outcome {
    let (path, note) = match tool {
        _ if text.len() <= bound::MAX_RESULT_CHARS => (None, String::new()),
        Tool::Read(input) => (
            Some(place::resolve(&input.file_path, &context.workspace).to_string_lossy().into_owned()),
            "The file is too long to show at once: read it in parts with view_range, or grep it.".to_owned(),
        ),
        _ => match save(&text, context) {
            Some(path) => {
                let note = format!(
                    "The result is too long to show. All of it is in {path} while the sandbox lives; a \
                     narrower pattern or path gives a shorter one."
                );
                (Some(path), note)
            }
            None => (
                None,
                "The result is too long to show and was not saved; use a narrower pattern or path."
                    .to_owned(),
            ),
        },
    };
    let bytes_seen = text.len() as u64;
    let outcome = match bound::envelope(&text, path, note) {
        None => Outcome::text(text),
        Some(envelope) => {
            let told = serde_json::to_string(&envelope).unwrap_or_else(|_| envelope.note.clone());
            Outcome { truncated: Some(envelope), ..Outcome::text(told) }
        }
    };
    Outcome { bytes_seen, ..outcome }
}

fn save(text: &str, context: &Context<'_>) -> Option<String> {
    let mut spill = Spill::create(&context.root, &spill::file_name(context.call_id)).ok()?;
    spill.push(text.as_bytes());
    (!spill.cut()).then(|| spill.path().to_string_lossy().into_owned())
}

/// Whether a walk has to end now.
fn over(context: &Context<'_>, begun: Instant) -> bool {
    context.cancel.load(Ordering::Relaxed) || begun.elapsed() > WALK_TIME
}

#[cfg(test)]
mod tests;
