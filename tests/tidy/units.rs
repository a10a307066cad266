//! The systemd units: they load without a complaint, their exposure stays low, and each line that hardens says why.
//! Without systemd on the machine only the last rule can be checked, and the others say that they were not.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use super::tree;

const UNITS: [&str; 2] = ["checkfu.service", "checkfu-runner.service"];
const HIGHEST_EXPOSURE_TENTHS: &str = "20";

/// A root directory that holds the units, and the programs and targets they name.
fn installed() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    for program in ["usr/bin/checkfu", "usr/bin/checkfu-runner", "usr/lib/checkfu/checkfu-toolbox"] {
        let path = place.path().join(program);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let system = place.path().join("etc/systemd/system");
    fs::create_dir_all(&system).unwrap();
    for target in ["sysinit", "basic", "shutdown", "network-online", "multi-user"] {
        fs::write(system.join(format!("{target}.target")), "[Unit]\nDescription=stand-in\n").unwrap();
    }
    for unit in UNITS {
        fs::write(system.join(unit), tree::text(Path::new("systemd").join(unit))).unwrap();
    }
    place
}

/// Runs `systemd-analyze`; `None`, told aloud, when the machine has none.
fn analyze(root: &Path, arguments: &[&str]) -> Option<Output> {
    let run =
        Command::new("systemd-analyze").arg(format!("--root={}", root.display())).args(arguments).output();
    if run.is_err() {
        println!("NOT CHECKED: this machine has no systemd-analyze");
    }
    run.ok()
}

fn told(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn units_load_without_a_complaint() {
    let place = installed();
    for unit in UNITS {
        let Some(output) = analyze(place.path(), &["verify", "--man=no", unit]) else { return };
        let told = told(&output);
        assert!(output.status.success() && told.trim().is_empty(), "{unit}:\n{told}");
    }
}

#[test]
fn a_misspelt_line_would_be_noticed() {
    let place = installed();
    let path = place.path().join("etc/systemd/system/checkfu.service");
    let text = fs::read_to_string(&path).unwrap().replace("ProtectClock=", "ProtectClok=");
    fs::write(&path, text).unwrap();
    let Some(output) = analyze(place.path(), &["verify", "--man=no", "checkfu.service"]) else { return };
    assert!(told(&output).contains("ProtectClok"));
}

#[test]
fn exposure_stays_low() {
    let place = installed();
    for unit in UNITS {
        let threshold = format!("--threshold={HIGHEST_EXPOSURE_TENTHS}");
        let Some(output) = analyze(place.path(), &["security", "--offline=yes", &threshold, unit]) else {
            return;
        };
        assert!(output.status.success(), "{unit}:\n{}", told(&output));
    }
}

#[test]
fn every_hardening_line_has_its_reason_above_it() {
    let mut wrong = Vec::new();
    for unit in UNITS {
        let text = tree::text(Path::new("systemd").join(unit));
        let hardening: Vec<&str> =
            text.lines().skip_while(|line| !line.starts_with("NoNewPrivileges")).collect();
        assert!(hardening.len() > 20, "{unit} hardens nothing");
        let mut above =
            text.lines().take_while(|line| !line.starts_with("NoNewPrivileges")).last().unwrap_or_default();
        for line in hardening {
            let prefix = above.split('=').next().unwrap_or_default();
            // A second line that completes the first shares its reason.
            let completes = ["CapabilityBoundingSet", "SystemCallFilter"].contains(&prefix);
            let is_setting = line.contains('=') && !line.starts_with('#');
            if is_setting && !above.starts_with('#') && !completes && !line.starts_with("WantedBy") {
                wrong.push(format!("{unit}: {line}"));
            }
            above = line;
        }
    }
    tree::none(&wrong, "no reason given");
}

#[test]
fn accounts_and_directories_are_well_formed() {
    let place = tempfile::tempdir().unwrap();
    let file = tree::root().join("systemd/sysusers.conf");
    let run = Command::new("systemd-sysusers")
        .arg("--dry-run")
        .arg(format!("--root={}", place.path().display()))
        .arg(file)
        .output();
    let Ok(output) = run else {
        println!("NOT CHECKED: this machine has no systemd-sysusers");
        return;
    };
    let told = told(&output);
    assert!(output.status.success(), "{told}");
    for account in ["'checkfu'", "'checkfu-runner'", "group 'docker'"] {
        assert!(told.contains(account), "{account} is not made:\n{told}");
    }
}
