//! What each thread last read or wrote of a file, to notice that it changed since.
//! Keeps digests, never content, and a bounded number of them.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

const MAX_ENTRIES: usize = 8192;

/// Digest of a file's content.
pub(super) fn digest(content: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    hasher.finish()
}

/// Digests by thread and path.
#[derive(Debug, Default)]
pub struct Seen {
    digests: Mutex<HashMap<(String, PathBuf), u64>>,
}

impl Seen {
    /// Notes what a thread saw.
    pub(super) fn note(&self, thread: &str, path: &Path, digest: u64) {
        let mut digests = self.digests.lock().unwrap_or_else(PoisonError::into_inner);
        // Forgetting only costs a check, so the simplest bound will do.
        if digests.len() >= MAX_ENTRIES {
            digests.clear();
        }
        digests.insert((thread.to_owned(), path.to_owned()), digest);
    }

    /// Whether the thread saw the file with other content than `digest`.
    pub(super) fn changed(&self, thread: &str, path: &Path, digest: u64) -> bool {
        let digests = self.digests.lock().unwrap_or_else(PoisonError::into_inner);
        digests.get(&(thread.to_owned(), path.to_owned())).is_some_and(|seen| *seen != digest)
    }
}
