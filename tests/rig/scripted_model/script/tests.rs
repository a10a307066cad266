//! Which reply a conversation gets, and what a script may not say.

use super::*;

fn user(text: &str) -> Message<'_> {
    Message { index: 0, role: Role::User, blocks: vec![Block::Text(text)] }
}

fn results<'a>() -> Message<'a> {
    let block = Block::ToolResult { id: "a", text: "ok".to_owned(), is_error: false };
    Message { index: 0, role: Role::User, blocks: vec![block] }
}

fn assistant<'a>() -> Message<'a> {
    Message { index: 0, role: Role::Assistant, blocks: vec![Block::Text("x")] }
}

fn said(script: &Script, messages: &[Message<'_>]) -> String {
    script.reply(messages).unwrap().say.unwrap_or_default()
}

const CARRIED: &str = r#"script: [{"say":"one","tool":"bash"},{"say":"two","tool":"bash"},{"say":"three"}]"#;

#[test]
fn a_carried_script_advances_with_each_assistant_message() {
    let script = Script::default();
    let mut messages = vec![user("before"), assistant(), user(CARRIED)];
    for expected in ["one", "two", "three"] {
        assert_eq!(said(&script, &messages), expected);
        messages.push(assistant());
        messages.push(results());
    }
    assert_eq!(said(&script, &messages), CLOSING);
}

#[test]
fn a_later_text_steers_without_restarting_the_script() {
    let script = Script::default();
    let steered = Message {
        index: 0,
        role: Role::User,
        blocks: vec![
            Block::ToolResult { id: "a", text: "ok".to_owned(), is_error: false },
            Block::Text("hurry up"),
        ],
    };
    let mut messages = vec![user(CARRIED), assistant(), steered];
    assert_eq!(said(&script, &messages), "two");
    messages.extend([assistant(), results(), assistant(), user("and now?")]);
    assert_eq!(said(&script, &messages), "You said: and now?");
    messages.push(assistant());
    messages.push(user(r#"script: [{"say":"again"}]"#));
    assert_eq!(said(&script, &messages), "again");
}

#[test]
fn a_script_beside_other_words_of_the_client_is_found() {
    let message = Message {
        index: 0,
        role: Role::User,
        blocks: vec![
            Block::Text(r#" script: [{"say":"found"}]"#),
            Block::Text("<environment>linux</environment>"),
        ],
    };
    assert_eq!(said(&Script::default(), &[message]), "found");
}

#[test]
fn the_first_rule_whose_word_is_contained_wins() {
    let script = Script::read(
        r#"{"rules":[{"contains":"red","steps":[{"say":"R"}]},{"contains":"blue","steps":[{"say":"B"}]}]}"#,
    )
    .unwrap();
    for (text, expected) in
        [("a red one", "R"), ("blue", "B"), ("red and blue", "R"), ("green", "You said: green")]
    {
        assert_eq!(said(&script, &[user(text)]), expected);
    }
}

#[test]
fn faults_belong_to_the_reply_that_follows_them() {
    let steps = Steps::read(
        r#"[{"error":529,"times":2},{"cut":true,"after_deltas":3},{"say":"a","tool":"bash"},
            {"delay_ms_per_delta":5},{"error":429,"retry_after":1},{"say":"b"},{"stream_error":"overloaded_error"}]"#,
    )
    .unwrap();
    let overloaded = Fault::Status { status: 529, retry_after_seconds: None };
    assert_eq!(steps.0[0].faults, [overloaded.clone(), overloaded, Fault::Cut { after_deltas: 3 }]);
    assert_eq!(steps.0[1].faults, [Fault::Status { status: 429, retry_after_seconds: Some(1) }]);
    assert_eq!(steps.0[1].delay_per_delta, Duration::from_millis(5));
    assert_eq!(steps.0[2].say.as_deref(), Some(CLOSING));
    assert_eq!(
        steps.0[2].faults,
        [Fault::StreamError { kind: "overloaded_error".to_owned(), after_deltas: 0 }]
    );
}

#[test]
fn one_and_many_calls_are_read() {
    let steps = Steps::read(
        r#"[{"tool":"bash","input":{"command":"ls"}},
            {"tools":[{"tool":"read","input":{"file_path":"/a"}},{"tool":"glob"}],"expect":["x","y"]}]"#,
    )
    .unwrap();
    assert_eq!(steps.0[0].calls, [Call { tool: "bash".to_owned(), input: json!({"command": "ls"}) }]);
    assert_eq!(steps.0[1].calls.len(), 2);
    assert_eq!(steps.0[1].calls[1].input, json!({}));
    assert_eq!(steps.0[1].expects, ["x", "y"]);
}

#[test]
fn nonsense_is_refused() {
    for (text, words) in [
        ("[{]", "JSON"),
        (r#"{"say":"not a list"}"#, "JSON"),
        (r#"[{"sya":"x"}]"#, "unknown field"),
        (r#"[{"say":"x","error":500}]"#, "step 0"),
        (r#"[{"say":"x"},{}]"#, "step 1"),
        (r#"[{"tool":"a","tools":[{"tool":"b"}]}]"#, "step 0"),
        (r#"[{"say":"x","input":{}}]"#, "step 0"),
    ] {
        let error = Steps::read(text).unwrap_err().to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
}
