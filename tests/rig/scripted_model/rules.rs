//! The rules between the blocks of a conversation: who starts, that each tool call has exactly one result in the
//! very next message, that no id is unknown or used twice. Pure; the words are those of the real API.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::request::{Block, Message, Refusal, Request, Role};

/// Refuses a conversation that the real service would refuse.
pub fn check(request: &Request<'_>) -> Result<(), Refusal> {
    let messages = &request.messages;
    match messages.first() {
        None => return Err(Refusal::invalid("messages: at least one message is required")),
        Some(first) if first.role != Role::User => {
            return Err(Refusal::invalid("messages: first message must use the \"user\" role"));
        }
        Some(_) => {}
    }
    let mut seen = HashSet::new();
    let mut previous: Option<&Message<'_>> = None;
    for message in messages {
        match message.role {
            Role::User => check_results(previous, message)?,
            Role::Assistant => check_calls(request, message, &mut seen)?,
        }
        previous = Some(message);
    }
    // A trailing call is reported as such, because that is the mistake worth knowing.
    if let Some(last) = previous.filter(|last| last.role == Role::Assistant) {
        let calls = call_ids(last);
        return Err(if calls.is_empty() {
            Refusal::invalid(
                "This model does not support assistant message prefill. The conversation must end with a user message.",
            )
        } else {
            unanswered(last.index, &calls)
        });
    }
    Ok(())
}

/// The signature a thinking block of ours carries, so that a changed block is noticed when it comes back.
#[must_use]
pub fn signature(thinking: &str) -> String {
    let mut hasher = DefaultHasher::new();
    thinking.hash(&mut hasher);
    format!("sig{:016x}", hasher.finish())
}

fn check_calls<'a>(
    request: &Request<'a>,
    message: &Message<'a>,
    seen: &mut HashSet<&'a str>,
) -> Result<(), Refusal> {
    for (i, block) in message.blocks.iter().enumerate() {
        let place = format!("messages.{}.content.{i}", message.index);
        match block {
            Block::ToolUse { id, name } => {
                if !seen.insert(id) {
                    return Err(Refusal::invalid("messages: `tool_use` ids must be unique"));
                }
                if !request.tools.contains(name) {
                    return Err(Refusal::invalid(format!(
                        "{place}: Tool '{name}' not found in provided tools"
                    )));
                }
            }
            Block::Thinking { text, signature: claimed } if *claimed != signature(text) => {
                return Err(Refusal::invalid(format!("{place}: Invalid `signature` in `thinking` block")));
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_results(previous: Option<&Message<'_>>, message: &Message<'_>) -> Result<(), Refusal> {
    let calls = previous.map(call_ids).unwrap_or_default();
    let mut answered = HashSet::new();
    let mut has_text = false;
    for (i, block) in message.blocks.iter().enumerate() {
        let Block::ToolResult { id, .. } = block else {
            has_text = true;
            continue;
        };
        let place = format!("messages.{}.content.{i}", message.index);
        if !calls.contains(id) {
            return Err(Refusal::invalid(format!(
                "{place}: unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
            )));
        }
        if !answered.insert(*id) {
            return Err(Refusal::invalid(format!(
                "{place}: each tool_use must have a single result. Found multiple `tool_result` blocks with id: {id}"
            )));
        }
        if has_text {
            return Err(Refusal::invalid(format!(
                "{place}: `tool_result` blocks must come before all other content of their message"
            )));
        }
    }
    let missing: Vec<&str> = calls.into_iter().filter(|id| !answered.contains(id)).collect();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(unanswered(previous.map_or(0, |message| message.index), &missing))
    }
}

fn unanswered(index: usize, ids: &[&str]) -> Refusal {
    Refusal::invalid(format!(
        "messages.{index}: `tool_use` ids were found without `tool_result` blocks immediately after: {}. Each `tool_use` block must have a corresponding `tool_result` block in the next message.",
        ids.join(", ")
    ))
}

fn call_ids<'a>(message: &Message<'a>) -> Vec<&'a str> {
    message
        .blocks
        .iter()
        .filter_map(|block| match block {
            Block::ToolUse { id, .. } => Some(*id),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests;
