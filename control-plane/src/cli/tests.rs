//! The command line as a whole: every command parses, and its help names what it must.

use super::*;

fn parse(line: &str) -> Result<Arguments, ErrorKind> {
    let words = std::iter::once("checkfu").chain(line.split_whitespace());
    Arguments::try_parse_from(words).map_err(|error| error.kind())
}

const SESSION: &str = "sess_00000000000000000000000000000001";
const CALL: &str = "sevt_00000000000000000000000000000002";

#[test]
fn the_command_line_is_well_formed() {
    Arguments::command().debug_assert();
}

#[test]
fn what_the_manual_shows_is_understood() {
    for line in [
        "serve --listen 127.0.0.1:0 --data-dir d --model-base-url http://x --model-key-file k --tempo {}",
        "agents create --name a --model m --effort high --tool bash --tool read --tools-may run",
        "environments create --name e --image alpine --network limited --allow-host a.org --allow-host *.b.org:443",
        "sessions create --agent a --environment e --message hi",
        "sessions list --limit 3 --json",
        &format!("sessions watch {SESSION} --after 7 --until-idle"),
        &format!("--json sessions watch {SESSION} --new"),
        &format!("sessions send {SESSION} hi --follow --ask"),
        &format!("sessions confirm {SESSION} {CALL} --allow"),
        &format!("sessions confirm {SESSION} {CALL} --deny --message no"),
        &format!("files get {SESSION} a%20b.txt --output x"),
        "pair --name box --label gpu --max-sessions 3 --ephemeral --ttl-seconds 60",
        "pair --code-only",
        "run hi",
        "run hi --model m --json",
        "runners list",
        "keys create --name ci",
        "run hi --agent a --environment e --ask --url http://x",
        "verify --data-dir d --json",
        "completions bash",
    ] {
        assert!(parse(line).is_ok(), "{line}: {:?}", parse(line).err());
    }
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_asked() {
    for line in [
        "",
        "agents create --name a",
        "agents create --name a --model m --tool sudo",
        "sessions show sess_12",
        "sessions show run_00000000000000000000000000000001",
        &format!("sessions confirm {SESSION} {CALL}"),
        &format!("sessions confirm {SESSION} {CALL} --allow --deny"),
        &format!("sessions confirm {SESSION} {CALL} --allow --message no"),
        &format!("sessions watch {SESSION} --new --after 3"),
        &format!("sessions send {SESSION} hi --ask"),
        "pair --ttl-seconds 3601",
        "run --agent a --environment e",
    ] {
        assert!(parse(line).is_err(), "{line}");
    }
}

#[test]
fn no_argument_takes_a_key_or_a_code() {
    fn check(command: &clap::Command) {
        for argument in command.get_arguments() {
            let name = argument.get_id().as_str();
            let takes_text = argument.get_action().takes_values() && !name.ends_with("_file");
            let is_secret = ["api_key", "secret", "token", "code", "password"].contains(&name);
            assert!(!(takes_text && is_secret), "{name} of {}", command.get_name());
        }
        command.get_subcommands().for_each(check);
    }
    check(&Arguments::command());
}

#[test]
fn a_secret_file_is_read_without_its_line_end_and_a_wrong_one_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("key");
    fs::write(&file, "abc\n").unwrap();
    assert_eq!(secret_file(&file, "the key").unwrap().reveal(), "abc");
    for content in ["", " \n", &"x".repeat(20_000)] {
        fs::write(&file, content).unwrap();
        let failure = secret_file(&file, "the key").unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
        assert!(failure.message.contains("key"), "{failure}");
    }
    assert!(secret_file(&dir.path().join("none"), "the key").is_err());
}

#[test]
fn completions_know_the_commands() {
    for shell in [clap_complete::Shell::Bash, clap_complete::Shell::Zsh, clap_complete::Shell::Fish] {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut Arguments::command(), "checkfu", &mut script);
        assert!(String::from_utf8(script).unwrap().contains("environments"));
    }
}
