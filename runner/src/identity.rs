//! Who this runner is: an Ed25519 key and the id that pairing gave it, in one private file.
//! A damaged file is an error with a way out, never a reason to make a new identity silently.

use crate::{
    plane::Address,
    state::{self, State},
};
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use checkfu_shared::{
    id::{InstanceId, RunnerId},
    protocol::pairing::signed_bytes,
    secret::Secret,
};
use ring::{
    rand::SystemRandom,
    signature::{Ed25519KeyPair, KeyPair as _},
};
use serde::{Deserialize, Serialize};

/// The file in the state directory.
pub const FILE: &str = "identity.json";
/// The key of a pairing that has not been answered yet, so that a lost reply can be asked for again.
const PENDING: &str = "pairing-key";

/// Why there is no usable identity.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing was paired yet.
    #[error(
        "this runner is not paired; run `checkfu-runner pair --plane URL` with a code from the control plane"
    )]
    Absent,
    /// The file is there and cannot be understood.
    #[error(
        "{path} is damaged ({why}); restore it from a backup, or remove it with `checkfu-runner unpair` and pair again"
    )]
    Damaged {
        /// Which file.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// The directory or file cannot be used.
    #[error(transparent)]
    State(#[from] state::Error),
    /// No key could be made.
    #[error("the system gave no randomness for a key")]
    Randomness,
}

/// A signing key that does not print.
pub struct Key {
    pair: Ed25519KeyPair,
    document: Secret,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({})", self.public())
    }
}

impl Key {
    fn generate() -> Result<Self, Error> {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(|_| Error::Randomness)?;
        Self::parse(&BASE64.encode(document.as_ref())).ok_or(Error::Randomness)
    }

    fn parse(text: &str) -> Option<Self> {
        let document = BASE64.decode(text.trim()).ok()?;
        let pair = Ed25519KeyPair::from_pkcs8(&document).ok()?;
        Some(Self { pair, document: Secret::new(text.trim()) })
    }

    /// The key itself as it stands in the file, to be kept out of everything else.
    #[must_use]
    pub const fn document(&self) -> &Secret {
        &self.document
    }

    /// The public half in base64.
    #[must_use]
    pub fn public(&self) -> String {
        BASE64.encode(self.pair.public_key().as_ref())
    }

    /// Signs what the protocol wants signed; base64.
    #[must_use]
    pub fn sign(
        &self,
        purpose: &str,
        origin: &str,
        subject: &str,
        instance: InstanceId,
        nonce: &str,
    ) -> String {
        BASE64.encode(self.pair.sign(&signed_bytes(purpose, origin, subject, instance, nonce)).as_ref())
    }
}

/// The key to pair with: the one of an unanswered attempt, else a fresh one that is durable before it is used.
///
/// # Errors
/// [`Error`] when it cannot be kept.
pub fn pending_key(state: &State) -> Result<Key, Error> {
    if let Some(key) =
        state.read(PENDING)?.and_then(|content| Key::parse(std::str::from_utf8(&content).ok()?))
    {
        return Ok(key);
    }
    let key = Key::generate()?;
    state.write(PENDING, key.document.reveal().as_bytes())?;
    Ok(key)
}

/// Forgets the key of a pairing that was refused for good.
///
/// # Errors
/// [`Error::State`] when the file stays.
pub fn forget_pending(state: &State) -> Result<(), Error> {
    Ok(state.remove(PENDING)?)
}

/// Who this runner is.
#[derive(Debug)]
pub struct Identity {
    /// Where its control plane is.
    pub plane: Address,
    /// Its id there.
    pub runner_id: RunnerId,
    /// Its name there.
    pub name: String,
    /// How many sessions the pairing allows.
    pub max_sessions: Option<u32>,
    /// The labels the pairing gave it.
    pub labels: Vec<String>,
    /// Its key.
    pub key: Key,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    format: u32,
    plane: String,
    runner_id: RunnerId,
    name: String,
    max_sessions: Option<u32>,
    labels: Vec<String>,
    key: Secret,
}

