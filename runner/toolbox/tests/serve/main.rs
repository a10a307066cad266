//! Drives the real binary over pipes, as a runner would, without a container.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

mod attach;

use std::time::{Duration, Instant};

use attach::{Sandbox, bash, text};
use checkfu_toolbox::call::{Bash, Glob, Grep, Outcome, Tool, Write};
use checkfu_toolbox::message::{CallState, FromToolbox, Refusal, ToToolbox};

fn limited(command: &str, timeout_ms: u64) -> Tool {
    Tool::Bash(Bash { command: Some(command.into()), restart: None, timeout_ms: Some(timeout_ms) })
}

/// How many processes have `mark` among their arguments.
fn running(mark: &str) -> usize {
    let found = std::fs::read_dir("/proc").unwrap().flatten().filter(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(mark)
    });
    found.count()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(20), "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn shell_state_carries_over_within_a_thread_only() {
    let mut sandbox = Sandbox::start();
    let silent = sandbox.run("a", "t", bash("cd /usr; export A=1; f() { echo f$1; }"));
    assert_eq!((text(&silent), silent.exit_code, silent.is_error), ("(no output)", Some(0), false));
    let told = sandbox.run("b", "t", bash("pwd; echo $A; f 2; exit 5"));
    assert_eq!(text(&told), "/usr\n1\nf2\n(exit code 5)");
    assert_eq!((told.exit_code, told.is_error), (Some(5), true));
    assert_eq!(text(&sandbox.run("c", "t", bash("echo $A"))), "1\n");
    assert_eq!(
        text(&sandbox.run("d", "u", bash("echo [$A]; pwd"))),
        format!("[]\n{}\n", sandbox.workspace().display())
    );
}

#[test]
fn output_of_both_streams_is_merged_in_order_and_stdin_is_empty() {
    let mut sandbox = Sandbox::start();
    let told = sandbox.run("a", "t", bash("echo 1; echo 2 >&2; echo 3; cat; printf '\\xff'"));
    assert_eq!((text(&told), told.bytes_seen), ("1\n2\n3\n\u{fffd}", 7));
}

#[test]
fn a_timeout_keeps_partial_output_state_and_the_next_call() {
    let mut sandbox = Sandbox::start();
    let told = sandbox.run("a", "t", limited("X=kept; echo part; sleep 600.11; echo never", 300));
    assert!(told.timed_out && told.is_error);
    assert!(text(&told).starts_with("part\n(timed out after 300 ms"), "{}", text(&told));
    assert_eq!(text(&sandbox.run("b", "t", bash("echo $X"))), "kept\n");
    assert_eq!(running("600.11"), 0);
}

#[test]
fn a_background_writer_delays_nothing_and_writes_on() {
    let mut sandbox = Sandbox::start();
    let told = sandbox.run("a", "t", bash("(while :; do echo tick; sleep 0.01; done) & echo hi"));
    assert!(text(&told).contains("hi\n") && told.background >= 1 && !told.is_error, "{told:?}");
    let log = sandbox.root().join("out/a.background");
    assert!(text(&told).contains(log.to_str().unwrap()));
    until("the writer writes on", || std::fs::read_to_string(&log).unwrap().matches("tick").count() > 20);
    let restart = Tool::Bash(Bash { command: None, restart: Some(true), timeout_ms: None });
    assert!(text(&sandbox.run("b", "t", restart)).contains("restarted"));
    let size = std::fs::metadata(&log).unwrap().len();
    assert_eq!(text(&sandbox.run("c", "t", bash("sleep 0.1; echo ok"))), "ok\n");
    assert_eq!(std::fs::metadata(&log).unwrap().len(), size);
}

#[test]
fn nothing_a_call_started_outlives_its_limit() {
    let mut sandbox = Sandbox::start();
    let stubborn = "trap '' TERM; (setsid sh -c 'trap \"\" TERM; (while :; do sleep 601.22; done) & wait' &) ; \
                    while :; do sleep 601.22; done";
    let sibling = sandbox.call("s", "u", bash("sleep 3; echo sibling"));
    let told = sandbox.run("a", "t", limited(stubborn, 300));
    assert!(told.timed_out && told.background == 0, "{told:?}");
    assert_eq!(running("601.22"), 0);
    assert_eq!(text(&sandbox.wait_done(&sibling)), "sibling\n");
}

