//! What the input schema of a custom tool may look like, so that every provider takes it.

use crate::http::fields::wrong;
use checkfu_shared::problem::Problem;
use serde_json::Value;

const BYTES_MAX: usize = 64 << 10;
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];
const ALTERNATIVES: [&str; 3] = ["oneOf", "anyOf", "allOf"];

/// Checks a schema.
///
/// # Errors
/// `invalid_request` naming the first rule it breaks.
pub(crate) fn check(schema: &Value, path: &str) -> Result<(), Problem> {
    if schema.get("type").and_then(Value::as_str) != Some("object") {
        return Err(wrong(path, "must be a JSON Schema whose `type` is object"));
    }
    if let Some(keyword) = ALTERNATIVES.into_iter().find(|keyword| schema.get(keyword).is_some()) {
        return Err(wrong(path, &format!("must not have `{keyword}` at its top level")));
    }
    if schema.to_string().len() > BYTES_MAX {
        return Err(wrong(path, &format!("must have at most {BYTES_MAX} bytes")));
    }
    inside(schema, path)
}

fn inside(schema: &Value, path: &str) -> Result<(), Problem> {
    match schema {
        Value::Object(members) => {
            if let Some(keyword) = REFERENCES.into_iter().find(|keyword| members.contains_key(*keyword)) {
                return Err(wrong(
                    path,
                    &format!("must not have `{keyword}` anywhere; write the schema out"),
                ));
            }
            if let Some(Value::Object(properties)) = members.get("properties")
                && let Some(name) = properties.keys().find(|name| !is_property_name(name))
            {
                let shown: String = name.chars().take(80).collect();
                let rule = format!(
                    "has the property `{shown}`; a property name has 1 to 64 letters, digits, `_`, `.` or `-`"
                );
                return Err(wrong(path, &rule));
            }
            members.values().try_for_each(|value| inside(value, path))
        }
        Value::Array(entries) => entries.iter().try_for_each(|value| inside(value, path)),
        _ => Ok(()),
    }
}

fn is_property_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_schema_is_plain_and_closed() {
        for (schema, good) in [
            (json!({"type": "object"}), true),
            (
                json!({"type": "object", "properties": {"a.b-c_1": {"type": "string"}}, "required": ["a"]}),
                true,
            ),
            (json!({"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}]}}}), true),
            (json!({}), false),
            (json!("object"), false),
            (json!({"type": "string"}), false),
            (json!({"type": "object", "anyOf": []}), false),
            (json!({"type": "object", "properties": {"a b": {}}}), false),
            (json!({"type": "object", "properties": {"a": {"items": [{"$dynamicRef": "#x"}]}}}), false),
            (json!({"type": "object", "description": "d".repeat(BYTES_MAX)}), false),
        ] {
            assert_eq!(check(&schema, "s").is_ok(), good, "{schema:.100}");
        }
    }
}
