//! How one event lies in a spool segment: length, checksum, index, JSON. Pure; a frame that does not check is no frame.

use checkfu_shared::protocol::append::EVENT_BYTES_MAX;

/// Bytes before the JSON: length (4), CRC-32 of index and JSON (4), index (8), all little-endian.
pub(crate) const HEADER_BYTES: usize = 16;

/// What a frame begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) length: usize,
    pub(crate) checksum: u32,
    pub(crate) index: u64,
}

/// Adds one frame to `out`.
pub(crate) fn encode(index: u64, json: &[u8], out: &mut Vec<u8>) {
    let length = u32::try_from(json.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&checksum(index, json).to_le_bytes());
    out.extend_from_slice(&index.to_le_bytes());
    out.extend_from_slice(json);
}

/// Reads a header; `None` when there are too few bytes or the length is impossible.
pub(crate) fn header(bytes: &[u8]) -> Option<Header> {
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let length = usize::try_from(word(0)?).ok().filter(|&length| length > 0 && length <= EVENT_BYTES_MAX)?;
    let index = u64::from_le_bytes(bytes.get(8..16)?.try_into().ok()?);
    Some(Header { length, checksum: word(4)?, index })
}

/// Whether `json` is what the header announces.
pub(crate) fn checks(header: Header, json: &[u8]) -> bool {
    json.len() == header.length && checksum(header.index, json) == header.checksum
}

fn checksum(index: u64, json: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(&index.to_le_bytes());
    crc.update(json);
    crc.sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_frame_reads_back_and_one_flipped_bit_is_noticed(
            index: u64, json in proptest::collection::vec(any::<u8>(), 1..200), bit: proptest::sample::Index
        ) {
            let mut bytes = Vec::new();
            encode(index, &json, &mut bytes);
            let read = header(&bytes).unwrap();
            prop_assert_eq!(read.index, index);
            prop_assert!(checks(read, &bytes[HEADER_BYTES..]));
            let at = bit.index(bytes.len() * 8);
            bytes[at / 8] ^= 1 << (at % 8);
            let intact = header(&bytes).is_some_and(|read| {
                bytes.get(HEADER_BYTES..HEADER_BYTES + read.length).is_some_and(|json| checks(read, json))
            });
            prop_assert!(!intact);
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = header(&bytes);
        }
    }
}
