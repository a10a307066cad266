//! Replies: what a model said is the same whole and streamed, and survives every wire that can be read back.

use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};

fn words() -> impl Strategy<Value = String> {
    "[a-zé \"\\\\\n🦀]{1,12}".prop_filter("said", |text| !text.trim().is_empty())
}

fn arguments() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("{}".to_owned()),
        ("[a-z]{1,4}", words()).prop_map(|(name, value)| json!({name: value}).to_string()),
        (0..99_u32, words())
            .prop_map(|(number, value)| json!({"n": number, "deep": {"list": [value, null]}}).to_string()),
    ]
}

/// A reply that every wire can tell: at most one thought, then words, then calls.
fn reply() -> impl Strategy<Value = Reply> {
    let calls = prop::collection::vec(("[a-z]{1,6}", arguments()), 0..4);
    let stops = prop_oneof![Just(Stop::EndTurn), Just(Stop::MaxTokens), Just(Stop::Refusal)];
    let usage = (0..1000_u64, 0..1000_u64, 0..9_u64, 0..9_u64);
    (prop::option::of(words()), prop::option::of(words()), calls, stops, usage).prop_map(
        |(thought, said, calls, stop, (input_tokens, output_tokens, written, read))| {
            let mut blocks = Vec::new();
            let signature = "chat:reasoning_content".to_owned();
            blocks.extend(thought.map(|text| Block::Thinking { text, signature }));
            blocks.extend(said.map(Block::Text));
            let stop = if calls.is_empty() || stop != Stop::EndTurn { stop } else { Stop::ToolUse };
            let calls = calls.into_iter().enumerate();
            blocks.extend(calls.map(|(at, (name, arguments))| Block::Call {
                id: format!("call_{at}"),
                name,
                arguments,
            }));
            let usage = ModelUsage {
                input_tokens,
                output_tokens,
                cache_creation_input_tokens: written,
                cache_read_input_tokens: read,
            };
            Reply { blocks, stop, usage, fault: None, is_complete: true }
        },
    )
}

/// The stream in which a provider of `spoken` would send `reply`: our own writers, driven by a stream of the other wire.
fn streamed(reply: &Reply, spoken: Spoken) -> String {
    let wire = wire_of(spoken);
    let mut stream = Stream::new(Spoken::Messages, wire, label());
    stream.feed(messages_stream(reply).as_bytes()) + &stream.finish(None)
}

const fn wire_of(spoken: Spoken) -> Wire {
    match spoken {
        Spoken::Messages => Wire::Messages,
        Spoken::Chat => Wire::Chat,
    }
}

