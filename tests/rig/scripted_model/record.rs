//! What the scripted model remembers of the requests it got, so that tests can assert on them.
//! Bounded: only the latest requests stay, and refusals are counted to a limit; keys are never kept whole.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use serde_json::Value;

/// How a request was answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Outcome {
    /// The scripted reply was given, or at least begun.
    Replied,
    /// A fault of the script was played.
    Faulted { fault: String },
    /// The request was malformed, or did not hold what its script expects.
    Refused { sentence: String },
}

/// One request and its answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Recorded {
    /// Counts from 1 over the life of the server.
    pub number: u64,
    pub body: Value,
    /// The beta names the client sent, empty when none.
    pub betas: String,
    pub outcome: Outcome,
}

const MAX_REQUESTS: usize = 2_000;
const MAX_BYTES: usize = 64 * 1024 * 1024;
const MAX_REFUSALS: usize = 500;

#[derive(Debug, Default)]
pub(super) struct Record(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    count: u64,
    bytes: usize,
    requests: VecDeque<(usize, Recorded)>,
    refusals: Vec<String>,
}

impl Record {
    /// Remembers a request that took `bytes` on the wire.
    pub(super) fn add(&self, body: Value, bytes: usize, betas: String, outcome: Outcome) {
        self.with(|kept| {
            kept.count += 1;
            let number = kept.count;
            if let Outcome::Refused { sentence } = &outcome
                && kept.refusals.len() < MAX_REFUSALS
            {
                kept.refusals.push(format!("request {number}: {sentence}"));
            }
            kept.bytes += bytes;
            kept.requests.push_back((bytes, Recorded { number, body, betas, outcome }));
            while kept.requests.len() > MAX_REQUESTS || (kept.bytes > MAX_BYTES && kept.requests.len() > 1) {
                let dropped = kept.requests.pop_front().map_or(0, |(bytes, _)| bytes);
                kept.bytes -= dropped;
            }
        });
    }

    pub(super) fn requests(&self) -> Vec<Recorded> {
        self.with(|kept| kept.requests.iter().map(|(_, recorded)| recorded.clone()).collect())
    }

    pub(super) fn refusals(&self) -> Vec<String> {
        self.with(|kept| kept.refusals.clone())
    }

    fn with<T>(&self, look: impl FnOnce(&mut Kept) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_stays_bounded_and_numbers_go_on() {
        let record = Record::default();
        for _ in 0..MAX_REQUESTS + 5 {
            record.add(Value::Null, 10, String::new(), Outcome::Replied);
        }
        let kept = record.requests();
        assert_eq!(kept.len(), MAX_REQUESTS);
        assert_eq!(kept[0].number, 6);
        record.add(Value::Null, MAX_BYTES, String::new(), Outcome::Replied);
        record.add(Value::Null, 1, String::new(), Outcome::Replied);
        assert_eq!(record.requests().len(), 1);
    }

    #[test]
    fn refusals_outlive_their_requests() {
        let record = Record::default();
        record.add(Value::Null, 1, String::new(), Outcome::Refused { sentence: "no".to_owned() });
        for _ in 0..MAX_REQUESTS {
            record.add(Value::Null, 1, String::new(), Outcome::Replied);
        }
        assert_eq!(record.refusals(), ["request 1: no"]);
    }
}
