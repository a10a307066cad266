//! One turn as scripted providers of both wires really sent it over HTTP, whole and streamed (`fixtures`), and what each
//! client reads of it. `CHECKFU_RECORD=1` writes what clients read anew; look at the difference before you keep it.

use super::*;
use std::path::Path;

const MESSAGES: &str = include_str!("../fixtures/turn.messages.sse");
const MESSAGES_WHOLE: &str = include_str!("../fixtures/turn.messages.json");
const CHAT: &str = include_str!("../fixtures/turn.chat.sse");
const CHAT_WHOLE: &str = include_str!("../fixtures/turn.chat.json");

/// What was said, without the ids, which differ with each request.
fn said(mut reply: Reply) -> Reply {
    for block in &mut reply.blocks {
        if let Block::Call { id, .. } = block {
            assert!(!std::mem::take(id).is_empty());
        }
    }
    reply
}

fn whole(spoken: Spoken, text: &str) -> Reply {
    said(spoken.read_reply(&serde_json::from_str(text).unwrap(), "1").unwrap())
}

#[test]
fn a_recorded_turn_is_the_same_whole_and_streamed() {
    let messages = whole(Spoken::Messages, MESSAGES_WHOLE);
    assert_eq!(said(reply_of(Spoken::Messages, MESSAGES)), messages);
    let chat = whole(Spoken::Chat, CHAT_WHOLE);
    assert_eq!(said(reply_of(Spoken::Chat, CHAT)), chat);
    assert_eq!(messages.blocks.len(), 4);
    let unsigned = |reply: &Reply| {
        let blocks = reply.blocks.iter().cloned().map(|block| match block {
            Block::Thinking { text, .. } => Block::Thinking { text, signature: String::new() },
            block => block,
        });
        blocks.collect::<Vec<_>>()
    };
    assert_eq!(unsigned(&messages), unsigned(&chat));
    assert_eq!(messages.stop, chat.stop);
}

#[test]
fn each_client_reads_a_recorded_turn_as_it_did() {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/gateway/wire/fixtures");
    for (from, name, text) in [(Spoken::Messages, "messages", MESSAGES), (Spoken::Chat, "chat", CHAT)] {
        for to in WIRES {
            let out = translated(from, to, text);
            assert!(grammar::check(to, &out));
            let path = place.join(format!("turn.{name}-{}.sse", format!("{to:?}").to_lowercase()));
            if std::env::var_os("CHECKFU_RECORD").is_some() {
                std::fs::write(&path, &out).unwrap();
            }
            assert_eq!(out, std::fs::read_to_string(&path).unwrap(), "{}", path.display());
        }
    }
}
