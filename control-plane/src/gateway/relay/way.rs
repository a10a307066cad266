//! What becomes of a reply's bytes on their way: unchanged when provider and client speak alike, translated otherwise.
//! Either way it is counted and watched for its end, so that a reply that broke off never looks whole.

use super::super::{
    meter::{Meter, Reading},
    provider,
    wire::{
        Wire,
        fault::{Fault, Kind},
        reply::Label,
        stream::Stream,
    },
};
use bytes::Bytes;

/// How one streamed reply passes.
#[derive(Debug)]
pub(in super::super) struct Way {
    meter: Meter,
    /// Absent when the bytes pass as they are.
    translation: Option<Box<Stream>>,
    client: Wire,
    id: String,
    /// The last bytes of what was passed, to tell whether a frame is under way.
    tail: [u8; 4],
}

impl Way {
    /// The way of a reply from a provider of this kind to a client that speaks `to`.
    pub(in super::super) fn new(from: provider::Kind, to: Wire, is_unchanged: bool, label: Label) -> Self {
        let id = label.id.clone();
        let translation = (!is_unchanged).then(|| Box::new(Stream::new(from.spoken(), to, label)));
        Self { meter: Meter::new(from), translation, client: to, id, tail: *b"\n\n\n\n" }
    }

    /// Takes the provider's next bytes, gives those for the client, which may be none.
    pub(super) fn feed(&mut self, bytes: Bytes) -> Bytes {
        self.meter.feed(&bytes);
        if let Some(stream) = &mut self.translation {
            return Bytes::from(stream.feed(&bytes));
        }
        for byte in bytes.iter().skip(bytes.len().saturating_sub(4)) {
            self.tail.rotate_left(1);
            self.tail[3] = *byte;
        }
        bytes
    }

    pub(super) fn reading(&self) -> Reading {
        let mut reading = self.meter.reading();
        if let Some(stream) = &self.translation {
            reading.is_complete = stream.is_complete();
        }
        reading
    }

    /// Whether the provider said that the reply failed, so that nothing more is worth waiting for.
    pub(super) fn has_failed(&self) -> bool {
        self.translation.as_ref().is_some_and(|stream| stream.is_over() && !stream.is_complete())
    }

    /// The provider's bytes are at their end; `fault` is why, unless they ended well. Gives what is still to be said.
    pub(super) fn finish(&mut self, fault: Option<Fault>) -> Bytes {
        if let Some(stream) = &mut self.translation {
            return Bytes::from(stream.finish(fault));
        }
        let is_between = self.tail.ends_with(b"\n\n") || self.tail == *b"\r\n\r\n";
        if self.reading().is_complete || !is_between {
            return Bytes::new();
        }
        let fault = fault.unwrap_or_else(|| Fault::new(Kind::Api, "The model's reply broke off. Ask again."));
        Bytes::from(self.client.write_break(&fault, &self.id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: &str =
        "event: message_start\r\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{}}}\r\n\r\n";

    const CHAT: provider::Kind = provider::Kind::OpenaiCompatible;

    fn way(from: provider::Kind, to: Wire, is_unchanged: bool) -> Way {
        Way::new(from, to, is_unchanged, Label { id: "1".into(), ..Label::default() })
    }

    #[test]
    fn an_unchanged_reply_that_breaks_off_ends_with_an_error_between_two_events_only() {
        for (text, want) in [(START, true), (&START[..START.len() - 2], false), ("", true)] {
            let mut way = way(provider::Kind::Anthropic, Wire::Messages, true);
            assert_eq!(way.feed(Bytes::copy_from_slice(text.as_bytes())), text);
            let last = way.finish(None);
            assert_eq!(last.starts_with(b"event: error\n"), want, "{text:?} {last:?}");
        }
    }

    #[test]
    fn a_whole_reply_gets_nothing_added() {
        let mut unchanged = way(provider::Kind::Anthropic, Wire::Messages, true);
        unchanged.feed(Bytes::from_static(b"data: {\"type\":\"message_stop\"}\n\n"));
        assert!(unchanged.reading().is_complete);
        assert_eq!(unchanged.finish(None), "");
        let chunk = b"data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":3}}\n\n";
        let mut translated = way(CHAT, Wire::Messages, false);
        translated.feed(Bytes::from_static(chunk));
        assert_eq!((translated.reading().usage.input_tokens, translated.reading().is_complete), (3, false));
        // Not every server of this wire sends its last line.
        assert!(translated.finish(None).ends_with(b"{\"type\":\"message_stop\"}\n\n"));
        assert!(translated.reading().is_complete);
    }

    #[test]
    fn a_translated_reply_that_fails_is_over() {
        let mut way = way(CHAT, Wire::Messages, false);
        let out = way.feed(Bytes::from_static(b"data: {\"error\":{\"message\":\"no\"}}\n\n"));
        assert!(out.starts_with(b"event: error\n") && way.has_failed());
        assert_eq!(way.finish(None), "");
    }
}
