//! What the runner knows of the calls in one sandbox. Pure: messages in, messages and answers out.
//! A call never runs twice, a result is kept until its holder has it, and memory does not grow with what the
//! sandbox says: only calls that we asked for, or that its `Ready` named, have a place here.

use super::error::Error;
use checkfu_toolbox::{
    call::{Outcome, Tool},
    message::{CallState, FromToolbox, KnownCall, Refusal, ToToolbox},
};
use std::collections::{HashMap, HashSet, VecDeque};
use tokio::sync::oneshot;

/// How many calls of earlier holders a `Ready` may name.
const MAX_FOREIGN: usize = 1_024;
/// How many ids of acknowledged calls are remembered.
const MAX_ACKNOWLEDGED: usize = 4_096;
/// How many results wait for an explicit acknowledgement before the oldest ones are acknowledged by themselves.
const MAX_HANDED: usize = 64;

/// What a call is doing, as far as anybody knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// It never ran here.
    Never,
    /// It runs or waits for its turn.
    Running,
    /// It is over; its result is kept, or was handed over before.
    Done,
}

type Answer = oneshot::Sender<Result<Outcome, Error>>;

#[derive(Debug)]
enum Entry {
    /// Asked for; the tool is kept until the sandbox has confirmed that it has it.
    Asked { thread: String, tool: Option<Box<Tool>>, waiters: Vec<Answer> },
    /// Over. `handed` once somebody has it.
    Over { outcome: Box<Outcome>, handed: bool },
}

/// The calls of one sandbox.
#[derive(Debug)]
pub(super) struct Calls {
    epoch: u64,
    entries: HashMap<String, Entry>,
    queries: HashMap<String, Vec<oneshot::Sender<Result<Known, Error>>>>,
    handed: VecDeque<String>,
    acknowledged: HashSet<String>,
    acknowledged_order: VecDeque<String>,
}

impl Calls {
    pub(super) fn new(epoch: u64) -> Self {
        Self {
            epoch,
            entries: HashMap::new(),
            queries: HashMap::new(),
            handed: VecDeque::new(),
            acknowledged: HashSet::new(),
            acknowledged_order: VecDeque::new(),
        }
    }

    /// Asks for a call, or joins the one of that id. Gives what must be sent.
    pub(super) fn ask(&mut self, id: &str, thread: &str, tool: Tool, waiter: Answer) -> Vec<ToToolbox> {
        if self.acknowledged.contains(id) {
            deliver(waiter, Err(Error::AlreadyAcknowledged));
            return Vec::new();
        }
        match self.entries.get_mut(id) {
            Some(Entry::Asked { waiters, .. }) => {
                waiters.push(waiter);
                Vec::new()
            }
            Some(Entry::Over { outcome, .. }) => {
                let taken = deliver(waiter, Ok((**outcome).clone()));
                if taken { self.hand_over(id) } else { Vec::new() }
            }
            None => {
                let message = self.call_message(id, thread, &tool);
                let entry = Entry::Asked {
                    thread: thread.to_owned(),
                    tool: Some(Box::new(tool)),
                    waiters: vec![waiter],
                };
                self.entries.insert(id.to_owned(), entry);
                vec![message]
            }
        }
    }

    fn call_message(&self, id: &str, thread: &str, tool: &Tool) -> ToToolbox {
        ToToolbox::Call {
            epoch: self.epoch,
            call_id: id.to_owned(),
            thread: thread.to_owned(),
            tool: tool.clone(),
        }
    }

    /// What is known of a call; asks the sandbox only when nothing is known here.
    pub(super) fn query(
        &mut self,
        id: &str,
        waiter: oneshot::Sender<Result<Known, Error>>,
    ) -> Option<ToToolbox> {
        let known = match self.entries.get(id) {
            Some(Entry::Asked { tool: None, .. }) => Known::Running,
            Some(Entry::Over { .. }) => Known::Done,
            _ if self.acknowledged.contains(id) => Known::Done,
            _ => {
                self.queries.entry(id.to_owned()).or_default().push(waiter);
                return Some(ToToolbox::Query { call_id: id.to_owned() });
            }
        };
        deliver(waiter, Ok(known));
        None
    }

