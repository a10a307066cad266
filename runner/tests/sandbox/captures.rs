//! Capture of what a hostile session leaves in its outputs.

use crate::rig::{Rig, docker, run, spec, until};
use checkfu_runner::{
    outputs::{Capture, Error, Limits},
    sandbox::Sandbox,
};
use checkfu_shared::{
    environment::{Profile, Spec},
    event::CaptureStatus,
};
use std::{collections::BTreeMap, time::Duration};

async fn capture(rig: &Rig, sandbox: &Sandbox) -> Result<Capture, Error> {
    sandbox.capture(&rig.directory.path().join("spool"), Limits::default()).await
}

fn statuses(capture: &Capture) -> BTreeMap<Vec<u8>, CaptureStatus> {
    capture.files.iter().map(|file| (file.path.clone(), file.status)).collect()
}

#[tokio::test]
async fn a_hostile_tree_yields_its_regular_files_and_reasons() {
    let rig = Rig::start().await;
    let sandbox = rig.open(Spec { profile: Profile::Root, ..spec() }).await.unwrap().sandbox;
    let tree = r#"cd /mnt/session/outputs && mkdir -p sub/deep locked && echo hello > sub/deep/plain
ln -s /etc/passwd link; ln -s loop loop; ln -s / root; mkfifo pipe; echo secret > locked/hidden
chmod 000 locked locked/hidden; echo set > setuid; chmod 4755 setuid; ln sub/deep/plain tail-link
ln /etc/passwd outside; : > empty; printf odd > $'new\nline'; printf odd > $'bad\xff\xfeutf'
printf odd > $'esc\e[31m'; printf odd > -dash; printf odd > 'a:b\c '; printf odd > ..hidden; printf odd > ...
printf odd > $'caf\xc3\xa9'; printf odd > $'cafe\xcc\x81'; printf odd > $(printf 'n%.0s' $(seq 255))
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("sock")'"#;
    run(&sandbox, "tree", tree).await;
    let capture = capture(&rig, &sandbox).await.unwrap();
    let found = statuses(&capture);
    let get = |name: &[u8]| found.get(name).copied();
    for name in [
        &b"sub/deep/plain"[..],
        b"locked/hidden",
        b"setuid",
        b"tail-link",
        b"outside",
        b"empty",
        b"new\nline",
        b"bad\xff\xfeutf",
        b"esc\x1b[31m",
        b"-dash",
        b"a:b\\c ",
        b"..hidden",
        b"...",
        "caf\u{e9}".as_bytes(),
        "cafe\u{301}".as_bytes(),
        &[b'n'; 255],
    ] {
        assert_eq!(get(name), Some(CaptureStatus::Captured), "{}", String::from_utf8_lossy(name));
    }
    for name in [&b"link"[..], b"loop", b"root", b"pipe"] {
        assert_eq!(get(name), Some(CaptureStatus::Special), "{}", String::from_utf8_lossy(name));
    }
    let content = |name: &[u8]| {
        let file = capture.files.iter().find(|file| file.path == name).unwrap();
        std::fs::read(file.spool.as_ref().unwrap()).unwrap()
    };
    assert_eq!(content(b"sub/deep/plain"), b"hello\n");
    assert_eq!(content(b"tail-link"), b"hello\n");
    assert_eq!(content(b"locked/hidden"), b"secret\n");
    assert_eq!(run(&sandbox, "after", "echo on").await, "on\n");
}

#[tokio::test]
async fn ten_thousand_files_are_listed_and_sixty_four_taken() {
    let rig = Rig::start().await;
    let sandbox = rig.sandbox().await;
    run(&sandbox, "c1", "cd /mnt/session/outputs && seq -f f%05g 1 10000 | xargs touch").await;
    let capture = capture(&rig, &sandbox).await.unwrap();
    let taken = capture.files.iter().filter(|file| file.status == CaptureStatus::Captured).count();
    let over = capture.files.iter().filter(|file| file.status == CaptureStatus::OverCapacity).count();
    assert_eq!((taken, over, capture.unlisted), (64, 9_936, 0));
}

