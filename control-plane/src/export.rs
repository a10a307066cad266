//! `checkfu.session-export`: a session's log in one file that proves itself. One JSON document a line: a head, every position of
//! the log as envelope or as unavailable, and a seal. Each line names the digest of the line before it and the seal signs the
//! last one, so that reading backwards from the seal names the very line that is not what was written.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use checkfu_shared::{
    id::{SessionId, WorkspaceId},
    protocol::append::sha256_hex,
    time::Timestamp,
};
use ring::signature::{ED25519, UnparsedPublicKey};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The name of the format.
pub const FORMAT: &str = "checkfu.session-export";
/// The version of the format.
pub const VERSION: u32 = 1;

/// The first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// [`FORMAT`].
    pub format: String,
    /// [`VERSION`].
    pub version: u32,
    /// Whose log.
    pub session_id: SessionId,
    /// Whose workspace.
    pub workspace_id: WorkspaceId,
    /// When it was written.
    pub exported_at: Timestamp,
    /// How many positions follow: 1 to this.
    pub positions: u64,
}

/// A line of the log.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Position<'a> {
    seq: u64,
    /// The digest of the line before.
    prev: String,
    /// The event as every reader sees it.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    envelope: Option<&'a RawValue>,
    /// Why there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unavailable: Option<String>,
}

/// The last line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Seal {
    /// The digest of the line before.
    head: String,
    /// The server's Ed25519 key, in base64.
    public_key: String,
    /// Its signature of [`sealed_text`], in base64.
    signature: String,
}

/// What a seal signs.
#[must_use]
pub fn sealed_text(head: &str) -> String {
    format!("{FORMAT} {VERSION}\n{head}")
}

/// Writes an export line by line; lines end with a line feed.
#[derive(Debug)]
pub struct Writer {
    prev: String,
    seq: u64,
}

impl Writer {
    /// Begins an export; the first line.
    ///
    /// # Errors
    /// When the head cannot be written as JSON.
    pub fn begin(head: &Head) -> Result<(Self, String), serde_json::Error> {
        let line = serde_json::to_string(head)?;
        Ok((Self { prev: sha256_hex(line.as_bytes()), seq: 0 }, format!("{line}\n")))
    }

    /// The position that comes next.
    #[must_use]
    pub const fn next_seq(&self) -> u64 {
        self.seq + 1
    }

    /// The line of the next position; without an envelope it is unavailable.
    ///
    /// # Errors
    /// When the envelope is not JSON.
    pub fn position(&mut self, envelope: Option<&str>) -> Result<String, serde_json::Error> {
        self.seq += 1;
        let envelope = envelope.map(serde_json::from_str::<&RawValue>).transpose()?;
        let unavailable = envelope.is_none().then(|| "not stored any more".to_owned());
        let position =
            Position { seq: self.seq, prev: std::mem::take(&mut self.prev), envelope, unavailable };
        let line = serde_json::to_string(&position)?;
        self.prev = sha256_hex(line.as_bytes());
        Ok(format!("{line}\n"))
    }

    /// The last line, by a signer that gives its key and its signature in base64.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub fn seal(self, sign: impl FnOnce(&str) -> (String, String)) -> Result<String, serde_json::Error> {
        let (public_key, signature) = sign(&sealed_text(&self.prev));
        let seal = Seal { head: self.prev, public_key, signature };
        Ok(format!("{}\n", serde_json::to_string(&seal)?))
    }
}

/// What an export proves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// The first line.
    pub head: Head,
    /// The key that sealed it, in base64.
    pub public_key: String,
    /// The positions that are unavailable.
    pub unavailable: Vec<u64>,
}

/// Why an export proves nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// A line is not what was written.
    #[error("line {line} is not what was written")]
    Line {
        /// Which, from 1.
        line: usize,
    },
    /// The seal was not made by its key, or by another key than the expected one.
    #[error("the seal in line {line} is not good: {why}")]
    Seal {
        /// Which line, from 1.
        line: usize,
        /// Why.
        why: &'static str,
    },
    /// There is no export in the file.
    #[error("the file holds no export")]
    Empty,
}

