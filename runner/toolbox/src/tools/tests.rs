//! The file tools on real files, friendly and hostile.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use super::*;

struct Bench {
    folder: tempfile::TempDir,
    seen: Seen,
    cancel: AtomicBool,
}

impl Bench {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), seen: Seen::default(), cancel: AtomicBool::new(false) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("w").join(name)
    }

    fn put(&self, name: &str, content: impl AsRef<[u8]>) -> &Self {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    fn run(&self, name: &str, input: serde_json::Value) -> Outcome {
        let tool = Tool::from_use(name, &input).unwrap();
        let context = Context {
            workspace: self.folder.path().join("w"),
            root: self.folder.path().join("root"),
            call_id: "c1",
            thread: "t",
            seen: &self.seen,
            cancel: &self.cancel,
        };
        run(&tool, &context)
    }

    fn ok(&self, name: &str, input: serde_json::Value) -> String {
        let outcome = self.run(name, input);
        assert!(!outcome.is_error, "{outcome:?}");
        words(&outcome)
    }

    fn fails(&self, name: &str, input: serde_json::Value) -> String {
        let outcome = self.run(name, input);
        assert!(outcome.is_error, "{outcome:?}");
        words(&outcome)
    }
}

fn words(outcome: &Outcome) -> String {
    match outcome.content.as_slice() {
        [Block::Text { text }] if !text.is_empty() => text.clone(),
        other => panic!("{other:?}"),
    }
}

use serde_json::json;

#[test]
fn read_numbers_lines_and_selects_ranges() {
    let bench = Bench::new();
    bench.put("a", "one\ntwo\nthree");
    for (range, expected) in [
        (json!(null), "     1\tone\n     2\ttwo\n     3\tthree\n"),
        (json!([2, 2]), "     2\ttwo\n"),
        (json!([2, -1]), "     2\ttwo\n     3\tthree\n"),
        (json!([3, 99]), "     3\tthree\n"),
    ] {
        assert_eq!(bench.ok("read", json!({"file_path": "a", "view_range": range})), expected);
    }
    for (range, part) in [([0, 1], "count from 1"), ([3, 2], "not before"), ([9, 10], "only 3 lines")] {
        assert!(bench.fails("read", json!({"file_path": "a", "view_range": range})).contains(part));
    }
    bench.put("empty", "");
    assert!(bench.ok("read", json!({"file_path": "empty"})).contains("is empty"));
}

#[test]
fn read_never_waits_for_or_swallows_hostile_files() {
    let bench = Bench::new();
    bench.put("bin", b"\x7fELF\0\0").put("x", "");
    let fifo = bench.path("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    symlink("loop", bench.path("loop")).unwrap();
    fs::File::create(bench.path("huge")).unwrap().set_len(1 << 40).unwrap();
    for (path, part) in [
        ("fifo", "no regular file"),
        ("/dev/zero", "no regular file"),
        ("loop", "loop of symbolic links"),
        ("bin", "binary file"),
        ("huge", "binary file"),
        (".", "is a folder"),
        ("absent", "look for it with glob"),
        ("x/y", "no folder"),
    ] {
        let text = bench.fails("read", json!({"file_path": path}));
        assert!(text.contains(part), "{path}: {text}");
    }
}

#[test]
fn read_shows_images_and_documents_as_blocks() {
    let bench = Bench::new();
    bench.put("i.dat", b"\x89PNG\r\n\x1a\n0").put("d.pdf", b"%PDF-1.7\n");
    let image = bench.run("read", json!({"file_path": "i.dat"}));
    assert!(
        matches!(image.content.as_slice(), [Block::Image { media_type, .. }] if media_type == "image/png")
    );
    let document = bench.run("read", json!({"file_path": "d.pdf"}));
    let [Block::Document { title, data_base64, .. }] = document.content.as_slice() else { panic!() };
    assert_eq!((title.as_deref(), data_base64.as_str()), (Some("d.pdf"), "JVBERi0xLjcK"));
    let mut big = b"\x89PNG\r\n\x1a\n".to_vec();
    big.resize(6 * 1024 * 1024, 1);
    bench.put("big.png", big);
    assert!(bench.fails("read", json!({"file_path": "big.png"})).contains("smaller one"));
}

#[test]
fn long_files_are_previewed_and_stay_where_they_are() {
    let bench = Bench::new();
    bench.put("long", "word\n".repeat(60_000));
    let outcome = bench.run("read", json!({"file_path": "long"}));
    let truncated = outcome.truncated.unwrap();
    assert_eq!(truncated.alive_only_path.as_deref(), Some(bench.path("long").to_str().unwrap()));
    assert!(truncated.note.contains("view_range"));
}

#[test]
fn write_creates_folders_keeps_modes_and_follows_links() {
    let bench = Bench::new();
    assert!(bench.ok("write", json!({"file_path": "d/e/f", "content": "hä"})).contains("wrote 3 bytes"));
    bench.put("run.sh", "old");
    fs::set_permissions(bench.path("run.sh"), fs::Permissions::from_mode(0o750)).unwrap();
    symlink("run.sh", bench.path("link")).unwrap();
    bench.ok("write", json!({"file_path": "link", "content": "new"}));
    assert_eq!(fs::read_to_string(bench.path("run.sh")).unwrap(), "new");
    assert_eq!(fs::metadata(bench.path("run.sh")).unwrap().permissions().mode() & 0o777, 0o750);
    assert!(fs::symlink_metadata(bench.path("link")).unwrap().is_symlink());
    assert_eq!(leftovers(&bench.path("")), 0);
    for path in ["d", "d/", "", "/dev/null"] {
        bench.fails("write", json!({"file_path": path, "content": "x"}));
    }
}

fn leftovers(folder: &Path) -> usize {
    fs::read_dir(folder)
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().ends_with(".tmp"))
        .count()
}

