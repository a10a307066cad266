//! What a user gets for bad input at the command line: a sentence, an exit code of its own, and nothing changed.

use rig::world::{Finished, World};
use serde_json::json;

/// A refusal: the wanted exit code, a sentence with these words, no stack.
fn refused(finished: &Finished, words: &[&str]) -> i32 {
    assert_ne!(finished.code, 0, "{finished:?}");
    assert_ne!(finished.code, 101, "a panic: {finished:?}");
    for word in words {
        assert!(finished.stderr.contains(word), "`{word}` is missing: {finished:?}");
    }
    assert!(!finished.stderr.contains("backtrace") && !finished.stderr.contains("panicked"), "{finished:?}");
    finished.code
}

#[tokio::test]
async fn pairing_codes_that_are_wrong_used_or_burnt_are_refused_each_with_its_reason() {
    let world = World::without_runner().await;
    let wrong = refused(&world.redeem("wrong", "ABCD-EFGH-JKMN").await, &["code"]);
    let malformed = refused(&world.redeem("malformed", "hello").await, &["code"]);
    let empty = refused(&world.redeem("empty", "").await, &["code"]);
    assert_eq!(malformed, empty, "both are bad input");
    assert!(!world.path("wrong/identity.json").exists(), "nothing is kept of a refused pairing");

    let code = world.code().await;
    assert_eq!(world.redeem("first", &code).await.code, 0);
    assert_eq!(refused(&world.redeem("second", &code).await, &["code"]), wrong);
    assert_eq!(world.api.get("/v1/runners").await["data"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_second_daemon_a_damaged_identity_and_a_missing_one_are_told_apart() {
    let mut world = World::start().await;
    rig::wait::until("the runner to be known as online", async || {
        let runners = world.api.get("/v1/runners").await;
        runners["data"][0]["last_seen_at"].is_string().then_some(())
    })
    .await;
    let second = refused(&world.finish(world.run_program("runner")).await, &["already"]);
    world.stop_runner().await;
    std::fs::write(world.path("runner/identity.json"), "").unwrap();
    let damaged = refused(&world.finish(world.run_program("runner")).await, &["identity", "pair"]);
    let missing = refused(&world.finish(world.run_program("nowhere")).await, &["pair"]);
    assert!(second != damaged && damaged != missing, "{second} {damaged} {missing}");
    assert_eq!(
        world.api.get("/v1/runners").await["data"].as_array().unwrap().len(),
        1,
        "no new runner appeared"
    );
}

#[tokio::test]
async fn the_operators_command_line_says_what_is_wrong_and_what_to_do() {
    let world = World::without_runner().await;
    let run = async |program: rig::process::Program, key: Option<&str>| {
        let program = match key {
            Some(key) => program.env("CHECKFU_API_KEY", key),
            None => program,
        };
        world.finish(program).await
    };
    let key = std::fs::read_to_string(world.path("plane/admin.key")).unwrap();
    let key = Some(key.trim());
    let good = run(world.operator(&["--json", "agents", "list"]), key).await;
    assert_eq!(good.code, 0, "{good:?}");
    let list = ["agents", "list"];
    let no_key = refused(&run(world.operator(&list), None).await, &["CHECKFU_API_KEY"]);
    let wrong_key = refused(&run(world.operator(&list), Some("ck_wrong")).await, &["key"]);
    let nowhere = world.operator(&list).env("CHECKFU_URL", "http://127.0.0.1:9");
    let away = refused(&run(nowhere, key).await, &["127.0.0.1:9"]);
    let show = ["sessions", "show", "sess_00000000000000000000000000000000"];
    let unknown = refused(&run(world.operator(&show), key).await, &["session"]);
    assert!(away != wrong_key && unknown != away && no_key != away, "{no_key} {wrong_key} {away} {unknown}");

    let listen = world.url().trim_start_matches("http://").to_owned();
    let data = world.path("second");
    let serve = [
        "serve",
        "--listen",
        &listen,
        "--data-dir",
        data.to_str().unwrap(),
        "--model-base-url",
        "http://127.0.0.1:9",
    ];
    refused(&run(world.operator(&serve), None).await, &[&listen]);
}

#[tokio::test]
async fn a_runner_without_docker_takes_no_work_and_says_why() {
    let mut world = World::without_runner().await;
    world.pair("runner").await;
    let program = world.run_program("runner").env("DOCKER_HOST", "unix:///nowhere/docker.sock");
    let _runner = program.start(&world.path("logs")).unwrap();
    let session = world.session(&rig::api::script(&json!([{"say": "ok"}]))).await;
    rig::wait::until("the reason in the runner's status", async || {
        let status = world.finish(world.runner_program("runner").args(["status", "--json"])).await;
        status.stdout.contains("/nowhere/docker.sock").then_some(())
    })
    .await;
    assert!(!world.api.events(&session).await.iter().any(|event| event["type"] == "run.claimed"));
}
