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
/// Bytes of JSON that the words in the place of one picture have at most.
const WORDS_BYTES: usize = 320;

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
    let content = content.into_iter().filter(|block| !block.is_empty_text()).collect();
    // The words in the place of a picture may make a text too long that was not.
    let mut kept = short(fitting(short(content)));
    if kept.is_empty() {
        kept.push(Block::text("(no output)"));
    }
    kept
}

/// The same content, its text as the envelope when it is too long.
fn short(content: Vec<Block>) -> Vec<Block> {
    let texts = || content.iter().filter_map(text_of);
    // No text holds more scalars than bytes, so most results need no counting.
    let bytes: usize = texts().map(str::len).sum();
    let is_long = bytes > RESULT_CHARS_MAX
        && texts().map(|text| text.chars().count()).sum::<usize>() > RESULT_CHARS_MAX;
    if is_long || texts().map(json_bytes).sum::<usize>() > CONTENT_BYTES_MAX {
        truncated(content)
    } else {
        content
    }
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

/// The same content with words in the place of what does not fit. Room for those words is kept for everything that could
/// need it, so that what fits once fits again.
fn fitting(content: Vec<Block>) -> Vec<Block> {
    let texts: usize = content.iter().filter_map(text_of).map(json_bytes).sum();
    let others = content.iter().filter(|block| text_of(block).is_none()).count();
    let mut left = CONTENT_BYTES_MAX.saturating_sub(texts).saturating_sub(others * WORDS_BYTES);
    let fit = |block| {
        let (what, source) = match &block {
            Block::Text { .. } => return block,
            Block::Image { source } => ("image", source),
            Block::Document { source, .. } => ("document", source),
        };
        let bytes = source_bytes(source);
        if bytes <= left + WORDS_BYTES {
            left = left.saturating_sub(bytes.saturating_sub(WORDS_BYTES));
            return block;
        }
        Block::Text {
            text: format!(
                "({what}_too_large: this {what} has {bytes} encoded bytes, and a result holds at most \
                 {CONTENT_BYTES_MAX}. Make it smaller, such as by scaling it down or taking fewer pages, and read it \
                 again.)"
            ),
        }
    };
    content.into_iter().map(fit).collect()
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

    #[test]
    fn words_in_the_place_of_a_picture_do_not_tip_a_text_over_the_bound_the_second_time() {
        let once = bounded(vec![Block::text("a\u{1}".repeat(49_913)), image(170_642)]);
        assert_eq!(bounded(once.clone()), once);
        let many: Vec<Block> = (0..3_000).map(|_| image(1_000)).collect();
        let once = bounded(many);
        assert_eq!(bounded(once.clone()), once);
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
