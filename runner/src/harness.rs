//! Drives a session: ask the model, run its calls, append the results, until it is done or stopped. What it needs from outside
//! comes through three traits, each with a real and a scripted form. It acts on nothing that is not durable.

mod ask;
mod calls;
mod compaction;
pub mod transcript;
pub mod turn;

use crate::{
    backoff::Backoff,
    claim::{
        Stop,
        lease::{BootInstant, State},
    },
    model::{Provider, messages::Frame},
    tools::{self, permit::Permit},
};
use checkfu_shared::{
    agent::Agent,
    event::{Body, Event, RetryStatus, SettledOutcome},
    id::EventId,
    protocol::{
        append::{Appended, Decision},
        claim::ContextLimits,
    },
};
use checkfu_toolbox::call::{Outcome, Tool};
use std::{collections::HashSet, time::Duration};
use tokio::sync::watch;
use transcript::Transcript;

/// The range of waits after a failed model request.
const RETRY_WAIT_MIN: Duration = Duration::from_secs(1);
const RETRY_WAIT_MAX: Duration = Duration::from_secs(30);

/// The work stopped and nothing more may be said about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Halt {
    /// The claim is not this runner's any more.
    #[error("the claim is lost")]
    Lost,
    /// The log does not take what has to be said.
    #[error("the log takes nothing more: {0}")]
    Log(String),
}

/// The session's log as the holder of its claim reaches it.
pub trait Log: Send + Sync {
    /// Takes events in order; they are durable on this machine when it returns.
    fn append(&self, events: Vec<Appended>) -> impl Future<Output = Result<(), Halt>> + Send;
    /// The decisions on these calls, in any order, once the control plane has them.
    fn decisions(&self, calls: &[EventId]) -> impl Future<Output = Result<Vec<Decision>, Halt>> + Send;
    /// The log after `after_seq`, to its present end.
    fn history(&self, after_seq: u64) -> impl Future<Output = Result<Vec<Event>, Halt>> + Send;
    /// Shows text of a message that is still being made; best effort.
    fn preview(&self, message: EventId, offset: u64, text: String);
}

/// What is wrong with a sandbox or one call in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// The container is gone, with what ran in it.
    Lost(String),
    /// Whether it exists is not known: Docker does not answer.
    Away(String),
    /// No sandbox can be made; going on is of no use.
    Hopeless(String),
    /// Only this call did not run.
    Refused(String),
    /// How this call ended is not known; the sandbox goes on.
    Unknown(String),
}

/// Whether the sandbox knows a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// It has its result or will have it.
    Kept,
    /// It certainly never began: the sandbox is the one it would have begun in.
    Never,
    /// Nobody can tell.
    Unclear,
}

/// What has to be told about a sandbox that was just opened.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct News {
    /// The event for the log.
    pub event: Option<Body>,
    /// What the model has to know, such as that files are gone.
    pub notice: Option<String>,
}

/// Where calls run.
pub trait Bench: Send + Sync {
    /// Waits until the sandbox is open. Gives what is new about it once.
    fn open(&self) -> impl Future<Output = Result<News, Trouble>> + Send;
    /// Runs a permitted call and waits for its result.
    fn run(&self, permit: Permit, tool: Tool) -> impl Future<Output = Result<Outcome, Trouble>> + Send;
    /// Whether the sandbox knows a call of an earlier claim.
    fn known(&self, call: EventId) -> impl Future<Output = Result<Known, Trouble>> + Send;
    /// Waits for the result of a call that the sandbox knows; never begins one.
    fn collect(&self, call: EventId, tool: Tool) -> impl Future<Output = Result<Outcome, Trouble>> + Send;
    /// Ends every running call; whoever waits for them gets their results.
    fn cancel_all(&self) -> impl Future<Output = ()> + Send;
    /// The result of a call is durable.
    fn acknowledge(&self, call: EventId) -> impl Future<Output = ()> + Send;
    /// What the network policy refused since the last time, as events.
    fn denials(&self) -> Vec<Body>;
}

impl<B: Bench> Bench for &B {
    fn open(&self) -> impl Future<Output = Result<News, Trouble>> + Send {
        (**self).open()
    }
    fn run(&self, permit: Permit, tool: Tool) -> impl Future<Output = Result<Outcome, Trouble>> + Send {
        (**self).run(permit, tool)
    }
    fn known(&self, call: EventId) -> impl Future<Output = Result<Known, Trouble>> + Send {
        (**self).known(call)
    }
    fn collect(&self, call: EventId, tool: Tool) -> impl Future<Output = Result<Outcome, Trouble>> + Send {
        (**self).collect(call, tool)
    }
    fn cancel_all(&self) -> impl Future<Output = ()> + Send {
        (**self).cancel_all()
    }
    fn acknowledge(&self, call: EventId) -> impl Future<Output = ()> + Send {
        (**self).acknowledge(call)
    }
    fn denials(&self) -> Vec<Body> {
        (**self).denials()
    }
}

