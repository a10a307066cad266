//! Which files are taken, from archives that a sandbox could make.

use super::{
    super::archive::tests::{entry, finished, header, pax},
    *,
};

const SMALL: Limits = Limits { file_bytes: 100, total_bytes: 150, files: 3, listed: 20 };

fn take(entries: &[Vec<u8>], limits: Limits) -> (tempfile::TempDir, Result<Capture, Error>) {
    take_raw(finished(entries), limits)
}

fn take_raw(bytes: Vec<u8>, limits: Limits) -> (tempfile::TempDir, Result<Capture, Error>) {
    let directory = tempfile::tempdir().unwrap();
    let (pieces, queue) = mpsc::channel(1);
    pieces.try_send(bytes.into()).unwrap();
    drop(pieces);
    let taken = run(queue, &directory.path().join("spool"), limits);
    (directory, taken)
}

fn root() -> Vec<u8> {
    entry(b'5', b"outputs/", b"", b"")
}

fn file(path: &str, size: usize) -> Vec<u8> {
    entry(b'0', format!("outputs/{path}").as_bytes(), b"", &vec![b'x'; size])
}

fn statuses(capture: &Capture) -> Vec<(String, CaptureStatus)> {
    let name = |file: &CapturedFile| String::from_utf8_lossy(&file.path).into_owned();
    capture.files.iter().map(|file| (name(file), file.status)).collect()
}

#[test]
fn limits_are_exact_and_greedy() {
    use CaptureStatus::{Captured, OverCapacity, TooLarge};
    let (_directory, taken) = take(
        &[root(), file("a", 101), file("b", 100), file("c", 51), file("d", 50), file("e", 0), file("f", 0)],
        SMALL,
    );
    let taken = taken.unwrap();
    let expected = [
        ("a", TooLarge),
        ("b", Captured),
        ("c", OverCapacity),
        ("d", Captured),
        ("e", Captured),
        ("f", OverCapacity),
    ];
    assert_eq!(statuses(&taken), expected.map(|(name, status)| (name.to_owned(), status)));
    let b = &taken.files[1];
    assert_eq!(std::fs::read(b.spool.as_ref().unwrap()).unwrap(), [b'x'; 100]);
    assert_eq!(b.sha256.as_ref().unwrap().len(), 64);
}

#[test]
fn only_regular_files_and_links_among_them_are_taken() {
    use CaptureStatus::{Captured, Special, TooLarge, Unreadable};
    let (_directory, taken) = take(
        &[
            root(),
            entry(b'5', b"outputs/d/", b"", b""),
            file("d/a", 40),
            file("huge", 500),
            entry(b'1', b"outputs/l1", b"outputs/d/a", b""),
            entry(b'1', b"outputs/l2", b"outputs/huge", b""),
            entry(b'1', b"outputs/l3", b"etc/shadow", b""),
            entry(b'2', b"outputs/s", b"/etc/passwd", b""),
            entry(b'6', b"outputs/p", b"", b""),
            entry(b'3', b"outputs/c", b"", b""),
        ],
        SMALL,
    );
    let taken = taken.unwrap();
    let expected = [
        ("d/a", Captured),
        ("huge", TooLarge),
        ("l1", Captured),
        ("l2", TooLarge),
        ("l3", Unreadable),
        ("s", Special),
        ("p", Special),
        ("c", Special),
    ];
    assert_eq!(statuses(&taken), expected.map(|(name, status)| (name.to_owned(), status)));
    assert_eq!(taken.files[0].sha256, taken.files[2].sha256);
    assert_ne!(taken.files[0].spool, taken.files[2].spool);
}

#[test]
fn odd_paths_are_listed_and_never_taken() {
    for path in
        [&b"outputs/../x"[..], b"outputs//x", b"outputs/./x", b"other/x", b"/etc/x", b"outputsx", b"outputs/"]
    {
        let (_directory, taken) = take(&[root(), entry(b'0', path, b"", b"1")], SMALL);
        assert_eq!(taken.unwrap().files[0].status, CaptureStatus::Unreadable, "{path:?}");
    }
    let deep = [b"outputs".as_slice(), &b"/d".repeat(MAX_DEPTH + 1)].concat();
    let (_directory, taken) = take(&[root(), pax(&[(b"path", &deep)]), file("x", 1)], SMALL);
    assert_eq!(taken.unwrap().files[0].status, CaptureStatus::Unreadable);
    let (_directory, taken) = take(&[root(), file("x", 1), file("x", 2)], SMALL);
    assert_eq!(taken.unwrap().files[1].status, CaptureStatus::Unreadable);
}

#[test]
fn names_are_bytes_and_spool_names_are_ours() {
    let name = b"outputs/..hidden \n\xff\x1b:\\";
    let (directory, taken) = take(&[root(), pax(&[(b"path", name)]), file("x", 1)], SMALL);
    let file = &taken.unwrap().files[0];
    assert_eq!(file.path, &name[b"outputs/".len()..]);
    assert_eq!(file.spool.as_deref(), Some(directory.path().join("spool/000001").as_path()));
}

#[test]
fn something_else_in_the_place_of_the_directory_is_typed() {
    for entries in [
        vec![entry(b'2', b"outputs", b"/etc", b"")],
        vec![entry(b'0', b"outputs", b"", b"1")],
        vec![entry(b'5', b"a/outputs/", b"", b"")],
        vec![],
    ] {
        assert!(matches!(take(&entries, SMALL).1, Err(Error::Replaced)));
    }
}

#[test]
fn an_archive_without_its_end_is_incomplete_and_leaves_no_half_file() {
    let whole = [root(), header(b'0', b"outputs/a", b"", 90), vec![1; 10]].concat();
    let (directory, taken) = take_raw(whole, SMALL);
    assert!(matches!(taken, Err(Error::Incomplete)));
    assert_eq!(std::fs::read_dir(directory.path().join("spool")).unwrap().count(), 0);
}

#[test]
fn a_crowd_of_files_is_counted_beyond_the_list() {
    let mut entries = vec![root()];
    entries.extend((0..30).map(|number| file(&format!("f{number:03}"), 1)));
    let (_directory, taken) = take(&entries, SMALL);
    let taken = taken.unwrap();
    assert_eq!((taken.files.len(), taken.unlisted), (20, 10));
    assert_eq!(taken.files.iter().filter(|file| file.status == CaptureStatus::Captured).count(), 3);
}

#[test]
fn an_archive_that_is_mostly_skipped_is_given_up() {
    let (_directory, taken) =
        take_raw([root(), header(b'0', b"outputs/a", b"", MAX_SKIPPED_BYTES + 1)].concat(), SMALL);
    assert!(matches!(taken, Err(Error::TooSlow)));
}
