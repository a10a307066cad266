//! Secrets at rest: sealed with AES-256-GCM under a master key that the database never sees. What a secret belongs to is
//! bound into the seal, so that a sealed text moved to another row does not open. No secret and no key prints anywhere.

mod file;

pub use file::{FILE, open, rotate};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use checkfu_shared::{protocol::append::sha256_hex, secret::Secret};
use ring::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    rand::{SecureRandom, SystemRandom},
};
use std::sync::{Arc, PoisonError, RwLock};

/// The bytes of a master key.
const KEY_BYTES: usize = 32;

/// Why a secret cannot be sealed or opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text is no key.
    #[error("a master key is 32 bytes in base64")]
    NotAKey,
    /// The seal was made with a key that is not here.
    #[error("the secret is sealed under another master key")]
    UnknownKey,
    /// The seal is damaged, or belongs to something else.
    #[error("the sealed secret is damaged")]
    Damaged,
    /// The machine gives no random bytes.
    #[error("the machine gives no random bytes")]
    Random,
}

/// One master key.
struct Master {
    /// The first digits of a digest of it, which name it in every seal.
    id: String,
    key: LessSafeKey,
}

/// The master keys at hand: the one that seals, and those that still open. Clones share them.
#[derive(Clone)]
pub struct Seals(Arc<RwLock<Vec<Arc<Master>>>>);

impl std::fmt::Debug for Seals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seals")
    }
}

impl Master {
    fn of(text: &Secret) -> Result<Self, Error> {
        let bytes = BASE64_STANDARD.decode(text.reveal().trim()).map_err(|_| Error::NotAKey)?;
        let bytes: [u8; KEY_BYTES] = bytes.try_into().map_err(|_| Error::NotAKey)?;
        let key = UnboundKey::new(&AES_256_GCM, &bytes).map_err(|_| Error::NotAKey)?;
        let digest = sha256_hex(&[b"checkfu master key ".as_slice(), &bytes].concat());
        Ok(Self { id: digest[..16].to_owned(), key: LessSafeKey::new(key) })
    }
}

/// A fresh master key.
///
/// # Errors
/// [`Error::Random`].
pub fn fresh() -> Result<Secret, Error> {
    let mut bytes = [0; KEY_BYTES];
    SystemRandom::new().fill(&mut bytes).map_err(|_| Error::Random)?;
    Ok(Secret::new(BASE64_STANDARD.encode(bytes)))
}

/// The name of the master key that made this seal.
#[must_use]
pub fn key_id(sealed: &str) -> Option<&str> {
    sealed.strip_prefix("v1.")?.split('.').next()
}

impl Seals {
    /// Seals with the first key; all of them open.
    ///
    /// # Errors
    /// [`Error::NotAKey`], also when there is none.
    pub fn new(keys: &[Secret]) -> Result<Self, Error> {
        let keys = keys.iter().map(|key| Master::of(key).map(Arc::new)).collect::<Result<Vec<_>, _>>()?;
        if keys.is_empty() { Err(Error::NotAKey) } else { Ok(Self(Arc::new(RwLock::new(keys)))) }
    }

    /// The name of the key that seals now.
    #[must_use]
    pub fn current_id(&self) -> String {
        self.current().map(|key| key.id.clone()).unwrap_or_default()
    }

