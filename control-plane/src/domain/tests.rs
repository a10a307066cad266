//! Random command sequences against the domain, with its invariants checked after every step.

use super::{
    append, claim,
    draft::{Draft, Facts, Mint},
    input, policy,
    session::{State, fold},
    settlement,
};
use crate::record::{Input, RunStatus, Status};
use checkfu_shared::{
    agent::{Agent, Kind, Model, Tool, ToolSwitch},
    content::Block,
    event::{
        AppendedToolUse, ApprovalStatus, Body, Cause, CauseKind, Confirmation, Event, ExecutionPins,
        ModelUsage, RunClaimed, SettledOutcome, ToolConfirmation, ToolResult,
    },
    id::{
        AgentId, ApprovalId, ClaimId, EnvironmentId, EventId, PrincipalId, RunId, RunnerId, SessionId,
        ThreadId,
    },
    problem::Problem,
    protocol::append::Appended,
    time::Timestamp,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

pub(crate) fn agent(tools: Vec<Tool>) -> Agent {
    Agent {
        id: AgentId::from_bytes([1; 16]),
        kind: Kind::Agent,
        version: 1,
        name: "tester".to_owned(),
        description: None,
        system: None,
        model: Model { id: "scripted".to_owned(), effort: None, inference_geo: None, speed: None },
        tools,
        mcp_servers: Vec::new(),
        skills: Vec::new(),
        multiagent: None,
    }
}

/// A session with every built-in tool and one custom tool.
pub(crate) fn facts() -> Facts {
    let toolset = Tool::Toolset {
        configs: Vec::new(),
        default_config: ToolSwitch { enabled: true, permission_policy: None },
    };
    let custom = Tool::Custom {
        name: "lookup".to_owned(),
        description: "looks up".to_owned(),
        input_schema: serde_json::json!({}),
    };
    let agent = agent(vec![toolset, custom]);
    let pins = ExecutionPins {
        principal_id: PrincipalId::from_bytes([2; 16]),
        agent_id: agent.id,
        agent_version: 1,
        environment_id: EnvironmentId::from_bytes([3; 16]),
        environment_revision: 1,
        harness: "checkfu".to_owned(),
        model_route: "scripted".to_owned(),
        instructions_sha256: None,
    };
    Facts {
        session_id: SessionId::from_bytes([4; 16]),
        thread_id: ThreadId::from_bytes([5; 16]),
        agent,
        pins,
        budget: None,
        policy: policy::Context::default(),
        barred: None,
    }
}

/// A policy that asks before the host application sees a call.
fn custom_asks() -> Vec<policy::Sourced> {
    let kind = policy::ResourceKind::CustomTool;
    let agent = AgentId::from_bytes([1; 16]);
    vec![policy::agents_own(agent, kind, "*", policy::Disposition::RequireApproval)]
}

/// Ids in counting order.
#[derive(Default)]
struct Counter(u128);

impl Counter {
    fn next(&mut self) -> [u8; 16] {
        self.0 += 1;
        self.0.to_be_bytes()
    }
}

impl Mint for Counter {
    fn event(&mut self) -> EventId {
        EventId::from_bytes(self.next())
    }
    fn run(&mut self) -> RunId {
        RunId::from_bytes(self.next())
    }
    fn approval(&mut self) -> ApprovalId {
        ApprovalId::from_bytes(self.next())
    }
}

/// What may happen to a session; numbers choose among what is there.
#[derive(Debug, Clone)]
enum Command {
    Message,
    Interrupt,
    Confirm(usize, bool),
    Answer(usize),
    Claim,
    ToolUse(bool),
    Propose,
    Result(usize),
    Fold,
    Resume(usize),
    ModelEnd(bool),
    Settle(u8),
    Lose(bool),
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        3 => Just(Command::Message),
        2 => Just(Command::Interrupt),
        3 => (0usize..4, any::<bool>()).prop_map(|(n, yes)| Command::Confirm(n, yes)),
        2 => (0usize..4).prop_map(Command::Answer),
        5 => Just(Command::Claim),
        3 => any::<bool>().prop_map(Command::ToolUse),
        1 => Just(Command::Propose),
        3 => (0usize..6).prop_map(Command::Result),
        2 => Just(Command::Fold),
        2 => (0usize..4).prop_map(Command::Resume),
        1 => any::<bool>().prop_map(Command::ModelEnd),
        4 => (0u8..7).prop_map(Command::Settle),
        1 => any::<bool>().prop_map(Command::Lose),
    ]
}

/// A session under test, with everything that was ever logged.
struct World {
    facts: Facts,
    state: State,
    log: Vec<Event>,
    mint: Counter,
    epoch: u64,
    now: i64,
}

