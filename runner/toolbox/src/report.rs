//! The words of a bash result: output first, then what the model has to know about the end.
//! Pure: facts in, [`Outcome`] out.

use crate::bound::MAX_RESULT_CHARS;
use crate::call::{Block, MAX_TIMEOUT_MS, Outcome, Truncated};
use crate::capture::Capture;

/// Where the whole output went, when it did not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    /// Nothing was spilled.
    Nowhere,
    /// All of it.
    Whole(String),
    /// The first bytes.
    Start(String, u64),
}

/// What is known when a bash call ends.
#[derive(Debug, Default)]
pub struct Facts {
    /// Exit code of the shell.
    pub exit_code: Option<i32>,
    /// Signal that ended the shell.
    pub signal: Option<i32>,
    /// Set when the time limit, in milliseconds, ended it.
    pub timed_out_ms: Option<u64>,
    /// A cancel ended it.
    pub cancelled: bool,
    /// Processes that could not be ended.
    pub unkillable: usize,
    /// Out-of-memory kills meanwhile.
    pub oom_kills: u64,
    /// Wall-clock milliseconds.
    pub duration_ms: u64,
    /// Ids and names of processes that live on.
    pub background: Vec<(i32, String)>,
    /// Where their further output goes.
    pub background_log: Option<String>,
    /// No process can be started in the sandbox any more.
    pub pids_exhausted: bool,
    /// Shell state could not be kept, and why.
    pub no_state: Option<String>,
}

/// Makes the result of a bash call.
#[must_use]
pub fn conclude(facts: &Facts, capture: &Capture, kept: &Kept) -> Outcome {
    let notes = notes(facts);
    let notes_chars = notes.iter().map(|note| note.chars().count() as u64 + 1).sum::<u64>();
    let fits = capture.chars() + notes_chars <= MAX_RESULT_CHARS as u64;
    let (text, truncated) = match capture.whole() {
        Some(bytes) if fits => (plain_text(bytes, &notes), None),
        _ => {
            let envelope = envelope(capture, kept, &notes);
            (serde_json::to_string(&envelope).unwrap_or_else(|_| envelope.note.clone()), Some(envelope))
        }
    };
    let failed = facts.exit_code.is_none_or(|code| code != 0);
    Outcome {
        exit_code: facts.exit_code,
        signal: facts.signal,
        timed_out: facts.timed_out_ms.is_some(),
        cancelled: facts.cancelled,
        started: true,
        oom_kills: facts.oom_kills,
        duration_ms: facts.duration_ms,
        bytes_seen: capture.bytes(),
        background: u32::try_from(facts.background.len()).unwrap_or(u32::MAX),
        is_error: failed || facts.timed_out_ms.is_some() || facts.cancelled,
        content: vec![Block::Text { text }],
        truncated,
    }
}

fn plain_text(bytes: &[u8], notes: &[String]) -> String {
    let mut text = String::from_utf8_lossy(bytes).into_owned();
    if text.trim().is_empty() {
        "(no output)".clone_into(&mut text);
    }
    for note in notes {
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(note);
    }
    text
}

fn envelope(capture: &Capture, kept: &Kept, notes: &[String]) -> Truncated {
    let mut note = match kept {
        Kept::Whole(path) => format!(
            "The output is too long to show. All of it is in {path} while the sandbox lives: use read with \
             view_range, or grep, on that file instead of running the command again."
        ),
        Kept::Start(path, bytes) => format!(
            "The output is too long to show. Its first {bytes} bytes are in {path} while the sandbox lives; \
             the middle after them is lost. Send output to a file of your own to keep all of it."
        ),
        Kept::Nowhere => "The output is too long to show and was not saved: everything between the two \
                          previews is lost. Send output to a file of your own to keep it."
            .to_owned(),
    };
    for extra in notes {
        note.push(' ');
        note.push_str(extra);
    }
    let path = match kept {
        Kept::Whole(path) | Kept::Start(path, _) => Some(path.clone()),
        Kept::Nowhere => None,
    };
    Truncated {
        total_bytes: capture.bytes(),
        total_chars: capture.chars(),
        preview_head: capture.preview_head(),
        preview_tail: capture.preview_tail(),
        alive_only_path: path,
        note,
    }
}

fn notes(facts: &Facts) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(limit_ms) = facts.timed_out_ms {
        notes.push(format!(
            "(timed out after {limit_ms} ms: the command and every process it started were ended. Pass a \
             larger timeout_ms, at most {MAX_TIMEOUT_MS}, or run it in the background with \
             `command > file 2>&1 &` and look at the file.)"
        ));
    } else if facts.cancelled {
        notes.push("(cancelled: the command and every process it started were ended.)".to_owned());
    } else {
        match (facts.exit_code, facts.signal) {
            (Some(0), _) => {}
            (Some(code), _) => notes.push(format!("(exit code {code})")),
            (None, Some(signal)) => notes.push(format!("(killed by signal {signal})")),
            (None, None) => notes.push("(how the command ended is not known)".to_owned()),
        }
    }
    if facts.oom_kills > 0 {
        notes.push(format!(
            "({} process(es) were killed meanwhile because the sandbox ran out of memory; use less memory or \
             smaller pieces.)",
            facts.oom_kills
        ));
    }
    if facts.unkillable > 0 {
        notes.push(format!("({} process(es) could not be ended and are stopped.)", facts.unkillable));
    }
    if facts.pids_exhausted {
        notes.push(format!("({FORK_ADVICE})"));
    }
    notes.extend(background_note(facts));
    if let Some(why) = &facts.no_state {
        notes.push(format!("(the shell state of this call was not kept: {why})"));
    }
    notes
}

