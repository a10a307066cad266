//! Every call PID 1 ever accepted: waiting, running, done or acknowledged.
//! Pure bookkeeping that decides what may run; an id is never run twice.

use std::collections::{BTreeMap, HashSet, VecDeque};

use crate::call::{Outcome, Tool};
use crate::message::{CallState, KnownCall, Refusal};

/// Calls that run at the same time.
pub const MAX_RUNNING: usize = 64;
/// Calls that wait for their turn.
pub const MAX_WAITING: usize = 256;
/// Results that wait for an acknowledgement.
pub const MAX_UNACKNOWLEDGED: usize = 512;
/// Bytes of results that wait for an acknowledgement.
pub const MAX_UNACKNOWLEDGED_BYTES: usize = 128 * 1024 * 1024;
const MAX_REMEMBERED: usize = 65_536;
const MAX_ID_BYTES: usize = 200;

/// A call to start now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket {
    /// The call.
    pub call_id: String,
    /// Its thread.
    pub thread: String,
    /// What to run.
    pub tool: Tool,
}

/// Answer to a call message.
#[derive(Debug, PartialEq, Eq)]
pub enum Admission {
    /// New: it waits for its turn.
    Accepted,
    /// It runs or waits already.
    Running,
    /// It ran; here is the result again.
    Done,
    /// Not accepted.
    Refused(Refusal),
}

#[derive(Debug)]
enum State {
    Waiting(Tool),
    Running,
    Done(Box<Outcome>),
}

#[derive(Debug)]
struct Entry {
    thread: String,
    bash: bool,
    state: State,
}

/// The calls of one sandbox.
#[derive(Debug, Default)]
pub struct Ledger {
    entries: BTreeMap<String, Entry>,
    waiting: VecDeque<String>,
    running: usize,
    done: usize,
    done_bytes: usize,
    remembered: HashSet<String>,
    remembered_order: VecDeque<String>,
}

impl Ledger {
    /// Takes in a call or says why not.
    pub fn admit(&mut self, call_id: &str, thread: &str, tool: Tool) -> Admission {
        match self.entries.get(call_id).map(|entry| &entry.state) {
            Some(State::Done(_)) => return Admission::Done,
            Some(_) => return Admission::Running,
            None => {}
        }
        if self.remembered.contains(call_id) {
            return Admission::Refused(Refusal::AlreadyAcknowledged);
        }
        let sound = |id: &str| !id.is_empty() && id.len() <= MAX_ID_BYTES;
        if !sound(call_id) || !sound(thread) {
            return Admission::Refused(Refusal::BadCall);
        }
        let full = self.waiting.len() >= MAX_WAITING
            || self.done >= MAX_UNACKNOWLEDGED
            || self.done_bytes >= MAX_UNACKNOWLEDGED_BYTES;
        if full {
            return Admission::Refused(Refusal::Busy);
        }
        let bash = matches!(tool, Tool::Bash(_));
        let entry = Entry { thread: thread.to_owned(), bash, state: State::Waiting(tool) };
        self.entries.insert(call_id.to_owned(), entry);
        self.waiting.push_back(call_id.to_owned());
        Admission::Accepted
    }

    /// The next call that may start: bash calls of one thread run one after another in order,
    /// everything else in parallel. `held` keeps a bash call back for now.
    pub fn next(&mut self, mut held: impl FnMut(&str, &Tool) -> bool) -> Option<Ticket> {
        if self.running >= MAX_RUNNING {
            return None;
        }
        let mut busy: HashSet<&str> = self
            .entries
            .values()
            .filter(|entry| entry.bash && matches!(entry.state, State::Running))
            .map(|entry| entry.thread.as_str())
            .collect();
        let at = self.waiting.iter().position(|id| match self.entries.get(id) {
            Some(Entry { thread, bash: true, state: State::Waiting(tool) }) => {
                busy.insert(thread) && !held(thread, tool)
            }
            _ => true,
        })?;
        let call_id = self.waiting.remove(at)?;
        let entry = self.entries.get_mut(&call_id)?;
        let State::Waiting(tool) = std::mem::replace(&mut entry.state, State::Running) else { return None };
        self.running += 1;
        Some(Ticket { thread: entry.thread.clone(), call_id, tool })
    }

    /// Stores the result of a call that waits or runs; false when it was over already.
    pub fn finish(&mut self, call_id: &str, outcome: Outcome) -> bool {
        let Some(entry) = self.entries.get_mut(call_id) else { return false };
        match entry.state {
            State::Done(_) => return false,
            State::Running => self.running -= 1,
            State::Waiting(_) => self.waiting.retain(|id| id != call_id),
        }
        self.done += 1;
        self.done_bytes += weight(&outcome);
        entry.state = State::Done(Box::new(outcome));
        true
    }

    /// Drops a stored result and remembers the id. Calls that are not over stay.
    pub fn acknowledge(&mut self, call_id: &str) {
        let Some(Entry { state: State::Done(outcome), .. }) = self.entries.get(call_id) else { return };
        self.done -= 1;
        self.done_bytes -= weight(outcome);
        self.entries.remove(call_id);
        self.remembered.insert(call_id.to_owned());
        self.remembered_order.push_back(call_id.to_owned());
        if self.remembered_order.len() > MAX_REMEMBERED
            && let Some(oldest) = self.remembered_order.pop_front()
        {
            self.remembered.remove(&oldest);
        }
    }

