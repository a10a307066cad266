//! The shapes in which a secret travels. Each is long enough to be told from ordinary text.

use super::LENGTH_MIN;
use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE},
};

/// Every shape of one secret. The lines of a longer text count by themselves, since logs are cut into lines.
pub(super) fn of(secret: &str) -> Vec<Vec<u8>> {
    let mut all = shapes(secret);
    if secret.contains('\n') {
        for line in secret.lines().map(str::trim) {
            // The frame of a PEM file is the same for everybody.
            if line.len() >= LENGTH_MIN && !line.starts_with("-----") {
                all.extend(shapes(line));
            }
        }
        all.extend(shapes(&secret.replace("\r\n", "\n").replace('\n', "\r\n")));
    }
    all
}

fn shapes(secret: &str) -> Vec<Vec<u8>> {
    let once = json(secret);
    let mut all = vec![secret.as_bytes().to_vec(), json(&once).into_bytes(), once.into_bytes()];
    for upper in [true, false] {
        for keeps in [UNRESERVED, "-_.*"] {
            all.push(escaped(secret, keeps, upper).into_bytes());
        }
    }
    for offset in 0..3 {
        all.push(base64_at(secret, offset, |bytes| STANDARD.encode(bytes)));
        all.push(base64_at(secret, offset, |bytes| URL_SAFE.encode(bytes)));
    }
    all.retain(|shape| shape.len() >= LENGTH_MIN);
    all
}

const UNRESERVED: &str = "-_.~";

fn json(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted.get(1..quoted.len() - 1).unwrap_or_default().to_owned()
}

fn escaped(text: &str, keeps: &str, upper: bool) -> String {
    text.bytes().fold(String::new(), |mut escaped, byte| {
        let c = char::from(byte);
        if c.is_ascii_alphanumeric() || keeps.contains(c) {
            escaped.push(c);
        } else if upper {
            escaped.push_str(&format!("%{byte:02X}"));
        } else {
            escaped.push_str(&format!("%{byte:02x}"));
        }
        escaped
    })
}

/// What of the base64 of any text with the secret `offset` bytes after a multiple of 3 depends on the secret alone.
fn base64_at(secret: &str, offset: usize, encode: impl Fn(&[u8]) -> String) -> Vec<u8> {
    let mut bytes = vec![0; offset];
    bytes.extend_from_slice(secret.as_bytes());
    let own = bytes.len() * 8 / 6;
    let shared = (offset * 8).div_ceil(6);
    encode(&bytes).as_bytes().get(shared..own).unwrap_or_default().to_vec()
}
