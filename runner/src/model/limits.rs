//! What a model takes of pictures and documents in one request. Pure: the newest that fit are kept, and every other one is
//! named in its place, so that the model knows that it was there. Texts are bounded where results are logged.

use super::{Content, Message};
use checkfu_shared::content::{Block, Source};

/// The largest picture or document, as base64; providers refuse the whole request otherwise.
pub const ATTACHMENT_BYTES_MAX: usize = 5 << 20;
/// All pictures and documents of one request, as base64; the rest of the largest request is left to texts.
pub const ATTACHMENTS_BYTES_MAX: usize = 20 << 20;
/// How many pictures and documents one request has at most.
pub const ATTACHMENTS_MAX: usize = 100;

/// The same conversation within the limits.
pub fn within(messages: &mut [Message]) {
    let (mut count, mut bytes) = (0, 0);
    for content in messages.iter_mut().rev().flat_map(|message| message.content.iter_mut().rev()) {
        match content {
            Content::Block(block) => judge(block, &mut count, &mut bytes),
            Content::Result { content, .. } => {
                content.iter_mut().rev().for_each(|block| judge(block, &mut count, &mut bytes));
            }
            Content::Call { .. } => {}
        }
    }
}

fn judge(block: &mut Block, count: &mut usize, bytes: &mut usize) {
    let (Block::Image { source: Source::Base64 { data, .. } }
    | Block::Document { source: Source::Base64 { data, .. }, .. }) = &*block
    else {
        return;
    };
    let size = data.len();
    let why = if size > ATTACHMENT_BYTES_MAX {
        "larger than the model takes"
    } else if *count >= ATTACHMENTS_MAX || *bytes + size > ATTACHMENTS_BYTES_MAX {
        "older than the newest that fit into one request"
    } else {
        *count += 1;
        *bytes += size;
        return;
    };
    let what = if matches!(block, Block::Image { .. }) { "a picture" } else { "a document" };
    *block = Block::text(format!("[{what} of {} KiB, not shown: {why}]", size.div_ceil(1 << 10) * 3 / 4));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Role;

    fn image(bytes: usize) -> Block {
        Block::Image { source: Source::Base64 { media_type: "image/png".into(), data: "A".repeat(bytes) } }
    }

    fn shown(messages: &[Message]) -> Vec<bool> {
        let blocks = messages.iter().flat_map(|message| &message.content).flat_map(|content| match content {
            Content::Block(block) => vec![block],
            Content::Result { content, .. } => content.iter().collect(),
            Content::Call { .. } => vec![],
        });
        blocks.map(|block| matches!(block, Block::Image { .. })).collect()
    }

    #[test]
    fn the_newest_that_fit_are_kept() {
        let result = Content::Result {
            id: "c".into(),
            content: vec![image(4 << 20), image(6 << 20)],
            is_error: false,
        };
        let mut first = vec![Content::Block(image(4 << 20)); 4];
        first.push(result);
        let last = Content::Block(image(4 << 20));
        let mut messages = [first, vec![last]].map(|content| Message { role: Role::User, content }).to_vec();
        within(&mut messages);
        assert_eq!(shown(&messages), [false, true, true, true, true, false, true]);
    }

    #[test]
    fn so_many_are_shown_and_no_more() {
        let content = vec![Content::Block(image(10)); ATTACHMENTS_MAX + 2];
        let mut messages = vec![Message { role: Role::User, content }];
        within(&mut messages);
        let shown = shown(&messages);
        assert_eq!(shown[..3], [false, false, true]);
        assert_eq!(shown.iter().filter(|shown| **shown).count(), ATTACHMENTS_MAX);
        let Content::Block(Block::Text { text }) = &messages[0].content[0] else { panic!("{messages:?}") };
        assert!(text.contains("not shown"), "{text}");
    }
}
