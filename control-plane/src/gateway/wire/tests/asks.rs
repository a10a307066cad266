//! Requests: a conversation of tool calls survives the way to the other wire and back, and what cannot be carried is named.

use super::super::ask::{Ask, Choice, Error, Image, Origin, Part, Role, Target, Tool, Turn};
use super::*;
use checkfu_shared::agent::Effort;
use proptest::prelude::*;
use serde_json::{Value, json};

const TARGET: Target<'_> = Target { model: "up", effort: None, limit_member: "max_tokens" };

fn words() -> impl Strategy<Value = String> {
    "[a-zé \"\\\\\n🦀]{0,8}[a-z]"
}

/// A conversation as a harness has it: each answer of the model may call tools, each call has one result.
fn conversation() -> impl Strategy<Value = Ask> {
    let round = (
        prop::option::of(words()),
        prop::collection::vec(("[a-z]{1,5}", words(), words(), any::<bool>()), 1..4),
        prop::option::of(words()),
    );
    (words(), words(), prop::collection::vec(round, 0..4)).prop_map(|(system, first, rounds)| {
        let mut ask = Ask { max_tokens: Some(9), ..Ask::default() };
        ask.say(Role::System, vec![Part::Text(system)]);
        ask.say(Role::User, vec![Part::Text(first)]);
        for (round, (said, calls, next)) in rounds.into_iter().enumerate() {
            let (mut answer, mut results) = (Vec::new(), Vec::new());
            answer.extend(said.map(Part::Text));
            for (at, (name, input, output, is_quiet)) in calls.into_iter().enumerate() {
                let id = format!("call_{round}_{at}");
                let arguments = json!({"input": input}).to_string();
                answer.push(Part::Call { id: id.clone(), name, arguments });
                let parts = if is_quiet { vec![] } else { vec![Part::Text(output)] };
                results.push(Part::Result { id, parts, is_error: false });
            }
            results.extend(next.map(Part::Text));
            ask.say(Role::Assistant, answer);
            ask.say(Role::User, results);
        }
        ask
    })
}

proptest! {
    #[test]
    fn a_conversation_of_tool_calls_survives_both_wires(ask in conversation()) {
        let messages = Spoken::Messages.write_ask(&ask, &TARGET);
        prop_assert_eq!(&Wire::Messages.read_ask(&messages).unwrap().turns, &ask.turns, "{}", messages);
        let chat = Spoken::Chat.write_ask(&ask, &TARGET);
        prop_assert_eq!(&Wire::Chat.read_ask(&chat).unwrap().turns, &ask.turns, "{}", chat);
        // There and back: Messages -> Chat -> Messages.
        let there = Spoken::Chat.write_ask(&Wire::Messages.read_ask(&messages).unwrap(), &TARGET);
        let back = Spoken::Messages.write_ask(&Wire::Chat.read_ask(&there).unwrap(), &TARGET);
        prop_assert_eq!(back, messages);
    }

    #[test]
    fn in_chat_every_call_is_followed_by_exactly_its_result(ask in conversation()) {
        let chat = Spoken::Chat.write_ask(&ask, &TARGET);
        let mut waiting: Vec<String> = Vec::new();
        for message in chat["messages"].as_array().unwrap() {
            if message["role"] == "tool" {
                let id = message["tool_call_id"].as_str().unwrap();
                let at = waiting.iter().position(|waits| waits == id);
                prop_assert!(at.is_some(), "{chat}");
                waiting.remove(at.unwrap());
            } else {
                prop_assert!(waiting.is_empty(), "{chat}");
                let calls = message["tool_calls"].as_array().into_iter().flatten();
                waiting.extend(calls.map(|call| call["id"].as_str().unwrap().to_owned()));
            }
        }
        prop_assert!(waiting.is_empty());
    }

    #[test]
    fn no_json_makes_a_reader_of_requests_panic(text in "[\\[\\]{}\":,a-z0-9]{0,60}") {
        if let Ok(body) = serde_json::from_str::<Value>(&text) {
            for wire in WIRES {
                let _ = wire.read_ask(&body);
            }
        }
    }
}