#[tokio::test]
async fn a_huge_sparse_file_is_skipped_and_smuggles_nothing() {
    let rig = Rig::start().await;
    let sandbox = rig.sandbox().await;
    run(
        &sandbox,
        "c1",
        "cd /mnt/session/outputs && mkdir d && echo real | tee real.txt d/inner && ln -s x link && \
         ! truncate -s 5G aaa-big && rm aaa-big",
    )
    .await;
    // The limit on file sizes keeps a sandbox from making it, so it is made from outside.
    let pid = docker(&["inspect", "-f", "{{.State.Pid}}", sandbox.container()]);
    let mut smuggled = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_ustar();
    header.set_size(4);
    smuggled.append_data(&mut header, "outputs/EVIL", &b"evil"[..]).unwrap();
    let path = format!("/proc/{pid}/root/mnt/session/outputs/aaa-big");
    std::fs::write(&path, smuggled.into_inner().unwrap()).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(9 << 30).unwrap();
    let capture = capture(&rig, &sandbox).await.unwrap();
    let found: Vec<_> =
        capture.files.iter().map(|file| (file.path.as_slice(), file.size, file.status)).collect();
    assert_eq!(
        found,
        [
            (&b"aaa-big"[..], 9 << 30, CaptureStatus::TooLarge),
            (b"d/inner", 5, CaptureStatus::Captured),
            (b"link", 0, CaptureStatus::Special),
            (b"real.txt", 5, CaptureStatus::Captured),
        ]
    );
    let real = capture.files.last().unwrap().spool.as_ref().unwrap();
    assert_eq!(std::fs::read(real).unwrap(), b"real\n");
}

#[tokio::test]
async fn a_directory_that_was_replaced_or_removed_is_typed() {
    let rig = Rig::start().await;
    let sandbox = rig.open(Spec { profile: Profile::Root, ..spec() }).await.unwrap().sandbox;
    run(&sandbox, "c1", "cd /mnt/session && rmdir outputs && ln -s /etc outputs").await;
    assert!(matches!(capture(&rig, &sandbox).await, Err(Error::Replaced)));
    run(&sandbox, "c2", "cd /mnt/session && rm outputs && echo x > outputs").await;
    assert!(matches!(capture(&rig, &sandbox).await, Err(Error::Replaced)));
    run(&sandbox, "c3", "rm /mnt/session/outputs").await;
    assert!(matches!(capture(&rig, &sandbox).await, Err(Error::Missing)));
}

#[tokio::test]
async fn the_sandboxs_own_user_cannot_replace_the_directory() {
    let rig = Rig::start().await;
    let sandbox = rig.sandbox().await;
    run(&sandbox, "c1", "cd /mnt/session && ! mv outputs o && ! rmdir outputs && ! ln -sfn /etc outputs.x")
        .await;
    assert!(capture(&rig, &sandbox).await.unwrap().files.is_empty());
}

#[tokio::test]
async fn a_capture_dropped_half_way_leaves_the_sandbox_running() {
    let rig = Rig::start().await;
    let sandbox = rig.sandbox().await;
    run(&sandbox, "fill", "head -c 50M /dev/zero > /mnt/session/outputs/z").await;
    for wait_ms in [0, 1, 5, 20, 60, 120] {
        let _dropped = tokio::time::timeout(Duration::from_millis(wait_ms), capture(&rig, &sandbox)).await;
        assert_eq!(run(&sandbox, &format!("after-{wait_ms}"), "echo on").await, "on\n");
    }
    // Certainly while the archive is read: what it holds is on our disk already. Docker's client is not asked, because
    // the daemon lets nobody look at a container while its archive is read.
    let spool = rig.directory.path().join("spool");
    let _clean = std::fs::remove_dir_all(&spool);
    {
        let capture = capture(&rig, &sandbox);
        tokio::select! {
            _ = capture => {}
            () = until(async || spooled_bytes(&spool) > 0) => {}
        }
    }
    assert_eq!(run(&sandbox, "last", "echo on").await, "on\n");
}

