//! Counts what one model request used, from the provider's own numbers in the bytes that pass by.
//! Pure: it sees copies of the bytes, never changes or delays them, and any split of them gives the same count.

use super::provider::Kind;
use crate::sse::{Decoder, Frame};
use checkfu_shared::event::ModelUsage;
use serde::Deserialize;

/// The count of one streamed reply.
#[derive(Debug)]
pub struct Meter {
    kind: Kind,
    decoder: Decoder,
    reading: Reading,
}

/// Bytes of text that count as one token where the provider's own count never came.
const BYTES_PER_TOKEN: u64 = 4;
/// About what a piece of a reply has around its text.
const FRAME_BYTES: u64 = 90;

/// What is known of a reply so far.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// The tokens used; grows only.
    pub usage: ModelUsage,
    /// The provider said that the reply is complete.
    pub is_complete: bool,
    /// About how many tokens of output passed by, for a reply that is cut before its count comes.
    seen_output_tokens: u64,
}

/// The parts of Chat chunks that carry numbers.
#[derive(Deserialize)]
struct ChatNumbers {
    #[serde(default)]
    usage: Option<ChatTokens>,
}

#[derive(Deserialize)]
struct ChatTokens {
    #[serde(default)]
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
    #[serde(default)]
    prompt_tokens_details: Option<ChatDetails>,
}

#[derive(Deserialize)]
struct ChatDetails {
    #[serde(default)]
    cached_tokens: Option<u64>,
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
    /// A meter of replies as providers of this kind give them.
    #[must_use]
    pub fn new(kind: Kind) -> Self {
        Self { kind, decoder: Decoder::default(), reading: Reading::default() }
    }

