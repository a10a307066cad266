//! Output of a running call, kept in bounded memory: all of it while it fits the result bound,
//! else its head and tail, with exact totals. Bytes stay bytes until the result is made.

use std::collections::VecDeque;

use crate::bound::{self, MAX_RESULT_CHARS, PREVIEW_CHARS};

/// Bytes kept from the start: a text within the bound never has more.
pub const HEAD_BYTES: usize = MAX_RESULT_CHARS * 4;
const TAIL_BYTES: usize = PREVIEW_CHARS * 4;

/// Counts the scalars that lossy decoding of a byte stream gives.
#[derive(Debug, Default)]
struct CharCount {
    chars: u64,
    carry: Vec<u8>,
}

impl CharCount {
    fn push(&mut self, bytes: &[u8]) {
        if self.carry.is_empty() {
            return self.count(bytes);
        }
        // Complete the cut character with a few bytes, so that the bulk is not copied.
        let (few, bulk) = bytes.split_at(bytes.len().min(4));
        let mut joined = std::mem::take(&mut self.carry);
        joined.extend_from_slice(few);
        self.count(&joined);
        if bulk.is_empty() {
            return;
        }
        if self.carry.is_empty() { self.count(bulk) } else { self.push_rest(bulk) }
    }

    fn push_rest(&mut self, bulk: &[u8]) {
        let mut joined = std::mem::take(&mut self.carry);
        joined.extend_from_slice(bulk);
        self.count(&joined);
    }

    fn count(&mut self, mut bytes: &[u8]) {
        loop {
            match std::str::from_utf8(bytes) {
                Ok(text) => {
                    self.chars += text.chars().count() as u64;
                    return;
                }
                Err(error) => {
                    let (valid, rest) = bytes.split_at(error.valid_up_to());
                    self.chars += std::str::from_utf8(valid).map_or(0, |text| text.chars().count() as u64);
                    let Some(bad) = error.error_len() else {
                        self.carry = rest.to_vec();
                        return;
                    };
                    self.chars += 1;
                    bytes = rest.get(bad..).unwrap_or_default();
                }
            }
        }
    }

    fn total(&self) -> u64 {
        self.chars + u64::from(!self.carry.is_empty())
    }
}

/// The output of one call so far.
#[derive(Debug, Default)]
pub struct Capture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    bytes: u64,
    chars: CharCount,
}

impl Capture {
    /// Adds output.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.chars.push(bytes);
        let room = HEAD_BYTES - self.head.len();
        self.head.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        let last = bytes.get(bytes.len().saturating_sub(TAIL_BYTES)..).unwrap_or(bytes);
        let excess = (self.tail.len() + last.len()).saturating_sub(TAIL_BYTES);
        self.tail.drain(..excess);
        self.tail.extend(last);
    }

    /// Bytes seen, kept or not.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Scalars seen, after lossy decoding.
    #[must_use]
    pub fn chars(&self) -> u64 {
        self.chars.total()
    }

    /// Everything seen so far, while no byte had to be dropped.
    #[must_use]
    pub fn whole(&self) -> Option<&[u8]> {
        (self.bytes == self.head.len() as u64).then_some(&self.head)
    }

    /// The bytes kept from the start.
    #[must_use]
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// The first [`PREVIEW_CHARS`] scalars.
    #[must_use]
    pub fn preview_head(&self) -> String {
        let bytes = self.head.get(..TAIL_BYTES).unwrap_or(&self.head);
        bound::head(&String::from_utf8_lossy(bytes), PREVIEW_CHARS).to_owned()
    }

    /// The last [`PREVIEW_CHARS`] scalars.
    #[must_use]
    pub fn preview_tail(&self) -> String {
        let mut bytes: Vec<u8> = self.tail.iter().copied().collect();
        if self.bytes > bytes.len() as u64 {
            let cut = bytes.iter().take(3).take_while(|byte| **byte & 0xC0 == 0x80).count();
            bytes.drain(..cut);
        }
        bound::tail(&String::from_utf8_lossy(&bytes), PREVIEW_CHARS).to_owned()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn counts_equal_those_of_lossy_decoding(
            bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(0xE2), Just(0x82), Just(0xAC), Just(b'a')], 0..400),
            piece in 1usize..9,
        ) {
            let mut capture = Capture::default();
            for part in bytes.chunks(piece) {
                capture.push(part);
            }
            let text = String::from_utf8_lossy(&bytes);
            prop_assert_eq!(capture.chars(), text.chars().count() as u64);
            prop_assert_eq!(capture.whole(), Some(bytes.as_slice()));
        }
    }

    #[test]
    fn memory_stays_bounded_and_the_ends_are_kept() {
        let mut capture = Capture::default();
        capture.push("ä".as_bytes());
        for _ in 0..2_000 {
            capture.push(&[b'x'; 1_000]);
        }
        capture.push("\u{20ac}end".as_bytes());
        assert_eq!(capture.whole(), None);
        assert_eq!(capture.chars(), 2_000_005);
        assert!(capture.preview_head().starts_with("äxx"));
        assert!(capture.preview_tail().ends_with("x\u{20ac}end"));
        assert_eq!(capture.preview_tail().chars().count(), PREVIEW_CHARS);
        assert!(capture.head.len() + capture.tail.len() <= HEAD_BYTES + TAIL_BYTES);
    }

    #[test]
    fn a_tail_that_begins_inside_a_character_is_cleaned() {
        let mut capture = Capture::default();
        capture.push(b"x");
        for _ in 0..TAIL_BYTES {
            capture.push("ä".as_bytes());
        }
        assert!(!capture.preview_tail().contains('\u{fffd}'));
    }
}