fn spooled_bytes(spool: &std::path::Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(spool) else { return 0 };
    entries.filter_map(|entry| entry.ok()?.metadata().ok()).map(|found| found.len()).sum()
}

#[tokio::test]
async fn an_unpause_that_the_daemon_never_heard_of_is_asked_for_again() {
    let mut rig = Rig::start().await;
    let relay = rig.through_a_relay().await;
    let sandbox = rig.sandbox().await;
    relay.cut("/unpause ", 2);
    capture(&rig, &sandbox).await.unwrap();
    assert_eq!(run(&sandbox, "c1", "echo on").await, "on\n");
    relay.cut("/unpause ", 2);
    let _dropped = tokio::time::timeout(Duration::from_millis(50), capture(&rig, &sandbox)).await;
    assert_eq!(run(&sandbox, "c2", "echo on").await, "on\n");
}

#[tokio::test]
async fn a_pause_that_is_carried_out_after_it_was_given_up_is_undone() {
    let mut rig = Rig::start().await;
    let relay = rig.through_a_relay().await;
    let sandbox = rig.sandbox().await;
    let late = relay.delay("/pause ");
    let captured = capture(&rig, &sandbox).await;
    assert!(matches!(captured, Err(Error::Sandbox(_))), "{captured:?}");
    assert_eq!(run(&sandbox, "c1", "echo on").await, "on\n");
    late.deliver().await;
    assert_eq!(run(&sandbox, "c2", "echo on").await, "on\n");
}

#[tokio::test]
async fn a_pause_of_an_earlier_runner_that_comes_late_is_undone() {
    let mut rig = Rig::start().await;
    let sandbox = rig.sandbox().await;
    let name = sandbox.container().to_owned();
    drop(sandbox);
    rig.reconnect().await;
    let sandbox = rig.docker.open(rig.request(spec(), 2)).await.unwrap().sandbox;
    let paused = tokio::task::spawn_blocking(move || docker(&["pause", &name])).await.unwrap();
    assert_eq!(paused, sandbox.container());
    assert_eq!(run(&sandbox, "c1", "echo on").await, "on\n");
}

#[tokio::test]
async fn an_archive_that_is_cut_half_way_is_read_again_and_never_short() {
    let mut rig = Rig::start().await;
    let relay = rig.through_a_relay().await;
    let sandbox = rig.sandbox().await;
    run(&sandbox, "c1", "cd /mnt/session/outputs && head -c 3000000 /dev/urandom > a && sha256sum a > b")
        .await;
    relay.shorten("/archive?", 1_000_000);
    let taken = capture(&rig, &sandbox).await.unwrap();
    assert_eq!(relay.pending(), 0, "nothing was cut");
    let [a, b] = taken.files.as_slice() else { panic!("{:?}", taken.files) };
    let sum = std::fs::read_to_string(b.spool.as_ref().unwrap()).unwrap();
    assert!(sum.starts_with(a.sha256.as_ref().unwrap()), "{sum}");
    for _ in 0..2 {
        relay.shorten("/archive?", 1_000_000);
    }
    let taken = capture(&rig, &sandbox).await;
    assert!(matches!(taken, Err(Error::Incomplete)), "{taken:?}");
    assert_eq!(run(&sandbox, "c2", "echo on").await, "on\n");
}

#[tokio::test]
async fn files_that_grow_and_shrink_are_taken_as_they_stood() {
    let rig = Rig::start().await;
    let sandbox = rig.sandbox().await;
    let churn = "cd /mnt/session/outputs && (while :; do head -c 100000 /dev/zero >> grows; truncate -s 0 shrinks; \
                 head -c 300000 /dev/zero > shrinks; done) >/dev/null 2>&1 & sleep .2";
    run(&sandbox, "c1", churn).await;
    for _ in 0..3 {
        let taken = capture(&rig, &sandbox).await.unwrap();
        for file in taken.files.iter().filter(|file| file.status == CaptureStatus::Captured) {
            assert_eq!(std::fs::metadata(file.spool.as_ref().unwrap()).unwrap().len(), file.size);
        }
    }
}