fn of(wire: Wire, to: Spoken, body: &Value) -> Value {
    to.write_ask(&wire.read_ask(body).unwrap(), &TARGET)
}

#[test]
fn settings_are_carried_from_messages_to_chat() {
    let body = json!({
        "model": "x", "max_tokens": 5, "stream": true, "temperature": 0.5, "stop_sequences": ["END"],
        "system": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "b"}],
        "tools": [{"name": "bash", "description": "d", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "tool", "name": "bash", "disable_parallel_tool_use": true},
        "messages": [{"role": "user", "content": "hi"}],
    });
    let want = json!({
        "model": "up", "max_tokens": 5, "stream": true, "stream_options": {"include_usage": true}, "temperature": 0.5,
        "stop": ["END"], "parallel_tool_calls": false,
        "tools": [{"type": "function", "function": {"name": "bash", "description": "d", "parameters": {"type": "object"}}}],
        "tool_choice": {"type": "function", "function": {"name": "bash"}},
        "messages": [{"role": "system", "content": "a\n\nb"}, {"role": "user", "content": "hi"}],
    });
    assert_eq!(of(Wire::Messages, Spoken::Chat, &body), want);
}

#[test]
fn settings_are_carried_from_chat_to_messages() {
    let body = json!({
        "model": "x", "max_completion_tokens": 7, "temperature": 1.8, "stop": "END", "parallel_tool_calls": true,
        "tools": [{"type": "function", "function": {"name": "now"}}], "tool_choice": "required",
        "messages": [
            {"role": "developer", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {"role": "system", "content": "mind the gap"}],
    });
    let want = json!({
        "model": "up", "max_tokens": 7, "stream": false, "temperature": 1.0, "stop_sequences": ["END"],
        "cache_control": {"type": "ephemeral"}, "system": "s",
        "tools": [{"name": "now", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": false},
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "text", "text": "mind the gap"}]}],
    });
    assert_eq!(of(Wire::Chat, Spoken::Messages, &body), want);
}

#[test]
fn images_are_carried_also_those_of_results() {
    let image =
        json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QQ=="}});
    let body = json!({"max_tokens": 1, "messages": [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "look", "input": {}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t", "is_error": true, "content": [{"type": "text", "text": "seen"}, image]},
            {"type": "text", "text": "what is it?"}]},
    ]});
    let chat = of(Wire::Messages, Spoken::Chat, &body);
    let url = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,QQ=="}});
    assert_eq!(
        chat["messages"][1]["content"],
        "[The tool failed.] seen\n[Its images follow in the next message.]"
    );
    assert_eq!(chat["messages"][2]["content"], json!([url, {"type": "text", "text": "what is it?"}]));
    let back = Wire::Chat.read_ask(&chat).unwrap();
    let held = Image { media_type: "image/png".into(), data: "QQ==".into() };
    assert_eq!(back.turns[1].parts[1], Part::Image(held));
}

#[test]
fn a_thought_goes_back_only_to_where_it_came_from() {
    let said = |signature: &str| {
        json!({"max_tokens": 1, "messages": [{"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": signature}, {"type": "text", "text": "a"}]}]})
    };
    let chat = |signature: &str| of(Wire::Messages, Spoken::Chat, &said(signature))["messages"][0].clone();
    assert_eq!(chat("chat:reasoning"), json!({"role": "assistant", "content": "a", "reasoning": "hm"}));
    assert_eq!(chat("sig"), json!({"role": "assistant", "content": "a"}));
    let messages = |signature: &str| {
        of(Wire::Messages, Spoken::Messages, &said(signature))["messages"][0]["content"].clone()
    };
    assert_eq!(messages("sig")[0]["signature"], "sig");
    assert_eq!(messages("chat:reasoning"), json!([{"type": "text", "text": "a"}]));
}

