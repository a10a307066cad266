//! Closes the open calls: decides each, runs what is permitted side by side, and appends the results in the order of the calls.
//! A call of an earlier claim is never run again unless it certainly never began.

use super::{
    Bench, Halt, Harness, Known, Log, Step, Trouble,
    transcript::Call,
    turn::{self, Closing},
};
use crate::{
    model::Provider,
    tools::{
        bounds,
        permit::{Permit, Ruling},
    },
};
use checkfu_shared::{
    content::Block,
    event::{Body, SettledOutcome, ToolResult},
    id::EventId,
    protocol::append::Appended,
};
use checkfu_toolbox::call::{Outcome, Tool};
use futures_util::{StreamExt as _, stream};
use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

/// How many calls run side by side.
const PARALLEL_MAX: usize = 16;
/// How long a cancelled call may take to end.
const CANCEL_WAIT: Duration = Duration::from_secs(15);

/// What is done about one open call.
enum Fate {
    /// It runs.
    Run(Permit),
    /// It has run, or runs: its result is fetched.
    Collect,
    /// This is its result.
    Tell(String),
}

/// What came of one call.
struct Done {
    call: EventId,
    outcome: Result<Outcome, Trouble>,
    /// Whether the work was broken off while it ran.
    was_broken_off: bool,
}

impl<L: Log, B: Bench, P: Provider> Harness<L, B, P> {
    /// Closes what can be closed. Calls that wait for somebody stay open.
    pub(super) async fn close_calls(&mut self) -> Result<Step, Halt> {
        let open: Vec<Call> = self.transcript.open_calls().cloned().collect();
        let mut fates: HashMap<EventId, Fate> = HashMap::new();
        self.decide_fresh(&open, &mut fates).await?;
        if let Some(step) = self.decide_earlier(&open, &mut fates).await? {
            return Ok(step);
        }
        let needs_sandbox =
            fates.values().any(|fate| matches!(fate, Fate::Run(_) | Fate::Collect)) && !self.must_break_off();
        if needs_sandbox && let Some(step) = self.open_bench().await? {
            return Ok(step);
        }
        let work: Vec<(Call, Fate)> =
            open.into_iter().filter_map(|call| fates.remove(&call.id).map(|fate| (call, fate))).collect();
        let trouble = self.work_off(work).await?;
        self.after_trouble(trouble).await
    }

    fn must_break_off(&self) -> bool {
        self.orders.borrow().breaks_off()
    }

    /// The calls of the reply that this claim just logged: their append was the request for permission.
    async fn decide_fresh(&mut self, open: &[Call], fates: &mut HashMap<EventId, Fate>) -> Result<(), Halt> {
        let fresh = std::mem::take(&mut self.undecided);
        if fresh.is_empty() {
            return Ok(());
        }
        let decided = self.log.decisions(&fresh).await?;
        let custom: HashSet<EventId> =
            open.iter().filter(|call| call.is_custom).map(|call| call.id).collect();
        for decision in decided {
            let id = decision.tool_use_id;
            match Ruling::of(decision) {
                // The host application runs it, once the control plane showed it.
                Ruling::Run(_) if custom.contains(&id) => {}
                Ruling::Run(permit) => drop(fates.insert(id, Fate::Run(permit))),
                Ruling::Deny { reason } => {
                    drop(fates.insert(id, Fate::Tell(turn::denied(Some(&reason)))));
                }
                Ruling::Ask => drop(self.asked.insert(id)),
            }
        }
        self.decided_now.extend(fresh);
        Ok(())
    }

    /// The calls that an earlier claim, or an earlier start of this one, left open.
    async fn decide_earlier(
        &mut self,
        open: &[Call],
        fates: &mut HashMap<EventId, Fate>,
    ) -> Result<Option<Step>, Halt> {
        for call in open {
            // Whatever this claim has asked about once is not asked again.
            if self.decided_now.contains(&call.id) && !call.is_interrupted {
                continue;
            }
            match turn::closing(call) {
                Closing::Await => {}
                Closing::Tell(sentence) => drop(fates.insert(call.id, Fate::Tell(sentence))),
                Closing::Resume => self.resume(call, fates).await?,
                Closing::Probe => {
                    if let Some(step) = self.open_bench().await? {
                        return Ok(Some(step));
                    }
                    match self.bench.known(call.id).await {
                        Ok(Known::Kept) => drop(fates.insert(call.id, Fate::Collect)),
                        Ok(Known::Never) => self.resume(call, fates).await?,
                        Ok(Known::Unclear) | Err(_) => {
                            drop(fates.insert(call.id, Fate::Tell(turn::LOST_RUNNER.to_owned())));
                        }
                    }
                }
            }
        }
        Ok(None)
    }

