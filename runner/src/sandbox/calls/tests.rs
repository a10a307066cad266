//! What is known of calls after each message a sandbox may send, honest or not.

use super::*;
use checkfu_toolbox::call::Bash;
use proptest::prelude::*;

type Reply = oneshot::Receiver<Result<Outcome, Error>>;

fn tool() -> Tool {
    Tool::Bash(Bash { command: Some("true".into()), ..Bash::default() })
}

fn ask(calls: &mut Calls, id: &str) -> (Vec<ToToolbox>, Reply) {
    let (sender, receiver) = oneshot::channel();
    (calls.ask(id, "t", tool(), sender), receiver)
}

fn done(id: &str) -> FromToolbox {
    FromToolbox::Done { call_id: id.into(), result: Outcome::text("out") }
}

fn ready(calls: &[(&str, CallState)]) -> FromToolbox {
    let calls = calls.iter().map(|(id, state)| KnownCall { call_id: (*id).into(), state: *state }).collect();
    FromToolbox::Ready { epoch: 1, version: String::new(), calls, warnings: Vec::new() }
}

fn is_call(messages: &[ToToolbox], id: &str) -> bool {
    matches!(messages, [ToToolbox::Call { call_id, epoch: 1, .. }] if call_id == id)
}

#[test]
fn a_repeated_id_joins_and_then_gets_the_stored_result() {
    let mut calls = Calls::new(1);
    let (sent, mut first) = ask(&mut calls, "a");
    assert!(is_call(&sent, "a"));
    let (sent, mut second) = ask(&mut calls, "a");
    assert_eq!(sent, []);
    assert_eq!(calls.hear(done("a")).unwrap(), []);
    assert!(first.try_recv().unwrap().is_ok() && second.try_recv().unwrap().is_ok());
    let (sent, mut third) = ask(&mut calls, "a");
    assert_eq!(sent, []);
    assert!(third.try_recv().unwrap().is_ok());
}

#[test]
fn a_result_is_acknowledged_only_when_asked_and_then_never_runs_again() {
    let mut calls = Calls::new(1);
    let (_, _reply) = ask(&mut calls, "a");
    assert_eq!(calls.acknowledge("a"), [], "it is not over");
    calls.hear(done("a")).unwrap();
    assert_eq!(calls.acknowledge("a"), [ToToolbox::Ack { call_id: "a".into() }]);
    let (sent, mut again) = ask(&mut calls, "a");
    assert_eq!(sent, []);
    assert!(matches!(again.try_recv().unwrap(), Err(Error::AlreadyAcknowledged)));
    // The acknowledgement was lost: the toolbox repeats, and is told again.
    assert_eq!(calls.hear(done("a")).unwrap(), [ToToolbox::Ack { call_id: "a".into() }]);
}

#[test]
fn a_result_nobody_waited_for_is_kept() {
    let mut calls = Calls::new(1);
    let (_, reply) = ask(&mut calls, "a");
    drop(reply);
    calls.hear(done("a")).unwrap();
    let (sent, mut later) = ask(&mut calls, "a");
    assert_eq!(sent, []);
    assert!(later.try_recv().unwrap().is_ok());
}

#[test]
fn after_an_attach_only_what_was_not_heard_is_sent_again() {
    let mut calls = Calls::new(1);
    let (_, mut lost) = ask(&mut calls, "lost");
    let (_, _kept) = ask(&mut calls, "kept");
    let sent = calls.hear(ready(&[("kept", CallState::Running), ("older", CallState::Done)])).unwrap();
    assert!(is_call(&sent, "lost"), "{sent:?}");
    calls.hear(done("older")).unwrap();
    let (sent, mut older) = ask(&mut calls, "older");
    assert_eq!(sent, []);
    assert!(older.try_recv().unwrap().is_ok());
    assert!(lost.try_recv().is_err(), "it still runs");
}

#[test]
fn a_call_that_was_confirmed_and_is_unknown_now_is_lost_and_not_repeated() {
    let mut calls = Calls::new(1);
    let (_, mut reply) = ask(&mut calls, "a");
    calls.hear(FromToolbox::Started { call_id: "a".into() }).unwrap();
    let sent = calls.hear(ready(&[])).unwrap();
    assert_eq!(sent, [ToToolbox::Query { call_id: "a".into() }]);
    calls.hear(FromToolbox::Unknown { call_id: "a".into() }).unwrap();
    assert!(matches!(reply.try_recv().unwrap(), Err(Error::Lost)));
}