#[test]
fn a_request_of_the_responses_wire_is_carried() {
    let body = json!({
        "model": "x", "stream": true, "store": false, "include": ["reasoning.encrypted_content"], "instructions": "be kind",
        "reasoning": {"effort": "high"}, "prompt_cache_key": "k", "parallel_tool_calls": false,
        "tools": [
            {"type": "function", "name": "exec", "description": "d", "parameters": {"type": "object"}, "strict": false},
            {"type": "custom", "name": "patch", "description": "p", "format": {"type": "grammar", "definition": "G"}},
            {"type": "namespace", "name": "agents", "tools": [{"type": "function", "name": "spawn", "parameters": {}}]}],
        "input": [
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "rules"}]},
            {"role": "user", "content": [{"type": "input_text", "text": "hi"}, {"type": "input_image", "image_url": "data:image/png;base64,QQ=="}]},
            {"type": "reasoning", "summary": [], "encrypted_content": "{\"thinking\":\"hm\",\"signature\":\"sig\"}"},
            {"type": "reasoning", "summary": [], "encrypted_content": "from elsewhere"},
            {"type": "function_call", "call_id": "a", "name": "exec", "arguments": "{\"cmd\":\"ls\"}"},
            {"type": "function_call", "call_id": "b", "namespace": "agents", "name": "spawn", "arguments": "{}"},
            {"type": "custom_tool_call", "call_id": "c", "name": "patch", "input": "*** Begin"},
            {"type": "function_call_output", "call_id": "a", "output": "x"},
            {"type": "function_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "y"}]},
            {"type": "custom_tool_call_output", "call_id": "c", "output": "z"}],
    });
    let ask = Wire::Responses.read_ask(&body).unwrap();
    assert_eq!(
        ask.tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(),
        ["exec", "patch", "agents__spawn"]
    );
    assert_eq!(ask.origins()["patch"], Origin::Custom);
    let messages = Spoken::Messages.write_ask(&ask, &TARGET);
    assert_eq!(messages["system"], "be kind\n\nrules");
    let call = |id: &str, name: &str, input: Value| json!({"type": "tool_use", "id": id, "name": name, "input": input});
    assert_eq!(
        messages["messages"][1]["content"],
        json!([
            {"type": "thinking", "thinking": "hm", "signature": "sig"},
            call("a", "exec", json!({"cmd": "ls"})), call("b", "agents__spawn", json!({})),
            call("c", "patch", json!({"input": "*** Begin"}))])
    );
    let results = messages["messages"][2]["content"].as_array().unwrap();
    assert_eq!(
        results.iter().map(|result| result["tool_use_id"].as_str().unwrap()).collect::<Vec<_>>(),
        ["a", "b", "c"]
    );
}

#[test]
fn the_calls_of_special_tools_come_back_in_their_own_form() {
    let tool = |name: &str, origin| Tool { name: name.into(), description: None, schema: json!({}), origin };
    let member = Origin::Member { namespace: "agents".into(), name: "spawn".into() };
    let ask =
        Ask { tools: vec![tool("patch", Origin::Custom), tool("agents__spawn", member)], ..Ask::default() };
    let label = Label { origins: ask.origins(), ..label() };
    let call = |name: &str, arguments: &str| Block::Call {
        id: "c".into(),
        name: name.into(),
        arguments: arguments.into(),
    };
    let blocks =
        vec![call("patch", "{\"input\":\"*** Begin\"}"), call("patch", "raw"), call("agents__spawn", "{}")];
    let output = Wire::Responses.write_reply(&Reply { blocks, ..Reply::default() }, &label)["output"].clone();
    assert_eq!((&output[0]["type"], &output[0]["input"]), (&json!("custom_tool_call"), &json!("*** Begin")));
    assert_eq!(output[1]["input"], "raw");
    assert_eq!((&output[2]["namespace"], &output[2]["name"]), (&json!("agents"), &json!("spawn")));
}

#[test]
fn the_effort_is_the_claims_in_the_providers_words() {
    for (effort, messages, chat) in [
        (Effort::Minimal, "low", "minimal"),
        (Effort::Low, "low", "low"),
        (Effort::Medium, "medium", "medium"),
        (Effort::High, "high", "high"),
        (Effort::Max, "max", "high"),
    ] {
        let target = Target { effort: Some(effort), ..TARGET };
        let ask = Ask::default();
        assert_eq!(Spoken::Messages.write_ask(&ask, &target)["output_config"]["effort"], messages);
        assert_eq!(Spoken::Chat.write_ask(&ask, &target)["reasoning_effort"], chat);
    }
}

