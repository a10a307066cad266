//! Runs the scripts in a real shell, one process for each call.

use std::process::Command;

use super::*;

struct Thread {
    folder: tempfile::TempDir,
    dialect: Dialect,
    path: &'static str,
}

impl Thread {
    fn bash() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), dialect: Dialect::Bash, path: "bash" }
    }

    fn sh() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), dialect: Dialect::Sh, path: "sh" }
    }

    fn run(&self, command: &str) -> (String, i32) {
        let state = StateFiles::new(self.folder.path(), "t");
        let args = arguments(self.dialect, command, Some(&state), "/tmp").unwrap();
        let out = Command::new(self.path).args(args).current_dir("/tmp").output().unwrap();
        state.settle();
        let text = String::from_utf8_lossy(&out.stdout) + String::from_utf8_lossy(&out.stderr);
        (text.into_owned(), out.status.code().unwrap_or(-1))
    }
}

#[test]
fn folder_variables_functions_options_and_aliases_carry_over() {
    let bash = Thread::bash();
    let command = "cd /usr; export A='a\nb'; b=1; declare -A m=([x]=y); f() { echo \"f:$1\"; }; export -f f; \
                   shopt -s extglob expand_aliases; alias hi='echo hi'; set -o pipefail; umask 027; readonly r=2";
    assert_eq!(bash.run(command), (String::new(), 0));
    for _ in 0..2 {
        let (text, code) = bash.run(
            "echo $PWD \"$A\" $b ${m[x]} $r; f 1; bash -c 'f 2'; hi; false | true; echo $?; umask; shopt -q extglob && echo ext",
        );
        assert_eq!((text.as_str(), code), ("/usr a\nb 1 y 2\nf:1\nf:2\nhi\n1\n0027\next\n", 0));
    }
}

#[test]
fn an_exit_a_bad_quote_and_a_failed_option_lose_nothing() {
    let bash = Thread::bash();
    assert_eq!(bash.run("a=1; exit 5"), (String::new(), 5));
    let (text, code) = bash.run("echo $a; b=2\necho 'open");
    assert!(text.starts_with("1\n") && text.contains("unexpected EOF") && code != 0, "{text} {code}");
    assert_eq!(bash.run("echo $a$b; set -eu; c=3; false; echo never").1, 1);
    assert_eq!(bash.run("set +eu; echo $a$b$c"), ("123\n".to_owned(), 0));
}

#[test]
fn the_commands_own_exit_trap_runs_and_sees_its_status() {
    let bash = Thread::bash();
    assert_eq!(bash.run("x=1; trap 'echo bye $?' EXIT; (exit 3)"), ("bye 3\n".to_owned(), 3));
    assert_eq!(bash.run("echo $x"), ("1\n".to_owned(), 0));
}

#[test]
fn the_previous_folder_and_positional_words_behave() {
    let bash = Thread::bash();
    bash.run("cd /usr; cd /etc");
    assert_eq!(bash.run("echo \"[$*]$0\"; cd - "), ("[]bash\n/usr\n".to_owned(), 0));
}

#[test]
fn a_vanished_folder_is_named_and_left() {
    let bash = Thread::bash();
    bash.run("mkdir -p /tmp/checkfu-gone && cd /tmp/checkfu-gone && rmdir /tmp/checkfu-gone");
    let (text, _) = bash.run("pwd");
    assert!(text.contains("is gone, now in /tmp"), "{text}");
    assert_eq!(bash.run("pwd"), ("/tmp\n".to_owned(), 0));
}

#[test]
fn hostile_options_do_not_break_later_calls() {
    let bash = Thread::bash();
    for command in ["set -C; set -f; set -u", "set -t", "set -n", "set -o posix", "set +C; cd() { :; }"] {
        bash.run(command);
        bash.run("true");
        let (text, _) = bash.run("echo fine");
        assert_eq!(text, "fine\n", "after {command}");
    }
}

#[test]
fn long_commands_go_through_a_file() {
    let bash = Thread::bash();
    let command = format!("cat <<'X' | wc -c\n{}\nX\n", "y".repeat(300_000));
    assert_eq!(bash.run(&command), ("300001\n".to_owned(), 0));
}

#[test]
fn a_plain_shell_keeps_its_folder_and_exports() {
    let sh = Thread::sh();
    assert_eq!(sh.run("cd /usr; export A=\"it's\"; exit 4"), (String::new(), 4));
    assert_eq!(sh.run("echo $PWD $A; pwd"), ("/usr it's\n/usr\n".to_owned(), 0));
    sh.run("echo 'open");
    assert_eq!(sh.run("echo $A"), ("it's\n".to_owned(), 0));
}

#[test]
fn an_incomplete_state_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let state = StateFiles::new(folder.path(), "t");
    fs::write(&state.current, "old").unwrap();
    fs::write(&state.next, "half").unwrap();
    state.settle();
    assert_eq!(fs::read_to_string(&state.current).unwrap(), "old");
    fs::write(&state.next, format!("new\n{END_MARK}")).unwrap();
    state.settle();
    assert!(fs::read_to_string(&state.current).unwrap().starts_with("new"));
}

#[test]
fn bash_is_found_before_sh() {
    assert_eq!(find(None).unwrap().dialect, Dialect::Bash);
    let only_sh = tempfile::tempdir().unwrap();
    assert_eq!(find(Some(&only_sh.path().to_string_lossy())).unwrap().dialect, Dialect::Bash);
}
