//! What an administrator does to a runner on its own machine: look, drain, clear up, and take it out of service.

use rig::world::{Finished, World};
use serde_json::{Value, json};

async fn told(world: &World, arguments: &[&str]) -> Finished {
    world.finish(world.runner_program("runner").args(arguments)).await
}

async fn look(world: &World) -> Value {
    let finished = told(world, &["status", "--json"]).await;
    serde_json::from_str(&finished.stdout).unwrap_or_else(|error| panic!("{error}: {finished:?}"))
}

async fn until_state(world: &World, state: &str) -> Value {
    rig::wait::until(&format!("the state {state}"), async || {
        let status = look(world).await;
        (status["status"]["state"] == state).then_some(status)
    })
    .await
}

#[tokio::test]
async fn a_drained_runner_takes_no_work_even_after_a_restart_until_it_is_undrained() {
    let mut world = World::start().await;
    let ready = until_state(&world, "ready").await;
    assert_eq!(ready["running"], true);
    assert_eq!(ready["status"]["plane"], world.url());
    let drained = told(&world, &["drain"]).await;
    assert_eq!(drained.code, 0, "{drained:?}");
    until_state(&world, "drained").await;
    world.stop_runner().await;
    world.start_runner().await;
    let status = until_state(&world, "drained").await;
    assert!(status["status"]["reason"].as_str().unwrap().contains("undrain"));
    let session = world.session(&rig::api::script(&json!([{"say": "ok"}]))).await;
    assert!(!world.api.events(&session).await.iter().any(|event| event["type"] == "run.claimed"));
    let taken = told(&world, &["undrain"]).await;
    assert_eq!(taken.code, 0, "{taken:?}");
    world.api.idle(&session, 1).await;
    let status = rig::wait::until("the settled claim to be counted", async || {
        let status = look(&world).await;
        (status["status"]["counts"]["claims_settled"] == 1).then_some(status)
    })
    .await;
    assert!(status["status"]["last_poll_s"].is_u64(), "{status}");
    let collected = told(&world, &["gc", "--dry-run"]).await;
    assert_eq!(collected.code, 0, "{collected:?}");
    let words = told(&world, &["status"]).await.stdout;
    for part in ["slots", "last poll", "spool", "1 settled"] {
        assert!(words.contains(part), "{part}: {words}");
    }
}

#[tokio::test]
async fn an_unpaired_runner_is_revoked_and_leaves_nothing() {
    let mut world = World::start().await;
    until_state(&world, "ready").await;
    let refused = told(&world, &["unpair"]).await;
    assert_eq!(refused.code, 5, "a running daemon is not taken away under itself: {refused:?}");
    world.signal_runner(rustix::process::Signal::TERM);
    assert_eq!(world.runner_exit().await, 0);
    let unpaired = told(&world, &["unpair"]).await;
    assert_eq!(unpaired.code, 0, "{unpaired:?}");
    let runners = world.api.get("/v1/runners").await;
    assert_eq!(runners["data"][0]["status"], "revoked", "{runners}");
    let left = std::fs::read_dir(world.path("runner")).unwrap().count();
    assert_eq!(left, 0);
    assert_eq!(told(&world, &["status"]).await.code, 3);
}

#[tokio::test]
async fn an_unpair_that_cannot_reach_the_control_plane_changes_nothing_unless_it_is_told_to() {
    let mut world = World::without_runner().await;
    world.pair("runner").await;
    world.kill_plane();
    let failed = told(&world, &["unpair"]).await;
    assert_eq!(failed.code, 8, "{failed:?}");
    assert!(failed.stderr.contains("--local"), "{failed:?}");
    assert!(world.path("runner/identity.json").exists());
    let forgotten = told(&world, &["unpair", "--local"]).await;
    assert_eq!(forgotten.code, 0, "{forgotten:?}");
    assert!(!world.path("runner/identity.json").exists());
}

