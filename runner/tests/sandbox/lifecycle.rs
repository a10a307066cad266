//! Containers across stops, freezes, other instances and the reaper.

use crate::rig::{Rig, bash, docker, run, spec, text, until};
use checkfu_runner::sandbox::{Error, How, reaper::Verdict, spec as blueprint};
use checkfu_shared::{
    environment::{Network, Profile, Spec},
    time::{Clock as _, ManualClock, SystemClock},
};
use std::{collections::HashSet, sync::Arc};

#[tokio::test]
async fn a_stopped_sandbox_starts_again_with_its_files() {
    let rig = Rig::start().await;
    let opened = rig.open(spec()).await.unwrap();
    assert!(matches!(&opened.how, How::Created { image } if image.starts_with("sha256:")));
    run(&opened.sandbox, "c1", "echo kept > /workspace/file").await;
    rig.docker.stop_session(rig.session).await.unwrap();
    assert!(!rig.docker.list().await.unwrap()[0].running);
    assert!(matches!(opened.sandbox.call(bash("c2", "true")).await, Err(Error::Closed | Error::Lost)));
    let again = rig.docker.open(rig.request(spec(), 2)).await.unwrap();
    assert_eq!(again.how, How::Restarted);
    assert_eq!(run(&again.sandbox, "c3", "cat /workspace/file").await, "kept\n");
}

#[tokio::test]
async fn a_frozen_sandbox_stands_still_and_goes_on() {
    let rig = Rig::start().await;
    let sandbox = rig.sandbox().await;
    run(&sandbox, "c1", "(while :; do echo x >> /workspace/log; sleep .02; done) > /dev/null 2>&1 & echo")
        .await;
    sandbox.freeze().await.unwrap();
    sandbox.freeze().await.unwrap();
    assert!(matches!(sandbox.call(bash("c2", "true")).await, Err(Error::Frozen)));
    let state = || docker(&["inspect", "-f", "{{.State.Status}}", sandbox.container()]);
    assert_eq!(state(), "paused");
    // The end of a capture must not thaw what was frozen.
    sandbox.capture(&rig.directory.path().join("spool"), Default::default()).await.unwrap();
    assert_eq!(state(), "paused");
    sandbox.thaw(60_000).await.unwrap();
    assert_eq!(state(), "running");
    assert_eq!(run(&sandbox, "c3", "echo on").await, "on\n");
}

#[tokio::test]
async fn a_frozen_sandbox_can_be_stopped_and_removed() {
    let rig = Rig::start().await;
    let sandbox = rig.sandbox().await;
    sandbox.freeze().await.unwrap();
    rig.docker.stop_session(rig.session).await.unwrap();
    assert!(!rig.docker.list().await.unwrap()[0].running);
    let again = rig.docker.open(rig.request(spec(), 2)).await.unwrap();
    assert_eq!(again.how, How::Restarted);
    again.sandbox.freeze().await.unwrap();
    rig.docker.remove_session(rig.session).await.unwrap();
    rig.docker.remove_session(rig.session).await.unwrap();
    assert_eq!(rig.docker.list().await.unwrap(), []);
}

#[tokio::test]
async fn a_sandbox_that_was_left_paused_is_adopted_running() {
    let mut rig = Rig::start().await;
    let sandbox = rig.sandbox().await;
    sandbox.freeze().await.unwrap();
    drop(sandbox);
    rig.reconnect().await;
    let opened = rig.docker.open(rig.request(spec(), 2)).await.unwrap();
    assert_eq!(opened.how, How::Adopted);
    assert_eq!(run(&opened.sandbox, "c1", "echo on").await, "on\n");
}

#[tokio::test]
async fn a_toolbox_that_ends_at_once_is_a_sentence() {
    let mut rig = Rig::start().await;
    rig.config.toolbox = "/bin/true".into();
    rig.reconnect().await;
    let error = rig.open(spec()).await.unwrap_err();
    assert!(matches!(error, Error::ToolboxEnded), "{error:?}");
}

#[tokio::test]
async fn an_opening_dropped_half_way_is_taken_up_by_the_next() {
    let rig = Rig::start().await;
    for wait_ms in [5, 30, 80, 150, 250] {
        let opening = rig.open(spec());
        let _dropped = tokio::time::timeout(std::time::Duration::from_millis(wait_ms), opening).await;
    }
    let sandbox = rig.sandbox().await;
    assert_eq!(run(&sandbox, "c1", "pwd; touch f && echo on").await, "/workspace\non\n");
    drop(sandbox);
    tokio::time::timeout(std::time::Duration::from_secs(20), rig.docker.close()).await.unwrap();
}