impl World {
    fn new(policies: Vec<policy::Sourced>) -> Self {
        let mut facts = facts();
        facts.policy.rules = policies;
        Self { facts, state: State::default(), log: Vec::new(), mint: Counter::default(), epoch: 0, now: 0 }
    }

    fn decide<T>(&mut self, verb: impl FnOnce(&mut Draft<'_>) -> Result<T, Problem>) -> Result<T, Problem> {
        self.now += 7;
        let now = Timestamp::from_ms(self.now);
        let mut draft = Draft::new(self.state.clone(), &self.facts, now, &mut self.mint);
        let value = verb(&mut draft)?;
        let decided = draft.decided();
        for place in decided.processed {
            let input = self.log.iter_mut().find(|event| event.seq == place).unwrap();
            assert_eq!(input.processed_at.replace(now), None, "an input was processed twice");
        }
        self.state = decided.state;
        self.log.extend(decided.events);
        Ok(value)
    }

    fn say(&mut self, body: Body) -> Result<(), Problem> {
        let authored_by = PrincipalId::from_bytes([2; 16]);
        let caused_by = Cause { kind: CauseKind::ApiRequest, id: "req".to_owned() };
        self.decide(|draft| input::send(draft, vec![Input { body, authored_by, caused_by }]))
    }

    fn report(&mut self, body: Body) -> Result<(), Problem> {
        let id = self.mint.event();
        let event = Appended { id, thread_id: None, model_request_id: None, body };
        let proposal = Some(serde_json::json!({}));
        self.decide(|draft| append::append(draft, event, None, proposal).map(drop))
    }

    fn claimed(&self) -> bool {
        self.state.phase() == Some(RunStatus::Claimed)
    }

    /// Does what the engine would let happen; refusals are fine, broken invariants are not.
    fn act(&mut self, command: &Command) {
        let call = |n: usize| self.state.calls.get(n % self.state.calls.len().max(1)).map(|call| call.id);
        let outcome = match command {
            Command::Message => self.say(Body::UserMessage { content: vec![Block::text("x")] }),
            Command::Interrupt => self.say(Body::UserInterrupt { session_thread_id: None }),
            Command::Confirm(n, yes) => {
                let result = if *yes { Confirmation::Allow } else { Confirmation::Deny };
                let Some(tool_use_id) = call(*n) else { return };
                let answer = ToolConfirmation { tool_use_id, result, deny_message: None };
                self.say(Body::UserToolConfirmation(answer))
            }
            Command::Answer(n) => {
                let Some(custom_tool_use_id) = call(*n) else { return };
                self.say(Body::UserCustomToolResult {
                    custom_tool_use_id,
                    content: Vec::new(),
                    is_error: false,
                })
            }
            Command::Claim if self.state.phase() == Some(RunStatus::Queued) => {
                self.epoch += 1;
                let attempt = self.state.run.as_ref().unwrap().record.attempt;
                let (runner_id, claim_id) = (RunnerId::from_bytes([6; 16]), ClaimId::from_bytes([7; 16]));
                let claimed = RunClaimed { runner_id, claim_id, epoch: self.epoch, attempt };
                self.decide(|draft| {
                    claim::confirm(draft, claimed);
                    Ok(())
                })
            }
            _ if !self.claimed() => return,
            other => self.work(other),
        };
        drop(outcome);
    }

    /// What only a live claim may do.
    fn work(&mut self, command: &Command) -> Result<(), Problem> {
        match command {
            Command::ToolUse(reads) => {
                let name = if *reads { "read" } else { "bash" }.to_owned();
                let input = serde_json::json!({"n": self.now});
                self.report(Body::AgentToolUse(AppendedToolUse { name, input, evaluated_permission: None }))
            }
            Command::Propose => {
                let input = serde_json::json!({});
                self.report(Body::AgentToolProposed { name: "lookup".to_owned(), input })
            }
            Command::Result(n) => {
                // Any call that ever was may be named; only an open one may be answered.
                let uses = |event: &&Event| matches!(event.body, Body::AgentToolUse(_));
                let ids: Vec<EventId> = self.log.iter().filter(uses).map(|event| event.id).collect();
                let Some(&tool_use_id) = ids.iter().rev().nth(*n) else { return Ok(()) };
                let content = vec![Block::text("r")];
                self.report(Body::AgentToolResult(ToolResult { tool_use_id, content, is_error: false }))
            }
            Command::Fold => {
                let event_ids = self.state.waiting.iter().map(|input| input.id).collect();
                self.report(Body::SessionInputProcessed { event_ids })
            }
            Command::Resume(n) => {
                let calls = &self.state.calls;
                let Some(call) = calls.get(n % calls.len().max(1)) else { return Ok(()) };
                let (tool_use_id, arguments_sha256) = (call.id, call.arguments_sha256.clone());
                self.report(Body::AgentToolResumed { tool_use_id, arguments_sha256 })
            }
            Command::ModelEnd(is_error) => {
                let model_request_start_id = self.mint.event();
                let (model_usage, is_error) = (ModelUsage::default(), *is_error);
                self.report(Body::SpanModelRequestEnd {
                    model_request_start_id,
                    model_usage,
                    is_error,
                    bill: None,
                })
            }
            Command::Settle(n) => {
                let outcome = match n {
                    0 => SettledOutcome::EndTurn,
                    1 => SettledOutcome::RequiresAction,
                    2 => SettledOutcome::BudgetReached,
                    3 => SettledOutcome::RetriesExhausted,
                    4 => SettledOutcome::Refusal,
                    5 => SettledOutcome::Failed { message: "no image".to_owned() },
                    _ => SettledOutcome::Released { reason: "drain".to_owned(), counts_as_attempt: false },
                };
                let epoch = self.epoch;
                self.decide(|draft| {
                    settlement::settle(draft, epoch, outcome, Vec::new());
                    Ok(())
                })
            }
            Command::Lose(counts) => {
                let epoch = self.epoch;
                self.decide(|draft| {
                    claim::lose(draft, epoch, *counts, "silence");
                    Ok(())
                })
            }
            _ => Ok(()),
        }
    }

    fn assert_sound(&self) {
        assert_eq!(self.state, fold(&self.log), "the state does not follow from the log");
        let (mut epoch, mut ended) = (0, BTreeMap::new());
        let (mut results, mut approvals) = (BTreeMap::new(), BTreeMap::new());
        for (at, event) in self.log.iter().enumerate() {
            assert_eq!(event.seq, at as u64 + 1, "the log has a gap");
            match &event.body {
                Body::RunClaimed(claimed) => {
                    assert!(claimed.epoch > epoch, "an epoch did not grow");
                    assert!(claimed.attempt <= claim::ATTEMPTS_MAX, "too many attempts");
                    epoch = claimed.epoch;
                }
                Body::RunSettled(end) | Body::RunSuspended(end) => {
                    *ended.entry((event.run_id, end.epoch, event.body.kind())).or_insert(0) += 1;
                }
                Body::ActionApprovalPending(asked) => {
                    assert!(
                        approvals.insert(asked.approval_id, None).is_none(),
                        "an approval was made twice"
                    );
                }
                Body::ActionApprovalResolved(end) => {
                    let was = approvals.insert(end.approval_id, Some(end.status));
                    assert_eq!(was, Some(None), "an approval ended twice or was never made");
                }
                Body::AgentCustomToolUse { proposed_id, .. } => {
                    let asked = approval_of(&self.log[..at], *proposed_id);
                    let ended = asked.map(|approval| approvals[&approval]);
                    assert!(
                        ended.is_none_or(|status| status == Some(ApprovalStatus::Approved)),
                        "the application sees a call that nobody approved"
                    );
                }
                Body::AgentToolResult(result) => *results.entry(result.tool_use_id).or_insert(0) += 1,
                Body::SessionStatusIdle { .. } => {
                    assert_eq!(self.log[at - 1].body.kind(), "session.usage", "idle without usage before");
                }
                _ => {}
            }
        }
        assert!(ended.values().all(|&count| count == 1), "an epoch settled twice: {ended:?}");
        assert!(results.values().all(|&count| count == 1), "a call has two results");
        self.assert_status();
    }

    fn assert_status(&self) {
        let (status, phase) = (self.state.status, self.state.phase());
        let fits = match phase {
            None | Some(RunStatus::Suspended) => status == Status::Idle,
            Some(RunStatus::Queued) => matches!(status, Status::Running | Status::Rescheduling),
            Some(RunStatus::Claimed) => status == Status::Running,
            Some(RunStatus::Settled) => false,
        };
        assert!(fits, "a session is {status:?} while its run is {phase:?}");
        let message = super::session::InputKind::Message;
        assert!(
            phase.is_some() || self.state.waiting_of(message).next().is_none(),
            "a message waits and no run will take it up"
        );
    }
}

fn approval_of(log: &[Event], call: Option<EventId>) -> Option<ApprovalId> {
    log.iter().find_map(|event| match &event.body {
        Body::ActionApprovalPending(asked) if Some(asked.tool_use_id) == call => Some(asked.approval_id),
        _ => None,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn whatever_happens_the_invariants_hold(commands in proptest::collection::vec(command(), 1..60), asks: bool) {
        let mut world = World::new(if asks { custom_asks() } else { Vec::new() });
        for command in &commands {
            world.act(command);
            world.assert_sound();
        }
    }
}
