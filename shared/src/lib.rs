//! The contract between the runner and the control plane, and nothing else.
//! Rule of entry: both sides must agree on it byte for byte. No I/O, no async runtime, no clock read in a decision.
//!
//! Glossary, one word per thing:
//! - *runner*: a paired daemon on a machine its owner controls. *Instance*: one start of it.
//! - *pairing*: the one-time exchange of a short code for a runner identity.
//! - *session*: the durable record of one agent at work. *Thread*: one conversation in it (the primary one first).
//! - *run*: from an input on a settled session to a final stop reason; suspended by `requires_action` and `budget_reached`.
//! - *turn*: one model request with the tool calls that its reply asks for.
//! - *claim*: one runner's hold on a run, fenced by its *epoch*. *Lease*: how long a claim is good for without renewal.
//! - *tool call*: one `agent.tool_use`: *pending* (asks), *started* (allowed), *closed* (has its one result).
//! - *event*: one entry of a session's log, numbered by `seq`. *Settlement*: the one transaction that ends a claim.
//! - *directive*: what the control plane tells a claim's holder: inputs, interrupt, cancel.
//! - *sandbox*: the container of a session. *Toolbox*: the helper that is its PID 1.

pub mod agent;
pub mod content;
pub mod environment;
pub mod event;
pub mod id;
pub mod problem;
pub mod protocol;
pub mod secret;
pub mod time;
pub mod tool;