    /// Takes the next bytes of the reply.
    pub fn feed(&mut self, bytes: &[u8]) {
        let (kind, reading) = (self.kind, &mut self.reading);
        self.decoder.feed(bytes, |frame| match kind {
            Kind::Anthropic => reading.read(&frame),
            Kind::OpenaiCompatible => reading.read_chat(&frame),
        });
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
    pub fn of_body(kind: Kind, body: &[u8]) -> Self {
        let mut reading = Self { is_complete: true, ..Self::default() };
        match kind {
            Kind::Anthropic => {
                if let Ok(Numbers { usage: Some(tokens), .. }) = serde_json::from_slice(body) {
                    reading.take(&tokens);
                }
            }
            Kind::OpenaiCompatible => reading.take_chat(body),
        }
        reading
    }

    /// What is billed: the provider's own count, and for a reply that was cut at least what was seen of it. Where no count
    /// of the input came, the size of the request stands for it.
    #[must_use]
    pub fn billed(&self, request_bytes: usize) -> ModelUsage {
        let mut usage = self.usage;
        let is_counted = usage != ModelUsage::default();
        if !self.is_complete && (is_counted || self.seen_output_tokens > 0) {
            usage.output_tokens = usage.output_tokens.max(self.seen_output_tokens);
            if !is_counted {
                usage.input_tokens = (request_bytes as u64).div_ceil(BYTES_PER_TOKEN);
            }
        }
        usage
    }

    fn see(&mut self, frame_bytes: usize) {
        let text = (frame_bytes as u64).saturating_sub(FRAME_BYTES);
        self.seen_output_tokens += text.div_ceil(BYTES_PER_TOKEN).max(1);
    }

    fn read_chat(&mut self, frame: &Frame) {
        if frame.data.trim() == "[DONE]" {
            self.is_complete = true;
        } else if frame.data.contains("\"usage\":{") || frame.data.contains("\"usage\": {") {
            self.take_chat(frame.data.as_bytes());
        } else {
            self.see(frame.data.len());
        }
    }

    fn take_chat(&mut self, json: &[u8]) {
        let Ok(ChatNumbers { usage: Some(tokens) }) = serde_json::from_slice(json) else { return };
        let cached = tokens.prompt_tokens_details.and_then(|details| details.cached_tokens).unwrap_or(0);
        let usage = &mut self.usage;
        // Here the cached part is counted within the input, there beside it.
        usage.input_tokens = usage.input_tokens.max(tokens.prompt_tokens.saturating_sub(cached));
        usage.cache_read_input_tokens = usage.cache_read_input_tokens.max(cached);
        usage.output_tokens = usage.output_tokens.max(tokens.completion_tokens);
    }

    fn read(&mut self, frame: &Frame) {
        // Text deltas are nearly all frames, and never carry numbers.
        if frame.event.as_deref() == Some("content_block_delta") {
            self.see(frame.data.len());
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

    const CHAT: &str = concat!(
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"h\u{e9}\"}}],\"usage\":null}\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":100,\"completion_tokens\":7,\"prompt_tokens_details\":{\"cached_tokens\":60}}}\n\n",
        "data: [DONE]\n\n",
    );
    const CHAT_USAGE: ModelUsage = ModelUsage {
        input_tokens: 40,
        output_tokens: 7,
        cache_creation_input_tokens: 0,
        cache_read_input_tokens: 60,
    };

    fn meter(kind: Kind, text: &str) -> Reading {
        let mut meter = Meter::new(kind);
        meter.feed(text.as_bytes());
        meter.reading()
    }

    #[test]
    fn a_whole_body_is_read_too() {
        let body = br#"{"type":"message","usage":{"input_tokens":1,"output_tokens":2}}"#;
        let usage = ModelUsage { input_tokens: 1, output_tokens: 2, ..ModelUsage::default() };
        let reading = Reading::of_body(Kind::Anthropic, body);
        assert_eq!((reading.usage, reading.is_complete), (usage, true));
        assert_eq!(Reading::of_body(Kind::Anthropic, b"<html>").usage, ModelUsage::default());
        let chat = br#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4,"prompt_tokens_details":null}}"#;
        let usage = ModelUsage { input_tokens: 3, output_tokens: 4, ..ModelUsage::default() };
        assert_eq!(Reading::of_body(Kind::OpenaiCompatible, chat).billed(0), usage);
    }

    #[test]
    fn the_cached_part_of_a_chat_prompt_is_counted_once() {
        let reading = meter(Kind::OpenaiCompatible, CHAT);
        assert_eq!((reading.usage, reading.is_complete), (CHAT_USAGE, true));
        assert_eq!(reading.billed(1_000_000), CHAT_USAGE);
    }

    #[test]
    fn a_stream_that_breaks_off_is_billed_by_what_was_seen() {
        let reading = meter(Kind::Anthropic, &REPLY[..REPLY.find("event: ping").unwrap()]);
        assert_eq!(reading.usage, ModelUsage { output_tokens: 1, ..USAGE });
        assert_eq!((reading.is_complete, reading.billed(4_000)), (false, reading.usage));
        let piece = format!("event: content_block_delta\ndata: {}\n\n", "x".repeat(490));
        let reading = meter(
            Kind::Anthropic,
            &format!("{}{piece}{piece}", &REPLY[..REPLY.find("event: ping").unwrap()]),
        );
        assert_eq!(reading.billed(4_000), ModelUsage { output_tokens: 200, ..USAGE });
        let reading = meter(Kind::OpenaiCompatible, &CHAT[..CHAT.find("data: {\"choices\":[]").unwrap()]);
        let seen = reading.billed(4_001);
        assert_eq!((seen.input_tokens, seen.output_tokens > 0), (1_001, true));
        assert_eq!(meter(Kind::OpenaiCompatible, "").billed(4_000), ModelUsage::default());
    }

    proptest! {
        #[test]
        fn any_split_of_the_bytes_gives_the_same_count(
            cuts in proptest::collection::vec(0..=REPLY.len(), 0..12)
        ) {
            let mut at = cuts;
            at.extend([0, REPLY.len()]);
            at.sort_unstable();
            let mut meter = Meter::new(Kind::Anthropic);
            for pair in at.windows(2) {
                meter.feed(&REPLY.as_bytes()[pair[0]..pair[1]]);
            }
            prop_assert_eq!((meter.reading().usage, meter.reading().is_complete), (USAGE, true));
        }
    }
}