/// Written here by hand, so that no writer is only ever read by its own reader.
fn messages_stream(reply: &Reply) -> String {
    let whole = Wire::Messages.write_reply(reply, &label());
    let mut events = vec![json!({"type": "message_start", "message": {"usage": {"input_tokens": 0}}})];
    for (index, block) in reply.blocks.iter().enumerate() {
        let (opened, delta) = match block {
            Block::Text(text) => (json!({"type": "text"}), json!({"type": "text_delta", "text": text})),
            Block::Thinking { text, .. } => {
                (json!({"type": "thinking"}), json!({"type": "thinking_delta", "thinking": text}))
            }
            Block::Redacted(data) => (json!({"type": "redacted_thinking", "data": data}), json!({})),
            Block::Call { id, name, arguments } => (
                json!({"type": "tool_use", "id": id, "name": name, "input": {}}),
                json!({"type": "input_json_delta", "partial_json": arguments}),
            ),
        };
        events.push(json!({"type": "content_block_start", "index": index, "content_block": opened}));
        events.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        if let Block::Thinking { signature, .. } = block {
            let delta = json!({"type": "signature_delta", "signature": signature});
            events.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        }
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    let delta = json!({"stop_reason": whole["stop_reason"], "stop_sequence": whole["stop_sequence"]});
    events.push(json!({"type": "message_delta", "delta": delta, "usage": whole["usage"]}));
    events.push(json!({"type": "message_stop"}));
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

proptest! {
    #[test]
    fn a_reply_is_the_same_whole_and_streamed_on_every_wire(reply in reply()) {
        for spoken in SPOKEN {
            let whole = wire_of(spoken).write_reply(&reply, &label());
            prop_assert_eq!(&spoken.read_reply(&whole, "1").unwrap(), &reply, "{}", whole);
            let stream = streamed(&reply, spoken);
            prop_assert_eq!(&reply_of(spoken, &stream), &reply, "{}", stream);
        }
    }

    #[test]
    fn a_chat_stream_with_its_calls_side_by_side_is_the_same_reply(reply in reply(), piece in 1..5_usize) {
        let stream = side_by_side(&streamed(&reply, Spoken::Chat), piece);
        prop_assert_eq!(&reply_of(Spoken::Chat, &stream), &reply, "{}", stream);
    }

    #[test]
    fn the_last_event_of_a_responses_stream_is_the_whole_reply(reply in reply()) {
        let out = translated(Spoken::Messages, Wire::Responses, &messages_stream(&reply));
        let last: Value = serde_json::from_str(out.trim_end().rsplit_once("data: ").unwrap().1).unwrap();
        prop_assert_eq!(&last["response"], &Wire::Responses.write_reply(&reply, &label()));
        let done = out.lines().filter(|line| line.starts_with("event: response.output_item.done")).count();
        prop_assert_eq!(done, reply.blocks.len());
    }
}

/// The same stream with the arguments of all its calls in turns of `piece` characters.
fn side_by_side(stream: &str, piece: usize) -> String {
    let mut arguments: Vec<(u64, Vec<char>)> = Vec::new();
    let mut before = String::new();
    let mut after = String::new();
    for frame in stream.split_inclusive("\n\n") {
        let chunk: Value =
            serde_json::from_str(frame.trim().trim_start_matches("data: ")).unwrap_or(Value::Null);
        let call = &chunk["choices"][0]["delta"]["tool_calls"][0];
        let index = call["index"].as_u64();
        match (index, call["id"].is_string()) {
            (Some(index), false) => {
                let text = call["function"]["arguments"].as_str().unwrap();
                arguments.push((index, text.chars().collect()));
            }
            _ if chunk["choices"][0]["finish_reason"].is_null() && chunk["choices"][0].is_object() => {
                before.push_str(frame);
            }
            _ => after.push_str(frame),
        }
    }
    let longest = arguments.iter().map(|(_, text)| text.len()).max().unwrap_or(0);
    for from in (0..longest).step_by(piece) {
        for (index, text) in &arguments {
            let part: String = text.iter().skip(from).take(piece).collect();
            let call = json!({"index": index, "function": {"arguments": part}});
            let chunk = json!({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]});
            before.push_str(&format!("data: {chunk}\n\n"));
        }
    }
    before + &after
}

#[test]
fn stop_reasons_are_told_in_each_wires_words() {
    for (stop, messages, chat, responses) in [
        (Stop::EndTurn, "end_turn", "stop", "completed"),
        (Stop::MaxTokens, "max_tokens", "length", "incomplete"),
        (Stop::Refusal, "refusal", "content_filter", "incomplete"),
        (Stop::ContextFull, "model_context_window_exceeded", "length", "incomplete"),
        (Stop::Sequence(Some("x".into())), "stop_sequence", "stop", "completed"),
        (Stop::ToolUse, "tool_use", "tool_calls", "completed"),
        (Stop::Pause, "pause_turn", "stop", "completed"),
    ] {
        let reply = Reply { stop, ..Reply::default() };
        assert_eq!(Wire::Messages.write_reply(&reply, &label())["stop_reason"], messages);
        assert_eq!(Wire::Chat.write_reply(&reply, &label())["choices"][0]["finish_reason"], chat);
        assert_eq!(Wire::Responses.write_reply(&reply, &label())["status"], responses);
    }
}

#[test]
fn calls_that_a_provider_ends_as_a_plain_turn_are_still_calls() {
    let body = json!({"choices": [{"finish_reason": "stop", "message": {"tool_calls": [
        {"function": {"name": "ls", "arguments": {"a": 1}}}, {"function": {"name": "ls", "arguments": ""}}]}}]});
    let reply = Spoken::Chat.read_reply(&body, "9").unwrap();
    assert_eq!(reply.stop, Stop::ToolUse);
    let call = |id: &str, arguments: &str| Block::Call {
        id: id.into(),
        name: "ls".into(),
        arguments: arguments.into(),
    };
    assert_eq!(reply.blocks, [call("call_9_0", "{\"a\":1}"), call("call_9_1", "{}")]);
}

#[test]
fn what_is_no_reply_is_a_fault() {
    for body in [
        json!({}),
        json!(null),
        json!({"choices": []}),
        json!({"content": []}),
        json!({"error": {"message": "x"}}),
    ] {
        for spoken in SPOKEN {
            assert!(spoken.read_reply(&body, "1").is_err(), "{body}");
        }
    }
}
