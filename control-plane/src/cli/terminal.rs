//! Where output goes. Nothing that a server or a model wrote reaches a terminal unescaped, and a closed pipe ends the
//! program quietly instead of as a failure.

use super::failure::Failure;
use serde::Serialize;
use std::{
    borrow::Cow,
    io::{self, IsTerminal, Write},
};

/// Whether `c` could steer a terminal or disguise text: controls (C0, DEL, C1), and the bidirectional overrides.
const fn is_unsafe(c: char) -> bool {
    matches!(c, '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        | '\u{200e}' | '\u{200f}' | '\u{61c}' | '\u{2028}' | '\u{2029}')
}

fn escape(text: &str, keep: impl Fn(char) -> bool) -> Cow<'_, str> {
    let harmless = |c: char| keep(c) || !is_unsafe(c);
    if text.chars().all(harmless) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            _ if harmless(c) => escaped.push(c),
            '\n' => escaped.push_str("\\n"),
            '\t' => escaped.push_str("\\t"),
            '\r' => escaped.push_str("\\r"),
            _ => escaped.extend(c.escape_unicode()),
        }
    }
    Cow::Owned(escaped)
}

/// Foreign text made safe for one line.
pub(crate) fn line(text: &str) -> Cow<'_, str> {
    escape(text, |_| false)
}

/// Foreign text made safe, with its line breaks and tabs kept.
pub(crate) fn block(text: &str) -> Cow<'_, str> {
    escape(text, |c| matches!(c, '\n' | '\t'))
}

/// JSON made safe: what is harmless to a parser and harmful to a terminal stands there as `\uXXXX`.
fn json_text(value: &impl Serialize, pretty: bool) -> Result<String, Failure> {
    let text = if pretty { serde_json::to_string_pretty(value) } else { serde_json::to_string(value) };
    let text = text.map_err(|_| Failure::local("The answer could not be written as JSON."))?;
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if is_unsafe(c) && c != '\n' {
            safe.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            safe.push(c);
        }
    }
    Ok(safe)
}

/// Standard output.
#[derive(Debug)]
pub(crate) struct Output {
    /// Machines read it: JSON only.
    pub(crate) is_json: bool,
}

impl Output {
    /// Writes `text` at once. It must be our own or escaped.
    pub(crate) fn text(&self, text: &str) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| Failure::output(&error))
    }

    /// Writes `text` and ends the line.
    pub(crate) fn line(&self, text: &str) -> Result<(), Failure> {
        self.text(&format!("{text}\n"))
    }

    /// Writes raw bytes, such as a file's.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        out.write_all(bytes).and_then(|()| out.flush()).map_err(|error| Failure::output(&error))
    }

    /// Writes `value` as JSON: laid out on a terminal, one line otherwise.
    pub(crate) fn json(&self, value: &impl Serialize) -> Result<(), Failure> {
        self.line(&json_text(value, io::stdout().is_terminal())?)
    }

    /// Writes `value` as one line of JSON, for streams of them.
    pub(crate) fn json_line(&self, value: &impl Serialize) -> Result<(), Failure> {
        self.line(&json_text(value, false)?)
    }

    /// Writes a table with aligned columns, or `nothing` when there are no rows. Cells are foreign text.
    pub(crate) fn table(&self, head: &[&str], rows: &[Vec<String>], nothing: &str) -> Result<(), Failure> {
        if rows.is_empty() { self.line(nothing) } else { self.text(&table(head, rows)) }
    }
}

fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let head = head.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>();
    let rows: Vec<Vec<String>> = std::iter::once(&head)
        .chain(rows)
        .map(|row| row.iter().map(|cell| line(cell).into_owned()).collect())
        .collect();
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// `bytes` for people.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut tenths = u128::from(bytes) * 10 / 1024;
    let mut unit = 0;
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        tenths /= 1024;
        unit += 1;
    }
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_cannot_steer_a_terminal() {
        for (text, one_line, many_lines) in [
            ("plain é 漢 🙂", "plain é 漢 🙂", "plain é 漢 🙂"),
            ("\u{1b}[2J\u{7}", "\\u{1b}[2J\\u{7}", "\\u{1b}[2J\\u{7}"),
            ("a\r\nb\tc", "a\\r\\nb\\tc", "a\\r\nb\tc"),
            ("\u{9b}31m\u{7f}", "\\u{9b}31m\\u{7f}", "\\u{9b}31m\\u{7f}"),
            ("abc\u{202e}fdp.exe", "abc\\u{202e}fdp.exe", "abc\\u{202e}fdp.exe"),
        ] {
            assert_eq!(line(text), one_line);
            assert_eq!(block(text), many_lines);
        }
    }

    #[test]
    fn json_stays_json_and_cannot_steer_a_terminal_either() {
        let value = serde_json::json!({"a": "\u{1b}[2J\u{9b}\u{7f}\u{202e}é"});
        for pretty in [false, true] {
            let text = json_text(&value, pretty).unwrap();
            assert!(!text.chars().any(|c| is_unsafe(c) && c != '\n'), "{text}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
        }
    }

    #[test]
    fn a_table_is_aligned_and_escaped() {
        let rows = [vec!["a\u{1b}".to_owned(), "x".to_owned()], vec!["b".to_owned(), String::new()]];
        assert_eq!(table(&["ID", "NAME"], &rows), "ID       NAME\na\\u{1b}  x\nb\n");
    }

    #[test]
    fn sizes_are_for_people() {
        for (bytes, want) in
            [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (64 << 20, "64.0 MiB")]
        {
            assert_eq!(size(bytes), want);
        }
    }
}