impl Identity {
    /// Reads the identity.
    ///
    /// # Errors
    /// [`Error`], which says what to do.
    pub fn load(state: &State) -> Result<Self, Error> {
        let content = state.read(FILE)?.ok_or(Error::Absent)?;
        let damaged = |why: String| Error::Damaged { path: state.join(FILE).display().to_string(), why };
        if content.is_empty() {
            return Err(damaged("it is empty".to_owned()));
        }
        // The parser's own message could quote the key.
        let stored: Stored = serde_json::from_slice(&content).map_err(|error| {
            damaged(format!("it breaks off or is wrong at line {} column {}", error.line(), error.column()))
        })?;
        if stored.format != 1 {
            return Err(damaged(format!("its format {} is not known to this version", stored.format)));
        }
        Ok(Self {
            plane: stored.plane.parse().map_err(|_| damaged("its address is not valid".to_owned()))?,
            runner_id: stored.runner_id,
            name: stored.name,
            max_sessions: stored.max_sessions,
            labels: stored.labels,
            key: Key::parse(stored.key.reveal()).ok_or_else(|| damaged("its key is not valid".to_owned()))?,
        })
    }

    /// Keeps the identity; the pending key is part of it from now on.
    ///
    /// # Errors
    /// [`Error::State`] when it is not durable.
    pub fn save(&self, state: &State) -> Result<(), Error> {
        let stored = Stored {
            format: 1,
            plane: self.plane.to_string(),
            runner_id: self.runner_id,
            name: self.name.clone(),
            max_sessions: self.max_sessions,
            labels: self.labels.clone(),
            key: self.key.document.clone(),
        };
        let mut content = serde_json::to_vec_pretty(&stored).unwrap_or_default();
        content.push(b'\n');
        state.write(FILE, &content)?;
        Ok(state.remove(PENDING)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved() -> (tempfile::TempDir, State, Identity) {
        let dir = tempfile::tempdir().unwrap();
        let state = State::open(dir.path()).unwrap();
        let identity = Identity {
            plane: "https://plane.test".parse().unwrap(),
            runner_id: RunnerId::mint(),
            name: "one".to_owned(),
            max_sessions: Some(2),
            labels: vec!["gpu".to_owned()],
            key: pending_key(&state).unwrap(),
        };
        identity.save(&state).unwrap();
        (dir, state, identity)
    }

    #[test]
    fn an_identity_survives_its_file() {
        let (_dir, state, identity) = saved();
        let loaded = Identity::load(&state).unwrap();
        assert_eq!(loaded.runner_id, identity.runner_id);
        assert_eq!(loaded.plane, identity.plane);
        assert_eq!(loaded.key.public(), identity.key.public());
        assert_eq!((loaded.max_sessions, loaded.labels), (Some(2), vec!["gpu".to_owned()]));
    }

    #[test]
    fn a_file_cut_anywhere_is_damaged_with_a_way_out_and_shows_no_key() {
        let (_dir, state, identity) = saved();
        let whole = state.read(FILE).unwrap().unwrap();
        for length in 0..whole.len() - 2 {
            state.write(FILE, &whole[..length]).unwrap();
            let error = Identity::load(&state).unwrap_err();
            assert!(matches!(error, Error::Damaged { .. }), "{length}: {error}");
            assert!(error.to_string().contains("unpair"), "{error}");
            assert!(!error.to_string().contains(identity.key.document.reveal()));
        }
    }

    #[test]
    fn an_unanswered_pairing_keeps_its_key_until_it_is_answered_or_refused() {
        let dir = tempfile::tempdir().unwrap();
        let state = State::open(dir.path()).unwrap();
        let first = pending_key(&state).unwrap().public();
        assert_eq!(pending_key(&state).unwrap().public(), first);
        forget_pending(&state).unwrap();
        assert_ne!(pending_key(&state).unwrap().public(), first);
    }

    #[test]
    fn nothing_paired_says_how_to_pair() {
        let dir = tempfile::tempdir().unwrap();
        let error = Identity::load(&State::open(dir.path()).unwrap()).unwrap_err();
        assert!(error.to_string().contains("checkfu-runner pair"), "{error}");
    }
}
