//! The first bytes of a TLS connection: which server it names. Reads only, decides nothing, and needs no more than
//! the bytes it is given, in whatever pieces they came.

/// Bytes after which a handshake that is still incomplete counts as none.
pub(super) const MAX_BYTES: usize = 32 * 1024;

/// What the first bytes say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Sniffed {
    /// Not enough yet.
    More,
    /// No TLS handshake.
    NotTls,
    /// A handshake that names no server.
    Nameless,
    /// The server it names.
    Name(String),
}

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const MAX_RECORD: usize = 16_384;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;

/// Looks at the first bytes of a connection.
pub(super) fn sniff(bytes: &[u8]) -> Sniffed {
    let mut message = Vec::new();
    let mut rest = bytes;
    loop {
        match message_of(&message) {
            Some(hello) => return name_of(hello),
            None if bytes.len() > MAX_BYTES => return Sniffed::NotTls,
            None => {}
        }
        // Records of nothing, or of another first byte, would never complete a message.
        if message.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
            return Sniffed::NotTls;
        }
        let [kind, major, _, high, low, after @ ..] = rest else {
            let prefix = [HANDSHAKE, 3];
            let fits = rest.iter().zip(prefix).all(|(byte, wanted)| *byte == wanted);
            return if fits { Sniffed::More } else { Sniffed::NotTls };
        };
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        if *kind != HANDSHAKE || *major != 3 || length == 0 || length > MAX_RECORD {
            return Sniffed::NotTls;
        }
        let (body, next) = after.split_at(length.min(after.len()));
        message.extend_from_slice(body);
        rest = next;
        if body.len() < length && message_of(&message).is_none() {
            return if bytes.len() > MAX_BYTES { Sniffed::NotTls } else { Sniffed::More };
        }
    }
}

/// The body of the handshake message, once it is complete.
fn message_of(bytes: &[u8]) -> Option<&[u8]> {
    let [_, a, b, c, body @ ..] = bytes else { return None };
    body.get(..usize::try_from(u32::from_be_bytes([0, *a, *b, *c])).ok()?)
}

fn name_of(hello: &[u8]) -> Sniffed {
    match server_name(hello) {
        Some(Some(name)) => Sniffed::Name(name),
        Some(None) => Sniffed::Nameless,
        None => Sniffed::NotTls,
    }
}

/// `None` when it is malformed, `Some(None)` when it names nobody.
fn server_name(hello: &[u8]) -> Option<Option<String>> {
    let mut body = Reader(hello);
    body.take(2 + 32)?;
    body.vector8()?;
    body.vector16()?;
    body.vector8()?;
    if body.0.is_empty() {
        return Some(None);
    }
    let mut extensions = Reader(body.vector16()?);
    let mut found = None;
    while !extensions.0.is_empty() {
        let kind = extensions.u16()?;
        let content = extensions.vector16()?;
        if kind == SERVER_NAME {
            // Two of them would be read differently by different servers.
            if found.is_some() {
                return None;
            }
            found = Some(host_name(content)?);
        }
    }
    Some(found)
}

fn host_name(extension: &[u8]) -> Option<String> {
    let mut list = Reader(Reader(extension).vector16()?);
    if list.take(1)? != [HOST_NAME] {
        return None;
    }
    let name = list.vector16()?;
    if !list.0.is_empty() {
        return None;
    }
    std::str::from_utf8(name).ok().filter(|name| name.is_ascii()).map(str::to_owned)
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(self.take(2)?.try_into().ok()?))
    }

    fn vector8(&mut self) -> Option<&'a [u8]> {
        let [length] = *self.take(1)? else { return None };
        self.take(usize::from(length))
    }

    fn vector16(&mut self) -> Option<&'a [u8]> {
        let length = self.u16()?;
        self.take(usize::from(length))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    fn vector16(content: &[u8]) -> Vec<u8> {
        [&u16::try_from(content.len()).unwrap().to_be_bytes()[..], content].concat()
    }

    /// A ClientHello in records of at most `record` bytes.
    pub(in super::super) fn client_hello(name: Option<&str>, record: usize) -> Vec<u8> {
        let mut extensions = [&0x002b_u16.to_be_bytes()[..], &vector16(&[2, 3, 4])].concat();
        if let Some(name) = name {
            let list = [&[HOST_NAME][..], &vector16(name.as_bytes())].concat();
            extensions.extend(SERVER_NAME.to_be_bytes());
            extensions.extend(vector16(&vector16(&list)));
        }
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.push(0);
        body.extend(vector16(&[0x13, 0x01]));
        body.extend([1, 0]);
        body.extend(vector16(&extensions));
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        let message = [&[CLIENT_HELLO][..], &length[1..], &body].concat();
        let records = message.chunks(record).flat_map(|piece| [&[22, 3, 1][..], &vector16(piece)].concat());
        records.collect()
    }

    #[test]
    fn the_name_is_found_in_whole_and_in_split_handshakes() {
        for record in [16_384, 50, 7, 1] {
            let bytes = client_hello(Some("ok.test"), record);
            assert_eq!(sniff(&bytes), Sniffed::Name("ok.test".into()), "records of {record}");
            for cut in 0..bytes.len() {
                let early = sniff(&bytes[..cut]);
                assert!(matches!(early, Sniffed::More), "cut at {cut}: {early:?}");
            }
        }
    }

    #[test]
    fn a_handshake_without_a_name_and_other_protocols_are_told_apart() {
        assert_eq!(sniff(&client_hello(None, 16_384)), Sniffed::Nameless);
        for bytes in
            [&b"GET / HTTP/1.1\r\n"[..], b"SSH-2.0", &[22, 2], &[22, 3, 1, 0, 0], &[22, 3, 1, 0, 1, 2]]
        {
            assert_eq!(sniff(bytes), Sniffed::NotTls, "{bytes:?}");
        }
    }

    #[test]
    fn an_endless_handshake_is_given_up() {
        let mut bytes = vec![22, 3, 1, 0x40, 0, CLIENT_HELLO, 0xff, 0xff, 0xff];
        bytes.resize(MAX_BYTES + 1, 0);
        assert_eq!(sniff(&bytes), Sniffed::NotTls);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>, prefix: bool) {
            let mut all = if prefix { vec![22, 3, 1] } else { Vec::new() };
            all.extend(bytes);
            let _ = sniff(&all);
        }

        #[test]
        fn a_damaged_handshake_never_names_another_host_by_panic(at in 0usize..100, byte: u8) {
            let mut bytes = client_hello(Some("ok.test"), 16_384);
            if let Some(place) = bytes.get_mut(at) { *place = byte; }
            let _ = sniff(&bytes);
        }
    }
}