#[tokio::test]
async fn the_configuration_says_where_each_setting_comes_from() {
    let world = World::without_runner().await;
    let file = world.path("runner.toml");
    std::fs::write(&file, "max_sessions = 2\nimage = \"from/file\"\n").unwrap();
    let program = world.runner_program("runner").env("CHECKFU_RUNNER_CONFIG", &file);
    let program =
        program.env("CHECKFU_RUNNER_IMAGE", "from/environment").env("https_proxy", "http://u:hunter2@p:1");
    let shown = world.finish(program.args(["config", "show", "--json", "--runtime", "runsc"])).await;
    let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
    for (key, value, source) in [
        ("max_sessions", "2", "file"),
        ("image", "from/environment", "environment"),
        ("runtime", "runsc", "flag"),
    ] {
        assert_eq!(shown["settings"][key]["value"], value, "{shown}");
        assert_eq!(shown["settings"][key]["source"], source, "{shown}");
    }
    assert_eq!(shown["environment"]["https_proxy"], "http://***@p:1");
    std::fs::write(&file, "max_session = 2\n").unwrap();
    let program = world.runner_program("runner").args(["--config", file.to_str().unwrap(), "status"]);
    let refused = world.finish(program).await;
    assert_eq!(refused.code, 2);
    assert!(refused.stderr.contains("did you mean `max_sessions`?"), "{refused:?}");
}

#[tokio::test]
async fn one_session_of_a_passing_host_pairs_runs_tells_its_outcome_and_leaves_nothing() {
    let world = World::without_runner().await;
    let session = world.session(&rig::api::script(&json!([{"say": "ok"}]))).await;
    let run = async |code: String, wait: &str| {
        let program = world.run_program("once").env("CHECKFU_RUNNER_PAIRING_CODE", code);
        world.finish(program.args(["--once", "--plane", &world.url(), "--wait-seconds", wait])).await
    };
    let finished = run(world.code().await, "120").await;
    assert_eq!(finished.code, 0, "{finished:?}");
    world.api.idle(&session, 1).await;
    let runners = world.api.get("/v1/runners").await;
    assert_eq!(runners["data"][0]["status"], "revoked", "{runners}");
    assert_eq!(std::fs::read_dir(world.path("once")).unwrap().count(), 0);
    assert_eq!(world.sandboxes(&session), 0);
    let idle = run(world.code().await, "1").await;
    assert_eq!(idle.code, 15, "{idle:?}");
    let refused = run("ABCD-EFGH-JKLM".to_owned(), "1").await;
    assert_eq!(refused.code, 7, "{refused:?}");
    assert_eq!(std::fs::read_dir(world.path("once")).unwrap().count(), 0);
}

#[tokio::test]
async fn configured_secrets_leave_the_host_in_no_shape() {
    let mut world = World::without_runner().await;
    world.pair("runner").await;
    let secret = "correct+horse/battery\"staple";
    std::fs::write(world.path("mask"), format!("{secret}\n1\n")).unwrap();
    let program = world.run_program("runner").env("CHECKFU_RUNNER_MASK_FILE", world.path("mask"));
    let runner = program.start(&world.path("logs")).unwrap();
    let command = "printf '%s' 'correct+horse/battery\"staple' | tee /mnt/session/outputs/copy; printf 'x%s' 'correct+horse/battery\"staple' | base64 -w0; echo; echo 1 stays";
    let session = world
        .session(&rig::api::script(&json!([{"tool": "bash", "input": {"command": command}}, {"say": "ok"}])))
        .await;
    let events = world.api.idle(&session, 1).await;
    let result = events.iter().find(|event| event["type"] == "agent.tool_result").unwrap().to_string();
    assert!(result.contains("[masked]") && result.contains("1 stays"), "{result}");
    let use_ = events.iter().find(|event| event["type"] == "agent.tool_use").unwrap().to_string();
    assert!(use_.contains("[masked]"), "{use_}");
    let all = serde_json::to_string(
        &events.iter().filter(|event| event["type"] != "user.message").collect::<Vec<_>>(),
    )
    .unwrap();
    assert!(!all.contains("horse/battery"), "{all}");
    drop(runner);
    let logs: String = world
        .logs()
        .into_iter()
        .filter(|(file, _)| file.starts_with("checkfu-runner"))
        .map(|(_, text)| text)
        .collect();
    assert!(logs.contains("not masked") && !logs.contains("horse/battery"), "{logs}");
}