    /// The result is durable at its holder.
    pub(super) fn acknowledge(&mut self, id: &str) -> Vec<ToToolbox> {
        if !matches!(self.entries.get(id), Some(Entry::Over { .. })) {
            return Vec::new();
        }
        self.entries.remove(id);
        self.handed.retain(|handed| handed != id);
        self.remember(id);
        vec![ToToolbox::Ack { call_id: id.to_owned() }]
    }

    /// The calls that run.
    pub(super) fn running(&self) -> Vec<String> {
        let running = self.entries.iter().filter(|(_, entry)| matches!(entry, Entry::Asked { .. }));
        running.map(|(id, _)| id.clone()).collect()
    }

    /// A message of the sandbox. Gives what must be sent.
    pub(super) fn hear(&mut self, message: FromToolbox) -> Result<Vec<ToToolbox>, Error> {
        match message {
            FromToolbox::Ready { calls, .. } => self.ready(calls),
            FromToolbox::Started { call_id } => {
                let queried = self.answer_query(&call_id, &Ok(Known::Running));
                match self.entries.get_mut(&call_id) {
                    Some(Entry::Asked { tool, .. }) => *tool = None,
                    Some(Entry::Over { .. }) => {}
                    None if queried => self.expect(call_id),
                    None => return Err(unknown("a start")),
                }
                Ok(Vec::new())
            }
            FromToolbox::Progress { .. } => Ok(Vec::new()),
            FromToolbox::Done { call_id, result } => self.done(&call_id, result),
            FromToolbox::Unknown { call_id } => {
                self.answer_query(&call_id, &Ok(Known::Never));
                self.forgotten(&call_id);
                Ok(Vec::new())
            }
            FromToolbox::Refused { call_id: Some(id), reason } => {
                self.refused(&id, reason);
                Ok(Vec::new())
            }
            FromToolbox::Refused { call_id: None, reason } => match reason {
                Refusal::StaleEpoch => Err(Error::StaleEpoch),
                _ => Ok(Vec::new()),
            },
        }
    }

    /// After an attach: what the sandbox has not heard of is asked for again; it runs there at most once.
    fn ready(&mut self, calls: Vec<KnownCall>) -> Result<Vec<ToToolbox>, Error> {
        if calls.len() > MAX_FOREIGN {
            return Err(Error::Hostile { what: "a list of too many calls".to_owned() });
        }
        let known: HashSet<&str> = calls.iter().map(|call| call.call_id.as_str()).collect();
        let mut out = Vec::new();
        for (id, entry) in &self.entries {
            match entry {
                Entry::Asked { thread, tool: Some(tool), .. } if !known.contains(id.as_str()) => {
                    out.push(self.call_message(id, thread, tool));
                }
                // It was confirmed once and is not known now: another first process answers, without its memory.
                Entry::Asked { tool: None, .. } if !known.contains(id.as_str()) => {
                    out.push(ToToolbox::Query { call_id: id.clone() });
                }
                _ => {}
            }
        }
        out.extend(self.queries.keys().map(|id| ToToolbox::Query { call_id: id.clone() }));
        for call in calls {
            if call.state == CallState::Done && self.acknowledged.contains(&call.call_id) {
                out.push(ToToolbox::Ack { call_id: call.call_id });
            } else {
                self.expect(call.call_id);
            }
        }
        Ok(out)
    }

    /// A call of an earlier holder, whose result will come by itself.
    fn expect(&mut self, id: String) {
        self.entries.entry(id).or_insert_with(|| Entry::Asked {
            thread: String::new(),
            tool: None,
            waiters: Vec::new(),
        });
    }

