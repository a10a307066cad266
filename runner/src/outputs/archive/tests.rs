//! Archives as Docker makes them, as attackers would like them, and as chance does.

use super::*;
use proptest::prelude::*;

#[derive(Debug, Default)]
pub(in super::super) struct Seen {
    entries: Vec<(Entry, Vec<u8>, bool)>,
}

impl Sink for Seen {
    type Error = Damage;
    fn entry(&mut self, entry: Entry) -> Result<(), Damage> {
        self.entries.push((entry, Vec::new(), false));
        Ok(())
    }
    fn data(&mut self, bytes: &[u8]) -> Result<(), Damage> {
        self.entries.last_mut().unwrap().1.extend_from_slice(bytes);
        Ok(())
    }
    fn end_of_entry(&mut self) -> Result<(), Damage> {
        self.entries.last_mut().unwrap().2 = true;
        Ok(())
    }
}

/// One header block, with its checksum.
pub(in super::super) fn header(flag: u8, path: &[u8], target: &[u8], size: u64) -> Vec<u8> {
    let mut block = vec![0; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, path);
    put(100, b"0000644\0");
    put(124, format!("{size:011o}\0").as_bytes());
    put(148, b"        ");
    put(156, &[flag]);
    put(157, target);
    put(257, b"ustar\x0000");
    let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

/// An entry with its content and padding.
pub(in super::super) fn entry(flag: u8, path: &[u8], target: &[u8], content: &[u8]) -> Vec<u8> {
    let mut bytes = header(flag, path, target, content.len() as u64);
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
    bytes
}

/// A PAX extension for the entry that follows.
pub(in super::super) fn pax(records: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut content = Vec::new();
    for (key, value) in records {
        let body = key.len() + value.len() + 3;
        let length = (1..).find(|length| body + length.to_string().len() == *length).unwrap();
        content.extend(format!("{length} ").into_bytes());
        content.extend([key, &b"="[..], value, b"\n"].concat());
    }
    entry(b'x', b"PaxHeaders.0/x", b"", &content)
}

pub(in super::super) fn finished(entries: &[Vec<u8>]) -> Vec<u8> {
    [entries.concat(), vec![0; 2 * BLOCK]].concat()
}

fn read_in(bytes: &[u8], piece: usize) -> (Result<(), Damage>, Seen, bool) {
    let (mut reader, mut seen) = (Reader::new(), Seen::default());
    let fed = bytes.chunks(piece).try_for_each(|piece| reader.feed(piece, &mut seen));
    (fed, seen, reader.is_complete())
}

#[test]
fn pieces_of_any_size_give_the_same_entries() {
    let long = [b"outputs/".as_slice(), &[b'n'; 200]].concat();
    let odd = b"outputs/new\nline \xff\x1b=x";
    let bytes = finished(&[
        entry(b'5', b"outputs/", b"", b""),
        entry(b'0', b"outputs/a", b"", &[7; 700]),
        pax(&[(b"mtime", b"1.5"), (b"path", odd), (b"SCHILY.xattr.user.x", b"a\n12 path=evil\n")]),
        entry(b'0', b"outputs/short", b"", b"odd"),
        entry(b'L', b"././@LongLink", b"", &[&long[..], b"\0"].concat()),
        entry(b'1', b"outputs/cut", b"outputs/a", b""),
        entry(b'2', b"outputs/s", b"/etc/passwd", b""),
    ]);
    for piece in [1, 7, 511, 512, 513, 100_000] {
        let (fed, seen, complete) = read_in(&bytes, piece);
        fed.unwrap();
        assert!(complete);
        let got: Vec<_> = seen.entries.iter().map(|(entry, ..)| (entry.kind, entry.path.clone())).collect();
        assert_eq!(
            got,
            [
                (Kind::Directory, b"outputs/".to_vec()),
                (Kind::File, b"outputs/a".to_vec()),
                (Kind::File, odd.to_vec()),
                (Kind::HardLink, long.clone()),
                (Kind::Other, b"outputs/s".to_vec()),
            ]
        );
        assert_eq!(seen.entries[1].1, [7; 700]);
        assert_eq!(seen.entries[3].0.target, b"outputs/a");
        assert!(seen.entries.iter().all(|(.., ended)| *ended));
    }
}

#[test]
fn a_size_in_pax_wins_so_that_content_never_becomes_entries() {
    let smuggled = entry(b'0', b"outputs/EVIL", b"", b"injected");
    let size = smuggled.len().to_string();
    let mut big = header(b'0', b"outputs/big", b"", 0);
    big.extend(&smuggled);
    let bytes = finished(&[pax(&[(b"size", size.as_bytes())]), big]);
    let (fed, seen, complete) = read_in(&bytes, 1000);
    fed.unwrap();
    assert!(complete);
    assert_eq!(seen.entries.len(), 1);
    assert_eq!(seen.entries[0].1, smuggled);
}

#[test]
fn a_base_256_size_is_read() {
    let mut block = header(b'0', b"outputs/big", b"", 0);
    block[124..136].copy_from_slice(&[0x80, 0, 0, 0, 0, 0, 0, 2, 0x40, 0, 0, 0]);
    block[148..156].copy_from_slice(b"        ");
    let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let (fed, seen, _) = read_in(&block, 512);
    fed.unwrap();
    assert_eq!(seen.entries[0].0.size, 9 << 30);
}

#[test]
fn an_archive_cut_anywhere_is_not_complete() {
    let bytes = finished(&[entry(b'5', b"outputs/", b"", b""), entry(b'0', b"outputs/a", b"", &[1; 10])]);
    for cut in 0..bytes.len() {
        assert!(!read_in(&bytes[..cut], 97).2, "complete at {cut}");
    }
    assert!(read_in(&bytes, 97).2);
}

#[test]
fn damage_is_an_error() {
    let mut flipped = header(b'0', b"a", b"", 1);
    flipped[3] ^= 1;
    let huge = header(b'x', b"a", b"", MAX_EXTENSION + 1);
    let bad_pax = entry(b'x', b"a", b"", b"99 path=x\n");
    let sparse = pax(&[(b"GNU.sparse.major", b"1")]);
    let half_end = [vec![0; BLOCK], header(b'0', b"a", b"", 0)].concat();
    for bytes in
        [flipped, huge, bad_pax, sparse, half_end, header(b'S', b"a", b"", 0), header(b'2', b"a", b"b", 5)]
    {
        assert!(read_in(&bytes, 512).0.is_err(), "{:?}", &bytes[..20]);
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes: Vec<u8>, at in 0usize..2000, flip: u8, piece in 1usize..600) {
        let _ = read_in(&bytes, piece);
        let mut sound = finished(&[pax(&[(b"path", b"p")]), entry(b'0', b"a", b"", &[1; 600])]);
        if let Some(byte) = sound.get_mut(at) { *byte ^= flip; }
        let (_, seen, _) = read_in(&sound, piece);
        prop_assert!(seen.entries.iter().all(|(_, data, _)| data.len() <= 2048));
    }

    #[test]
    fn any_content_and_name_survive(name in proptest::collection::vec(1u8.., 1..300), content: Vec<u8>) {
        let bytes = finished(&[pax(&[(b"path", &name)]), entry(b'0', b"x", b"", &content)]);
        let (fed, seen, complete) = read_in(&bytes, 333);
        prop_assert!(fed.is_ok() && complete);
        prop_assert_eq!(&seen.entries[0].0.path, &name);
        prop_assert_eq!(&seen.entries[0].1, &content);
    }
}
