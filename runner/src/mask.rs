//! Keeps configured secrets out of everything that leaves this host: plain, in base64 at any offset, JSON- and URL-escaped,
//! and cut anywhere by reads. Pure. It holds back only what may still become a secret, and never the end of a stream.

mod shapes;
pub mod sources;
mod stream;

pub use stream::Stream;

use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::Value;
use std::fmt;

/// What stands in a secret's place.
pub const MARK: &str = "[masked]";
/// Shorter values would mask half of every text.
pub const LENGTH_MIN: usize = 8;

/// Members that programs go by; their values are ours or the protocol's and never a secret.
const KEPT: [&str; 6] = ["type", "id", "tool_use_id", "event_id", "settlement_id", "model"];

/// Knows the secrets, in all shapes. It does not print them.
#[derive(Clone, Default)]
pub struct Masker {
    shapes: Vec<Vec<u8>>,
    automaton: Option<AhoCorasick>,
}

impl fmt::Debug for Masker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Masker({} shapes)", self.shapes.len())
    }
}

impl Masker {
    /// Knows these secrets. Also gives how many were too short to be masked.
    #[must_use]
    pub fn new<'s>(secrets: impl IntoIterator<Item = &'s str>) -> (Self, usize) {
        let mut short = 0;
        let mut all = Vec::new();
        for secret in secrets {
            let secret = secret.trim_matches(['\r', '\n']);
            if secret.len() < LENGTH_MIN {
                short += usize::from(!secret.is_empty());
            } else {
                all.extend(shapes::of(secret));
            }
        }
        all.sort_unstable();
        all.dedup();
        // Too large a set is the only reason to fail; then the slow way below still finds everything.
        let automaton = AhoCorasick::builder().match_kind(MatchKind::Standard).build(&all).ok();
        let automaton = automaton.filter(|_| !all.is_empty());
        (Self { shapes: all, automaton }, short)
    }

    /// Whether there is nothing to mask.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.shapes.is_empty()
    }

    /// The text with every secret replaced by [`MARK`].
    #[must_use]
    pub fn text(&self, text: &str) -> String {
        String::from_utf8(self.bytes(text.as_bytes()))
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }

    /// The bytes with every secret replaced by [`MARK`].
    #[must_use]
    pub fn bytes(&self, bytes: &[u8]) -> Vec<u8> {
        let mut masked = Vec::with_capacity(bytes.len());
        let mut stream = Stream::default();
        stream.push(self, bytes, &mut masked);
        stream.finish(self, &mut masked);
        masked
    }

    /// Masks every text of a JSON value in place, the names of members included.
    pub fn json(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if self.finds(text.as_bytes()) {
                    *text = self.text(text);
                }
            }
            Value::Array(all) => all.iter_mut().for_each(|one| self.json(one)),
            Value::Object(members) => {
                members.values_mut().for_each(|value| self.json(value));
                let named: Vec<String> =
                    members.keys().filter(|name| self.finds(name.as_bytes())).cloned().collect();
                for name in named {
                    if let Some(value) = members.remove(&name) {
                        members.insert(self.text(&name), value);
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Masks a message of ours in its JSON form, but for its own members that programs go by.
    #[must_use]
    pub fn message(&self, bytes: Vec<u8>) -> Vec<u8> {
        // A cheap look first: hardly anything holds a secret, and its escaped shapes are known, too.
        if !self.finds(&bytes) {
            return bytes;
        }
        match serde_json::from_slice::<Value>(&bytes) {
            Ok(Value::Object(mut members)) => {
                members
                    .iter_mut()
                    .filter(|(name, _)| !KEPT.contains(&name.as_str()))
                    .for_each(|(_, value)| self.json(value));
                serde_json::to_vec(&members).unwrap_or_default()
            }
            Ok(_) | Err(_) => self.text(&String::from_utf8_lossy(&bytes)).into_bytes(),
        }
    }

    /// Whether any secret stands in these bytes.
    #[must_use]
    pub fn finds(&self, bytes: &[u8]) -> bool {
        self.automaton.as_ref().is_some_and(|automaton| automaton.is_match(bytes))
    }

    /// Every place of every secret, also where they overlap.
    pub(crate) fn places(&self, bytes: &[u8]) -> Vec<(usize, usize)> {
        let Some(automaton) = &self.automaton else { return Vec::new() };
        automaton.find_overlapping_iter(bytes).map(|found| (found.start(), found.end())).collect()
    }

    /// The bytes of the longest shape.
    pub(crate) fn longest(&self) -> usize {
        self.shapes.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// Where the first text begins that more bytes could turn into a secret; the length when there is none.
    fn undecided(&self, bytes: &[u8]) -> usize {
        let from = bytes.len().saturating_sub(self.longest().saturating_sub(1));
        (from..bytes.len()).find(|&at| self.begins(&bytes[at..])).unwrap_or(bytes.len())
    }

    fn begins(&self, tail: &[u8]) -> bool {
        let at = self.shapes.partition_point(|shape| shape.as_slice() <= tail);
        self.shapes.get(at).is_some_and(|shape| shape.starts_with(tail))
    }
}

#[cfg(test)]
mod tests;
