//! Server-sent events, decoded incrementally: any split of the bytes gives the same frames.
//! Pure and bounded: a frame larger than [`FRAME_BYTES_MAX`] is dropped whole, the stream goes on after it.

/// A frame with more bytes than this is dropped; the largest event of the log is far smaller.
pub const FRAME_BYTES_MAX: usize = 4 << 20;

/// One frame, as far as it has data.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Frame {
    /// The frame's own `id`, if it has one.
    pub id: Option<String>,
    /// The frame's `event`, if it has one.
    pub event: Option<String>,
    /// Its `data` lines, joined by line feeds.
    pub data: String,
}

/// The state between two pieces of a stream.
#[derive(Debug, Default)]
pub struct Decoder {
    line: Vec<u8>,
    /// Whether the present line has bytes, kept or not.
    has_line: bool,
    id: Option<String>,
    event: Option<String>,
    data: Option<String>,
    /// Bytes of the present frame, kept or not.
    frame_bytes: usize,
    after_cr: bool,
    past_first_line: bool,
}

impl Decoder {
    /// Takes the next bytes and gives each frame they complete to `each`.
    pub fn feed(&mut self, mut bytes: &[u8], mut each: impl FnMut(Frame)) {
        while let Some(&first) = bytes.first() {
            if std::mem::take(&mut self.after_cr) && first == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
                self.keep(bytes);
                return;
            };
            self.keep(&bytes[..end]);
            self.after_cr = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            if let Some(frame) = self.end_line() {
                each(frame);
            }
        }
    }

    fn keep(&mut self, part: &[u8]) {
        self.has_line |= !part.is_empty();
        self.frame_bytes = self.frame_bytes.saturating_add(part.len());
        if self.frame_bytes <= FRAME_BYTES_MAX {
            self.line.extend_from_slice(part);
        } else {
            self.line.clear();
        }
    }

    fn end_line(&mut self) -> Option<Frame> {
        let mut line = std::mem::take(&mut self.line);
        if !std::mem::replace(&mut self.past_first_line, true) && line.starts_with(b"\xef\xbb\xbf") {
            line.drain(..3);
        }
        if !std::mem::take(&mut self.has_line) {
            return self.end_frame();
        }
        if self.frame_bytes <= FRAME_BYTES_MAX {
            self.field(&String::from_utf8_lossy(&line));
        }
        line.clear();
        self.line = line;
        None
    }

    fn end_frame(&mut self) -> Option<Frame> {
        let fits = std::mem::take(&mut self.frame_bytes) <= FRAME_BYTES_MAX;
        let (id, event) = (self.id.take(), self.event.take());
        self.data.take().filter(|_| fits).map(|data| Frame { id, event, data })
    }

    fn field(&mut self, line: &str) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "data" => match &mut self.data {
                None => self.data = Some(value.to_owned()),
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
            },
            "event" => self.event = Some(value.to_owned()),
            "id" => self.id = Some(value.to_owned()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(pieces: &[&[u8]]) -> Vec<Frame> {
        let (mut decoder, mut frames) = (Decoder::default(), Vec::new());
        for piece in pieces {
            decoder.feed(piece, |frame| frames.push(frame));
        }
        frames
    }

    fn frame(id: Option<&str>, event: Option<&str>, data: &str) -> Frame {
        Frame { id: id.map(str::to_owned), event: event.map(str::to_owned), data: data.to_owned() }
    }

    #[test]
    fn fields_comments_and_all_line_ends_are_understood() {
        let text = b"\xef\xbb\xbfid: 7\nevent: a\ndata: one\ndata:two\n\n: ping\n\nevent: none\n\ndata\r\n\r\nretry: 3\rdata:  x\r\r";
        assert_eq!(
            decode(&[text]),
            [frame(Some("7"), Some("a"), "one\ntwo"), frame(None, None, ""), frame(None, None, " x")]
        );
    }

    #[test]
    fn an_unfinished_frame_is_not_given() {
        assert_eq!(decode(&[b"data: 1\n"]), []);
    }

    #[test]
    fn an_oversized_frame_is_dropped_and_the_next_one_arrives() {
        let large = vec![b'x'; FRAME_BYTES_MAX];
        let frames = decode(&[b"data: ", &large, b"\ndata: y\n\ndata: 2\n\n"]);
        assert_eq!(frames, [frame(None, None, "2")]);
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_frames(
            text in "(id: [0-9]\n|event: [ab]\r\n|data: [xé]{0,3}\r|data:y\n|:c\n|\n|\r\n|\r){0,20}",
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..8)
        ) {
            let bytes = text.as_bytes();
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            at.extend([0, bytes.len()]);
            at.sort_unstable();
            let pieces: Vec<&[u8]> = at.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(decode(&pieces), decode(&[bytes]));
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            decode(&[&bytes]);
        }
    }
}
