//! Names the authority that signed a certificate, for the sentence that says it is not trusted. Reads as much of the encoding
//! as that takes; a certificate it cannot read has no name, and it never decides about trust.

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_ID: u8 = 0x06;
/// The tag of a certificate's version, which the oldest ones lack.
const VERSION: u8 = 0xa0;
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANISATION: &[u8] = &[0x55, 0x04, 0x0a];
const PART_CHARS_MAX: usize = 64;

/// The issuer of a DER certificate as people know it: its common name and its organisation.
pub(super) fn issuer(certificate: &[u8]) -> Option<String> {
    let (certificate, _) = expect(certificate, SEQUENCE)?;
    let (body, _) = expect(certificate, SEQUENCE)?;
    let (tag, _, after) = element(body)?;
    let serial = if tag == VERSION { after } else { body };
    let (_, _, signature) = element(serial)?;
    let (_, _, issuer) = element(signature)?;
    let (mut names, _) = expect(issuer, SEQUENCE)?;
    let (mut common, mut organisation) = (None, None);
    while let Some((set, rest)) = expect(names, SET) {
        names = rest;
        let Some((pair, _)) = expect(set, SEQUENCE) else { continue };
        let Some((kind, value)) = expect(pair, OBJECT_ID) else { continue };
        let Some((_, text, _)) = element(value) else { continue };
        match kind {
            COMMON_NAME => common = Some(readable(text)),
            ORGANISATION => organisation = Some(readable(text)),
            _ => {}
        }
    }
    match (common, organisation) {
        (Some(common), Some(organisation)) => Some(format!("{common} ({organisation})")),
        (common, organisation) => common.or(organisation),
    }
}

/// The content of the element that comes first, when it has this tag, and what follows it.
fn expect(bytes: &[u8], wanted: u8) -> Option<(&[u8], &[u8])> {
    let (tag, content, rest) = element(bytes)?;
    (tag == wanted).then_some((content, rest))
}

/// Tag, content and what follows of the element that comes first.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, bytes) = bytes.split_first()?;
    let (&first, mut bytes) = bytes.split_first()?;
    let mut length = usize::from(first);
    if first >= 0x80 {
        let (digits, rest) =
            bytes.split_at_checked(usize::from(first & 0x7f)).filter(|(d, _)| d.len() <= 4)?;
        length = digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit));
        bytes = rest;
    }
    let (content, rest) = bytes.split_at_checked(length)?;
    Some((tag, content, rest))
}

fn readable(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.chars().filter(|c| !c.is_control()).take(PART_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An element with its length in one or two bytes.
    fn der(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = u8::try_from(content.len());
        let mut bytes = vec![tag];
        match length {
            Ok(short) if short < 0x80 => bytes.push(short),
            Ok(long) => bytes.extend([0x81, long]),
            Err(_) => {
                bytes.push(0x82);
                bytes.extend(u16::try_from(content.len()).unwrap().to_be_bytes());
            }
        }
        bytes.extend_from_slice(content);
        bytes
    }

    fn certificate(version: &[u8], names: &[(&[u8], &str)]) -> Vec<u8> {
        let name = |(kind, text): &(&[u8], &str)| {
            der(SET, &der(SEQUENCE, &[der(OBJECT_ID, kind), der(0x0c, text.as_bytes())].concat()))
        };
        let names: Vec<u8> = names.iter().flat_map(name).collect();
        let parts = [version.to_vec(), der(2, &[7; 16]), der(SEQUENCE, &[]), der(SEQUENCE, &names)];
        let body = [parts.concat(), vec![0; 300]].concat();
        der(SEQUENCE, &der(SEQUENCE, &body))
    }

    #[test]
    fn the_issuer_is_named_by_what_people_know_it_by() {
        let version = der(VERSION, &[2, 1, 2]);
        let long = "x".repeat(200);
        for (names, want) in [
            (
                vec![(COMMON_NAME, "Example Root"), (ORGANISATION, "Example AG")],
                Some("Example Root (Example AG)"),
            ),
            (vec![(ORGANISATION, "Example AG")], Some("Example AG")),
            (vec![(COMMON_NAME, "a\u{1b}[2Jb\n")], Some("a[2Jb")),
            (vec![(COMMON_NAME, long.as_str())], Some(&long[..PART_CHARS_MAX])),
            (vec![(&[0x55, 0x04, 0x06][..], "CH")], None),
            (vec![], None),
        ] {
            assert_eq!(issuer(&certificate(&version, &names)).as_deref(), want);
            assert_eq!(issuer(&certificate(&[], &names)).as_deref(), want, "without a version");
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_as_a_certificate_is_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 0usize..600) {
            let _ = issuer(&bytes);
            let whole = certificate(&[], &[(COMMON_NAME, "x")]);
            let _ = issuer(&whole[..cut.min(whole.len())]);
        }
    }
}