/// Checks an export, and that `expected_key` sealed it when one is given.
///
/// # Errors
/// [`Broken`] naming the line.
pub fn verify(bytes: &[u8], expected_key: Option<&str>) -> Result<Verified, Broken> {
    let lines: Vec<&[u8]> = bytes.split(|&byte| byte == b'\n').collect();
    let [lines @ .., last, rest] = &lines[..] else { return Err(Broken::Empty) };
    let seal_line = lines.len() + 1;
    if lines.is_empty() {
        return Err(Broken::Empty);
    }
    if !rest.is_empty() {
        return Err(Broken::Line { line: seal_line + 1 });
    }
    let bad_seal = |why| Broken::Seal { line: seal_line, why };
    let seal: Seal = serde_json::from_slice(last).map_err(|_| bad_seal("it is not one"))?;
    let decoded =
        BASE64_STANDARD.decode(&seal.public_key).ok().zip(BASE64_STANDARD.decode(&seal.signature).ok());
    let (key, signature) = decoded.ok_or_else(|| bad_seal("it is not base64"))?;
    UnparsedPublicKey::new(&ED25519, &key)
        .verify(sealed_text(&seal.head).as_bytes(), &signature)
        .map_err(|_| bad_seal("its key did not sign it"))?;
    if expected_key.is_some_and(|expected| expected != seal.public_key) {
        return Err(bad_seal("another key signed it than the one expected"));
    }
    // Backwards: each digest is vouched for by the line after it, up to the seal.
    let mut expected = seal.head;
    let mut unavailable = Vec::new();
    let positions = lines.len() as u64 - 1;
    for (at, bytes) in lines.iter().enumerate().rev() {
        let broken = Broken::Line { line: at + 1 };
        if sha256_hex(bytes) != expected {
            return Err(broken);
        }
        if at == 0 {
            break;
        }
        let position: Position<'_> = serde_json::from_slice(bytes).map_err(|_| broken.clone())?;
        if position.seq != at as u64 || position.envelope.is_some() == position.unavailable.is_some() {
            return Err(broken);
        }
        if position.unavailable.is_some() {
            unavailable.push(position.seq);
        }
        expected = position.prev;
    }
    unavailable.reverse();
    let head: Head = serde_json::from_slice(lines[0]).map_err(|_| Broken::Line { line: 1 })?;
    if head.format != FORMAT || head.version != VERSION || head.positions != positions {
        return Err(Broken::Line { line: 1 });
    }
    Ok(Verified { head, public_key: seal.public_key, unavailable })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ring::signature::{Ed25519KeyPair, KeyPair};

    fn signer(text: &str) -> (String, String) {
        let key = Ed25519KeyPair::from_seed_unchecked(&[3; 32]).unwrap();
        let signature = key.sign(text.as_bytes());
        (BASE64_STANDARD.encode(key.public_key().as_ref()), BASE64_STANDARD.encode(signature.as_ref()))
    }

    fn export(envelopes: &[Option<&str>]) -> Vec<u8> {
        let head = Head {
            format: FORMAT.to_owned(),
            version: VERSION,
            session_id: SessionId::from_bytes([1; 16]),
            workspace_id: WorkspaceId::from_bytes([2; 16]),
            exported_at: Timestamp::from_ms(1_800_000_000_000),
            positions: envelopes.len() as u64,
        };
        let (mut writer, mut text) = Writer::begin(&head).unwrap();
        for envelope in envelopes {
            text.push_str(&writer.position(*envelope).unwrap());
        }
        text.push_str(&writer.seal(signer).unwrap());
        text.into_bytes()
    }

    const LOG: [Option<&str>; 4] =
        [Some(r#"{"seq":1,"type":"user.message"}"#), None, Some(r#"{"seq":3}"#), Some(r#"{"n":"ä\u0041"}"#)];

    #[test]
    fn an_export_proves_itself_and_says_what_is_unavailable() {
        let verified = verify(&export(&LOG), None).unwrap();
        assert_eq!((verified.head.positions, verified.unavailable), (4, vec![2]));
        assert_eq!(verify(&export(&[]), None).unwrap().head.positions, 0);
        assert_eq!(
            verify(&export(&LOG), Some(&verified.public_key)).unwrap().public_key,
            verified.public_key
        );
        assert!(matches!(verify(&export(&LOG), Some("other")), Err(Broken::Seal { .. })));
        for bytes in [&b""[..], b"\n", b"x"] {
            assert!(verify(bytes, None).is_err());
        }
    }

    #[test]
    fn a_line_that_is_taken_out_added_or_moved_is_noticed() {
        let whole = String::from_utf8(export(&LOG)).unwrap();
        let lines: Vec<&str> = whole.lines().collect();
        for at in 0..lines.len() {
            let mut less = lines.clone();
            less.remove(at);
            assert!(verify(format!("{}\n", less.join("\n")).as_bytes(), None).is_err(), "without line {at}");
            let mut more = lines.clone();
            more.insert(at, lines[at]);
            assert!(verify(format!("{}\n", more.join("\n")).as_bytes(), None).is_err(), "line {at} twice");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

        #[test]
        fn any_flipped_bit_is_found_and_its_line_is_named(at: prop::sample::Index, bit in 0u8..8) {
            let good = export(&LOG);
            let at = at.index(good.len());
            let mut bad = good.clone();
            bad[at] ^= 1 << bit;
            let line = good[..at].iter().filter(|&&byte| byte == b'\n').count() + 1;
            let named = match verify(&bad, None) {
                Err(Broken::Line { line } | Broken::Seal { line, .. }) => line,
                other => return Err(TestCaseError::fail(format!("byte {at}, bit {bit}: {other:?}"))),
            };
            // Where a line end comes or goes, the lines after it are counted anew; the seal speaks first then.
            let moved = good[at] == b'\n' || bad[at] == b'\n';
            prop_assert!(named == line || moved, "byte {} is of line {} and line {} was named", at, line, named);
        }
    }
}
