//! Tool calls of a Chat stream, brought into one order: this wire may send them side by side, the others know only one
//! open block. The first call passes at once; a later one waits until the JSON of those before it is whole.

use super::super::{fault::Fault, sequence::Sequence, step::Opening};
use serde::de::IgnoredAny;
use serde_json::Value;

/// Bytes of arguments that may be held.
const HELD_BYTES_MAX: usize = 8 << 20;
/// Calls of one reply.
const CALLS_MAX: usize = 256;

/// The calls of one reply.
#[derive(Debug)]
pub(super) struct Calls {
    /// What ids of calls that came without one are made from.
    base: String,
    calls: Vec<Call>,
    /// How many are closed; the one after them may be open.
    closed: usize,
    held_bytes: usize,
}

#[derive(Debug)]
struct Call {
    index: u64,
    id: Option<String>,
    name: String,
    is_open: bool,
    /// All its arguments so far.
    seen: String,
    /// How many bytes of them were passed on.
    passed: usize,
}

impl Calls {
    pub(super) fn new(base: &str) -> Self {
        Self { base: base.to_owned(), calls: Vec::new(), closed: 0, held_bytes: 0 }
    }

    /// Takes one entry of a delta's `tool_calls`.
    pub(super) fn take(&mut self, delta: &Value, to: &mut Sequence) {
        let function = &delta["function"];
        let word = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let (id, name) = (word(&delta["id"]), word(&function["name"]));
        let arguments = match &function["arguments"] {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            // Some servers send the object itself.
            other => other.to_string(),
        };
        let at = self.at(delta["index"].as_u64(), id.as_deref(), name.as_deref());
        let Some(call) = self.calls.get_mut(at) else { return to.fail(too_many()) };
        if call.name.is_empty() {
            call.name = name.unwrap_or_default();
        }
        if call.id.is_none() {
            call.id = id;
        }
        if at < self.closed {
            if !arguments.trim().is_empty() {
                to.fail(Fault::broken("The model provider went on with a tool call that was whole."));
            }
            return;
        }
        call.seen.push_str(&arguments);
        self.held_bytes += arguments.len();
        if self.held_bytes > HELD_BYTES_MAX {
            return to.fail(too_many());
        }
        self.pass(false, to);
    }

    /// Passes on all that is held: no call follows.
    pub(super) fn finish(&mut self, to: &mut Sequence) {
        self.pass(true, to);
    }

    /// Where the call of a delta is. A new id and a name under a known index are a new call: some servers count none.
    fn at(&mut self, index: Option<u64>, id: Option<&str>, name: Option<&str>) -> usize {
        let found = match index {
            Some(index) => self.calls.iter().rposition(|call| call.index == index),
            None if id.is_none() && name.is_none() => self.calls.len().checked_sub(1),
            None => id.and_then(|id| self.calls.iter().rposition(|call| call.id.as_deref() == Some(id))),
        };
        let is_same = |call: &Call| match (id, &call.id) {
            (Some(id), Some(held)) => name.is_none() || id == held,
            _ => true,
        };
        match found.filter(|at| self.calls.get(*at).is_some_and(is_same)) {
            Some(at) => at,
            None if self.calls.len() >= CALLS_MAX => CALLS_MAX,
            None => {
                let index = index.unwrap_or(self.calls.len() as u64);
                let (id, name) = (None, String::new());
                self.calls.push(Call { index, id, name, is_open: false, seen: String::new(), passed: 0 });
                self.calls.len() - 1
            }
        }
    }

    fn pass(&mut self, is_last: bool, to: &mut Sequence) {
        while let [call, later @ ..] = self.calls.get_mut(self.closed..).unwrap_or_default() {
            if !call.is_open {
                if call.name.is_empty() {
                    if is_last {
                        to.fail(Fault::broken("The model provider sent a tool call without a name."));
                    }
                    return;
                }
                let id = call.id.clone().unwrap_or_else(|| format!("call_{}_{}", self.base, self.closed));
                to.open(Opening::Call { id, name: call.name.clone() });
                call.is_open = true;
            }
            to.piece(call.seen.get(call.passed..).unwrap_or_default());
            call.passed = call.seen.len();
            let is_whole = || serde_json::from_str::<IgnoredAny>(&call.seen).is_ok();
            if !(is_last || (!later.is_empty() && is_whole())) {
                return;
            }
            to.close();
            self.closed += 1;
        }
    }
}

fn too_many() -> Fault {
    Fault::broken("The model provider sent more or larger tool calls than one reply may have.")
}