    /// The stored result of a call.
    #[must_use]
    pub fn result(&self, call_id: &str) -> Option<&Outcome> {
        match &self.entries.get(call_id)?.state {
            State::Done(outcome) => Some(outcome),
            _ => None,
        }
    }

    /// What is known of a call; `None` for one never seen.
    #[must_use]
    pub fn state(&self, call_id: &str) -> Option<CallState> {
        self.entries.get(call_id).map(|entry| match entry.state {
            State::Done(_) => CallState::Done,
            _ => CallState::Running,
        })
    }

    /// Whether the call was acknowledged before.
    #[must_use]
    pub fn acknowledged(&self, call_id: &str) -> bool {
        self.remembered.contains(call_id)
    }

    /// Whether the call still waits for its turn.
    #[must_use]
    pub fn waits(&self, call_id: &str) -> bool {
        self.entries.get(call_id).is_some_and(|entry| matches!(entry.state, State::Waiting(_)))
    }

    /// Every call that runs, waits, or has a result to deliver.
    #[must_use]
    pub fn known(&self) -> Vec<KnownCall> {
        let known = |id: &String| Some(KnownCall { call_id: id.clone(), state: self.state(id)? });
        self.entries.keys().filter_map(known).collect()
    }

    /// Ids of calls that are not over.
    #[must_use]
    pub fn open(&self) -> Vec<String> {
        let over = |entry: &Entry| matches!(entry.state, State::Done(_));
        self.entries.iter().filter(|(_, entry)| !over(entry)).map(|(id, _)| id.clone()).collect()
    }
}

fn weight(outcome: &Outcome) -> usize {
    use crate::call::Block;
    let of = |block: &Block| match block {
        Block::Text { text } => text.len(),
        Block::Image { data_base64, .. } | Block::Document { data_base64, .. } => data_base64.len(),
    };
    outcome.content.iter().map(of).sum::<usize>() + 256
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{Bash, Glob};

    fn bash() -> Tool {
        Tool::Bash(Bash { command: Some("true".into()), ..Bash::default() })
    }

    fn glob() -> Tool {
        Tool::Glob(Glob { pattern: "*".into(), path: None })
    }

    fn next(ledger: &mut Ledger) -> Option<String> {
        ledger.next(|_, _| false).map(|ticket| ticket.call_id)
    }

    #[test]
    fn bash_calls_of_a_thread_take_turns_and_others_do_not_wait() {
        let mut ledger = Ledger::default();
        for (id, thread, tool) in
            [("a", "t", bash()), ("b", "t", bash()), ("c", "t", glob()), ("d", "u", bash())]
        {
            assert_eq!(ledger.admit(id, thread, tool), Admission::Accepted);
        }
        let mut started = Vec::new();
        while let Some(id) = next(&mut ledger) {
            started.push(id);
        }
        assert_eq!(started, ["a", "c", "d"]);
        assert!(ledger.finish("a", Outcome::text("x")));
        assert_eq!(next(&mut ledger).as_deref(), Some("b"));
    }

    #[test]
    fn an_id_runs_once_whatever_is_repeated() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.admit("a", "t", bash()), Admission::Accepted);
        assert_eq!(ledger.admit("a", "t", bash()), Admission::Running);
        assert!(next(&mut ledger).is_some());
        assert!(ledger.finish("a", Outcome::text("x")));
        assert!(!ledger.finish("a", Outcome::text("y")));
        assert_eq!(ledger.admit("a", "t", bash()), Admission::Done);
        ledger.acknowledge("a");
        assert_eq!(ledger.admit("a", "t", bash()), Admission::Refused(Refusal::AlreadyAcknowledged));
        assert_eq!((next(&mut ledger), ledger.state("a"), ledger.acknowledged("a")), (None, None, true));
    }

    #[test]
    fn running_and_waiting_calls_are_bounded() {
        let mut ledger = Ledger::default();
        for at in 0..MAX_RUNNING {
            ledger.admit(&format!("r{at}"), "t", glob());
            assert!(next(&mut ledger).is_some());
        }
        for at in 0..MAX_WAITING {
            assert_eq!(ledger.admit(&format!("w{at}"), "t", glob()), Admission::Accepted);
        }
        assert_eq!(ledger.admit("over", "t", glob()), Admission::Refused(Refusal::Busy));
        assert_eq!(next(&mut ledger), None);
        assert!(ledger.finish("r0", Outcome::text("x")));
        assert!(next(&mut ledger).is_some());
    }

    #[test]
    fn a_held_call_keeps_its_place() {
        let mut ledger = Ledger::default();
        ledger.admit("a", "t", bash());
        ledger.admit("b", "t", bash());
        assert_eq!(ledger.next(|_, _| true), None);
        assert_eq!(next(&mut ledger).as_deref(), Some("a"));
        assert_eq!(next(&mut ledger), None);
    }

    #[test]
    fn a_waiting_call_can_be_finished_and_never_starts() {
        let mut ledger = Ledger::default();
        ledger.admit("a", "t", bash());
        assert!(ledger.waits("a"));
        assert!(ledger.finish("a", Outcome::error("cancelled")));
        assert_eq!((next(&mut ledger), ledger.open().len()), (None, 0));
    }

    #[test]
    fn ids_that_are_empty_or_endless_are_refused() {
        let mut ledger = Ledger::default();
        for id in ["", &"x".repeat(MAX_ID_BYTES + 1)] {
            assert_eq!(ledger.admit(id, "t", bash()), Admission::Refused(Refusal::BadCall));
        }
    }
}
