//! Properties of the frame codec: round trips, cuts and hostile bytes.

use proptest::prelude::*;

use super::*;

fn drain(decoder: &mut Decoder) -> (Vec<Frame>, Vec<WireError>) {
    let (mut frames, mut errors) = (Vec::new(), Vec::new());
    loop {
        match decoder.next_frame() {
            Ok(Some(frame)) => frames.push(frame),
            Ok(None) => return (frames, errors),
            Err(error) => errors.push(error),
        }
    }
}

fn text_frame() -> impl Strategy<Value = Frame> {
    (any::<u8>(), any::<bool>(), any::<u64>(), ".{0,300}").prop_map(|(kind, more, number, text)| Frame {
        kind,
        more,
        number,
        payload: text.into_bytes(),
    })
}

fn bytes_of(frames: &[Frame]) -> Vec<u8> {
    let mut out = Vec::new();
    for frame in frames {
        encode(frame.kind, frame.more, frame.number, &frame.payload, &mut out);
    }
    out
}

proptest! {
    #[test]
    fn frames_survive_any_cutting_of_the_stream(
        frames in prop::collection::vec(text_frame(), 1..6),
        piece in 1usize..97,
    ) {
        let mut decoder = Decoder::new();
        let mut got = Vec::new();
        for bytes in bytes_of(&frames).chunks(piece) {
            decoder.push(bytes);
            let (more, errors) = drain(&mut decoder);
            prop_assert!(errors.is_empty(), "{errors:?}");
            got.extend(more);
        }
        prop_assert_eq!(got, frames);
        prop_assert_eq!(decoder.pending_bytes(), 0);
    }

    #[test]
    fn a_cut_frame_never_swallows_the_next_one(
        first in text_frame(), second in text_frame(), cut in 0usize..400, piece in 1usize..50,
    ) {
        let mut stream = bytes_of(std::slice::from_ref(&first));
        let cut = cut.min(stream.len() - 1);
        stream.truncate(cut);
        stream.extend(bytes_of(std::slice::from_ref(&second)));
        let mut decoder = Decoder::joining();
        let mut got = Vec::new();
        for bytes in stream.chunks(piece) {
            decoder.push(bytes);
            got.extend(drain(&mut decoder).0);
        }
        prop_assert_eq!(got, vec![second]);
    }

    #[test]
    fn garbage_never_panics_and_is_not_hoarded(bytes in prop::collection::vec(any::<u8>(), 0..4096)) {
        let mut decoder = Decoder::new();
        decoder.push(&bytes);
        let (frames, _) = drain(&mut decoder);
        prop_assert!(frames.is_empty());
        prop_assert!(decoder.pending_bytes() <= HEADER_BYTES + MAX_PAYLOAD_BYTES);
    }

    #[test]
    fn a_flipped_bit_never_yields_another_frame(frame in text_frame(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let mut stream = bytes_of(std::slice::from_ref(&frame));
        let at = at.index(stream.len());
        stream[at] ^= 1 << bit;
        let mut decoder = Decoder::new();
        decoder.push(&stream);
        prop_assert!(drain(&mut decoder).0.is_empty());
    }
}

#[test]
fn a_huge_claimed_length_is_refused_at_once() {
    let mut stream = MAGIC.to_vec();
    stream.extend([VERSION, 1, 0, 0]);
    stream.extend(7u64.to_be_bytes());
    stream.extend(u32::MAX.to_be_bytes());
    stream.extend([0; 4]);
    let mut decoder = Decoder::new();
    decoder.push(&stream);
    assert_eq!(decoder.next_frame(), Err(WireError::TooLong { claimed: u32::MAX }));
    drain(&mut decoder);
    assert!(decoder.pending_bytes() < HEADER_BYTES);
}

#[test]
fn other_versions_and_unknown_flags_are_named() {
    for (at, value, expected) in
        [(4, 9, WireError::Version { found: 9 }), (6, 0x80, WireError::Flags { flags: 0x8000 })]
    {
        let mut stream = Vec::new();
        encode(1, false, 1, b"{}", &mut stream);
        stream[at] = value;
        let mut decoder = Decoder::new();
        decoder.push(&stream);
        assert_eq!(decoder.next_frame(), Err(expected));
    }
}

#[test]
fn a_full_frame_still_decodes() {
    let payload = vec![b'x'; MAX_PAYLOAD_BYTES];
    let mut stream = Vec::new();
    encode(3, true, 5, &payload, &mut stream);
    let mut decoder = Decoder::new();
    decoder.push(&stream);
    let frame = decoder.next_frame().unwrap().unwrap();
    assert_eq!((frame.payload.len(), frame.more), (MAX_PAYLOAD_BYTES, true));
}
