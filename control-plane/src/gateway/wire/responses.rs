//! OpenAI Responses: a client's requests, whole replies and streams. Nothing is stored, so a request brings its whole
//! conversation.

pub(super) mod ask;
pub(super) mod item;
pub(super) mod reply;
pub(super) mod stream;

use checkfu_shared::event::ModelUsage;
use serde_json::{Value, json};

/// What joins a namespace and a name towards the provider.
const MEMBER: &str = "__";
/// The one member of the input of a tool whose input is a free text.
const INPUT: &str = "input";

fn write_usage(usage: &ModelUsage) -> Value {
    let cached = usage.cache_read_input_tokens;
    let input = usage.input_tokens.saturating_add(cached).saturating_add(usage.cache_creation_input_tokens);
    json!({
        "input_tokens": input,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": input.saturating_add(usage.output_tokens),
    })
}
