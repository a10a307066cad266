//! Every key from every place, which place wins, and what is refused with which words.

use super::*;
use crate::config::keys::TABLE;

/// A sound value of this kind, as text and as TOML; `n` tells two of them apart.
fn sample(kind: Kind, n: u16) -> (String, String) {
    let quoted = |text: String| (text.clone(), format!("\"{text}\""));
    match kind {
        Kind::Text | Kind::Path => quoted(format!("/value/{n}")),
        Kind::Count | Kind::Seconds => (n.to_string(), n.to_string()),
        Kind::Switch => ("true".to_owned(), "true".to_owned()),
        Kind::Addresses => (format!("10.0.0.{n}"), format!("[\"10.0.0.{n}\"]")),
        Kind::Texts => (format!("l{n}"), format!("[\"l{n}\"]")),
        Kind::Choice(words) => quoted(words[usize::from(n) % words.len()].to_owned()),
        Kind::Loopback => quoted(format!("127.0.0.1:{n}")),
    }
}

fn flags(key: &Key, value: &str) -> BTreeMap<&'static str, Vec<String>> {
    BTreeMap::from([(key.name, vec![value.to_owned()])])
}

fn environment(name: &str, value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(name.to_owned(), value.to_owned())])
}

fn refused(said: &Said<'_>) -> String {
    TABLE.settle(said).unwrap_err().to_string()
}

#[test]
fn every_key_is_settable_from_all_three_places_and_the_nearer_wins() {
    for key in TABLE.keys {
        let ((flag, _), (variable, _), (in_file, toml)) =
            (sample(key.kind, 3), sample(key.kind, 4), sample(key.kind, 5));
        let text = format!("{} = {toml}", key.name);
        let all = Said {
            flags: flags(key, &flag),
            environment: environment(key.variable, &variable),
            file: Some(("f.toml", &text)),
        };
        let without_flag = Said { flags: BTreeMap::new(), ..all.clone() };
        let only_file = Said { environment: BTreeMap::new(), ..without_flag.clone() };
        for (said, value, source) in [
            (all, flag, Source::Flag),
            (without_flag, variable, Source::Environment),
            (only_file, in_file, Source::File),
        ] {
            let settled = TABLE.settle(&said).unwrap();
            let expected = Setting { values: vec![value], source };
            assert_eq!(settled.get(key.name), Some(&expected), "{} from {source}", key.name);
        }
        assert_eq!(
            TABLE.settle(&Said::default()).unwrap().get(key.name).unwrap().source,
            Source::Default,
            "{}",
            key.name
        );
    }
}

#[test]
fn names_follow_one_rule_and_every_key_is_documented() {
    let example = TABLE.example();
    for key in TABLE.keys {
        assert_eq!(key.variable, format!("CHECKFU_RUNNER_{}", key.name.to_uppercase()));
        let flag = key.name.replace('_', "-");
        assert!(flag == key.flag || flag == format!("{}s", key.flag), "{}", key.name);
        assert!(key.about.ends_with('.') && !key.default.is_empty(), "{}", key.name);
        for part in
            [key.about, key.default, key.variable, &format!("--{}", key.flag), &format!("#{} = ", key.name)]
        {
            assert!(example.contains(part), "{} lacks {part}", key.name);
        }
    }
}

#[test]
fn the_example_is_a_sound_file_with_every_key_once_its_marks_are_removed() {
    let text: String = TABLE
        .example()
        .lines()
        .filter_map(|line| line.strip_prefix('#'))
        .filter(|line| !line.starts_with(' '))
        .fold(String::new(), |text, line| text + line + "\n");
    let settled = TABLE.settle(&Said { file: Some(("example", &text)), ..Said::default() }).unwrap();
    for key in TABLE.keys {
        assert_eq!(settled.get(key.name).unwrap().source, Source::File, "{}", key.name);
    }
}

#[test]
fn what_nobody_knows_is_refused_with_the_nearest_name() {
    let file = |text| refused(&Said { file: Some(("/etc/x.toml", text)), ..Said::default() });
    let error = file("max_session = 3");
    assert!(
        error.contains("`max_session` in /etc/x.toml") && error.contains("did you mean `max_sessions`?"),
        "{error}"
    );
    assert!(file("wholly_other = 3").contains("config example"));
    assert!(file("[section]\nmax_sessions = 3").contains("`section`"));
    let variable = Said { environment: environment("CHECKFU_RUNNER_MAXSESSIONS", "3"), ..Said::default() };
    assert!(
        refused(&variable).contains("did you mean `CHECKFU_RUNNER_MAX_SESSIONS`?"),
        "{}",
        refused(&variable)
    );
    let config = Said { environment: environment("CHECKFU_RUNNER_CONFIG", "/x"), ..Said::default() };
    assert!(TABLE.settle(&config).is_ok());
}

#[test]
fn a_value_that_does_not_fit_is_refused_with_its_place_and_what_is_wanted() {
    for (text, wanted) in [
        ("max_sessions = 0", "above 0"),
        ("max_sessions = \"3\"", "without quotes"),
        ("drain_seconds = -1", "whole seconds"),
        ("accept_missing_limits = \"true\"", "without quotes"),
        ("reach = \"10.0.0.7\"", "list"),
        ("reach = [\"tower\"]", "an address"),
        ("image = 7", "in quotes"),
        ("image = \"\"", "empty"),
        ("log_format = \"xml\"", "text, json"),
    ] {
        let error = refused(&Said { file: Some(("f.toml", text)), ..Said::default() });
        assert!(error.contains("f.toml") && error.contains(wanted), "{text}: {error}");
    }
    for (variable, value) in
        [("MAX_SESSIONS", "many"), ("ACCEPT_MISSING_LIMITS", "maybe"), ("REACH", "10.0.0.7,x")]
    {
        let variable = format!("CHECKFU_RUNNER_{variable}");
        let error = refused(&Said { environment: environment(&variable, value), ..Said::default() });
        assert!(error.contains(&variable) && !error.contains(value), "{error}");
    }
}

#[test]
fn a_broken_file_is_told_with_its_line() {
    let error = refused(&Said { file: Some(("f.toml", "max_sessions = 3\nimage = \n")), ..Said::default() });
    assert!(error.contains("line 2"), "{error}");
}

#[test]
fn an_empty_variable_counts_as_not_set_and_lists_are_split_at_commas() {
    let said = Said { environment: environment("CHECKFU_RUNNER_LABELS", " a, b ,,"), ..Said::default() };
    assert_eq!(TABLE.settle(&said).unwrap().texts("labels"), ["a", "b"]);
    let said = Said { environment: environment("CHECKFU_RUNNER_IMAGE", ""), ..Said::default() };
    assert_eq!(TABLE.settle(&said).unwrap().get("image").unwrap().source, Source::Default);
}

#[test]
fn only_loopback_is_taken_where_only_loopback_is_safe() {
    for (address, sound) in
        [("127.0.0.1:1", true), ("[::1]:1", true), ("0.0.0.0:1", false), ("10.0.0.1:1", false)]
    {
        assert_eq!(Kind::Loopback.check_one(address).is_ok(), sound, "{address}");
    }
}