#[tokio::test]
async fn a_creation_that_was_cut_short_is_made_good() {
    let rig = Rig::start().await;
    let name = blueprint::container_name(&rig.config.instance, rig.session);
    let toolbox = rig.config.toolbox.display().to_string();
    let labels = [
        format!("{}={}", blueprint::LABEL_INSTANCE, rig.config.instance),
        format!("{}={}", blueprint::LABEL_SESSION, rig.session),
    ];
    let mount = format!("type=bind,source={toolbox},target={},readonly", blueprint::TOOLBOX);
    docker(&[
        "create",
        "-i",
        "--name",
        &name,
        "--network",
        "none",
        "--user",
        "1000:1000",
        "--label",
        &labels[0],
        "--label",
        &labels[1],
        "--mount",
        &mount,
        "--workdir",
        "/workspace",
        "--entrypoint",
        blueprint::TOOLBOX,
        &rig.config.default_image,
    ]);
    let opened = rig.open(spec()).await.unwrap();
    assert!(matches!(opened.how, How::Created { .. }), "{:?}", opened.how);
    assert_eq!(run(&opened.sandbox, "c1", "touch file; pwd").await, "/workspace\n");
}

#[tokio::test]
async fn a_foreign_container_with_our_name_is_left_alone() {
    let rig = Rig::start().await;
    let name = blueprint::container_name(&rig.config.instance, rig.session);
    let id = docker(&["create", "--name", &name, &rig.config.default_image, "true"]);
    let opened = rig.open(spec()).await;
    rig.docker.remove_session(rig.session).await.unwrap();
    rig.docker.stop_session(rig.session).await.unwrap();
    let still_there = docker(&["inspect", "-f", "{{.Id}}", &name]);
    docker(&["rm", "-f", &id]);
    assert!(matches!(opened, Err(Error::NameTaken { .. })), "{opened:?}");
    assert_eq!(still_there, id);
}

#[tokio::test]
async fn garbage_collection_touches_only_our_own_old_and_unknown() {
    let mut rig = Rig::start().await;
    let other = Rig::start().await;
    other.sandbox().await.close().await;
    let bare = docker(&["create", &rig.config.default_image, "true"]);
    drop(rig.sandbox().await);
    let unknown = HashSet::new();

    let verdict =
        async |rig: &Rig, known: &HashSet<_>, dry| rig.docker.gc(known, dry).await.unwrap()[0].verdict;
    assert_eq!(verdict(&rig, &unknown, false).await, Verdict::Young);
    rig.config.clock = Arc::new(ManualClock::new(SystemClock.now().plus_ms(3_600_000)));
    rig.reconnect().await;
    assert_eq!(verdict(&rig, &HashSet::from([rig.session]), false).await, Verdict::Kept);
    assert_eq!(verdict(&rig, &unknown, true).await, Verdict::Removed);
    assert_eq!(rig.docker.list().await.unwrap().len(), 1, "a dry run removed something");
    assert_eq!(verdict(&rig, &unknown, false).await, Verdict::Removed);
    assert_eq!(rig.docker.list().await.unwrap(), []);

    let left = docker(&["ps", "-aq", "--no-trunc"]);
    docker(&["rm", "-f", &bare]);
    assert!(left.contains(&bare), "a foreign container is gone");
    assert_eq!(other.docker.list().await.unwrap().len(), 1, "another instance's container is gone");
}

#[tokio::test]
async fn an_open_sandbox_is_never_collected() {
    let mut rig = Rig::start().await;
    rig.config.clock = Arc::new(ManualClock::new(SystemClock.now().plus_ms(-3_600_000)));
    rig.reconnect().await;
    let sandbox = rig.sandbox().await;
    assert_eq!(rig.docker.gc(&HashSet::new(), false).await.unwrap()[0].verdict, Verdict::Kept);
    assert_eq!(run(&sandbox, "c1", "echo alive").await, "alive\n");
}