    fn done(&mut self, id: &str, outcome: Outcome) -> Result<Vec<ToToolbox>, Error> {
        let queried = self.answer_query(id, &Ok(Known::Done));
        match self.entries.remove(id) {
            Some(Entry::Asked { waiters, .. }) => {
                let mut taken = false;
                for waiter in waiters {
                    taken |= deliver(waiter, Ok(outcome.clone()));
                }
                let entry = Entry::Over { outcome: Box::new(outcome), handed: false };
                self.entries.insert(id.to_owned(), entry);
                Ok(if taken { self.hand_over(id) } else { Vec::new() })
            }
            Some(over @ Entry::Over { .. }) => {
                self.entries.insert(id.to_owned(), over);
                Ok(Vec::new())
            }
            None if self.acknowledged.contains(id) => Ok(vec![ToToolbox::Ack { call_id: id.to_owned() }]),
            None if queried => {
                let entry = Entry::Over { outcome: Box::new(outcome), handed: false };
                self.entries.insert(id.to_owned(), entry);
                Ok(Vec::new())
            }
            None => Err(unknown("a result")),
        }
    }

    /// A call that was confirmed once is unknown now: its memory died with the first process that held it.
    fn forgotten(&mut self, id: &str) {
        if let Some(Entry::Asked { tool: None, .. }) = self.entries.get(id)
            && let Some(Entry::Asked { waiters, .. }) = self.entries.remove(id)
        {
            for waiter in waiters {
                deliver(waiter, Err(Error::Lost));
            }
        }
    }

    fn refused(&mut self, id: &str, reason: Refusal) {
        let error = match reason {
            Refusal::LeaseEnded => Error::LeaseEnded,
            Refusal::Busy => Error::Busy,
            Refusal::StaleEpoch => Error::StaleEpoch,
            Refusal::AlreadyAcknowledged => Error::AlreadyAcknowledged,
            Refusal::BadCall => Error::BadCall,
            Refusal::NoHello => Error::Unresponsive,
        };
        if matches!(error, Error::AlreadyAcknowledged) {
            self.answer_query(id, &Ok(Known::Done));
        }
        // A refused call has had no effect: the same id may be asked for again.
        if let Some(Entry::Asked { waiters, .. }) = self.entries.remove(id) {
            for waiter in waiters {
                deliver(waiter, Err(error.clone()));
            }
        }
    }

    fn hand_over(&mut self, id: &str) -> Vec<ToToolbox> {
        if let Some(Entry::Over { handed, .. }) = self.entries.get_mut(id)
            && !std::mem::replace(handed, true)
        {
            self.handed.push_back(id.to_owned());
        }
        if self.handed.len() > MAX_HANDED
            && let Some(oldest) = self.handed.pop_front()
        {
            return self.acknowledge(&oldest);
        }
        Vec::new()
    }

    fn remember(&mut self, id: &str) {
        self.acknowledged.insert(id.to_owned());
        self.acknowledged_order.push_back(id.to_owned());
        if self.acknowledged_order.len() > MAX_ACKNOWLEDGED
            && let Some(oldest) = self.acknowledged_order.pop_front()
        {
            self.acknowledged.remove(&oldest);
        }
    }

    /// Whether anybody had asked.
    fn answer_query(&mut self, id: &str, answer: &Result<Known, Error>) -> bool {
        let waiters = self.queries.remove(id);
        let asked = waiters.is_some();
        for waiter in waiters.unwrap_or_default() {
            deliver(waiter, answer.clone());
        }
        asked
    }

    /// Tells everybody who waits that nothing will come. The calls stay known: they may well have run.
    pub(super) fn fail(&mut self, error: &Error) {
        for entry in self.entries.values_mut() {
            if let Entry::Asked { waiters, .. } = entry {
                for waiter in waiters.drain(..) {
                    deliver(waiter, Err(error.clone()));
                }
            }
        }
        for (_, waiters) in self.queries.drain() {
            for waiter in waiters {
                deliver(waiter, Err(error.clone()));
            }
        }
    }
}

fn unknown(what: &str) -> Error {
    Error::Hostile { what: format!("{what} of a call that nobody asked for") }
}

/// Whether somebody took it.
fn deliver<T>(waiter: oneshot::Sender<Result<T, Error>>, value: Result<T, Error>) -> bool {
    waiter.send(value).is_ok()
}

#[cfg(test)]
mod tests;