fn background_note(facts: &Facts) -> Option<String> {
    let count = facts.background.len();
    if count == 0 {
        return None;
    }
    let named: Vec<String> =
        facts.background.iter().take(8).map(|(pid, name)| format!("{pid} {name}")).collect();
    let more = if count > named.len() { ", ..." } else { "" };
    let output = match &facts.background_log {
        Some(path) => format!("; further output goes to {path}"),
        None => String::new(),
    };
    Some(format!("({count} process(es) still running in the background: {}{more}{output})", named.join(", ")))
}

const FORK_ADVICE: &str = "the sandbox cannot start more processes: its process limit is reached. End what is \
                           not needed: call bash with restart: true, which ends this thread's background \
                           processes and resets its shell";

/// The result when no process could be started.
#[must_use]
pub fn fork_failed(cause: &str) -> Outcome {
    let text = format!("fork failed: {cause}. The command did not run: {FORK_ADVICE}.");
    Outcome { started: false, ..Outcome::error(text) }
}

/// The result when the image holds no shell.
#[must_use]
pub fn no_shell() -> Outcome {
    let text = "no_shell: this sandbox's image has neither bash nor sh, so commands cannot run. Use read, \
                write, edit, glob and grep, or ask for an image with a shell.";
    Outcome { started: false, ..Outcome::error(text) }
}

/// The result when the process that watched over the call is gone.
#[must_use]
pub fn supervisor_died() -> Outcome {
    let text = "supervisor-died: the process that watched over this command was killed (a command that kills \
                everything, like `kill -9 -1`, does that). Its output is lost and its processes were ended. \
                The sandbox and its files are intact: run the next command as usual.";
    Outcome { exit_code: Some(137), signal: Some(9), ..Outcome::error(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(outcome: &Outcome) -> &str {
        match outcome.content.as_slice() {
            [Block::Text { text }] => text,
            other => panic!("{other:?}"),
        }
    }

    fn output(bytes: &[u8]) -> Capture {
        let mut capture = Capture::default();
        capture.push(bytes);
        capture
    }

    #[test]
    fn ends_are_told_after_the_output() {
        let ok = Facts { exit_code: Some(0), ..Facts::default() };
        let three = Facts { exit_code: Some(3), ..Facts::default() };
        let signal = Facts { signal: Some(9), ..Facts::default() };
        let late = Facts { exit_code: Some(143), timed_out_ms: Some(1000), ..Facts::default() };
        for (facts, bytes, expected, is_error) in [
            (&ok, &b"hi\n"[..], "hi\n", false),
            (&ok, b"", "(no output)", false),
            (&three, b"", "(no output)\n(exit code 3)", true),
            (&three, b"x", "x\n(exit code 3)", true),
            (&signal, b"x\n", "x\n(killed by signal 9)", true),
        ] {
            let outcome = conclude(facts, &output(bytes), &Kept::Nowhere);
            assert_eq!((text(&outcome), outcome.is_error), (expected, is_error));
        }
        let outcome = conclude(&late, &output(b"part"), &Kept::Nowhere);
        assert!(text(&outcome).starts_with("part\n(timed out after 1000 ms"), "{outcome:?}");
        assert!(outcome.timed_out && outcome.is_error);
    }

    #[test]
    fn background_processes_and_their_log_are_named() {
        let facts = Facts {
            exit_code: Some(0),
            background: vec![(7, "sleep".into())],
            background_log: Some("/o/c.background".into()),
            ..Facts::default()
        };
        let outcome = conclude(&facts, &output(b"hi\n"), &Kept::Nowhere);
        assert_eq!(outcome.background, 1);
        assert!(text(&outcome).contains("7 sleep; further output goes to /o/c.background"));
        assert!(!outcome.is_error);
    }

    #[test]
    fn long_output_becomes_an_envelope_that_tells_what_is_left() {
        let capture = output("ä".repeat(100_001).as_bytes());
        let facts = Facts { exit_code: Some(2), ..Facts::default() };
        for (kept, part, has_path) in [
            (Kept::Whole("/o/c".into()), "All of it is in /o/c", true),
            (Kept::Start("/o/c".into(), 5), "first 5 bytes", true),
            (Kept::Nowhere, "was not saved", false),
        ] {
            let outcome = conclude(&facts, &capture, &kept);
            let told: Truncated = serde_json::from_str(text(&outcome)).unwrap();
            assert!(told.note.contains(part) && told.note.contains("(exit code 2)"), "{}", told.note);
            assert_eq!(told.alive_only_path.is_some(), has_path);
            assert_eq!(outcome.truncated, Some(told));
        }
    }

    #[test]
    fn output_and_notes_together_keep_the_bound() {
        let facts = Facts { exit_code: Some(3), ..Facts::default() };
        let outcome = conclude(&facts, &output(&vec![b'x'; MAX_RESULT_CHARS]), &Kept::Nowhere);
        assert!(outcome.truncated.is_some());
    }
}
