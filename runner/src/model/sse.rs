//! Server-sent events of a model's stream, decoded incrementally: any split of the bytes gives the same data.
//! Pure and bounded: more than [`EVENT_BYTES_MAX`] bytes without the end of an event are refused.

/// One event may have at most this many bytes.
pub(super) const EVENT_BYTES_MAX: usize = 4 << 20;

/// An event is longer than [`EVENT_BYTES_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream is longer than {EVENT_BYTES_MAX} bytes")]
pub(super) struct TooLong;

/// The state between two pieces of a stream.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    line: Vec<u8>,
    data: String,
    has_data: bool,
    after_cr: bool,
}

impl Decoder {
    /// Takes the next bytes and gives the data of each event they complete to `each`.
    ///
    /// # Errors
    /// [`TooLong`]; the stream is of no use any more.
    pub(super) fn feed(&mut self, mut bytes: &[u8], mut each: impl FnMut(&str)) -> Result<(), TooLong> {
        while let Some(&first) = bytes.first() {
            if std::mem::take(&mut self.after_cr) && first == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let (piece, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            if self.line.len() + self.data.len() + piece.len() > EVENT_BYTES_MAX {
                return Err(TooLong);
            }
            self.line.extend_from_slice(piece);
            let Some((&ending, rest)) = rest.split_first() else { return Ok(()) };
            self.after_cr = ending == b'\r';
            self.end_line(&mut each);
            bytes = rest;
        }
        Ok(())
    }

    fn end_line(&mut self, each: &mut impl FnMut(&str)) {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            if std::mem::take(&mut self.has_data) {
                each(&std::mem::take(&mut self.data));
            }
            return;
        }
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_start_matches('\u{feff}');
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        if name == "data" {
            if std::mem::replace(&mut self.has_data, true) {
                self.data.push('\n');
            }
            self.data.push_str(value.strip_prefix(' ').unwrap_or(value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(pieces: &[&[u8]]) -> Vec<String> {
        let (mut decoder, mut got) = (Decoder::default(), Vec::new());
        for piece in pieces {
            decoder.feed(piece, |data| got.push(data.to_owned())).unwrap();
        }
        got
    }

    #[test]
    fn fields_comments_and_all_line_ends_are_understood() {
        let text = "\u{feff}data: one\nevent: a\ndata:two\n\n: ping\n\nevent: none\n\ndata\r\n\r\ndata:  x\r\rdata: cut";
        assert_eq!(decode(&[text.as_bytes()]), ["one\ntwo", "", " x"]);
    }

    #[test]
    fn an_endless_event_is_refused() {
        let mut decoder = Decoder::default();
        let piece = vec![b'x'; 1 << 20];
        assert!((0..5).any(|_| decoder.feed(&piece, |_| {}) == Err(TooLong)));
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_events(
            text in "(data: [xé]{0,3}(\n|\r\n|\r)|event: a\n|:c\n|\n|\r\n|\r){0,20}",
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..8)
        ) {
            let bytes = text.as_bytes();
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            at.extend([0, bytes.len()]);
            at.sort_unstable();
            let pieces: Vec<&[u8]> = at.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(decode(&pieces), decode(&[bytes]));
        }
    }
}
