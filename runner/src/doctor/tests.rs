//! Each judgement against a sound system and against each fault planted in it, and the whole against a host without anything.

use super::{judge::Space, *};
use crate::sandbox::preflight::Facts;
use std::io::ErrorKind;

fn facts() -> Facts {
    Facts {
        engine: "27.0.1".to_owned(),
        api: "1.46".to_owned(),
        cgroups: Some("2".to_owned()),
        rootless: false,
        missing: Vec::new(),
    }
}

fn check(finding: &Finding, verdict: Verdict, words: &str) {
    assert_eq!(finding.verdict, verdict, "{finding:?}");
    assert_eq!(
        finding.advice.is_some(),
        verdict != Verdict::Ok,
        "what is wrong says what to do: {finding:?}"
    );
    let text = format!("{} {}", finding.seen, finding.advice.as_deref().unwrap_or_default());
    assert!(text.contains(words), "{words:?} is not in {text:?}");
}

#[test]
fn each_fault_of_the_state_directory_is_told() {
    for (found, verdict, words) in [
        (Ok((true, 7, 0o40_700)), Verdict::Ok, "0700"),
        (Err(ErrorKind::NotFound), Verdict::Ok, "will be made"),
        (Err(ErrorKind::PermissionDenied), Verdict::Fail, "own user"),
        (Ok((false, 7, 0o100_600)), Verdict::Fail, "not a directory"),
        (Ok((true, 8, 0o40_700)), Verdict::Fail, "user 8"),
        (Ok((true, 7, 0o40_755)), Verdict::Warn, "chmod 700"),
    ] {
        check(&judge::permissions("/state", found, 7), verdict, words);
    }
}

#[test]
fn a_proxy_is_shown_without_its_credentials() {
    let proxy = |variables: &[(&str, &str)], loopback| {
        let all = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        judge::proxy(all.collect::<Vec<_>>().into_iter(), loopback)
    };
    check(&proxy(&[], Some(false)), Verdict::Ok, "none");
    let set = [("https_proxy", "http://user:hunter2@proxy:3128"), ("NO_PROXY", ".corp")];
    let finding = proxy(&set, Some(false));
    check(&finding, Verdict::Ok, "proxy:3128, except for .corp");
    assert!(!finding.seen.contains("hunter2"));
    check(&proxy(&set, Some(true)), Verdict::Ok, "not used");
}

#[test]
fn each_fault_of_name_resolution_is_told() {
    let address = "192.0.2.7".parse().unwrap();
    check(&judge::names("h", Ok(vec![address]), false), Verdict::Ok, "192.0.2.7");
    check(&judge::names("h", Ok(Vec::new()), false), Verdict::Fail, "no address");
    check(&judge::names("h", Err("timed out".to_owned()), false), Verdict::Fail, "resolv.conf");
    check(&judge::names("h", Err("timed out".to_owned()), true), Verdict::Ok, "proxy resolves");
}

#[test]
fn a_clock_is_judged_by_how_far_it_is_off_in_either_direction() {
    for (ahead_ms, verdict, words) in [
        (0, Verdict::Ok, "within"),
        (-4_999, Verdict::Ok, "within"),
        (5_000, Verdict::Warn, "5 s ahead"),
        (-61_000, Verdict::Warn, "61 s behind"),
        (300_000, Verdict::Fail, "300 s ahead"),
        (-86_400_000, Verdict::Fail, "behind"),
    ] {
        check(&judge::clock(ahead_ms), verdict, words);
    }
}

#[test]
fn room_is_judged_by_the_scarcer_of_bytes_and_inodes() {
    for (bytes_free, inodes_free, inodes, verdict, words) in [
        (50, 50, 100, Verdict::Ok, "50 %"),
        (14, 50, 100, Verdict::Warn, "14 % of the space"),
        (50, 14, 100, Verdict::Warn, "14 % of the inodes"),
        (4, 50, 100, Verdict::Fail, "make room"),
        (50, 0, 100, Verdict::Fail, "0 % of the inodes"),
        (50, 0, 0, Verdict::Ok, "100 % of the inodes"),
    ] {
        let space = Space { bytes_free, bytes: 100, inodes_free, inodes };
        check(&judge::disk("disk", "/var", space), verdict, words);
    }
}

#[test]
fn each_fault_of_docker_and_its_limits_is_told() {
    check(&judge::engine(&facts()), Verdict::Ok, "API 1.46, with root's rights");
    check(&judge::engine(&Facts { rootless: true, ..facts() }), Verdict::Ok, "rootless");
    for api in ["1.40", "", "x"] {
        check(&judge::engine(&Facts { api: api.to_owned(), ..facts() }), Verdict::Fail, "update Docker");
    }
    check(&judge::limits(&facts(), false), Verdict::Ok, "version 2");
    let missing =
        Facts { missing: vec!["memory limits", "process limits"], cgroups: Some("1".to_owned()), ..facts() };
    check(&judge::limits(&missing, false), Verdict::Fail, "memory limits, process limits");
    check(&judge::limits(&missing, true), Verdict::Warn, "accept_missing_limits");
}

#[test]
fn a_unit_weaker_than_shipped_is_told_line_by_line() {
    let sound = "LoadState=loaded\nActiveState=active\nNoNewPrivileges=yes\nProtectSystem=strict\nPrivateTmp=yes\nProtectHome=yes\nCapabilityBoundingSet=\nType=notify\n";
    check(&judge::unit(Some(sound)), Verdict::Ok, "hardened");
    check(&judge::unit(None), Verdict::Ok, "systemd");
    check(&judge::unit(Some("LoadState=not-found\n")), Verdict::Ok, "no unit");
    for (line, weaker, word) in [
        ("NoNewPrivileges=yes", "NoNewPrivileges=no", "NoNewPrivileges"),
        ("ProtectSystem=strict", "ProtectSystem=no", "ProtectSystem"),
        ("CapabilityBoundingSet=", "CapabilityBoundingSet=cap_sys_admin", "CapabilityBoundingSet"),
        ("Type=notify", "Type=exec", "Type"),
    ] {
        check(&judge::unit(Some(&sound.replace(line, weaker))), Verdict::Warn, word);
    }
}

#[test]
fn little_memory_is_a_warning() {
    check(&judge::memory("MemTotal: 100 kB\nMemAvailable: 50 kB\n"), Verdict::Ok, "enough");
    check(&judge::memory("MemTotal: 100 kB\nMemAvailable: 10 kB\n"), Verdict::Warn, "10 %");
}

#[test]
fn the_worst_counts() {
    let (fine, doubt, broken) =
        (Finding::ok("a", ""), Finding::warn("b", "", ""), Finding::fail("c", "", ""));
    assert_eq!(worst(&[]), Verdict::Ok);
    assert_eq!(worst(&[fine.clone(), doubt.clone(), fine.clone()]), Verdict::Warn);
    assert_eq!(worst(&[broken, doubt, fine]), Verdict::Fail);
}
