//! The wires against each other: what is said survives the way from one to another, and no stream ends in an unknown state.

mod asks;
mod fuzz;
mod grammar;
mod replies;

use super::{
    Spoken, Wire,
    fault::Fault,
    reply::{Block, Label, Reply},
    step::Stop,
    stream::Stream,
};
use checkfu_shared::event::ModelUsage;

const WIRES: [Wire; 3] = [Wire::Messages, Wire::Chat, Wire::Responses];
const SPOKEN: [Spoken; 2] = [Spoken::Messages, Spoken::Chat];

fn label() -> Label {
    Label { id: "1".into(), model: "m".into(), created_s: 7, wants_usage: true, ..Label::default() }
}

/// What a client reads of a provider's stream, given in one piece and ended well.
fn translated(from: Spoken, to: Wire, text: &str) -> String {
    let mut stream = Stream::new(from, to, label());
    let out = stream.feed(text.as_bytes());
    out + &stream.finish(None)
}

/// The reply that a stream of Messages or Chat tells.
fn reply_of(wire: Spoken, text: &str) -> Reply {
    let mut stream = Stream::new(wire, Wire::Responses, label());
    let mut reply = Reply::default();
    stream.feed_steps(text.as_bytes(), |step| reply.take(step));
    reply
}