#[test]
fn a_cancelled_call_has_no_later_effect() {
    let mut sandbox = Sandbox::start();
    let proof = sandbox.workspace().join("PROOF");
    let call = sandbox.call("a", "t", bash("echo begun; sleep 1.5; touch PROOF"));
    let queued = sandbox.call("b", "t", bash("touch PROOF2"));
    sandbox.say(&ToToolbox::Cancel { call_id: queued.clone() });
    let told = sandbox.wait_done(&queued);
    assert!(told.cancelled && !told.started);
    sandbox.say(&ToToolbox::Cancel { call_id: call.clone() });
    let told = sandbox.wait_done(&call);
    assert!(told.cancelled && told.is_error && text(&told).contains("(cancelled"), "{told:?}");
    assert_eq!(text(&sandbox.run("c", "t", bash("sleep 2; ls"))), "(no output)");
    assert!(!proof.exists());
}

#[test]
fn a_repeated_id_gives_the_same_result_and_runs_once() {
    let mut sandbox = Sandbox::start();
    let once = sandbox.run("a", "t", bash("echo x >> log; wc -l < log"));
    let again = sandbox.run("a", "t", bash("echo x >> log; wc -l < log"));
    assert_eq!((text(&once), &once), ("1\n", &again));
    sandbox.say(&ToToolbox::Ack { call_id: "a".into() });
    assert_eq!(sandbox.refusal("a", bash("echo x >> log")), Refusal::AlreadyAcknowledged);
    sandbox.say(&ToToolbox::Query { call_id: "never".into() });
    sandbox.wait_for(|message| {
        matches!(message, FromToolbox::Unknown { call_id } if call_id == "never").then_some(())
    });
    assert_eq!(text(&sandbox.run("b", "t", bash("wc -l < log"))), "1\n");
}

#[test]
fn older_epochs_are_refused() {
    let mut sandbox = Sandbox::start();
    sandbox.hello(5, 60_000);
    sandbox.say(&ToToolbox::Hello { epoch: 4, lease_ms: 60_000, keep_ms: 1_000 });
    let refused = |message: &FromToolbox| match message {
        FromToolbox::Refused { call_id: None, reason } => Some(*reason),
        _ => None,
    };
    assert_eq!(sandbox.wait_for(refused), Refusal::StaleEpoch);
    sandbox.say(&ToToolbox::Lease { epoch: 4, remaining_ms: 1 });
    assert_eq!(sandbox.wait_for(refused), Refusal::StaleEpoch);
    sandbox.epoch = 4;
    assert_eq!(sandbox.refusal("a", bash("true")), Refusal::StaleEpoch);
}

#[test]
fn a_new_attach_drops_the_cut_message_and_gets_stored_results() {
    let mut sandbox = Sandbox::start();
    let told = sandbox.run("a", "t", bash("echo stored"));
    let long = sandbox.call("b", "t", bash("sleep 600.33"));
    let write = Write { file_path: "never".into(), content: "x".repeat(200_000) };
    sandbox.say_cut("c", Tool::Write(write), 100_000);
    let ready = sandbox.hello(2, 60_000);
    let FromToolbox::Ready { calls, epoch: 2, .. } = ready else { panic!("{ready:?}") };
    let known: Vec<_> = calls.iter().map(|call| (call.call_id.as_str(), call.state)).collect();
    assert_eq!(known, [("a", CallState::Done), ("b", CallState::Running)]);
    assert_eq!(sandbox.wait_done("a"), told);
    sandbox.say(&ToToolbox::Cancel { call_id: long.clone() });
    assert!(sandbox.wait_done(&long).cancelled);
    assert!(!sandbox.workspace().join("never").exists());
}

#[test]
fn the_end_of_the_lease_stops_everything_until_it_is_renewed() {
    let mut sandbox = Sandbox::start();
    let call =
        sandbox.call("a", "t", bash("for i in $(seq 600); do echo $i >> ticks; sleep 0.01; done; echo end"));
    let ticks = sandbox.workspace().join("ticks");
    let size = || std::fs::metadata(&ticks).map_or(0, |found| found.len());
    until("it ticks", || size() > 0);
    sandbox.hello_with(2, 1, 600_000);
    until("it stands still", || {
        let before = size();
        std::thread::sleep(Duration::from_millis(200));
        size() == before
    });
    assert_eq!(sandbox.refusal("b", bash("true")), Refusal::LeaseEnded);
    sandbox.say(&ToToolbox::Lease { epoch: 2, remaining_ms: 60_000 });
    assert!(text(&sandbox.wait_done(&call)).ends_with("end\n"));
}