#[test]
fn ids_and_inputs_that_messages_would_refuse_are_made_acceptable() {
    let mut ask = Ask::default();
    let call = Part::Call { id: "functions.bash:0".into(), name: "bash".into(), arguments: "{\"cut".into() };
    ask.say(Role::Assistant, vec![call]);
    ask.say(Role::User, vec![Part::Text(" ".into()), Part::Text("next".into())]);
    ask.turns[1].parts.push(Part::Result { id: "functions.bash:0".into(), parts: vec![], is_error: true });
    let messages = Spoken::Messages.write_ask(&ask, &TARGET)["messages"].clone();
    assert_eq!(messages[0]["content"][0]["id"], "functions_bash_0");
    assert_eq!(messages[0]["content"][0]["input"], json!({"not_a_json_object": "{\"cut"}));
    assert_eq!(
        messages[1]["content"],
        json!([{"type": "tool_result", "tool_use_id": "functions_bash_0"}, {"type": "text", "text": "next"}])
    );
}

#[test]
fn what_cannot_be_carried_is_named() {
    let user = |content: Value| json!([{"role": "user", "content": content}]);
    for (wire, body) in [
        (Wire::Messages, json!({"tools": [{"type": "web_search_20250305", "name": "w"}]})),
        (
            Wire::Messages,
            json!({"messages": user(json!([{"type": "image", "source": {"type": "url", "url": "x"}}]))}),
        ),
        (
            Wire::Messages,
            json!({"messages": user(json!([{"type": "document", "source": {"type": "base64"}}]))}),
        ),
        (Wire::Chat, json!({"tools": [{"type": "custom"}]})),
        (Wire::Chat, json!({"n": 2})),
        (Wire::Chat, json!({"response_format": {"type": "json_object"}})),
        (
            Wire::Chat,
            json!({"messages": user(json!([{"type": "image_url", "image_url": {"url": "https://x"}}]))}),
        ),
        (Wire::Responses, json!({"tools": [{"type": "web_search"}], "input": "x"})),
        (Wire::Responses, json!({"previous_response_id": "r", "input": "x"})),
        (Wire::Responses, json!({"input": [{"type": "local_shell_call"}]})),
    ] {
        assert!(matches!(wire.read_ask(&body), Err(Error::Unsupported(_))), "{body}");
    }
    for (wire, body) in [
        (Wire::Messages, json!({"messages": 3})),
        (Wire::Messages, json!({"messages": [{"role": "tool", "content": ""}]})),
        (Wire::Chat, json!({"messages": [{"content": "x"}]})),
        (Wire::Chat, json!({"messages": [{"role": "tool", "content": "x"}]})),
        (Wire::Responses, json!({})),
        (Wire::Responses, json!({"input": [{"type": "function_call", "call_id": "a"}]})),
    ] {
        assert!(matches!(wire.read_ask(&body), Err(Error::Malformed { .. })), "{body}");
    }
}

#[test]
fn a_choice_means_the_same_on_both_wires() {
    for choice in [Choice::Auto, Choice::Never, Choice::Any, Choice::Named("t".into())] {
        let tools = vec![Tool {
            name: "t".into(),
            description: None,
            schema: json!({"type": "object"}),
            origin: Origin::Function,
        }];
        let turns = vec![Turn { role: Role::User, parts: vec![Part::Text("x".into())] }];
        let ask = Ask { choice: Some(choice), tools, turns, max_tokens: Some(1), ..Ask::default() };
        for (spoken, wire) in [(Spoken::Messages, Wire::Messages), (Spoken::Chat, Wire::Chat)] {
            assert_eq!(wire.read_ask(&spoken.write_ask(&ask, &TARGET)).unwrap(), ask);
        }
    }
}
