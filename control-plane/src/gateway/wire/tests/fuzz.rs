//! Streams that no honest provider sends: whatever comes in, in any split and cut anywhere, the client's stream is well
//! formed and ends, and an end that looks good was one.

use super::*;
use proptest::{prelude::*, sample::Index};

const FRAMES: [&str; 46] = [
    r#"{"type":"message_start","message":{"id":"a","usage":{"input_tokens":5,"output_tokens":1}}}"#,
    r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
    r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t","name":"bash","input":{}}}"#,
    r#"{"type":"content_block_start","index":2,"content_block":{"type":"thinking","thinking":"x","signature":""}}"#,
    r#"{"type":"content_block_start","index":3,"content_block":{"type":"redacted_thinking","data":"zz"}}"#,
    r#"{"type":"content_block_start","index":4,"content_block":{"type":"server_tool_use","id":"s","name":"w","input":{}}}"#,
    r#"{"type":"content_block_start"}"#,
    r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"é\n"}}"#,
    r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"a\":"}}"#,
    r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"1}"}}"#,
    r#"{"type":"content_block_delta","index":2,"delta":{"type":"thinking_delta","thinking":"hm"}}"#,
    r#"{"type":"content_block_delta","index":2,"delta":{"type":"signature_delta","signature":"sg"}}"#,
    r#"{"type":"content_block_delta","index":4,"delta":{"type":"citations_delta"}}"#,
    r#"{"type":"content_block_stop","index":0}"#,
    r#"{"type":"content_block_stop","index":1}"#,
    r#"{"type":"content_block_stop","index":2}"#,
    r#"{"type":"content_block_stop","index":3}"#,
    r#"{"type":"content_block_stop","index":4}"#,
    r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":9}}"#,
    r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"}}"#,
    r#"{"type":"message_delta","delta":{"stop_reason":"refusal"},"usage":null}"#,
    r#"{"type":"message_stop"}"#,
    r#"{"type":"ping"}"#,
    r#"{"type":"error","error":{"type":"overloaded_error","message":"busy"}}"#,
    r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#,
    r#"{"choices":[{"index":0,"delta":{"content":"hi"}}]}"#,
    r#"{"choices":[{"index":0,"delta":{"reasoning_content":"hm"}}]}"#,
    r#"{"choices":[{"index":0,"delta":{"reasoning":"hm","content":"x"}}]}"#,
    r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"bash","arguments":""}}]}}]}"#,
    r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":"}}]}}]}"#,
    r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]}}]}"#,
    r#"{"choices":[{"delta":{"tool_calls":[{"index":1,"id":"b","function":{"name":"read","arguments":"{"}}]}}]}"#,
    r#"{"choices":[{"delta":{"tool_calls":[{"index":1,"function":{"arguments":"}"}}]}}]}"#,
    r#"{"choices":[{"delta":{"tool_calls":[{"index":2,"id":"c","function":{}}]}}]}"#,
    r#"{"choices":[{"delta":{"tool_calls":[{"id":"d","function":{"name":"ls","arguments":{"a":1}}}]}}]}"#,
    r#"{"choices":[{"delta":{"tool_calls":[{}, null, 3]}}]}"#,
    r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#,
    r#"{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}"#,
    r#"{"choices":[{"delta":{},"finish_reason":"length"}],"usage":{"prompt_tokens":9}}"#,
    r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}}}"#,
    r#"{"choices":[{"index":1,"delta":{"content":"other"}}]}"#,
    r#"{"error":{"message":"no"}}"#,
    "[DONE]",
    "{",
    "null",
    "[]",
];

/// A stream of frames, mostly in a sensible order, cut somewhere.
fn text() -> impl Strategy<Value = String> {
    let frames = prop::collection::vec((any::<Index>(), any::<bool>()), 0..24);
    (frames, any::<Index>(), any::<bool>(), any::<bool>()).prop_map(|(frames, cut, is_cut, is_sorted)| {
        let mut at: Vec<usize> = frames.iter().map(|(index, _)| index.index(FRAMES.len())).collect();
        if is_sorted {
            at.sort_unstable();
        }
        let frames = at.into_iter().map(|at| format!("data: {}\n\n", FRAMES[at]));
        let mut text: String = frames.collect();
        if is_cut {
            let mut end = cut.index(text.len() + 1);
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            text.truncate(end);
        }
        text
    })
}

fn run(from: Spoken, to: Wire, bytes: &[u8], cuts: &[Index], fault: Option<Fault>) -> (String, bool) {
    let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    at.extend([0, bytes.len()]);
    at.sort_unstable();
    let mut stream = Stream::new(from, to, label());
    let mut out = String::new();
    for pair in at.windows(2) {
        out.push_str(&stream.feed(&bytes[pair[0]..pair[1]]));
    }
    out.push_str(&stream.finish(fault));
    assert!(stream.is_over());
    assert_eq!(stream.feed(b"data: {\"type\":\"message_start\"}\n\ndata: [DONE]\n\n"), "");
    assert_eq!(stream.finish(None), "");
    (out, stream.is_complete())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_stream_of_anything_ends_in_a_state_the_client_knows(
        text in text(), cuts in prop::collection::vec(any::<Index>(), 0..6), is_broken in any::<bool>()
    ) {
        for from in SPOKEN {
            for to in WIRES {
                let fault = is_broken.then(|| Fault::broken("cut"));
                let (out, is_complete) = run(from, to, text.as_bytes(), &cuts, fault.clone());
                prop_assert_eq!(grammar::check(to, &out), is_complete, "{}", out);
                let (whole, _) = run(from, to, text.as_bytes(), &[], fault);
                prop_assert_eq!(out, whole);
                let ends = text.contains("message_stop") || text.contains("finish_reason");
                prop_assert!(ends || !is_complete);
            }
        }
    }

    #[test]
    fn no_bytes_make_a_stream_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        for from in SPOKEN {
            for to in WIRES {
                let (out, is_complete) = run(from, to, &bytes, &[], None);
                prop_assert!(!is_complete);
                grammar::check(to, &out);
            }
        }
    }
}
