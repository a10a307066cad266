//! Where a setting of the server comes from, and what is refused.

use super::*;

fn nothing() -> Serve {
    Serve {
        listen: None,
        tls_cert: None,
        tls_key: None,
        plain_http: false,
        data_dir: Some("/data".into()),
        model_base_url: None,
        model_key_file: None,
        compact_at_percent: None,
        tempo: None,
        metrics: None,
        config: None,
        log_format: LogFormat::Text,
    }
}

fn settings(text: &str) -> Result<FileSettings, Failure> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("checkfu.json");
    fs::write(&file, text).unwrap();
    read_settings(&file)
}

#[test]
fn flags_go_before_the_file_and_the_file_before_the_defaults() {
    let file = || {
        settings(r#"{"listen": "[::1]:1", "model_base_url": "http://file", "tempo": {"lease_ms": 5000}}"#)
            .unwrap()
    };
    let from_file = start(nothing(), file(), None).unwrap();
    assert_eq!(
        (from_file.listen.as_str(), from_file.config.model_base_url.as_str()),
        ("[::1]:1", "http://file")
    );
    assert_eq!(from_file.config.tempo, Tempo { lease_ms: 5000, ..Tempo::default() });
    let args = Serve {
        listen: Some("127.0.0.1:2".into()),
        model_base_url: Some("http://flag".into()),
        tempo: Some(r#"{"renew_ms": 7}"#.into()),
        ..nothing()
    };
    let from_flags = start(args, file(), None).unwrap();
    assert_eq!(
        (from_flags.listen.as_str(), from_flags.config.model_base_url.as_str()),
        ("127.0.0.1:2", "http://flag")
    );
    assert_eq!(from_flags.config.tempo, Tempo { renew_ms: 7, ..Tempo::default() });
    let defaults = start(nothing(), FileSettings::default(), None).unwrap();
    assert_eq!((defaults.listen.as_str(), defaults.config.tempo), (DEFAULT_LISTEN, Tempo::default()));
}

#[test]
fn a_toml_file_holds_the_same_settings_and_a_misspelt_one_is_answered_with_the_right_one() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("checkfu.toml");
    let text = "listen = \"[::1]:1\"\nmetrics = \"127.0.0.1:2\"\n[tempo]\nlease_ms = 5000\n";
    fs::write(&file, text).unwrap();
    let read = read_settings(&file).unwrap();
    assert_eq!((read.listen.as_deref(), read.tempo.unwrap().lease_ms), (Some("[::1]:1"), Some(5000)));
    fs::write(&file, "lissten = \"x\"\n").unwrap();
    let failure = read_settings(&file).unwrap_err();
    assert!(failure.message.contains("did you mean `listen`?"), "{failure}");
}

#[test]
fn metrics_are_never_answered_off_loopback() {
    let args = Serve { metrics: Some("0.0.0.0:1".parse().unwrap()), ..nothing() };
    assert_eq!(
        start(args, FileSettings::default(), None).err().map(|failure| failure.exit),
        Some(Exit::Usage)
    );
}

#[test]
fn a_setting_nobody_knows_is_refused_by_name() {
    for text in [r#"{"lissten": "x"}"#, r#"{"tempo": {"lissten": 1}}"#] {
        let failure = settings(text).unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
        assert!(failure.message.contains("lissten"), "{failure}");
    }
    assert!(read_tempo(r#"{"lissten": 1}"#).unwrap_err().message.contains("lissten"));
    assert!(read_tempo("/no/such/file").is_err());
}

#[test]
fn the_key_comes_from_the_file_or_the_environment_and_prints_nowhere() {
    let dir = tempfile::tempdir().unwrap();
    let key_file = dir.path().join("key");
    fs::write(&key_file, "sk-canary-file\n").unwrap();
    let args = Serve { model_key_file: Some(key_file), ..nothing() };
    let from_file = start(args, FileSettings::default(), Some(Secret::new("sk-canary-env"))).unwrap();
    assert_eq!(from_file.config.model_key.as_ref().unwrap().reveal(), "sk-canary-file");
    assert!(!format!("{:?}", from_file.config).contains("canary"));
    let from_environment =
        start(nothing(), FileSettings::default(), Some(Secret::new("sk-canary-env"))).unwrap();
    assert_eq!(from_environment.config.model_key.unwrap().reveal(), "sk-canary-env");
}

#[tokio::test]
async fn an_address_in_use_is_a_sentence_and_has_its_own_code() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    let error = TcpListener::bind(&listen).await.unwrap_err();
    let failure = cannot_listen(&listen, &error);
    assert_eq!(failure.exit, Exit::AddressInUse);
    assert!(failure.message.contains(&listen), "{failure}");
}

#[test]
fn an_address_that_others_reach_wants_a_certificate_or_the_operators_word() {
    for (address, has_tls, plain_http, good) in [
        ("127.0.0.1:1", false, false, true),
        ("[::1]:1", false, false, true),
        ("[::ffff:127.0.0.1]:1", false, false, true),
        ("0.0.0.0:1", false, false, false),
        ("[::]:1", false, false, false),
        ("10.0.0.1:1", false, false, false),
        ("10.0.0.1:1", true, false, true),
        ("10.0.0.1:1", false, true, true),
    ] {
        let judged = refuse_open_plain(address.parse().unwrap(), has_tls, plain_http);
        assert_eq!(judged.is_ok(), good, "{address} {has_tls} {plain_http}");
    }
    let half = Serve { tls_cert: Some("c".into()), ..nothing() };
    assert!(start(half, FileSettings::default(), None).is_err());
    let whole = Serve { tls_cert: Some("c".into()), tls_key: Some("k".into()), ..nothing() };
    assert!(start(whole, FileSettings::default(), None).unwrap().config.tls.is_some());
}

#[test]
fn a_data_directory_in_use_is_a_sentence_and_has_its_own_code() {
    let failure = did_not_serve(&checkfu::Error::InUse { path: "/data".into() });
    assert_eq!(failure.exit, Exit::DataDirInUse);
    assert!(failure.message.contains("/data") && failure.message.contains("--data-dir"), "{failure}");
}

#[test]
fn what_stopped_the_server_ends_with_one_full_stop() {
    use checkfu_shared::problem::{Code, Problem};
    let problem = Problem::new(Code::Internal, "The data directory cannot be used: server.key is damaged.");
    let failure = did_not_serve(&checkfu::Error::Start(problem));
    assert!(failure.message.ends_with("damaged.") && !failure.message.ends_with(".."), "{failure}");
}

#[test]
fn a_provider_address_that_is_none_is_refused_at_the_start() {
    for url in ["notaurl", "ftp://host", "http://user:pw@host"] {
        let args = Serve { model_base_url: Some(url.into()), ..nothing() };
        let failure = start(args, FileSettings::default(), None).map(drop).unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
        assert!(failure.message.contains("--model-base-url"), "{failure}");
    }
}

#[test]
fn a_key_that_others_can_read_is_noticed() {
    use std::os::unix::fs::PermissionsExt;
    let file = tempfile::NamedTempFile::new().unwrap();
    for (mode, want) in [(0o600, false), (0o400, false), (0o640, true), (0o604, true)] {
        fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(is_exposed(file.path()), want, "{mode:o}");
    }
}