/// What the harness is told while it works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Orders {
    /// Whether the user wants the work to stop.
    pub is_interrupted: bool,
    /// Whether the runner is stopping.
    pub stop: Stop,
    /// Grows with each word of new inputs.
    pub inputs: u64,
}

impl Default for Orders {
    fn default() -> Self {
        Self { is_interrupted: false, stop: Stop::Go, inputs: 0 }
    }
}

impl Orders {
    /// Whether what is being done has to end now.
    #[must_use]
    pub fn breaks_off(&self) -> bool {
        self.is_interrupted || self.stop == Stop::Cancel
    }
}

/// One claim's work on a session.
#[derive(Debug)]
pub struct Harness<L, B, P> {
    log: L,
    bench: B,
    provider: P,
    orders: watch::Receiver<Orders>,
    lease: watch::Receiver<State>,
    agent: Agent,
    frame: Frame,
    context: ContextLimits,
    transcript: Transcript,
    /// How far the log was read.
    read_seq: u64,
    /// What this claim appended and did not yet meet in the log.
    own: HashSet<EventId>,
    /// The calls that this claim appended and that are not decided yet.
    undecided: Vec<EventId>,
    /// The calls that this claim asked the control plane about.
    decided_now: HashSet<EventId>,
    /// Those of them that wait for somebody.
    asked: HashSet<EventId>,
    /// Those of them that were handed to the sandbox.
    dispatched: HashSet<EventId>,
    /// What the model has to be told about the sandbox with the next result.
    notice: Option<String>,
    losses: u32,
    /// Model requests that failed since the last reply.
    failures: u32,
    backoff: Backoff,
    cut_replies: u32,
    /// The provider said that the conversation does not fit, and it was not summed up since.
    is_full: bool,
    seen_inputs: u64,
}

/// How one step of the work ended.
enum Step {
    /// Go on with the next one.
    Go,
    /// The claim's work is over.
    Over(SettledOutcome),
}

impl<L: Log, B: Bench, P: Provider> Harness<L, B, P> {
    /// A harness that has read nothing yet.
    pub fn new(
        log: L,
        bench: B,
        provider: P,
        agent: Agent,
        orders: watch::Receiver<Orders>,
        lease: watch::Receiver<State>,
    ) -> Self {
        let frame = Frame {
            model: agent.model.id.clone(),
            system: agent.system.clone(),
            tools: tools::offered(&agent),
        };
        Self {
            log,
            bench,
            provider,
            orders,
            lease,
            agent,
            frame,
            context: ContextLimits::default(),
            transcript: Transcript::default(),
            read_seq: 0,
            own: HashSet::new(),
            undecided: Vec::new(),
            decided_now: HashSet::new(),
            asked: HashSet::new(),
            dispatched: HashSet::new(),
            notice: None,
            losses: 0,
            failures: 0,
            backoff: Backoff::new(RETRY_WAIT_MIN, RETRY_WAIT_MAX),
            cut_replies: 0,
            is_full: false,
            seen_inputs: 0,
        }
    }

    /// The same with the limits of its model's window.
    #[must_use]
    pub fn with_context(mut self, context: ContextLimits) -> Self {
        self.context = context;
        self
    }

    /// The conversation so far.
    pub const fn transcript(&self) -> &Transcript {
        &self.transcript
    }

    /// Reads the whole log; before anything else.
    ///
    /// # Errors
    /// [`Halt`].
    pub async fn rebuild(&mut self) -> Result<(), Halt> {
        self.catch_up().await
    }

    /// Works until there is an outcome to settle with.
    ///
    /// # Errors
    /// [`Halt`] when the claim is lost; then nothing may be settled.
    pub async fn drive(&mut self) -> Result<SettledOutcome, Halt> {
        loop {
            if let Step::Over(outcome) = self.step().await? {
                self.report_denials().await?;
                return Ok(outcome);
            }
        }
    }

    async fn step(&mut self) -> Result<Step, Halt> {
        self.read_news().await?;
        if let Step::Over(outcome) = self.heed().await? {
            return Ok(Step::Over(outcome));
        }
        if self.transcript.open_calls().next().is_some() {
            if let Step::Over(outcome) = self.close_calls().await? {
                return Ok(Step::Over(outcome));
            }
            if self.must_heed() {
                return Ok(Step::Go);
            }
        }
        self.report_denials().await?;
        self.read_news().await?;
        self.fold().await?;
        if self.transcript.open_calls().next().is_some() {
            return Ok(Step::Over(SettledOutcome::RequiresAction));
        }
        if !self.transcript.owes_reply() {
            return Ok(Step::Over(SettledOutcome::EndTurn));
        }
        if self.must_heed() {
            return Ok(Step::Go);
        }
        if self.is_compaction_due() { self.compact().await } else { self.ask().await }
    }

