//! How the rows and things of the API look to a person. Pure: JSON in, cells and lines out; a missing member is empty.

use super::{failure::Failure, terminal};
use serde_json::Value;

/// Columns or fields: what a person reads, and the JSON pointer of what stands there.
pub(crate) type Members = &'static [(&'static str, &'static str)];

/// The text of the member at `pointer`: texts as they are, lists by what their entries are called, nothing for null, other
/// values as JSON.
pub(crate) fn text(value: &Value, pointer: &str) -> String {
    match value.pointer(pointer) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(entries)) => entries.iter().map(called).collect::<Vec<_>>().join(", "),
        Some(other) => other.to_string(),
    }
}

/// An entry of a list in a word: itself, or its name or type.
fn called(entry: &Value) -> String {
    let word = ["/name", "/type"].iter().find_map(|member| entry.pointer(member).and_then(Value::as_str));
    entry.as_str().or(word).map_or_else(|| entry.to_string(), str::to_owned)
}

/// One row of cells for each value.
pub(crate) fn rows(values: &[Value], members: Members) -> Vec<Vec<String>> {
    values.iter().map(|value| members.iter().map(|(_, pointer)| text(value, pointer)).collect()).collect()
}

/// The heads of the columns.
pub(crate) fn head(members: Members) -> Vec<&'static str> {
    members.iter().map(|(name, _)| *name).collect()
}

/// One `name: value` line for each member that is there, escaped and ended.
pub(crate) fn lines(value: &Value, members: Members) -> String {
    let width = members.iter().map(|(name, _)| name.len()).max().unwrap_or(0) + 1;
    members
        .iter()
        .map(|(name, pointer)| (name, text(value, pointer)))
        .filter(|(_, text)| !text.is_empty())
        .map(|(name, text)| format!("{:<width$} {}\n", format!("{name}:"), terminal::line(&text)))
        .collect()
}

/// The id of a thing that the server made.
pub(crate) fn id(value: &Value) -> Result<String, Failure> {
    let id = text(value, "/id");
    if id.is_empty() {
        return Err(Failure::local(
            "The server's answer has no id. Check that both programs are of one version.",
        ));
    }
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const MEMBERS: Members = &[("id", "/id"), ("model", "/model/id"), ("note", "/note")];

    #[test]
    fn members_are_found_by_pointer_and_missing_ones_are_left_out() {
        let value = json!({"id": "a\u{1b}", "model": {"id": "m"}, "note": null});
        assert_eq!(lines(&value, MEMBERS), "id:    a\\u{1b}\nmodel: m\n");
        assert_eq!(
            rows(&[value, json!({"note": [1]})], MEMBERS),
            [
                vec!["a\u{1b}".to_owned(), "m".to_owned(), String::new()],
                vec![String::new(), String::new(), "1".to_owned()],
            ]
        );
    }

    #[test]
    fn a_list_is_told_by_what_its_entries_are_called() {
        let value =
            json!({"note": ["gpu", {"type": "custom", "name": "ask"}, {"type": "toolset"}, {"x": 1}]});
        assert_eq!(text(&value, "/note"), r#"gpu, ask, toolset, {"x":1}"#);
        assert_eq!(lines(&json!({"note": []}), MEMBERS), "");
    }
}
