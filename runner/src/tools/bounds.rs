//! What a tool result may hold: its text is bounded, never empty, and fits into one event of the log.
//! Pure. What does not fit is replaced by words that say so, never cut in silence.

use checkfu_shared::{
    content::{Block, Source},
    protocol::append::EVENT_BYTES_MAX,
    tool::{PREVIEW_CHARS, RESULT_CHARS_MAX},
};
use checkfu_toolbox::call::{self, Truncated};

/// Bytes of an event that are not its content.
const ENVELOPE_BYTES: usize = 4 << 10;
/// Bytes of JSON that the content of a result may have.
pub const CONTENT_BYTES_MAX: usize = EVENT_BYTES_MAX - ENVELOPE_BYTES;

/// The content of a sandbox call's outcome, in the log's blocks and bounded.
#[must_use]
pub fn of_outcome(content: Vec<call::Block>) -> Vec<Block> {
    bounded(content.into_iter().map(block_of).collect())
}

fn block_of(block: call::Block) -> Block {
    match block {
        call::Block::Text { text } => Block::Text { text },
        call::Block::Image { media_type, data_base64 } => {
            Block::Image { source: Source::Base64 { media_type, data: data_base64 } }
        }
        call::Block::Document { media_type, data_base64, title } => {
            Block::Document { source: Source::Base64 { media_type, data: data_base64 }, title, context: None }
        }
    }
}

/// The same content within the bounds: text beyond [`RESULT_CHARS_MAX`] scalars becomes the `result_truncated` envelope,
/// pictures and documents that do not fit an event become a sentence, and nothing at all becomes `(no output)`.
#[must_use]
pub fn bounded(content: Vec<Block>) -> Vec<Block> {
    let mut content: Vec<Block> = content.into_iter().filter(|block| !block.is_empty_text()).collect();
    let texts = || content.iter().filter_map(text_of);
    // No text holds more scalars than bytes, so most results need no counting.
    let bytes: usize = texts().map(str::len).sum();
    let is_long = bytes > RESULT_CHARS_MAX
        && texts().map(|text| text.chars().count()).sum::<usize>() > RESULT_CHARS_MAX;
    if is_long || texts().map(json_bytes).sum::<usize>() > CONTENT_BYTES_MAX {
        content = truncated(content);
    }
    let mut left = CONTENT_BYTES_MAX;
    let mut kept: Vec<Block> = content.into_iter().map(|block| fitting(block, &mut left)).collect();
    if kept.is_empty() {
        kept.push(Block::text("(no output)"));
    }
    kept
}

fn text_of(block: &Block) -> Option<&str> {
    match block {
        Block::Text { text } => Some(text),
        Block::Image { .. } | Block::Document { .. } => None,
    }
}

fn json_bytes(text: &str) -> usize {
    let escaped = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..0x20 => 6,
        _ => 1,
    };
    text.bytes().map(escaped).sum::<usize>() + 32
}

fn truncated(content: Vec<Block>) -> Vec<Block> {
    let (texts, others): (Vec<Block>, Vec<Block>) =
        content.into_iter().partition(|block| text_of(block).is_some());
    let whole = texts.iter().filter_map(text_of).collect::<Vec<_>>().join("\n");
    let chars: Vec<char> = whole.chars().collect();
    let tail = chars.len().saturating_sub(PREVIEW_CHARS);
    let envelope = Truncated {
        total_bytes: whole.len() as u64,
        total_chars: chars.len() as u64,
        preview_head: chars.iter().take(PREVIEW_CHARS).collect(),
        preview_tail: chars.iter().skip(tail).collect(),
        alive_only_path: None,
        note:
            "The result is too long to show and was not saved: everything between the two previews is lost. \
               Ask for less at a time."
                .to_owned(),
    };
    let text = serde_json::to_string(&envelope).unwrap_or_else(|_| envelope.note.clone());
    std::iter::once(Block::Text { text }).chain(others).collect()
}

/// The block, or words in its place when fewer than its bytes are left.
fn fitting(block: Block, left: &mut usize) -> Block {
    let (what, bytes) = match &block {
        Block::Text { text } => ("text", json_bytes(text)),
        Block::Image { source } => ("image", source_bytes(source)),
        Block::Document { source, .. } => ("document", source_bytes(source)),
    };
    if bytes <= *left {
        *left -= bytes;
        return block;
    }
    Block::Text {
        text: format!(
            "({what}_too_large: this {what} has {bytes} encoded bytes, and a result holds at most {CONTENT_BYTES_MAX}. \
             Make it smaller, such as by scaling it down or taking fewer pages, and read it again.)"
        ),
    }
}

const fn source_bytes(source: &Source) -> usize {
    match source {
        Source::Base64 { data, .. } | Source::Text { data, .. } => data.len() + 128,
        Source::Url { url } => url.len() + 128,
        Source::File { file_id } => file_id.len() + 128,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn image(bytes: usize) -> Block {
        Block::Image { source: Source::Base64 { media_type: "image/png".into(), data: "A".repeat(bytes) } }
    }

    #[test]
    fn small_results_stay_as_they_are_and_none_is_empty() {
        let content = vec![Block::text("a"), image(100)];
        assert_eq!(bounded(content.clone()), content);
        assert_eq!(bounded(vec![]), [Block::text("(no output)")]);
        assert_eq!(bounded(vec![Block::text("")]), [Block::text("(no output)")]);
    }

    #[test]
    fn long_text_becomes_an_envelope_that_says_what_is_lost() {
        let whole = vec![Block::text("ä".repeat(RESULT_CHARS_MAX))];
        assert_eq!(bounded(whole.clone()), whole);
        let over = bounded(vec![Block::text("ä".repeat(RESULT_CHARS_MAX)), image(10), Block::text("z")]);
        let [Block::Text { text }, Block::Image { .. }] = over.as_slice() else { panic!("{over:?}") };
        let told: Truncated = serde_json::from_str(text).unwrap();
        assert_eq!((told.total_chars, told.total_bytes), (100_002, 200_002));
        assert!(told.preview_tail.ends_with("ä\nz") && told.alive_only_path.is_none());
    }

    #[test]
    fn a_picture_too_large_for_an_event_becomes_a_sentence() {
        let told = bounded(vec![image(300_000), image(300_000)]);
        assert!(matches!(&told[0], Block::Image { .. }));
        assert!(matches!(&told[1], Block::Text { text } if text.contains("image_too_large")), "{told:?}");
    }

    proptest! {
        #[test]
        fn whatever_comes_in_fits_an_event_and_bounding_again_changes_nothing(
            texts in proptest::collection::vec(("[a\u{1}\"ß🦀]{1,4}", 0usize..60_000), 0..4), picture in 0usize..700_000
        ) {
            let mut content: Vec<Block> =
                texts.into_iter().map(|(text, times)| Block::text(text.repeat(times))).collect();
            content.push(image(picture));
            let once = bounded(content);
            prop_assert!(serde_json::to_vec(&once).unwrap().len() <= EVENT_BYTES_MAX);
            prop_assert!(!once.is_empty() && !once.iter().any(Block::is_empty_text));
            prop_assert_eq!(bounded(once.clone()), once);
        }
    }
}
