//! The bound on results: what the model gets when a result is longer than it may be.
//! Pure text work; where the whole is kept is decided elsewhere.

use crate::call::Truncated;

/// Longest result text in Unicode scalars, after lossy decoding.
pub const MAX_RESULT_CHARS: usize = 100_000;
/// Scalars of each preview.
pub const PREVIEW_CHARS: usize = 8_000;

/// The first `count` scalars of `text`.
#[must_use]
pub fn head(text: &str, count: usize) -> &str {
    text.char_indices().nth(count).and_then(|(at, _)| text.get(..at)).unwrap_or(text)
}

/// The last `count` scalars of `text`.
#[must_use]
pub fn tail(text: &str, count: usize) -> &str {
    match count.checked_sub(1) {
        None => "",
        Some(back) => text.char_indices().rev().nth(back).and_then(|(at, _)| text.get(at..)).unwrap_or(text),
    }
}

/// The envelope for `text` when it is beyond [`MAX_RESULT_CHARS`], else `None`. `path` is where
/// the whole can be read while the sandbox lives.
#[must_use]
pub fn envelope(text: &str, path: Option<String>, note: String) -> Option<Truncated> {
    // No text holds more scalars than bytes, so most results need no counting.
    if text.len() <= MAX_RESULT_CHARS {
        return None;
    }
    let total_chars = text.chars().count();
    (total_chars > MAX_RESULT_CHARS).then(|| Truncated {
        total_bytes: text.len() as u64,
        total_chars: total_chars as u64,
        preview_head: head(text, PREVIEW_CHARS).to_owned(),
        preview_tail: tail(text, PREVIEW_CHARS).to_owned(),
        alive_only_path: path,
        note,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn previews_cut_between_characters() {
        assert_eq!(head("aäö", 2), "aä");
        assert_eq!(tail("aäö", 2), "äö");
        assert_eq!((head("a", 5), tail("a", 5), tail("a", 0), head("a", 0)), ("a", "a", "", ""));
    }

    #[test]
    fn the_bound_counts_scalars_not_bytes() {
        assert_eq!(envelope(&"ä".repeat(MAX_RESULT_CHARS), None, String::new()), None);
        let over = envelope(&"ä".repeat(MAX_RESULT_CHARS + 1), None, "n".into()).unwrap();
        assert_eq!((over.total_chars, over.total_bytes), (100_001, 200_002));
        assert_eq!(over.preview_head.chars().count(), PREVIEW_CHARS);
    }
}