#[test]
fn refusals_are_typed_and_have_no_effect() {
    for (reason, wanted) in [
        (Refusal::LeaseEnded, "no lease"),
        (Refusal::Busy, "too many calls"),
        (Refusal::StaleEpoch, "newer claim"),
        (Refusal::AlreadyAcknowledged, "ran before"),
        (Refusal::BadCall, "empty or too long"),
    ] {
        let mut calls = Calls::new(1);
        let (_, mut reply) = ask(&mut calls, "a");
        calls.hear(FromToolbox::Refused { call_id: Some("a".into()), reason }).unwrap();
        let text = reply.try_recv().unwrap().unwrap_err().to_string();
        assert!(text.contains(wanted), "{text}");
        assert!(is_call(&ask(&mut calls, "a").0, "a"));
    }
}

#[test]
fn what_nobody_asked_for_is_hostile() {
    let mut calls = Calls::new(1);
    assert!(matches!(calls.hear(done("x")), Err(Error::Hostile { .. })));
    assert!(matches!(calls.hear(FromToolbox::Started { call_id: "x".into() }), Err(Error::Hostile { .. })));
    let crowd: Vec<String> = (0..=MAX_FOREIGN).map(|number| number.to_string()).collect();
    let crowd: Vec<_> = crowd.iter().map(|id| (id.as_str(), CallState::Done)).collect();
    assert!(matches!(calls.hear(ready(&crowd)), Err(Error::Hostile { .. })));
}

#[test]
fn queries_are_answered_from_what_is_known_first() {
    let mut calls = Calls::new(1);
    let query = |calls: &mut Calls, id: &str| {
        let (sender, receiver) = oneshot::channel();
        (calls.query(id, sender), receiver)
    };
    let (sent, mut reply) = query(&mut calls, "a");
    assert_eq!(sent, Some(ToToolbox::Query { call_id: "a".into() }));
    calls.hear(FromToolbox::Unknown { call_id: "a".into() }).unwrap();
    assert_eq!(reply.try_recv().unwrap().unwrap(), Known::Never);
    let (_, _waits) = ask(&mut calls, "a");
    calls.hear(FromToolbox::Started { call_id: "a".into() }).unwrap();
    let (sent, mut reply) = query(&mut calls, "a");
    assert_eq!((sent, reply.try_recv().unwrap().unwrap()), (None, Known::Running));
    calls.hear(done("a")).unwrap();
    let (sent, mut reply) = query(&mut calls, "a");
    assert_eq!((sent, reply.try_recv().unwrap().unwrap()), (None, Known::Done));
}

#[test]
fn results_that_are_never_acknowledged_do_not_pile_up() {
    let mut calls = Calls::new(1);
    let mut acknowledged = 0;
    for number in 0..(MAX_HANDED * 3) {
        let id = number.to_string();
        let (_, _reply) = ask(&mut calls, &id);
        acknowledged += calls.hear(done(&id)).unwrap().len();
    }
    assert_eq!(acknowledged, MAX_HANDED * 2);
    assert!(calls.entries.len() <= MAX_HANDED + 1);
}

fn any_message() -> impl Strategy<Value = FromToolbox> {
    let id = "[ab]";
    prop_oneof![
        id.prop_map(|call_id| FromToolbox::Started { call_id }),
        id.prop_map(|id| done(&id)),
        id.prop_map(|call_id| FromToolbox::Unknown { call_id }),
        id.prop_map(|id| FromToolbox::Refused { call_id: Some(id), reason: Refusal::LeaseEnded }),
        Just(ready(&[])),
        Just(ready(&[("a", CallState::Running), ("b", CallState::Done)])),
    ]
}

proptest! {
    #[test]
    fn a_confirmed_call_is_never_sent_again(messages in proptest::collection::vec(any_message(), 0..12)) {
        let mut calls = Calls::new(1);
        let (_, _reply) = ask(&mut calls, "a");
        let mut confirmed = false;
        for message in messages {
            confirmed |= matches!(&message, FromToolbox::Started { call_id } if call_id == "a");
            let refused = matches!(&message, FromToolbox::Refused { call_id: Some(id), .. } if id == "a");
            let sent = calls.hear(message).unwrap_or_default();
            let again = sent.iter().any(|sent| matches!(sent, ToToolbox::Call { call_id, .. } if call_id == "a"));
            prop_assert!(!(confirmed && again));
            if refused { break; }
        }
    }
}