    /// Asks the control plane again; nothing of an earlier decision is reused.
    async fn resume(&mut self, call: &Call, fates: &mut HashMap<EventId, Fate>) -> Result<(), Halt> {
        let resumed =
            Body::AgentToolResumed { tool_use_id: call.id, arguments_sha256: turn::arguments_sha256(call) };
        self.say(vec![turn::fresh(resumed)]).await?;
        let decided = self.log.decisions(&[call.id]).await?;
        self.decided_now.insert(call.id);
        for decision in decided.into_iter().filter(|decision| decision.tool_use_id == call.id) {
            match Ruling::of(decision) {
                Ruling::Run(permit) if !call.is_custom => drop(fates.insert(call.id, Fate::Run(permit))),
                Ruling::Deny { reason } => {
                    drop(fates.insert(call.id, Fate::Tell(turn::denied(Some(&reason)))));
                }
                Ruling::Ask => drop(self.asked.insert(call.id)),
                Ruling::Run(_) => {}
            }
        }
        Ok(())
    }

    /// Waits for the sandbox and logs what is new about it. `Some` when there is none to be had.
    async fn open_bench(&mut self) -> Result<Option<Step>, Halt> {
        let news = match self.bench.open().await {
            Ok(news) => news,
            Err(trouble) => return self.without_bench(trouble).await.map(Some),
        };
        if let Some(event) = news.event {
            self.say(vec![turn::fresh(event)]).await?;
        }
        if news.notice.is_some() {
            self.notice = news.notice;
        }
        Ok(None)
    }

    /// Calls that never began stay open when another attempt may run them: were they closed, the model would go on with
    /// its turn, and a machine that is broken for good would never use up its attempts.
    async fn without_bench(&mut self, trouble: Trouble) -> Result<Step, Halt> {
        let (message, outcome) = match trouble {
            Trouble::Hopeless(message) => {
                self.close_failed(&message).await?;
                let outcome = SettledOutcome::Failed { message: message.clone() };
                (message, outcome)
            }
            Trouble::Away(message)
            | Trouble::Lost(message)
            | Trouble::Refused(message)
            | Trouble::Unknown(message) => {
                let outcome = SettledOutcome::Released { reason: message.clone(), counts_as_attempt: true };
                (message, outcome)
            }
        };
        self.fail("sandbox_error", format!("The sandbox cannot be used: {message}."), outcome).await
    }

    async fn close_failed(&mut self, message: &str) -> Result<(), Halt> {
        let results: Vec<Appended> = self
            .transcript
            .open_calls()
            .filter(|call| !call.is_custom && !self.asked.contains(&call.id))
            .map(|call| turn::failed(call.id, format!("sandbox_error: this call has no result: {message}")))
            .collect();
        if results.is_empty() { Ok(()) } else { self.say(results).await }
    }