#[test]
fn after_the_keep_time_everything_is_gone_and_reported() {
    let mut sandbox = Sandbox::start();
    let call = sandbox.call("a", "t", bash("sleep 602.44 & sleep 602.44"));
    until("it runs", || running("602.44") >= 2);
    sandbox.hello_with(2, 1, 1);
    let told = sandbox.wait_done(&call);
    assert!(told.cancelled, "{told:?}");
    until("nothing is left", || running("602.44") == 0);
    sandbox.hello(3, 60_000);
    assert_eq!(text(&sandbox.run("b", "t", bash("echo again"))), "again\n");
}

#[test]
fn long_output_is_previewed_and_spilled() {
    let mut sandbox = Sandbox::start();
    let told = sandbox.run("a", "t", bash("head -c 5000000 /dev/zero | tr '\\0' x; echo; exit 3"));
    let truncated = told.truncated.clone().unwrap();
    assert_eq!((truncated.total_bytes, truncated.total_chars), (5_000_001, 5_000_001));
    assert_eq!(truncated.preview_head.len(), 8_000);
    assert!(truncated.note.contains("(exit code 3)"));
    let path = truncated.alive_only_path.unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 5_000_001);
    let grep = Tool::Grep(Grep { pattern: "x$".into(), path: Some(path) });
    assert!(text(&sandbox.run("b", "t", grep)).contains("[line cut]"));
}

#[test]
fn a_spill_folder_led_elsewhere_costs_only_the_file() {
    let mut sandbox = Sandbox::start();
    let elsewhere = tempfile::tempdir().unwrap();
    let out = sandbox.root().join("out");
    std::fs::remove_dir_all(&out).unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), &out).unwrap();
    let told = sandbox.run("a", "t", bash("seq 100000"));
    let truncated = told.truncated.unwrap();
    assert!(
        truncated.alive_only_path.is_none() && truncated.note.contains("not saved"),
        "{}",
        truncated.note
    );
    assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
}

#[test]
fn calls_of_other_threads_and_file_tools_do_not_wait() {
    let mut sandbox = Sandbox::start();
    let slow = sandbox.call("slow", "t", bash("sleep 603.55"));
    let behind = sandbox.call("behind", "t", bash("echo behind"));
    assert_eq!(text(&sandbox.run("other", "u", bash("echo other"))), "other\n");
    let glob = Tool::Glob(Glob { pattern: "*".into(), path: None });
    assert!(text(&sandbox.run("glob", "t", glob)).contains("no files match"));
    sandbox.say(&ToToolbox::Cancel { call_id: slow.clone() });
    assert!(sandbox.wait_done(&slow).cancelled);
    assert_eq!(text(&sandbox.wait_done(&behind)), "behind\n");
}

#[test]
fn a_killed_supervisor_is_reported_and_replaced() {
    let mut sandbox = Sandbox::start();
    let told = sandbox.run("a", "t", bash("kill -9 $PPID; sleep 604.66"));
    assert!(text(&told).contains("supervisor-died") && told.is_error, "{told:?}");
    until("its processes are gone", || running("604.66") == 0);
    assert_eq!(text(&sandbox.run("b", "t", bash("echo fine"))), "fine\n");
}

#[test]
fn garbage_from_the_runner_harms_nothing() {
    let mut sandbox = Sandbox::start();
    sandbox.say_raw(&[0xF5, b'C', b'F', 0xFF, 1, 2, 0, 0, 0xFF, 0xFF, 0xFF]);
    sandbox.say_raw(&vec![0xAA; 300_000]);
    sandbox.hello(2, 60_000);
    assert_eq!(text(&sandbox.run("a", "t", bash("echo fine"))), "fine\n");
}

#[test]
fn a_runner_that_does_not_read_holds_up_no_call() {
    let mut sandbox = Sandbox::start();
    sandbox.stop_reading();
    for at in 0..40 {
        sandbox.call(&format!("c{at}"), &format!("t{at}"), bash("seq 15000"));
    }
    let proof = sandbox.workspace().join("proof");
    sandbox.call("last", "t", bash("touch proof"));
    until("the last call ran", || proof.exists());
    sandbox.read_again();
    sandbox.hello(2, 60_000);
    for at in 0..40 {
        let told: Outcome = sandbox.wait_done(&format!("c{at}"));
        assert_eq!(told.exit_code, Some(0));
    }
}
