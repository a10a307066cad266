//! Pairing against a control plane that refuses, is silent, or loses its reply.

use super::*;
use crate::rig::{Fault, Rig};
use checkfu_shared::problem::Problem;

fn wish(rig: &Rig) -> Wish {
    Wish {
        plane: rig.address.parse().unwrap(),
        code: normalised("abcd efgh-jkmn").unwrap(),
        name: "one".to_owned(),
        labels: vec!["gpu".to_owned(), " ".to_owned()],
        host: this_host(),
    }
}

fn state() -> (tempfile::TempDir, State) {
    let dir = tempfile::tempdir().unwrap();
    let state = State::open(dir.path()).unwrap();
    (dir, state)
}

#[test]
fn a_code_is_taken_however_it_was_typed_and_nothing_else_is() {
    for typed in ["ABCD-EFGH-JKMN", "abcdefghjkmn", " abcd efgh jkmn\n", "ABCD EFGH-JKMN\r\n"] {
        assert_eq!(normalised(typed).unwrap().reveal(), "ABCD-EFGH-JKMN");
    }
    for typed in ["", "\n", "ABCD-EFGH", "ABCD-EFGH-JKMNP", "ÄBCD-EFGH-JKMN", "ABCD-EFGH-JKM!"] {
        assert!(matches!(normalised(typed), Err(Error::Shape)), "{typed:?}");
    }
}

#[tokio::test]
async fn a_paired_runner_keeps_its_identity_and_is_not_paired_twice() {
    let rig = Rig::without_token().await;
    let (_dir, state) = state();
    let paired = pair(&state, wish(&rig), None).await.unwrap();
    let loaded = Identity::load(&state).unwrap();
    assert_eq!((loaded.runner_id, loaded.labels), (paired.runner_id, vec!["gpu".to_owned()]));
    assert!(matches!(pair(&state, wish(&rig), None).await, Err(Error::Already { .. })));
    assert_eq!(rig.count("/pair"), 1);
}

#[tokio::test]
async fn a_refusal_is_final_and_costs_one_request() {
    for code in [Code::PairingCodeInvalid, Code::PairingCodeExpired] {
        let rig = Rig::without_token().await;
        rig.faults(move |path| {
            if path.ends_with("/pair") {
                Fault::Refuse(Problem::new(code, "The pairing code has expired."))
            } else {
                Fault::None
            }
        });
        let (_dir, state) = state();
        let error = pair(&state, wish(&rig), None).await.unwrap_err();
        assert_eq!(error.to_string(), "The pairing code has expired.");
        assert_eq!(rig.count("/pair"), 1);
        assert!(matches!(Identity::load(&state), Err(identity::Error::Absent)));
    }
}

#[tokio::test]
async fn a_lost_reply_is_asked_for_again_with_the_same_key() {
    let rig = Rig::without_token().await;
    let mut lost = false;
    rig.faults(move |path| {
        if path.ends_with("/pair") && !std::mem::replace(&mut lost, true) {
            Fault::LostReply
        } else {
            Fault::None
        }
    });
    let (_dir, state) = state();
    pair(&state, wish(&rig), None).await.unwrap();
    let world = rig.world();
    assert_eq!(world.pairs.len(), 2);
    assert_eq!(world.pairs[0]["public_key"], world.pairs[1]["public_key"]);
    assert_eq!(world.pairs[0]["code"], "ABCD-EFGH-JKMN");
}

#[test]
fn the_code_prints_nowhere() {
    let code = normalised("ABCD-EFGH-JKMN").unwrap();
    assert!(!format!("{code:?} {}", Error::Shape).contains("JKMN"));
}
