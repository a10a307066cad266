//! OpenAI Chat Completions: requests, whole replies and streams, to and from the neutral form.

pub(super) mod ask;
mod calls;
pub(super) mod reply;
pub(super) mod stream;

use super::{messages::FROM_CHAT, step::Stop};
use checkfu_shared::event::ModelUsage;
use serde_json::{Value, json};

/// The members in which servers of this wire carry thoughts; the wire itself has none.
const THOUGHTS: [&str; 2] = ["reasoning_content", "reasoning"];

/// The numbers of this wire: the input includes what the cache gave.
pub(super) fn usage(usage: &Value) -> Option<ModelUsage> {
    usage.as_object()?;
    let cached = usage["prompt_tokens_details"]["cached_tokens"]
        .as_u64()
        .or_else(|| usage["prompt_cache_hit_tokens"].as_u64())
        .unwrap_or(0);
    let written = usage["prompt_tokens_details"]["cache_write_tokens"].as_u64().unwrap_or(0);
    let prompt = usage["prompt_tokens"].as_u64().unwrap_or(0);
    Some(ModelUsage {
        input_tokens: prompt.saturating_sub(cached).saturating_sub(written),
        output_tokens: usage["completion_tokens"].as_u64().unwrap_or(0),
        cache_creation_input_tokens: written,
        cache_read_input_tokens: cached,
    })
}

fn write_usage(usage: &ModelUsage) -> Value {
    let (cached, written) = (usage.cache_read_input_tokens, usage.cache_creation_input_tokens);
    let prompt = usage.input_tokens.saturating_add(cached).saturating_add(written);
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": usage.output_tokens,
        "total_tokens": prompt.saturating_add(usage.output_tokens),
        "prompt_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written},
    })
}

fn read_stop(reason: &str) -> Stop {
    match reason {
        "tool_calls" | "function_call" => Stop::ToolUse,
        "length" => Stop::MaxTokens,
        "content_filter" => Stop::Refusal,
        _ => Stop::EndTurn,
    }
}

const fn write_stop(stop: &Stop) -> &'static str {
    match stop {
        Stop::EndTurn | Stop::Sequence(_) | Stop::Pause => "stop",
        Stop::ToolUse => "tool_calls",
        Stop::MaxTokens | Stop::ContextFull => "length",
        Stop::Refusal => "content_filter",
    }
}

/// The thought in a message or a delta, and the member that carries it.
fn thought(said: &Value) -> Option<(&'static str, &str)> {
    THOUGHTS.into_iter().find_map(|name| Some((name, said[name].as_str().filter(|text| !text.is_empty())?)))
}

/// The signature of a thought that came in `member`, by which it finds its way back there.
fn signature(member: &str) -> String {
    format!("{FROM_CHAT}{member}")
}

/// The member that a thought goes back in; thoughts from elsewhere have none.
fn member_of(signature: &str) -> Option<&'static str> {
    let member = signature.strip_prefix(FROM_CHAT)?;
    THOUGHTS.into_iter().find(|name| *name == member)
}