    /// Whether something has to be obeyed before the work goes on.
    fn must_heed(&self) -> bool {
        let orders = *self.orders.borrow();
        orders.breaks_off() || turn::until_interrupt(&self.transcript).is_some()
    }

    /// Obeys an interrupt or a stop, at a place where nothing is under way.
    async fn heed(&mut self) -> Result<Step, Halt> {
        let orders = *self.orders.borrow();
        if orders.is_interrupted {
            self.catch_up().await?;
        }
        if let Some(inputs) = turn::until_interrupt(&self.transcript) {
            self.bench.cancel_all().await;
            self.close_all().await?;
            self.say(vec![turn::fresh(Body::SessionInputProcessed { event_ids: inputs })]).await?;
            return Ok(Step::Over(SettledOutcome::EndTurn));
        }
        if orders.is_interrupted {
            // The inputs are the truth: it was processed already, or meant another thread.
            return Ok(Step::Over(SettledOutcome::EndTurn));
        }
        match orders.stop {
            // Draining lets the run end; when that takes too long, the supervisor cancels.
            Stop::Go | Stop::Drain => Ok(Step::Go),
            // Calls that may not run any more first get results that say so.
            Stop::Cancel if !self.undecided.is_empty() => Ok(Step::Go),
            Stop::Cancel => Ok(Step::Over(SettledOutcome::Released {
                reason: "the runner is stopping".to_owned(),
                counts_as_attempt: false,
            })),
        }
    }

    /// Gives every open call a result that says that an interrupt closed it.
    async fn close_all(&mut self) -> Result<(), Halt> {
        self.undecided.clear();
        let open = self.transcript.open_calls();
        let results: Vec<Appended> =
            open.map(|call| turn::failed(call.id, turn::interrupted(self.may_have_run(call)))).collect();
        if results.is_empty() { Ok(()) } else { self.say(results).await }
    }

    fn may_have_run(&self, call: &transcript::Call) -> bool {
        self.dispatched.contains(&call.id) || turn::may_have_run(call)
    }

    async fn fold(&mut self) -> Result<(), Halt> {
        let inputs = turn::foldable(&self.transcript);
        if inputs.is_empty() {
            return Ok(());
        }
        self.say(vec![turn::fresh(Body::SessionInputProcessed { event_ids: inputs })]).await
    }

    async fn read_news(&mut self) -> Result<(), Halt> {
        let inputs = self.orders.borrow().inputs;
        if inputs == self.seen_inputs {
            return Ok(());
        }
        self.seen_inputs = inputs;
        self.catch_up().await
    }

    async fn catch_up(&mut self) -> Result<(), Halt> {
        for event in self.log.history(self.read_seq).await? {
            self.read_seq = self.read_seq.max(event.seq);
            if !self.own.remove(&event.id) {
                self.transcript.read(&event);
            }
        }
        Ok(())
    }

    /// Appends events and takes them into the conversation.
    async fn say(&mut self, events: Vec<Appended>) -> Result<(), Halt> {
        for event in &events {
            self.own.insert(event.id);
        }
        self.log.append(events.clone()).await?;
        for event in &events {
            self.transcript.wrote(event);
        }
        Ok(())
    }

    async fn report_denials(&mut self) -> Result<(), Halt> {
        let denials: Vec<Appended> = self.bench.denials().into_iter().map(turn::fresh).collect();
        if denials.is_empty() { Ok(()) } else { self.say(denials).await }
    }

    /// Says what failed, and how the work ends therefore.
    async fn fail(&mut self, kind: &str, message: String, outcome: SettledOutcome) -> Result<Step, Halt> {
        let retried = matches!(outcome, SettledOutcome::Released { .. });
        let retry_status = if retried { RetryStatus::Retrying } else { RetryStatus::Exhausted };
        self.say(vec![turn::error(kind, message, retry_status)]).await?;
        Ok(Step::Over(outcome))
    }

    /// Waits until something may be sent or dispatched.
    async fn gate(&self) -> Result<(), Halt> {
        let mut lease = self.lease.clone();
        loop {
            let state = *lease.borrow_and_update();
            if matches!(state, State::Lost(_)) {
                return Err(Halt::Lost);
            }
            if state.allows(BootInstant::now()) {
                return Ok(());
            }
            lease.changed().await.map_err(|_| Halt::Lost)?;
        }
    }

    /// Waits until what is being done has to end.
    fn broken_off(&self) -> impl Future<Output = ()> + Send + use<L, B, P> {
        let mut orders = self.orders.clone();
        async move {
            if orders.wait_for(Orders::breaks_off).await.is_err() {
                // Nobody is left to order anything; the claim's end is noticed elsewhere.
                std::future::pending::<()>().await;
            }
        }
    }
}

#[cfg(test)]
mod tests;