    /// Runs and fetches side by side, appends in order; gives the last trouble that concerns the whole sandbox.
    async fn work_off(&mut self, work: Vec<(Call, Fate)>) -> Result<Option<Trouble>, Halt> {
        self.gate().await?;
        self.undecided.clear();
        self.dispatched
            .extend(work.iter().filter(|(_, fate)| !matches!(fate, Fate::Tell(_))).map(|(call, _)| call.id));
        let mut notice = self.notice.take();
        let (mut whole, mut results) = (None, Vec::new());
        {
            let (bench, this) = (&self.bench, &*self);
            let mut done = stream::iter(work)
                .map(|(call, fate)| async move {
                    let was_broken_off = this.must_break_off();
                    let outcome = match fate {
                        Fate::Tell(sentence) => Ok(Outcome::error(sentence)),
                        Fate::Run(_) | Fate::Collect if was_broken_off => Ok(Outcome::error(NOT_RUN)),
                        Fate::Run(permit) => perform(bench, &call, Some(permit)).await,
                        Fate::Collect => perform(bench, &call, None).await,
                    };
                    Done { call: call.id, outcome, was_broken_off: !was_broken_off && this.must_break_off() }
                })
                .buffered(PARALLEL_MAX);
            let broken_off = std::pin::pin!(cancelled(bench, self.broken_off()));
            let mut broken_off = std::pin::pin!(futures_util::FutureExt::fuse(broken_off));
            loop {
                let next = tokio::select! {
                    biased;
                    next = done.next() => next,
                    () = &mut broken_off => break,
                };
                let Some(done) = next else { break };
                if let Err(trouble @ (Trouble::Lost(_) | Trouble::Away(_) | Trouble::Hopeless(_))) =
                    &done.outcome
                {
                    whole = Some(trouble.clone());
                }
                let result = result_of(done, notice.take());
                let call = result.1;
                self.log.append(vec![result.0.clone()]).await?;
                bench.acknowledge(call).await;
                results.push(result.0);
            }
        }
        for result in &results {
            self.own.insert(result.id);
            self.transcript.wrote(result);
        }
        Ok(whole)
    }

    async fn after_trouble(&mut self, trouble: Option<Trouble>) -> Result<Step, Halt> {
        match trouble {
            None => Ok(Step::Go),
            Some(Trouble::Lost(reason)) => {
                self.losses += 1;
                self.say(vec![turn::fresh(Body::SandboxLost { reason: reason.clone() })]).await?;
                if self.losses > 1 {
                    let message = format!("The sandbox was lost again: {reason}.");
                    let outcome = SettledOutcome::Failed { message: message.clone() };
                    return self.fail("sandbox_error", message, outcome).await;
                }
                Ok(Step::Go)
            }
            Some(trouble) => self.without_bench(trouble).await,
        }
    }
}

const NOT_RUN: &str = "interrupted: the work was stopped before this call began; it did not run.";

async fn perform<B: Bench>(bench: &B, call: &Call, permit: Option<Permit>) -> Result<Outcome, Trouble> {
    let tool = match Tool::from_use(&call.name, &call.input) {
        Ok(tool) => tool,
        Err(error) => return Ok(Outcome::error(error.to_string())),
    };
    match permit {
        Some(permit) => bench.run(permit, tool).await,
        None => bench.collect(call.id, tool).await,
    }
}

/// Once the work is broken off: ends the running calls, and is over when they had their time to end.
async fn cancelled<B: Bench>(bench: &B, broken_off: impl Future<Output = ()>) {
    broken_off.await;
    bench.cancel_all().await;
    tokio::time::sleep(CANCEL_WAIT).await;
}

fn result_of(done: Done, notice: Option<String>) -> (Appended, EventId) {
    let (mut content, mut is_error) = match done.outcome {
        Ok(outcome) => (bounds::of_outcome(outcome.content), outcome.is_error),
        Err(trouble) => (vec![Block::text(told(&trouble))], true),
    };
    if done.was_broken_off {
        content.insert(
            0,
            Block::text("interrupted: the work was stopped while this call ran. Its result so far:"),
        );
        is_error = true;
    }
    if let Some(notice) = notice {
        content.insert(0, Block::text(notice));
    }
    let content = bounds::bounded(content);
    let result = ToolResult { tool_use_id: done.call, content, is_error };
    (turn::fresh(Body::AgentToolResult(result)), done.call)
}

fn told(trouble: &Trouble) -> String {
    match trouble {
        Trouble::Lost(reason) => format!(
            "sandbox_lost: the sandbox stopped while this call ran ({reason}). How far the call came is not known, and its \
             processes are gone. The next call gets the sandbox again or a new one, and is told whether the files are \
             still there."
        ),
        Trouble::Away(reason) | Trouble::Unknown(reason) => format!(
            "sandbox_error: how this call ended is not known ({reason}). It was not run again. Check its effects before \
             repeating it."
        ),
        Trouble::Hopeless(reason) | Trouble::Refused(reason) => {
            format!("sandbox_error: this call did not run: {reason}")
        }
    }
}
