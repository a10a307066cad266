//! What content and programs inside a sandbox try, and what the caller sees of it.

use crate::rig::{Rig, bash, docker, run, spec, text, until};
use checkfu_runner::sandbox::{Error, Request, Sandbox};
use checkfu_shared::environment::{Limits, Profile, Spec};
use checkfu_toolbox::{
    call::{Bash, Outcome, Read, Tool},
    wire,
};
use std::os::unix::fs::PermissionsExt as _;

async fn call(sandbox: &Sandbox, id: &str, command: &str) -> Outcome {
    sandbox.call(bash(id, command)).await.unwrap()
}

/// A call of its own thread with a limit in milliseconds.
fn limited(id: &str, command: &str, timeout_ms: u64) -> Request {
    let bash = Bash { command: Some(command.into()), timeout_ms: Some(timeout_ms), ..Bash::default() };
    Request { call_id: id.into(), thread: id.into(), tool: Tool::Bash(bash) }
}

#[tokio::test]
async fn silence_is_said_and_standard_input_is_empty() {
    let rig = Rig::start().await;
    let sandbox = rig.sandbox().await;
    let silent = call(&sandbox, "c1", "true").await;
    assert_eq!((text(&silent).as_str(), silent.exit_code, silent.is_error), ("(no output)", Some(0), false));
    assert_eq!(text(&call(&sandbox, "c2", "cat; read x || echo eof; head -c1 | wc -c").await), "eof\n0\n");
}

#[tokio::test]
async fn a_sleeper_in_the_background_is_counted_and_lives_on() {
    let rig = Rig::start().await;
    let sandbox = rig.sandbox().await;
    let outcome = call(&sandbox, "c1", "sleep 3030 & echo hi").await;
    assert_eq!((outcome.background, outcome.exit_code), (1, Some(0)), "{outcome:?}");
    assert!(text(&outcome).starts_with("hi\n"), "{outcome:?}");
    assert_eq!(run(&sandbox, "c2", "pgrep -c -f '^sleep 3030'").await, "1\n");
}

#[tokio::test]
async fn a_drain_file_of_a_background_writer_stays_small_and_keeps_the_latest() {
    let rig = Rig::start().await;
    let sandbox = rig.sandbox().await;
    let outcome =
        call(&sandbox, "c1", "(i=0; while :; do i=$((i+1)); echo $i-0123456789; done) & echo hi").await;
    assert!(text(&outcome).contains("/.checkfu/out/c1.background"), "{}", text(&outcome));
    let grown = "timeout 50 sh -c 'until [ $(tail -n1 $0 | cut -d- -f1) -gt 400000 ]; do sleep .2; done' \
                 /.checkfu/out/c1.background; stat -c %s /.checkfu/out/c1.background";
    let bytes: u64 = run(&sandbox, "c2", grown).await.trim().parse().unwrap();
    assert!(bytes <= 4 << 20, "{bytes} bytes of a drain file");
}

#[tokio::test]
async fn nothing_outlives_a_limit_however_it_hides() {
    let rig = Rig::start().await;
    let sandbox = rig.sandbox().await;
    let hide = r#"python3 - <<'EOF'
import os, signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.execvp("sleep", ["sleep", "4040"])
    os._exit(0)
EOF
trap '' TERM; while :; do sleep 4040; done"#;
    let outcome = sandbox.call(limited("c1", hide, 1_000)).await.unwrap();
    assert!(outcome.timed_out && outcome.background == 0, "{outcome:?}");
    assert_eq!(run(&sandbox, "c2", "pgrep -c -f '^sleep 4040' || true").await, "0\n");
}