#[test]
fn edit_wants_one_match_and_an_unchanged_file() {
    let bench = Bench::new();
    bench.put("a", "x y x");
    let edit = |old: &str, new: &str, all: bool| json!({"file_path": "a", "old_string": old, "new_string": new, "replace_all": all});
    assert!(bench.fails("edit", edit("x", "z", false)).contains("occurs 2 times"));
    assert!(bench.fails("edit", edit("q", "z", false)).contains("does not occur"));
    assert!(bench.fails("edit", edit("", "z", false)).contains("empty"));
    assert!(bench.ok("edit", edit("x", "z", true)).contains("2 places"));
    assert!(bench.ok("edit", edit("y", "Y", false)).contains("1 place"));
    bench.put("a", "z Y changed");
    assert!(bench.fails("edit", edit("Y", "y", false)).contains("read it again"));
    bench.ok("read", json!({"file_path": "a"}));
    bench.ok("edit", edit("Y", "y", false));
    assert_eq!(fs::read_to_string(bench.path("a")).unwrap(), "z y changed");
}

#[test]
fn glob_lists_the_newest_first() {
    let bench = Bench::new();
    bench.put("old.rs", "").put("d/new.rs", "").put("d/x.txt", "").put(".git/z.rs", "");
    let time = |name: &str, seconds: u64| {
        let file = fs::File::options().write(true).open(bench.path(name)).unwrap();
        file.set_modified(std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
    };
    time("old.rs", 1000);
    time("d/new.rs", 2000);
    let shown = bench.ok("glob", json!({"pattern": "**/*.rs"}));
    let expected = format!("{}\n{}\n", bench.path("d/new.rs").display(), bench.path("old.rs").display());
    assert_eq!(shown, expected);
    assert!(bench.ok("glob", json!({"pattern": "d/*.txt"})).contains("d/x.txt"));
    assert!(bench.ok("glob", json!({"pattern": "*.none"})).contains("no files match"));
    assert!(bench.fails("glob", json!({"pattern": "[", })).contains("not valid"));
    assert!(bench.fails("glob", json!({"pattern": "*", "path": "absent"})).contains("no folder"));
}

#[test]
fn grep_respects_ignore_files_and_survives_hostile_ones() {
    let bench = Bench::new();
    bench.put("a.txt", "alpha\nneedle one\n").put(".gitignore", "skip\n").put("skip", "needle two\n");
    bench.put("bin", b"needle\0").put("wide", format!("needle{}", "x".repeat(9_000)));
    assert!(Command::new("mkfifo").arg(bench.path("fifo")).status().unwrap().success());
    let shown = bench.ok("grep", json!({"pattern": "needle"}));
    assert!(shown.contains("a.txt:2:needle one\n") && shown.contains("[line cut]"), "{shown}");
    assert!(!shown.contains("needle two") && shown.len() < 3_000, "{shown}");
    let one = bench.ok("grep", json!({"pattern": "o.e$", "path": "a.txt"}));
    assert!(one.ends_with("a.txt:2:needle one\n"), "{one}");
    assert!(bench.ok("grep", json!({"pattern": "zzz"})).contains("no matches"));
    assert!(bench.fails("grep", json!({"pattern": "("})).contains("regular expression"));
    assert!(bench.fails("grep", json!({"pattern": "x", "path": "fifo"})).contains("no regular file"));
}

#[test]
fn long_results_are_saved_beside_the_previews() {
    let bench = Bench::new();
    bench.put("many", "needle\n".repeat(20_000));
    let truncated = bench.run("grep", json!({"pattern": "needle"})).truncated.unwrap();
    let saved = fs::read_to_string(truncated.alive_only_path.unwrap()).unwrap();
    assert_eq!(saved.lines().count(), 20_000);
}

#[test]
fn a_cancelled_search_stops_and_says_so() {
    let bench = Bench::new();
    bench.put("a", "x");
    bench.cancel.store(true, Ordering::Relaxed);
    let outcome = bench.run("grep", json!({"pattern": "x"}));
    assert!(outcome.cancelled && words(&outcome).contains("stopped early"));
}