    fn current(&self) -> Option<Arc<Master>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).first().cloned()
    }

    fn with_id(&self, id: &str) -> Option<Arc<Master>> {
        let keys = self.0.read().unwrap_or_else(PoisonError::into_inner);
        keys.iter().find(|key| key.id == id).cloned()
    }

    /// Lets `key` open seals too, and seal from now on when `seals`.
    ///
    /// # Errors
    /// [`Error::NotAKey`].
    pub fn add(&self, key: &Secret, seals: bool) -> Result<(), Error> {
        let key = Arc::new(Master::of(key)?);
        let mut keys = self.0.write().unwrap_or_else(PoisonError::into_inner);
        keys.retain(|known| known.id != key.id);
        let at = if seals { 0 } else { keys.len() };
        keys.insert(at, key);
        Ok(())
    }

    /// Whether a key at hand opens this seal.
    #[must_use]
    pub fn knows(&self, sealed: &str) -> bool {
        key_id(sealed).is_some_and(|id| self.with_id(id).is_some())
    }

    /// Seals `secret`, which belongs to `owner`.
    ///
    /// # Errors
    /// [`Error::Random`].
    pub fn seal(&self, owner: &str, secret: &Secret) -> Result<String, Error> {
        let master = self.current().ok_or(Error::UnknownKey)?;
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).map_err(|_| Error::Random)?;
        let mut bytes = secret.reveal().as_bytes().to_vec();
        let aad = Aad::from(owner.as_bytes());
        master
            .key
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut bytes)
            .map_err(|_| Error::Damaged)?;
        let whole = [nonce.as_slice(), &bytes].concat();
        Ok(format!("v1.{}.{}", master.id, BASE64_STANDARD.encode(whole)))
    }

    /// Opens a seal of `owner`.
    ///
    /// # Errors
    /// [`Error::UnknownKey`], [`Error::Damaged`].
    pub fn open(&self, owner: &str, sealed: &str) -> Result<Secret, Error> {
        let master = key_id(sealed).and_then(|id| self.with_id(id)).ok_or(Error::UnknownKey)?;
        let text = sealed.rsplit('.').next().unwrap_or_default();
        let bytes = BASE64_STANDARD.decode(text).map_err(|_| Error::Damaged)?;
        let (nonce, rest) = bytes.split_first_chunk::<NONCE_LEN>().ok_or(Error::Damaged)?;
        let mut rest = rest.to_vec();
        let aad = Aad::from(owner.as_bytes());
        let plain = master
            .key
            .open_in_place(Nonce::assume_unique_for_key(*nonce), aad, &mut rest)
            .map_err(|_| Error::Damaged)?;
        let secret = std::str::from_utf8(plain).map(Secret::new).map_err(|_| Error::Damaged);
        rest.fill(0);
        secret
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seals() -> Seals {
        Seals::new(&[fresh().unwrap()]).unwrap()
    }

    #[test]
    fn a_seal_opens_for_its_owner_and_its_key_only() {
        let seals = seals();
        let sealed = seals.seal("prov_1", &Secret::new("sk-canary")).unwrap();
        assert!(!sealed.contains("canary"));
        assert_eq!(seals.open("prov_1", &sealed), Ok(Secret::new("sk-canary")));
        assert_eq!(seals.open("prov_2", &sealed), Err(Error::Damaged));
        assert_eq!(self::seals().open("prov_1", &sealed), Err(Error::UnknownKey));
        assert_ne!(sealed, seals.seal("prov_1", &Secret::new("sk-canary")).unwrap());
    }

    #[test]
    fn a_new_key_seals_and_the_old_one_still_opens() {
        let seals = seals();
        let old = seals.seal("o", &Secret::new("a")).unwrap();
        let key = fresh().unwrap();
        seals.add(&key, false).unwrap();
        assert_eq!(key_id(&old), Some(seals.current_id().as_str()));
        seals.add(&key, true).unwrap();
        let new = seals.seal("o", &Secret::new("a")).unwrap();
        assert_ne!(key_id(&old), key_id(&new));
        assert_eq!(seals.open("o", &old), seals.open("o", &new));
        let only = Seals::new(&[key]).unwrap();
        assert!(only.open("o", &new).is_ok() && only.open("o", &old) == Err(Error::UnknownKey));
    }

    #[test]
    fn a_key_is_thirty_two_bytes_and_prints_nothing() {
        for bad in ["", "x", "YWJj"] {
            assert_eq!(Seals::new(&[Secret::new(bad)]).unwrap_err(), Error::NotAKey, "{bad}");
        }
        assert_eq!(format!("{:?}", seals()), "Seals");
    }

    proptest! {
        #[test]
        fn a_seal_changed_anywhere_does_not_open(text in ".{0,40}", at: prop::sample::Index, to in "[A-Za-z0-9+/]") {
            let seals = seals();
            let sealed = seals.seal("o", &Secret::new(text.as_str())).unwrap();
            prop_assert_eq!(seals.open("o", &sealed), Ok(Secret::new(text)));
            let at = at.index(sealed.len());
            let mut changed = sealed.clone();
            changed.replace_range(at..=at, &to);
            prop_assume!(changed != sealed);
            prop_assert!(seals.open("o", &changed).is_err());
        }
    }
}