#[tokio::test]
async fn exhausted_processes_are_answered_with_advice_and_can_be_ended() {
    let rig = Rig::start().await;
    let limits = Limits { memory_bytes: 256 << 20, pids: 40, ..Limits::default() };
    let sandbox = rig.open(Spec { limits, ..spec() }).await.unwrap().sandbox;
    // Bash itself would wait for minutes and try again. The last sleeper takes the place of the one that made them all.
    let spawn = r#"cat > /workspace/spawn.py <<'EOF'
import os, subprocess
try:
    while True:
        subprocess.Popen(["sleep", "5050"])
except OSError:
    open("/workspace/full", "w")
    os.execvp("sleep", ["sleep", "5050"])
EOF
python3 /workspace/spawn.py & until [ -e /workspace/full ]; do :; done"#;
    let outcome = call(&sandbox, "c1", spawn).await;
    assert!(outcome.background > 10, "{outcome:?}");
    let other = Request { thread: "other".into(), ..bash("c2", "echo never") };
    let refused = sandbox.call(other).await.unwrap();
    assert!(refused.is_error && text(&refused).contains("process"), "{refused:?}");
    let restart = Tool::Bash(Bash { restart: Some(true), ..Bash::default() });
    let request = Request { call_id: "c3".into(), thread: "main".into(), tool: restart };
    assert!(text(&sandbox.call(request).await.unwrap()).contains("restarted"));
    assert_eq!(run(&sandbox, "c4", "pgrep -c sleep || true").await, "0\n");
}

#[tokio::test]
async fn the_first_process_and_its_supervisors_can_be_neither_read_nor_written() {
    let rig = Rig::start().await;
    for profile in [Profile::Standard, Profile::Root] {
        rig.docker.remove_session(rig.session).await.unwrap();
        let sandbox = rig.open(Spec { profile, ..spec() }).await.unwrap().sandbox;
        let attempts = r#"
for pid in 1 $PPID; do
  for file in environ mem maps fd/0 fd/1 auxv syscall; do
    head -c1 /proc/$pid/$file >/dev/null 2>&1 && [ -s /proc/$pid/$file ] && echo "read $pid $file"
    (printf x > /proc/$pid/$file) 2>/dev/null && echo "wrote $pid $file"
  done
done
python3 - <<'EOF'
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
print("traced" if libc.ptrace(16, 1, 0, 0) == 0 else "not traced")
EOF"#;
        assert_eq!(run(&sandbox, "c1", attempts).await, "not traced\n", "{profile:?}");
        assert_eq!(run(&sandbox, "c2", "echo alive").await, "alive\n");
    }
}

#[tokio::test]
async fn one_line_of_five_megabytes_is_bounded_saved_and_never_captured() {
    let rig = Rig::start().await;
    let sandbox = rig.sandbox().await;
    let outcome = call(&sandbox, "c1", "head -c 5000000 /dev/zero | tr '\\0' a").await;
    let shown = text(&outcome);
    assert!(shown.chars().count() <= 100_000 && shown.contains("result_truncated"), "{}", shown.len());
    assert_eq!(outcome.bytes_seen, 5_000_000);
    let envelope: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((&envelope["total_bytes"], &envelope["total_chars"]), (&5_000_000.into(), &5_000_000.into()));
    let path = envelope["alive_only_path"].as_str().unwrap();
    assert_eq!(run(&sandbox, "c2", &format!("stat -c %s {path}")).await, "5000000\n");
    let read = Tool::Read(Read { file_path: path.into(), view_range: None });
    let request = Request { call_id: "c3".into(), thread: "main".into(), tool: read };
    assert!(!sandbox.call(request).await.unwrap().is_error, "the saved result cannot be read back");
    let capture = sandbox.capture(&rig.directory.path().join("spool"), Default::default()).await.unwrap();
    assert!(capture.files.is_empty(), "{:?}", capture.files);
}

#[tokio::test]
async fn a_spill_folder_that_is_led_elsewhere_or_unwritable_costs_only_the_file() {
    let rig = Rig::start().await;
    let sandbox = rig.open(Spec { profile: Profile::Root, ..spec() }).await.unwrap().sandbox;
    let long = "head -c 300000 /dev/zero | tr '\\0' a";
    run(&sandbox, "c1", "rm -rf /.checkfu/out && ln -s /etc /.checkfu/out && ls /etc | sort > /before").await;
    let outcome = call(&sandbox, "c2", long).await;
    let shown = text(&outcome);
    assert!(shown.contains("result_truncated") && !outcome.is_error, "{outcome:?}");
    assert!(!shown.contains("alive_only_path"), "a path that was not written: {shown}");
    assert_eq!(run(&sandbox, "c3", "ls /etc | sort | diff /before - && echo same").await, "same\n");
    run(&sandbox, "c4", "rm /.checkfu/out && echo file > /.checkfu/out").await;
    assert!(text(&call(&sandbox, "c5", long).await).contains("result_truncated"));
}

