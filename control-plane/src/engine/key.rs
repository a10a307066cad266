//! The server key: 32 random bytes in a 0600 file of the data directory. Codes, nonces and capabilities are keyed with it;
//! it never leaves this process.

use checkfu_shared::protocol::append::hex;
use ring::{
    hmac,
    rand::{SecureRandom, SystemRandom},
    signature::Ed25519KeyPair,
};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

/// Signs short texts for this server alone.
pub(super) struct ServerKey {
    key: hmac::Key,
    random: SystemRandom,
}

impl std::fmt::Debug for ServerKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ServerKey")
    }
}

impl ServerKey {
    /// Reads the key of this data directory, or makes one when none is in use yet.
    ///
    /// # Errors
    /// When the file cannot be read or written, has another length, or is missing although `in_use`.
    pub(super) fn open(data_dir: &Path, in_use: bool) -> io::Result<Self> {
        let path = data_dir.join("server.key");
        let random = SystemRandom::new();
        let bytes = match File::open(&path) {
            Ok(mut file) => {
                let mut bytes = Vec::new();
                file.read_to_end(&mut bytes)?;
                bytes
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && in_use => {
                return Err(io::Error::other(
                    "server.key is missing beside a database that was written with it; restore it from a backup, or make one \
                     with `head -c 32 /dev/urandom` and pair all runners again",
                ));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => make(data_dir, &path, &random)?,
            Err(error) => return Err(error),
        };
        if bytes.len() != 32 {
            return Err(io::Error::other(
                "server.key is damaged; restore it from a backup, or make one with `head -c 32 /dev/urandom` and pair all \
                 runners again",
            ));
        }
        Ok(Self { key: hmac::Key::new(hmac::HMAC_SHA256, &bytes), random })
    }

    /// The keyed digest of `text` for `purpose`, lowercase hexadecimal.
    pub(super) fn sign(&self, purpose: &str, text: &str) -> String {
        hex(hmac::sign(&self.key, format!("{purpose}|{text}").as_bytes()).as_ref())
    }

    /// Whether `signature` is the keyed digest of `text`; takes the same time whatever differs.
    pub(super) fn verifies(&self, purpose: &str, text: &str, signature: &str) -> bool {
        let Some(bytes) = unhex(signature) else { return false };
        hmac::verify(&self.key, format!("{purpose}|{text}").as_bytes(), &bytes).is_ok()
    }

    /// The Ed25519 key that signs exports and checkpoints of the audit; it follows from the server key, so it is never stored.
    ///
    /// # Errors
    /// When the signing library refuses the seed, which it does of none with 32 bytes.
    pub(super) fn signer(&self) -> io::Result<Ed25519KeyPair> {
        let seed = hmac::sign(&self.key, b"signer|ed25519");
        Ed25519KeyPair::from_seed_unchecked(seed.as_ref())
            .map_err(|_| io::Error::other("the seed is refused"))
    }

    /// Fresh random bytes.
    ///
    /// # Errors
    /// When the machine has none.
    pub(super) fn random<const N: usize>(&self) -> io::Result<[u8; N]> {
        fill(&self.random)
    }
}

fn fill<const N: usize>(random: &SystemRandom) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    random.fill(&mut bytes).map_err(|_| io::Error::other("the machine gives no random bytes"))?;
    Ok(bytes)
}

fn make(data_dir: &Path, path: &Path, random: &SystemRandom) -> io::Result<Vec<u8>> {
    let bytes = fill::<32>(random)?;
    let draft = path.with_extension("key.new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    fs::rename(&draft, path)?;
    File::open(data_dir)?.sync_all()?;
    Ok(bytes.to_vec())
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_and_never_beside_a_database_that_used_another() {
        let dir = tempfile::tempdir().unwrap();
        let missing = ServerKey::open(dir.path(), true).unwrap_err().to_string();
        assert!(missing.contains("missing") && missing.contains("backup"), "{missing}");
        assert!(!dir.path().join("server.key").exists());
        let signed = ServerKey::open(dir.path(), false).unwrap().sign("p", "t");
        assert!(ServerKey::open(dir.path(), true).unwrap().verifies("p", "t", &signed));
        fs::write(dir.path().join("server.key"), b"short").unwrap();
        let damaged = ServerKey::open(dir.path(), true).unwrap_err().to_string();
        assert!(damaged.contains("damaged") && !damaged.ends_with('.'), "{damaged}");
    }
}