#[tokio::test]
async fn an_image_that_is_nowhere_is_a_sentence() {
    let rig = Rig::start().await;
    let missing = Spec { image: Some("127.0.0.1:1/checkfu/absent:1".to_owned()), ..spec() };
    let error = rig.open(missing).await.unwrap_err();
    assert!(matches!(error, Error::ImageNotFound { .. } | Error::ImagePull { .. }), "{error:?}");
    assert!(error.to_string().contains("127.0.0.1:1/checkfu/absent:1"));
    assert_eq!(rig.docker.list().await.unwrap(), []);
}

#[tokio::test]
async fn a_locked_sandbox_writes_where_it_may_and_leaves_no_volume() {
    let rig = Rig::start().await;
    let locked = Spec { profile: Profile::Locked, ..spec() };
    let sandbox = rig.open(locked).await.unwrap().sandbox;
    let places = "/workspace /mnt/session/outputs /mnt/session/uploads $HOME /tmp";
    run(&sandbox, "c1", &format!("for d in {places}; do touch $d/f || exit 1; done")).await;
    let denied = sandbox.call(bash("c2", "touch /etc/f")).await.unwrap();
    assert!(text(&denied).contains("Read-only"), "{}", text(&denied));
    run(&sandbox, "c3", "echo out > /mnt/session/outputs/o").await;
    let capture = sandbox.capture(&rig.directory.path().join("spool"), Default::default()).await.unwrap();
    assert!(capture.files.iter().any(|file| file.path == b"o" && file.spool.is_some()));
    rig.docker.remove_session(rig.session).await.unwrap();
    let label = format!("label={}={}", blueprint::LABEL_INSTANCE, rig.config.instance);
    assert_eq!(docker(&["volume", "ls", "-q", "--filter", &label]), "");
}

#[tokio::test]
async fn a_removed_session_leaves_nothing_on_this_machine() {
    let rig = Rig::start().await;
    let toolbox = rig.config.toolbox.clone();
    // Others may run the same test on this machine.
    let seconds = format!("6060.{}", std::process::id());
    // Whatever is opened once for good is open before the count.
    let network = Network::Limited { allowed_hosts: vec!["ok.test".into()] };
    let with_network = Spec { network, ..spec() };
    drop(rig.open(with_network.clone()).await.unwrap());
    rig.docker.remove_session(rig.session).await.unwrap();
    let before = (open_files(), files_below(rig.directory.path()), networks());
    for profile in [Profile::Standard, Profile::Root, Profile::Locked] {
        let sandbox = rig.open(Spec { profile, ..with_network.clone() }).await.unwrap().sandbox;
        let leave = format!(
            "(sleep {seconds} >/dev/null 2>&1 &); curl -s http://evil.test/; echo x > /mnt/session/outputs/x"
        );
        run(&sandbox, "c1", &leave).await;
        let spool = rig.directory.path().join("spool");
        sandbox.capture(&spool, Default::default()).await.unwrap();
        std::fs::remove_dir_all(&spool).unwrap();
        assert!(processes_with(&seconds) > 0);
        drop(sandbox);
        rig.docker.remove_session(rig.session).await.unwrap();
    }
    let label = format!("label={}={}", blueprint::LABEL_INSTANCE, rig.config.instance);
    for kind in [["ps", "-aq"], ["volume", "ls"]] {
        let mut words = kind.to_vec();
        words.extend(["-q", "--filter", &label]);
        assert_eq!(docker(&words), "", "{kind:?}");
    }
    assert_eq!(processes_with(&seconds), 0);
    until(async || (open_files(), files_below(rig.directory.path()), networks()) == before).await;
    rig.docker.close().await;
    assert!(toolbox.exists());
}

fn open_files() -> usize {
    let targets = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    // Connections to the daemon that wait to be used again come and go by themselves.
    targets
        .filter(|fd| {
            std::fs::read_link(fd.path()).is_ok_and(|target| !target.to_string_lossy().starts_with("socket:"))
        })
        .count()
}

fn files_below(directory: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap().flatten() {
        if entry.file_type().unwrap().is_dir() {
            found.extend(files_below(&entry.path()));
        }
        found.push(entry.path());
    }
    found
}

fn networks() -> String {
    docker(&["network", "ls", "-q", "--filter", "name=checkfu"])
}

fn processes_with(word: &str) -> usize {
    let commands = std::fs::read_dir("/proc").unwrap().flatten();
    let found = commands.filter(|entry| {
        let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&command).split('\0').any(|argument| argument == word)
    });
    found.count()
}
