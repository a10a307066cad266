//! The client against refusals, silence and things that answer in the control plane's place.

use super::*;
use crate::rig::{Fault, Rig, claim};
use checkfu_shared::{
    id::{ClaimRequestId, UploadId},
    problem::Code,
};

fn request(rig: &Rig) -> ClaimRequest {
    ClaimRequest {
        instance_id: rig.plane.instance(),
        request_id: ClaimRequestId::mint(),
        free_slots: 1,
        labels: Vec::new(),
        wait_ms: 0,
    }
}

/// Fails the first `times` requests of a path.
fn first(end: &'static str, times: usize, fault: Fault) -> impl FnMut(&str) -> Fault + Send {
    let mut seen = 0;
    move |path| {
        seen += usize::from(path.ends_with(end));
        if path.ends_with(end) && seen <= times { fault.clone() } else { Fault::None }
    }
}

#[tokio::test]
async fn a_token_that_is_not_accepted_is_replaced_once_and_the_call_repeated() {
    let rig = Rig::start().await;
    rig.faults(first("/claims", 1, Fault::Refuse(Problem::new(Code::Unauthenticated, "Expired."))));
    rig.plane.claims(&request(&rig)).await.unwrap();
    let world = rig.world();
    assert_eq!(world.tokens, 2);
    assert_eq!(world.authorizations, ["Bearer token 1", "Bearer token 2"]);
}

#[tokio::test]
async fn a_second_refusal_of_the_token_is_an_outage_and_never_a_loss_of_identity() {
    let rig = Rig::start().await;
    rig.faults(first("/claims", 2, Fault::Refuse(Problem::new(Code::Unauthenticated, "Who?"))));
    let error = rig.plane.claims(&request(&rig)).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    rig.plane.claims(&request(&rig)).await.unwrap();
}

#[tokio::test]
async fn a_refused_identity_is_tried_again_and_again() {
    let rig = Rig::start().await;
    rig.faults(first("/token", 1, Fault::Status(500)));
    rig.plane.standing().wait_for(|standing| matches!(standing, Standing::Valid(_))).await.unwrap();
    assert!(rig.count("/token") >= 1);
}

#[tokio::test]
async fn a_revoked_runner_learns_it_from_any_call_and_asks_no_more() {
    let rig = Rig::start().await;
    rig.faults(first("/renew", 1, Fault::Refuse(Problem::new(Code::RunnerRevoked, "Revoked."))));
    let claim = claim(1);
    let error = rig.plane.renew(claim.id, 1, Duration::from_secs(5)).await.unwrap_err();
    assert!(matches!(error, Error::Revoked));
    rig.plane.standing().wait_for(|standing| matches!(standing, Standing::Revoked)).await.unwrap();
    let calls = rig.world().calls.len();
    assert!(matches!(rig.plane.claims(&request(&rig)).await, Err(Error::Revoked)));
    assert_eq!(rig.world().calls.len(), calls, "nothing is sent any more");
}

#[tokio::test]
async fn an_identity_that_runs_elsewhere_is_told_apart() {
    let mut rig = Rig::without_token().await;
    rig.faults(first("/token", 9, Fault::Refuse(Problem::new(Code::IdentityInUse, "Another machine."))));
    let keeper = rig.keeper.take().unwrap();
    keeper.run().await;
    assert!(
        matches!(&*rig.plane.standing().borrow(), Standing::InUse { reason } if reason == "Another machine.")
    );
    assert_eq!(rig.count("/token"), 1);
}

#[tokio::test]
async fn calls_that_persist_wait_out_errors_of_every_kind() {
    let rig = Rig::start().await;
    let mut round = 0;
    rig.faults(move |path| {
        round += usize::from(path.ends_with("/history"));
        match (path.ends_with("/history"), round) {
            (true, 1) => Fault::Status(503),
            (true, 2) => Fault::Status(404),
            (true, 3) => Fault::Status(200),
            (true, 4) => Fault::Refuse(Problem::new(Code::Internal, "A defect.")),
            (true, 5) => Fault::Refuse(Problem::new(Code::RateLimited, "Slower.")),
            _ => Fault::None,
        }
    });
    assert!(rig.plane.history(claim(1).id, 1, 0).await.unwrap().has_more);
    assert_eq!(rig.count("/history"), 6);
    rig.faults(first("/history", 1, Fault::Refuse(Problem::new(Code::NotFound, "No such claim."))));
    let error = rig.plane.history(claim(1).id, 1, 0).await.unwrap_err();
    assert!(matches!(error, Error::Refused(_)), "a refusal is not repeated");
}

#[tokio::test]
async fn an_upload_arrives_whole_through_lost_replies() {
    let rig = Rig::start().await;
    let content: Vec<u8> = (0..40_000_000_u32).map(|n| n.to_le_bytes()[(n % 3) as usize]).collect();
    let file = rig.dir.path().join("captured");
    std::fs::write(&file, &content).unwrap();
    let mut round = 0;
    rig.faults(move |path| {
        round += usize::from(path.contains("/uploads/"));
        match (path.contains("/uploads/"), round) {
            (true, 1) => Fault::LostReply,
            (true, 3) => Fault::Status(502),
            _ => Fault::None,
        }
    });
    let size = content.len() as u64;
    rig.plane.upload(UploadId::mint(), 1, &file, size, 0).await.unwrap();
    assert!(rig.world().uploaded == content, "every byte once");
}

#[tokio::test]
async fn an_unreadable_capture_is_an_error_and_not_an_endless_wait() {
    let rig = Rig::start().await;
    let outcome = rig.plane.upload(UploadId::mint(), 1, &rig.dir.path().join("absent"), 5, 0).await;
    assert!(matches!(outcome, Err(Error::Refused(_))), "{outcome:?}");
}

#[tokio::test]
async fn nobody_listening_is_an_outage_in_words_without_addresses() {
    let link = Link::new("http://127.0.0.1:9".parse().unwrap(), None).unwrap();
    let error = token::nonce(&link).await.unwrap_err();
    let Error::Unreachable { reason, .. } = error else { panic!("{error}") };
    assert!(reason.contains("no connection") && !reason.contains("/v1/runner"), "{reason}");
}
