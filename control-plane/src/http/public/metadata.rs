//! The `metadata` of every resource: at most 16 pairs of short texts, merged key by key.

use crate::http::fields::Fields;
use checkfu_shared::problem::{Code, Problem};
use serde_json::Value;
use std::collections::BTreeMap;

/// Key to value.
pub(crate) type Metadata = BTreeMap<String, String>;

const PAIRS_MAX: usize = 16;
const KEY_CHARS_MAX: usize = 64;
const VALUE_CHARS_MAX: usize = 512;

fn wrong(path: &str, what: &str) -> Problem {
    Problem::new(Code::InvalidMetadata, format!("`{path}` {what}.")).with("field", path)
}

/// What an update says about the pairs: `None` removes the key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Change(BTreeMap<String, Option<String>>);

impl Change {
    /// The change as a patch: null removes a key.
    pub(crate) fn patch(&self) -> serde_json::Map<String, Value> {
        let value = |value: &Option<String>| value.clone().map_or(Value::Null, Value::String);
        self.0.iter().map(|(key, text)| (key.clone(), value(text))).collect()
    }

    /// The pairs after the update of `old`.
    ///
    /// # Errors
    /// `invalid_metadata` when there would be more than 16.
    pub(crate) fn over(self, mut old: Metadata) -> Result<Metadata, Problem> {
        for (key, value) in self.0 {
            match value {
                Some(value) => old.insert(key, value),
                None => old.remove(&key),
            };
        }
        if old.len() > PAIRS_MAX {
            let rule = format!("may have at most {PAIRS_MAX} pairs and would have {}", old.len());
            return Err(wrong("metadata", &rule));
        }
        Ok(old)
    }
}

/// Takes `metadata` from a request that creates something.
///
/// # Errors
/// `invalid_metadata` when a pair breaks the rules.
pub(crate) fn create(fields: &mut Fields) -> Result<Metadata, Problem> {
    change(fields, false)?.over(Metadata::new())
}

/// Takes `metadata` from a request that updates something; `null` removes a key, and so does an empty text where `empty_removes`.
///
/// # Errors
/// `invalid_metadata` when a pair breaks the rules.
pub(crate) fn change(fields: &mut Fields, empty_removes: bool) -> Result<Change, Problem> {
    let Some(value) = fields.value("metadata") else { return Ok(Change::default()) };
    let Value::Object(pairs) = value else { return Err(wrong("metadata", "must be an object of texts")) };
    let pair = |(key, value): (String, Value)| {
        if !(1..=KEY_CHARS_MAX).contains(&key.chars().count()) {
            return Err(wrong("metadata", &format!("must have keys of 1 to {KEY_CHARS_MAX} characters")));
        }
        match value {
            Value::Null => Ok((key, None)),
            Value::String(text) if text.is_empty() && empty_removes => Ok((key, None)),
            Value::String(text) if text.chars().count() <= VALUE_CHARS_MAX => Ok((key, Some(text))),
            _ => Err(wrong(
                &format!("metadata.{key}"),
                &format!("must be a text of at most {VALUE_CHARS_MAX} characters"),
            )),
        }
    };
    pairs.into_iter().map(pair).collect::<Result<_, _>>().map(Change)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::auth::Dialect;
    use serde_json::json;

    fn merged(old: &Value, new: Value) -> Result<Value, Problem> {
        let old: Metadata = serde_json::from_value(old.clone()).unwrap();
        let mut fields = Fields::body(json!({"metadata": new}), Dialect::Checkfu).unwrap();
        Ok(json!(change(&mut fields, false)?.over(old)?))
    }

    #[test]
    fn null_removes_a_key_and_the_rest_merges() {
        assert_eq!(merged(&json!({"a": "1"}), json!({"a": null, "b": "2"})), Ok(json!({"b": "2"})));
        assert_eq!(merged(&json!({"a": "1"}), Value::Null), Ok(json!({"a": "1"})));
    }

    #[test]
    fn pairs_outside_the_limits_are_refused() {
        let many: serde_json::Map<_, _> = (0..16).map(|n| (n.to_string(), json!("v"))).collect();
        assert!(merged(&json!({}), Value::Object(many.clone())).is_ok());
        assert!(merged(&json!({"x": "y"}), Value::Object(many)).is_err());
        for bad in [
            json!({"": "v"}),
            json!({"k".repeat(65): "v"}),
            json!({"k": "v".repeat(513)}),
            json!({"k": 1}),
            json!([]),
        ] {
            assert!(merged(&json!({}), bad.clone()).is_err(), "{bad}");
        }
    }
}
