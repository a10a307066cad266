//! Capture of what a hostile session leaves in its outputs.

use crate::rig::{Rig, docker, run, spec};
use checkfu_runner::{
    outputs::{Capture, Error, Limits},
    sandbox::Sandbox,
};
use checkfu_shared::{
    environment::{Profile, Spec},
    event::CaptureStatus,
};
use std::collections::BTreeMap;

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
#[ignore = "known defect, seen once in four runs: a capture dropped while it pauses can leave the sandbox paused"]
async fn a_capture_dropped_half_way_leaves_the_sandbox_running() {
    let rig = Rig::start().await;
    let sandbox = rig.sandbox().await;
    run(&sandbox, "c1", "head -c 50M /dev/zero > /mnt/session/outputs/z").await;
    {
        let capture = capture(&rig, &sandbox);
        let paused = crate::rig::until(async || {
            docker(&["inspect", "-f", "{{.State.Paused}}", sandbox.container()]) == "true"
        });
        tokio::select! {
            _ = capture => {}
            () = paused => {}
        }
    }
    assert_eq!(run(&sandbox, "c2", "echo on").await, "on\n");
}
