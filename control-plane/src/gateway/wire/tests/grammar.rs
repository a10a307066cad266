//! Whether a client's stream is well formed: what each wire demands of the order of its events.

use super::*;
use crate::sse::{Decoder, Frame};
use serde_json::Value;

/// Panics with what is wrong; says whether the reply ended well.
pub(super) fn check(wire: Wire, out: &str) -> bool {
    let mut frames = Vec::new();
    Decoder::default().feed(out.as_bytes(), |frame| frames.push(frame));
    match wire {
        Wire::Messages => messages(&frames),
        Wire::Chat => chat(&frames),
        Wire::Responses => responses(&frames),
    }
}

fn json(frame: &Frame) -> Value {
    let data: Value = serde_json::from_str(&frame.data).unwrap();
    if let Some(event) = &frame.event {
        assert_eq!(data["type"], event.as_str(), "the event and its data name the same type");
    }
    data
}

fn messages(frames: &[Frame]) -> bool {
    let (mut open, mut next, mut has_begun, mut has_stopped) = (None, 0, false, false);
    for (at, frame) in frames.iter().enumerate() {
        let (data, is_last) = (json(frame), at + 1 == frames.len());
        let kind = data["type"].as_str().unwrap();
        assert_eq!(is_last, matches!(kind, "message_stop" | "error"), "{kind} at {at} of {}", frames.len());
        if kind == "error" {
            assert!(data["error"]["type"].is_string() && data["error"]["message"].is_string());
            return false;
        }
        assert_eq!(has_begun, kind != "message_start", "{kind}");
        assert!(!has_stopped || kind == "message_stop", "{kind} after the reason to stop");
        match kind {
            "message_start" => {
                has_begun = true;
                assert!(data["message"]["usage"]["input_tokens"].is_u64());
            }
            "content_block_start" => {
                assert_eq!((open, data["index"].as_u64()), (None, Some(next)));
                open = Some(next);
            }
            "content_block_delta" => assert_eq!(data["index"].as_u64(), open),
            "content_block_stop" => {
                assert_eq!(data["index"].as_u64(), open.take());
                next += 1;
            }
            "message_delta" => {
                assert_eq!(open, None);
                assert!(data["delta"]["stop_reason"].is_string());
                has_stopped = true;
            }
            "message_stop" => assert!(has_stopped),
            kind => panic!("unknown event {kind}"),
        }
    }
    assert!(!frames.is_empty(), "a stream of nothing");
    true
}

fn chat(frames: &[Frame]) -> bool {
    let (mut calls, mut has_stopped) = (0, false);
    for (at, frame) in frames.iter().enumerate() {
        let is_last = at + 1 == frames.len();
        if frame.data == "[DONE]" {
            assert!(is_last && has_stopped);
            return true;
        }
        let chunk = json(frame);
        if !chunk["error"].is_null() {
            assert!(is_last && chunk["error"]["message"].is_string());
            return false;
        }
        for call in chunk["choices"][0]["delta"]["tool_calls"].as_array().into_iter().flatten() {
            let index = call["index"].as_u64().unwrap();
            if call["id"].is_string() {
                assert_eq!(index, calls);
                calls += 1;
            }
            assert_eq!(index + 1, calls, "a piece of a call that is not the last");
        }
        has_stopped |= chunk["choices"][0]["finish_reason"].is_string();
    }
    panic!("a stream without an end");
}

fn responses(frames: &[Frame]) -> bool {
    let (mut open, mut next) = (None, 0);
    for (at, frame) in frames.iter().enumerate() {
        let (data, is_last) = (json(frame), at + 1 == frames.len());
        assert_eq!(data["sequence_number"].as_u64(), u64::try_from(at).ok());
        let kind = data["type"].as_str().unwrap();
        let ends = ["response.completed", "response.incomplete", "response.failed"].contains(&kind);
        assert_eq!(is_last, ends, "{kind} at {at} of {}", frames.len());
        match kind {
            "response.output_item.added" => {
                assert_eq!((open, data["output_index"].as_u64()), (None, Some(next)));
                open = Some(next);
            }
            "response.output_item.done" => {
                assert_eq!(data["output_index"].as_u64(), open.take());
                next += 1;
            }
            _ if ends => {
                let status = kind.strip_prefix("response.").unwrap();
                assert_eq!(data["response"]["status"], status);
                assert_eq!(status == "failed", !data["response"]["error"].is_null());
                return status != "failed";
            }
            "response.created" | "response.in_progress" => {}
            _ => assert_eq!(data["output_index"].as_u64(), open, "{kind}"),
        }
    }
    panic!("a stream without an end");
}