#[tokio::test]
async fn memory_that_ran_out_is_counted_even_when_the_command_hides_it() {
    let rig = Rig::start().await;
    let limits = Limits { memory_bytes: 64 << 20, ..Limits::default() };
    let sandbox = rig.open(Spec { limits, ..spec() }).await.unwrap().sandbox;
    let killed = call(&sandbox, "c1", "tail /dev/zero").await;
    assert_eq!((killed.oom_kills, killed.exit_code), (1, Some(137)), "{killed:?}");
    let hidden = call(&sandbox, "c2", "sh -c 'tail /dev/zero; true'").await;
    assert_eq!((hidden.oom_kills, hidden.exit_code), (1, Some(0)), "{hidden:?}");
    assert!(text(&hidden).contains("memory"), "{}", text(&hidden));
    assert_eq!(run(&sandbox, "c3", "echo alive").await, "alive\n");
}

#[tokio::test]
async fn a_first_process_that_talks_garbage_is_reset_and_then_given_up() {
    let mut rig = Rig::start().await;
    let garbage = rig.directory.path().join("garbage");
    // A sound frame that holds no message, something that claims to be four gigabytes long, and noise.
    let mut frames = Vec::new();
    wire::encode(99, false, 1, b"no message", &mut frames);
    frames.extend(wire::MAGIC);
    frames.extend([1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 255, 255, 255, 255, 0, 0, 0, 0]);
    let frames: String = frames.iter().map(|byte| format!("\\{byte:03o}")).collect();
    let script =
        format!("#!/bin/sh\nwhile :; do printf '{frames}'; head -c 5000 /dev/urandom; sleep .2; done\n");
    std::fs::write(&garbage, script).unwrap();
    std::fs::set_permissions(&garbage, std::fs::Permissions::from_mode(0o755)).unwrap();
    rig.config.toolbox = garbage;
    rig.reconnect().await;
    let error = rig.open(spec()).await.unwrap_err();
    assert!(matches!(error, Error::Unresponsive), "{error:?}");
    // The runner is none the worse for it.
    rig.docker.remove_session(rig.session).await.unwrap();
    let good = Rig::start().await;
    assert_eq!(run(&*good.sandbox().await, "c1", "echo on").await, "on\n");
}

#[tokio::test]
async fn a_killed_container_ends_the_call_as_lost() {
    let rig = Rig::start().await;
    let sandbox = rig.sandbox().await;
    let running = sandbox.call(bash("c1", "sleep 60"));
    let killed = async {
        crate::rig::until_running(&sandbox, "c1").await;
        docker(&["kill", sandbox.container()]);
    };
    let (outcome, ()) = tokio::join!(running, killed);
    assert!(matches!(outcome, Err(Error::Lost)), "{outcome:?}");
}

#[tokio::test]
async fn a_daemon_that_goes_away_for_a_while_costs_no_call() {
    let mut rig = Rig::start().await;
    let relay = rig.through_a_relay().await;
    let sandbox = rig.sandbox().await;
    let command = "echo x >> log; until [ -e go ]; do sleep .05; done; wc -l < log";
    let back = async {
        crate::rig::until_running(&sandbox, "c1").await;
        relay.go_away();
        until(async || relay.turned_away() > 0).await;
        relay.come_back();
        run_elsewhere(&sandbox, "c2", "touch go").await;
    };
    let (outcome, ()) = tokio::join!(sandbox.call(bash("c1", command)), back);
    assert_eq!(text(&outcome.unwrap()), "1\n");
}

async fn run_elsewhere(sandbox: &Sandbox, id: &str, command: &str) {
    let request = Request { thread: "other".into(), ..bash(id, command) };
    assert_eq!(sandbox.call(request).await.unwrap().exit_code, Some(0));
}