#[tokio::test]
async fn health_and_metrics_are_answered_on_loopback_when_asked() {
    let mut world = World::without_runner().await;
    world.pair("runner").await;
    let program = world.run_program("runner").env("CHECKFU_RUNNER_METRICS", "127.0.0.1:0");
    let runner = program.start(&world.path("logs")).unwrap();
    let address = rig::wait::until("the address of the metrics", async || {
        let errors = runner.errors();
        let line = errors.lines().find(|line| line.contains("metrics are answered"))?;
        let at = line.find("127.0.0.1:")?;
        let port: String = line[at + 10..].chars().take_while(char::is_ascii_digit).collect();
        Some(format!("http://127.0.0.1:{port}"))
    })
    .await;
    let http = rig::http_client();
    let get = async |path: &str| {
        let answer = http.get(format!("{address}{path}")).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    assert_eq!(get("/live").await.0, 200);
    rig::wait::until("the runner to be ready", async || (get("/ready").await.0 == 200).then_some(())).await;
    let (status, text) = get("/metrics").await;
    assert_eq!(status, 200);
    assert!(text.contains("checkfu_runner_state{state=\"ready\"} 1"), "{text}");
    assert_eq!(get("/nothing").await.0, 404);
    world.kill_plane();
    rig::wait::until("the runner to notice", async || (get("/ready").await.0 == 503).then_some(())).await;
    assert_eq!(get("/live").await.0, 200, "an outage elsewhere is no reason to be killed");
    let refused = world.finish(world.run_program("runner").args(["--metrics", "0.0.0.0:1"])).await;
    assert_eq!(refused.code, 2, "{refused:?}");
}

#[tokio::test]
async fn the_doctor_goes_the_whole_way_and_names_planted_faults() {
    let mut world = World::without_runner().await;
    world.pair("runner").await;
    let examine = async |program: rig::process::Program| {
        let toolbox = rig::process::toolbox().unwrap();
        let program = program.args(["doctor", "--json", "--toolbox"]).args([toolbox.as_os_str()]);
        let finished = world.finish(program).await;
        let report: Value =
            serde_json::from_str(&finished.stdout).unwrap_or_else(|error| panic!("{error}: {finished:?}"));
        (finished.code, report)
    };
    let find = |report: &Value, check: &str| {
        let findings = report["findings"].as_array().unwrap();
        findings
            .iter()
            .find(|finding| finding["check"] == check)
            .unwrap_or_else(|| panic!("{check}: {report}"))
            .clone()
    };
    let (code, report) = examine(world.runner_program("runner")).await;
    assert!([0, 13].contains(&code), "{report:#}");
    for check in ["pairing", "control plane", "clock", "Docker", "limits", "toolbox", "canary"] {
        assert_eq!(find(&report, check)["verdict"], "ok", "{report:#}");
    }
    let (code, report) =
        examine(world.runner_program("runner").env("DOCKER_HOST", "unix:///nowhere/docker.sock")).await;
    assert_eq!(code, 1);
    assert!(find(&report, "Docker")["seen"].as_str().unwrap().contains("/nowhere"), "{report:#}");
    let (_, report) = examine(world.runner_program("elsewhere")).await;
    assert_eq!(find(&report, "pairing")["verdict"], "warn", "{report:#}");
    let said = world
        .finish(
            world
                .operator(&["doctor", "--data-dir", world.path("plane").to_str().unwrap()])
                .env("CHECKFU_API_KEY_FILE", world.path("plane/admin.key")),
        )
        .await;
    assert!([0, 14].contains(&said.code) && said.stdout.contains("ok    server"), "{said:?}");
    let mut world = world;
    world.kill_plane();
    let program = world.runner_program("runner").args(["doctor", "--json", "--no-canary"]);
    let finished = world.finish(program).await;
    assert_eq!(finished.code, 1);
    let report: Value = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!(find(&report, "control plane")["verdict"], "fail", "{report:#}");
}
