//! Anthropic Messages: requests, whole replies and streams, to and from the neutral form.

pub(super) mod ask;
pub(super) mod reply;
pub(super) mod stream;

use super::step::Stop;
use checkfu_shared::event::ModelUsage;
use serde_json::{Value, json};

/// What opens the signature of a thought that came over Chat; the member that carried it follows. No provider of this
/// wire would accept it.
pub(super) const FROM_CHAT: &str = "chat:";

/// The numbers of this wire: four counters that do not overlap.
pub(super) fn usage(usage: &Value) -> Option<ModelUsage> {
    let number = |name: &str| usage[name].as_u64();
    usage.as_object()?;
    Some(ModelUsage {
        input_tokens: number("input_tokens").unwrap_or(0),
        output_tokens: number("output_tokens").unwrap_or(0),
        cache_creation_input_tokens: number("cache_creation_input_tokens").unwrap_or(0),
        cache_read_input_tokens: number("cache_read_input_tokens").unwrap_or(0),
    })
}

fn write_usage(usage: &ModelUsage) -> Value {
    json!({
        "input_tokens": usage.input_tokens,
        "cache_creation_input_tokens": usage.cache_creation_input_tokens,
        "cache_read_input_tokens": usage.cache_read_input_tokens,
        "output_tokens": usage.output_tokens,
    })
}

fn read_stop(reason: &str, sequence: &Value) -> Stop {
    match reason {
        "tool_use" => Stop::ToolUse,
        "max_tokens" => Stop::MaxTokens,
        "stop_sequence" => Stop::Sequence(sequence.as_str().map(str::to_owned)),
        "refusal" => Stop::Refusal,
        "pause_turn" => Stop::Pause,
        "model_context_window_exceeded" => Stop::ContextFull,
        _ => Stop::EndTurn,
    }
}

fn write_stop(stop: &Stop) -> (&'static str, Option<&str>) {
    match stop {
        Stop::EndTurn => ("end_turn", None),
        Stop::ToolUse => ("tool_use", None),
        Stop::MaxTokens => ("max_tokens", None),
        Stop::Sequence(sequence) => ("stop_sequence", sequence.as_deref()),
        Stop::Refusal => ("refusal", None),
        Stop::Pause => ("pause_turn", None),
        Stop::ContextFull => ("model_context_window_exceeded", None),
    }
}
