//! Every shape, every cut, and what must stay as it is.

use super::*;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use proptest::prelude::*;

const SECRET: &str = "hunter2+\"two\"/three";

fn masker(secrets: &[&str]) -> Masker {
    Masker::new(secrets.iter().copied()).0
}

fn streamed(masker: &Masker, text: &[u8], cuts: &[usize]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut stream = Stream::default();
    let mut from = 0;
    for &cut in cuts {
        let cut = cut.clamp(from, text.len());
        stream.push(masker, &text[from..cut], &mut out);
        from = cut;
    }
    stream.push(masker, &text[from..], &mut out);
    stream.finish(masker, &mut out);
    out
}

#[test]
fn a_secret_is_found_in_every_shape() {
    let masker = masker(&[SECRET]);
    let escaped = serde_json::to_string(SECRET).unwrap();
    let twice = serde_json::to_string(&escaped).unwrap();
    for (text, left) in [
        (format!("a {SECRET} b"), "a [masked] b".to_owned()),
        (format!("a {escaped} b"), "a \"[masked]\" b".to_owned()),
        (twice, "\"\\\"[masked]\\\"\"".to_owned()),
        ("a=hunter2%2B%22two%22%2Fthree&b".to_owned(), "a=[masked]&b".to_owned()),
        ("a=hunter2%2b%22two%22%2fthree&b".to_owned(), "a=[masked]&b".to_owned()),
    ] {
        assert_eq!(masker.text(&text), left);
    }
}

#[test]
fn base64_of_anything_around_a_secret_shows_nothing_of_its_middle() {
    let masker = masker(&["correct-horse-battery"]);
    for before in ["", "x", "xy", "xyz", "user:", "Basic "] {
        for after in ["", "1", "12", "123"] {
            let text = STANDARD.encode(format!("{before}correct-horse-battery{after}"));
            let masked = masker.text(&text);
            assert!(masked.contains(MARK), "{before:?} {after:?}: {masked}");
            assert!(!masked.contains(&STANDARD.encode("correct-horse-battery")[4..12]), "{masked}");
        }
    }
}

#[test]
fn a_secret_cut_at_every_byte_is_masked_and_the_rest_is_not_held_back_at_the_end() {
    let masker = masker(&[SECRET]);
    let text = format!("before {SECRET} after hunter2");
    let whole = masker.text(&text);
    assert_eq!(whole, "before [masked] after hunter2");
    for first in 0..text.len() {
        for second in first..text.len() {
            let got = streamed(&masker, text.as_bytes(), &[first, second]);
            assert_eq!(String::from_utf8(got).unwrap(), whole, "cut at {first} and {second}");
        }
    }
}

#[test]
fn the_lines_of_a_key_are_secrets_of_their_own_and_its_frame_is_not() {
    let key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\n-----END PRIVATE KEY-----\n";
    let masker = masker(&[key]);
    assert_eq!(masker.text("> BKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj <"), "> [masked] <");
    assert_eq!(masker.text(&key.replace('\n', "\r\n")), "[masked]\r\n");
    assert_eq!(masker.text("-----BEGIN PRIVATE KEY-----"), "-----BEGIN PRIVATE KEY-----");
}

#[test]
fn short_values_are_counted_and_not_masked() {
    let (masker, short) = Masker::new(["1", "true", "", "long enough"]);
    assert_eq!(short, 2);
    assert_eq!(masker.text("1 true"), "1 true");
    assert!(!format!("{masker:?}").contains("long"));
}

#[test]
fn overlapping_and_touching_secrets_become_one_mark() {
    let masker = masker(&["abcdefgh", "efghijkl", "abcdefghijklmnop"]);
    assert_eq!(masker.text("<abcdefghijkl>"), "<[masked]>");
    assert_eq!(masker.text("<abcdefghabcdefgh>"), "<[masked]>");
    assert_eq!(masker.text("<abcdefghijklmno>"), "<[masked]mno>");
}

#[test]
fn a_message_keeps_its_form_and_what_programs_go_by() {
    let masker = masker(&["12345678", "agent.message"]);
    let event = br#"{"type":"agent.message","n":12345678,"text":"say 12345678","input":{"12345678":[{"id":"12345678"}]}}"#;
    let masked: Value = serde_json::from_slice(&masker.message(event.to_vec())).unwrap();
    let expected = serde_json::json!({
        "type": "agent.message", "n": 12_345_678, "text": "say [masked]", "input": {"[masked]": [{"id": "[masked]"}]},
    });
    assert_eq!(masked, expected);
    let untouched = br#"{ "b": 1, "a": 2 }"#.to_vec();
    assert_eq!(masker.message(untouched.clone()), untouched);
}

#[test]
fn nothing_configured_changes_nothing() {
    let masker = Masker::default();
    assert_eq!(streamed(&masker, b"anything at all", &[3, 5]), b"anything at all");
}

proptest! {
    #[test]
    fn cuts_never_change_the_outcome_and_no_secret_gets_through(
        secrets in prop::collection::vec("[ab\"/]{8,12}", 1..4),
        filler in prop::collection::vec("[ab\"/ c]{0,10}", 1..6),
        order in prop::collection::vec(0_usize..4, 0..6),
        cuts in prop::collection::btree_set(0_usize..120, 0..12),
    ) {
        let masker = Masker::new(secrets.iter().map(String::as_str)).0;
        let mut text = String::new();
        for (n, filler) in filler.iter().enumerate() {
            text.push_str(filler);
            if let Some(secret) = order.get(n).and_then(|at| secrets.get(*at)) {
                text.push_str(secret);
            }
        }
        let whole = masker.text(&text);
        let cut = streamed(&masker, text.as_bytes(), &cuts.into_iter().collect::<Vec<_>>());
        prop_assert_eq!(String::from_utf8(cut).unwrap(), whole.clone());
        for secret in &secrets {
            prop_assert!(!whole.contains(secret.as_str()), "{} in {}", secret, whole);
        }
    }

    #[test]
    fn text_without_a_secret_is_left_alone(text in "[a-y ]{0,200}") {
        prop_assert_eq!(masker(&["zzzzzzzzzz"]).text(&text), text);
    }
}
