//! The list of models: what each costs, and how much it can read at once. Only Claude Opus 4 and 4.1, Sonnet 3.7 and 4, and
//! Haiku 3 and 3.5 were compared with their maker's own price page, on the date in `catalogue.json`; the other rows follow
//! third-party tables. Cache writes are those of five minutes, and no dearer tier for long prompts is known here.
//! A model that is not here has no price: a route gives it one, or it cannot have a budget in money.

use super::price::Price;
use serde::Deserialize;
use std::{collections::HashMap, sync::LazyLock};

/// What is known of one model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// How many tokens a request and its reply may have together.
    pub context_window_tokens: u64,
    /// What it costs.
    pub price: Price,
}

#[derive(Deserialize)]
struct Sheet {
    models: Vec<Line>,
}

#[derive(Deserialize)]
struct Line {
    id: String,
    context_window_tokens: u64,
    price: Price,
}

static LIST: LazyLock<HashMap<String, Entry>> = LazyLock::new(|| {
    let sheet: Result<Sheet, _> = serde_json::from_str(include_str!("catalogue.json"));
    let lines = sheet.map(|sheet| sheet.models).unwrap_or_default();
    let entry = |line: Line| {
        (line.id, Entry { context_window_tokens: line.context_window_tokens, price: line.price })
    };
    lines.into_iter().map(entry).collect()
});

/// What is known of `model`; a date or `-latest` behind its name changes nothing.
#[must_use]
pub fn entry(model: &str) -> Option<Entry> {
    LIST.get(model).or_else(|| LIST.get(undated(model))).copied()
}

fn undated(model: &str) -> &str {
    if let Some(name) = model.strip_suffix("-latest").or_else(|| model.strip_suffix("-0")) {
        return name;
    }
    let bytes = model.as_bytes();
    let is_date = |text: &[u8], shape: &[u8]| {
        text.len() == shape.len()
            && text.iter().zip(shape).all(|(byte, wanted)| match wanted {
                b'0' => byte.is_ascii_digit(),
                other => byte == other,
            })
    };
    for shape in [b"-00000000".as_slice(), b"-0000-00-00"] {
        if let Some((name, date)) =
            bytes.len().checked_sub(shape.len()).and_then(|at| model.split_at_checked(at))
            && is_date(date.as_bytes(), shape)
        {
            return name;
        }
    }
    model
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_found_by_its_name_with_or_without_a_date() {
        for (model, output) in [
            ("claude-sonnet-4-5", Some(15_000_000)),
            ("claude-sonnet-4-5-20250929", Some(15_000_000)),
            ("claude-opus-4-20250514", Some(75_000_000)),
            ("claude-opus-4-0", Some(75_000_000)),
            ("claude-3-7-sonnet-latest", Some(15_000_000)),
            ("gpt-4o-2024-08-06", Some(10_000_000)),
            ("gpt-4.1-mini", Some(1_600_000)),
            ("claude-sonnet-9", None),
            ("scripted-1", None),
            ("-20250929", None),
            ("", None),
        ] {
            assert_eq!(entry(model).map(|entry| entry.price.output), output, "{model}");
        }
    }

    #[test]
    fn every_line_is_a_plausible_price() {
        assert_eq!(LIST.len(), include_str!("catalogue.json").matches("\"id\"").count());
        for (model, entry) in LIST.iter() {
            let Price { input, output, cache_read, cache_write } = entry.price;
            assert!(cache_read < input && input <= cache_write && cache_write < output, "{model}");
            assert!(
                (10_000..=100_000_000).contains(&input) && entry.context_window_tokens >= 100_000,
                "{model}"
            );
        }
    }
}
