//! Counts what one model request used, from the provider's own numbers in the bytes that pass by.
//! Pure: it sees copies of the bytes, never changes or delays them, and any split of them gives the same count.

use crate::sse::{Decoder, Frame};
use checkfu_shared::event::ModelUsage;
use serde::Deserialize;

/// The count of one streamed reply.
#[derive(Debug, Default)]
pub struct Meter {
    decoder: Decoder,
    reading: Reading,
}

/// What is known of a reply so far.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// The tokens used; grows only.
    pub usage: ModelUsage,
    /// The provider said that the reply is complete.
    pub is_complete: bool,
}

/// The parts of the provider's frames that carry numbers.
#[derive(Deserialize)]
struct Numbers {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    message: Option<Message>,
    #[serde(default)]
    usage: Option<Tokens>,
}

#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    usage: Option<Tokens>,
}

#[derive(Deserialize)]
struct Tokens {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
}

impl Meter {
    /// Takes the next bytes of the reply.
    pub fn feed(&mut self, bytes: &[u8]) {
        let reading = &mut self.reading;
        self.decoder.feed(bytes, |frame| reading.read(&frame));
    }

    /// What is known so far.
    #[must_use]
    pub const fn reading(&self) -> Reading {
        self.reading
    }
}

impl Reading {
    /// Reads a reply that came as one JSON body instead of a stream.
    #[must_use]
    pub fn of_body(body: &[u8]) -> Self {
        let mut reading = Self { is_complete: true, ..Self::default() };
        if let Ok(Numbers { usage: Some(tokens), .. }) = serde_json::from_slice(body) {
            reading.take(&tokens);
        }
        reading
    }

    fn read(&mut self, frame: &Frame) {
        // Text deltas are nearly all frames, and never carry numbers.
        if frame.event.as_deref() == Some("content_block_delta") {
            return;
        }
        let Ok(numbers) = serde_json::from_str::<Numbers>(&frame.data) else { return };
        match numbers.kind.as_str() {
            "message_start" => {
                if let Some(tokens) = numbers.message.and_then(|message| message.usage) {
                    self.take(&tokens);
                }
            }
            "message_delta" => {
                if let Some(tokens) = numbers.usage {
                    self.take(&tokens);
                }
            }
            "message_stop" => self.is_complete = true,
            _ => {}
        }
    }

    // The provider's numbers are cumulative, so the largest is the latest.
    fn take(&mut self, tokens: &Tokens) {
        let usage = &mut self.usage;
        for (held, new) in [
            (&mut usage.input_tokens, tokens.input_tokens),
            (&mut usage.output_tokens, tokens.output_tokens),
            (&mut usage.cache_creation_input_tokens, tokens.cache_creation_input_tokens),
            (&mut usage.cache_read_input_tokens, tokens.cache_read_input_tokens),
        ] {
            *held = (*held).max(new.unwrap_or(0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const REPLY: &str = concat!(
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"usage\":{\"input_tokens\":12,",
        "\"cache_creation_input_tokens\":3,\"cache_read_input_tokens\":400,\"output_tokens\":1}}}\n\n",
        "event: ping\ndata: {\"type\":\"ping\"}\n\n",
        "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0}\n\n",
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"\\\"usage\\\": 9 \u{e9}\"}}\n\n",
        "event: message_delta\r\ndata: {\"type\":\"message_delta\",\"delta\":{},\"usage\":{\"output_tokens\":77,\"input_tokens\":null}}\r\n\r\n",
        "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    );
    const USAGE: ModelUsage = ModelUsage {
        input_tokens: 12,
        output_tokens: 77,
        cache_creation_input_tokens: 3,
        cache_read_input_tokens: 400,
    };

    #[test]
    fn a_whole_body_is_read_too() {
        let body = br#"{"type":"message","usage":{"input_tokens":1,"output_tokens":2}}"#;
        let usage = ModelUsage { input_tokens: 1, output_tokens: 2, ..ModelUsage::default() };
        assert_eq!(Reading::of_body(body), Reading { usage, is_complete: true });
        assert_eq!(Reading::of_body(b"<html>").usage, ModelUsage::default());
    }

    #[test]
    fn a_stream_that_breaks_off_keeps_what_was_counted() {
        let mut meter = Meter::default();
        meter.feed(&REPLY.as_bytes()[..REPLY.find("event: ping").unwrap()]);
        assert_eq!(
            meter.reading(),
            Reading { usage: ModelUsage { output_tokens: 1, ..USAGE }, is_complete: false }
        );
    }

    proptest! {
        #[test]
        fn any_split_of_the_bytes_gives_the_same_count(
            cuts in proptest::collection::vec(0..=REPLY.len(), 0..12)
        ) {
            let mut at = cuts;
            at.extend([0, REPLY.len()]);
            at.sort_unstable();
            let mut meter = Meter::default();
            for pair in at.windows(2) {
                meter.feed(&REPLY.as_bytes()[pair[0]..pair[1]]);
            }
            prop_assert_eq!(meter.reading(), Reading { usage: USAGE, is_complete: true });
        }
    }
}
