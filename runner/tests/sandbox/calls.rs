//! Calls over the attach: once only, found again, and typed when the sandbox is gone.

use crate::rig::{Rig, bash, docker, run, spec, text, until, until_running};
use checkfu_runner::sandbox::{Error, How, Known, Request};
use checkfu_toolbox::call::{Tool, Write};
use std::time::Duration;

#[tokio::test]
async fn a_call_runs_once_however_often_it_is_asked_for() {
    let rig = Rig::start().await;
    let sandbox = rig.sandbox().await;
    let once = || {
        sandbox.call(bash("c1", "echo x >> /workspace/log; wc -l < /workspace/log; pwd; id -u; echo $HOME"))
    };
    let (first, second) = tokio::join!(once(), once());
    let third = once().await.unwrap();
    assert_eq!(text(&third), "1\n/workspace\n1000\n/home/checkfu\n");
    assert_eq!(first.unwrap(), third);
    assert_eq!(second.unwrap(), third);
    assert_eq!(sandbox.known("c1").await.unwrap(), Known::Done);
    assert_eq!(sandbox.known("never").await.unwrap(), Known::Never);
    sandbox.acknowledge("c1").await;
    assert!(matches!(once().await, Err(Error::AlreadyAcknowledged)));
    assert_eq!(run(&sandbox, "c2", "wc -l < /workspace/log").await, "1\n");
}

#[tokio::test]
async fn a_background_writer_does_not_hold_the_call() {
    let rig = Rig::start().await;
    let sandbox = rig.sandbox().await;
    let outcome = sandbox
        .call(bash("c1", "(while :; do echo x | tee -a /workspace/log; sleep .1; done) & echo hi"))
        .await
        .unwrap();
    assert!(text(&outcome).contains("hi"));
    assert!(outcome.background >= 1, "{outcome:?}");
    run(&sandbox, "c2", "timeout 20 sh -c 'until [ $(wc -l < /workspace/log) -gt 5 ]; do sleep .1; done'")
        .await;
}

#[tokio::test]
async fn calls_run_side_by_side_and_large_ones_arrive_whole() {
    let rig = Rig::start().await;
    let sandbox = rig.sandbox().await;
    let content = "0123456789abcdef".repeat(200_000);
    let write = Tool::Write(Write { file_path: "big".into(), content: content.clone() });
    let request = |id: &str, tool| Request { call_id: id.to_owned(), thread: "other".to_owned(), tool };
    let slow = sandbox.call(bash("slow", "while [ ! -s /workspace/big ]; do sleep .05; done; echo seen"));
    let (slow, written) = tokio::join!(slow, sandbox.call(request("w", write)));
    assert!(!written.unwrap().is_error);
    assert_eq!(text(&slow.unwrap()), "seen\n");
    assert_eq!(run(&sandbox, "size", "stat -c %s /workspace/big").await, format!("{}\n", content.len()));
}

#[tokio::test]
async fn a_container_removed_during_a_call_is_lost_within_two_seconds() {
    let rig = Rig::start().await;
    let sandbox = rig.sandbox().await;
    let call = sandbox.call(bash("c1", "sleep 60"));
    let removed = async {
        until_running(&sandbox, "c1").await;
        docker(&["rm", "-f", sandbox.container()]);
    };
    let (outcome, ()) =
        tokio::time::timeout(Duration::from_secs(20), async { tokio::join!(call, removed) }).await.unwrap();
    assert!(matches!(outcome, Err(Error::Lost)), "{outcome:?}");
    assert!(matches!(sandbox.call(bash("c2", "true")).await, Err(Error::Lost)));
    assert!(matches!(sandbox.ended().await, Error::Lost));
    rig.docker.remove_session(rig.session).await.unwrap();
    let again = rig.open(spec()).await.unwrap();
    assert!(matches!(again.how, How::Created { .. }));
}

#[tokio::test]
async fn a_kill_of_everything_from_inside_leaves_the_toolbox() {
    let rig = Rig::start().await;
    let sandbox = rig.sandbox().await;
    let killed = sandbox.call(bash("c1", "kill -9 1; kill -9 -1; sleep 5")).await;
    assert!(killed.is_ok_and(|outcome| outcome.exit_code != Some(0)), "the call ended as a success");
    assert_eq!(run(&sandbox, "c2", "echo alive").await, "alive\n");
}

#[tokio::test]
async fn a_runner_that_comes_back_finds_the_call_it_left() {
    let mut rig = Rig::start().await;
    let sandbox = rig.sandbox().await;
    let command =
        "echo run >> /workspace/log; until [ -e /workspace/go ]; do sleep .05; done; cat /workspace/log";
    {
        let call = sandbox.call(bash("c1", command));
        tokio::select! {
            _ = call => panic!("it ended early"),
            () = until_running(&sandbox, "c1") => {}
        }
    }
    drop(sandbox);
    rig.reconnect().await;
    let opened = rig.docker.open(rig.request(spec(), 2)).await.unwrap();
    assert_eq!(opened.how, How::Adopted);
    let sandbox = opened.sandbox;
    assert_eq!(sandbox.known("c1").await.unwrap(), Known::Running);
    let (found, _) = tokio::join!(sandbox.call(bash("c1", command)), async {
        let elsewhere = Request { thread: "other".into(), ..bash("c2", "touch /workspace/go") };
        sandbox.call(elsewhere).await.unwrap()
    });
    assert_eq!(text(&found.unwrap()), "run\n");
}

#[tokio::test]
async fn an_older_claim_is_told_that_it_is_stale() {
    let rig = Rig::start().await;
    let newer = rig.docker.open(rig.request(spec(), 7)).await.unwrap().sandbox;
    newer.close().await;
    let older = rig.docker.open(rig.request(spec(), 6)).await;
    assert!(matches!(older, Err(Error::StaleEpoch)), "{older:?}");
}

#[tokio::test]
async fn a_cancelled_call_has_no_later_effect() {
    let rig = Rig::start().await;
    let sandbox = rig.sandbox().await;
    let call = sandbox.call(bash("c1", "echo begun > /workspace/begun; sleep 1; touch /workspace/PROOF"));
    let cancel = async {
        until_running(&sandbox, "c1").await;
        sandbox.cancel("c1").await;
    };
    let (outcome, ()) = tokio::join!(call, cancel);
    assert!(outcome.unwrap().cancelled);
    assert_eq!(run(&sandbox, "c2", "sleep 1.5; ls /workspace | grep -c PROOF || true").await, "0\n");
}

#[tokio::test]
async fn the_toolbox_stops_everything_at_the_end_of_its_lease() {
    let rig = Rig::start().await;
    let sandbox = rig.sandbox().await;
    sandbox.lease(0).await;
    until(async || matches!(sandbox.call(bash("early", "true")).await, Err(Error::LeaseEnded))).await;
    sandbox.lease(60_000).await;
    assert_eq!(run(&sandbox, "c2", "echo again").await, "again\n");
}
