//! The network between runner and control plane at its worst: silent for many leases, or behind a proxy
//! with a password and an inspecting authority. Nothing is lost, nothing is run twice, and what is wrong is said.

use rig::{
    api::{content, script},
    link::{Condition, FaultyLink},
    proxy::{CREDENTIALS, Proxy},
    tls::{HOST, TlsFront, authority},
    world::World,
};
use serde_json::{Value, json};
use std::{net::SocketAddr, time::Duration};

/// Leases of seconds, so that many of them pass.
fn short() -> Value {
    json!({"renew_ms": 500, "lease_ms": 4_000, "freeze_margin_ms": 1_500, "affinity_ms": 600_000, "poll_wait_ms": 2_000,
           "directives_wait_ms": 1_000, "offer_ms": 3_000, "error_backoff_min_ms": 100, "error_backoff_max_ms": 500})
}

fn ticking() -> String {
    script(&json!([
        {"tool": "bash", "input": {"command": "until [ -e /tmp/go ]; do echo tick >> /tmp/ticks; sleep 0.1; done; echo over >> /tmp/ends; wc -l < /tmp/ends", "timeout_ms": 600_000}},
        {"say": "done"}]))
}

fn address(world: &World) -> SocketAddr {
    world.url().trim_start_matches("http://").parse().unwrap()
}

/// A world whose runner reaches the control plane through a link.
async fn linked(tempo: Value) -> (World, FaultyLink) {
    let mut world = World::without_runner_at(tempo).await;
    let link = FaultyLink::start(address(&world)).await.unwrap();
    world.pair_at("runner", &link.url(), |program| program).await;
    world.start_runner().await;
    (world, link)
}

/// Lets the call end and checks that it ran once under one claim, in a log without a gap.
async fn ends_once(world: &World, session: &str) {
    // A sandbox that is paused takes no command; it is not for long.
    rig::wait::until_true("a command inside", || {
        world.inside(session, &["touch", "/tmp/go"]);
        rig::world::docker(&["cp", &format!("{}:/tmp/go", world.sandbox(session)), "-"]).contains("go")
    })
    .await;
    let events = world.api.idle(session, 1).await;
    for (event, seq) in events.iter().zip(1u64..) {
        assert_eq!(event["seq"], seq);
    }
    let of = |kind: &str| events.iter().filter(|event| event["type"] == kind).collect::<Vec<_>>();
    assert_eq!(of("agent.tool_result").len(), 1);
    assert_eq!(content(of("agent.tool_result")[0]).trim(), "1");
    assert_eq!(of("run.claimed").len(), 1, "the same claim went on");
    assert_eq!(of("run.settled").len(), 1);
    assert_eq!(events.last().unwrap()["stop_reason"], json!({"type": "end_turn"}));
    assert_eq!(world.sandboxes(session), 1);
    world.nothing_malformed_was_asked();
    world.verify().await;
}

#[tokio::test]
async fn a_link_that_is_silent_for_many_leases_and_then_drops_everything_costs_only_time() {
    let (world, link) = linked(short()).await;
    let session = world.session(&ticking()).await;
    world.started(&session).await;
    let sandbox = world.sandbox(&session);
    link.set(Condition::Blackhole);
    let paused = |is: &'static str| {
        let sandbox = sandbox.clone();
        async move || {
            let told = rig::world::docker(&["inspect", "--format", "{{.State.Paused}}", &sandbox]);
            told.contains(is).then_some(())
        }
    };
    rig::wait::until("the sandbox to be frozen", paused("true")).await;
    // Several leases and none of them renewed: this is the case, so the time has to pass.
    tokio::time::sleep(Duration::from_secs(9)).await;
    link.cut();
    link.set(Condition::Clear);
    rig::wait::until("the sandbox to run again", paused("false")).await;
    ends_once(&world, &session).await;
}

#[tokio::test]
async fn behind_a_proxy_with_a_password_and_a_private_authority_everything_goes_through_the_proxy() {
    let mut world = World::without_runner_at(short()).await;
    let front = TlsFront::start(address(&world)).await.unwrap();
    // Tunnels are cut after less than the poll lasts would be wrong; after less than two polls is hard enough.
    let proxy = Proxy::start(HOST, front.address(), Duration::from_secs(3)).await.unwrap();
    let url = format!("https://{HOST}:{}", front.address().port());
    let code = world.code().await;
    let attempt = async |environment: &[(&str, &str)]| {
        let program = world.runner_program("runner").args(["pair", "--plane", &url]);
        let program = environment.iter().fold(program, |program, (name, value)| program.env(name, value));
        world.finish(program.input(format!("{code}\n"))).await
    };
    let authority = authority();
    let ca = authority.to_str().unwrap();
    let (good, bad) = (proxy.url(CREDENTIALS), proxy.url("worker:wrong-password"));

    let untrusted = attempt(&[("HTTPS_PROXY", &good)]).await;
    assert_eq!(untrusted.code, 8, "{untrusted:?}");
    assert!(untrusted.stderr.contains("Example Inspection Root (Example AG)"), "{untrusted:?}");
    assert!(untrusted.stderr.contains("--ca"), "{untrusted:?}");
    let unauthorized = attempt(&[("https_proxy", &bad), ("SSL_CERT_FILE", ca)]).await;
    assert_eq!(unauthorized.code, 8, "{unauthorized:?}");
    assert!(unauthorized.stderr.to_lowercase().contains("proxy"), "{unauthorized:?}");
    for told in [&untrusted, &unauthorized] {
        assert!(!told.stderr.contains("password") && !told.stderr.contains(&code), "{told:?}");
    }
    let paired = attempt(&[("https_proxy", &good), ("SSL_CERT_FILE", ca)]).await;
    assert_eq!(paired.code, 0, "{paired:?}");

    // What NO_PROXY names does not go through the proxy, and no resolver knows the host.
    let before = proxy.asked().len();
    world.start_runner_as(|program| {
        program.env("HTTPS_PROXY", &good).env("NO_PROXY", HOST).args(["--ca", ca])
    });
    let reason = world.runner_is("waiting").await;
    assert!(!reason.is_empty(), "a name that cannot be resolved is a reason");
    assert_eq!(proxy.asked().len(), before);
    world.kill_runner();

    // At boot nothing can be resolved yet; the daemon waits, says so, and recovers by itself.
    proxy.resolves(false);
    world.start_runner_as(|program| program.env("HTTPS_PROXY", &good).args(["--ca", ca]));
    rig::wait::until_true("a boot without names", || {
        proxy.asked().last().is_some_and(|line| line.contains("502"))
    })
    .await;
    let reason = world.runner_is("waiting").await;
    assert!(!reason.is_empty() && !reason.contains("password"), "{reason}");
    proxy.resolves(true);
    let session = world.session(&ticking()).await;
    world.started(&session).await;
    ends_once(&world, &session).await;
    let asked = proxy.asked();
    assert!(asked.iter().all(|line| line.starts_with(&format!("CONNECT {HOST}:"))), "{asked:?}");
    assert!(!world.command_lines().contains(&code));
    for (file, text) in world.logs() {
        assert!(!text.contains("canary-proxy-password"), "the proxy's password is in {file}");
    }
}
