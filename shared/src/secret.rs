//! Text that must not be seen: it has no `Display`, a redacted `Debug`, and is wiped when dropped.
//! It serialises only where a reply has to show it once; nothing else may.

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// A secret text. Equality is for tests of round trips; comparing what a caller sent belongs to constant-time code.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes custody of `text`.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(Zeroizing::new(text.into()))
    }

    /// The text itself; every call is a place where it may leak, so there are few.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[secret]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_prints_nothing_of_itself() {
        assert_eq!(format!("{:?}", Secret::new("hunter2")), "[secret]");
    }
}
