//! The packages as an administrator meets them: made twice alike, installed in a clean Debian, removed, purged without a trace.
//! They are made from the programs under test; the clean Debian is a container of the default sandbox image.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use rig::{
    process::{binary, toolbox},
    world::IMAGE,
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Runs a command that must succeed; gives what it printed.
fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}:\n{text}");
    text
}

fn make(out: &Path) {
    let binaries = binary("checkfu").unwrap();
    let mut command = Command::new(root().join("packaging/package.sh"));
    command.arg("--binaries").arg(binaries.parent().unwrap()).arg("--toolbox").arg(toolbox().unwrap());
    succeed(command.arg("--out").arg(out).arg("--quick"));
}

/// What an administrator does, as one script in a clean system; each step says what must hold.
const LIFE: &str = r#"set -eu
rm -f /etc/dpkg/dpkg.cfg.d/*
traces() { { find / -xdev \( -path /proc -o -path /sys -o -path /packages -o -path /tmp -o -path /var/lib/dpkg -o -path /var/log -o -path /var/cache \) -prune -o -print; getent passwd; getent group; } | sort; }
traces >/tmp/before
dpkg -i /packages/*.deb
checkfu-runner version; checkfu --version
test "$(stat -c '%U %a' /var/lib/checkfu-runner)" = "checkfu-runner 700"
test "$(stat -c '%U %a' /var/lib/checkfu)" = "checkfu 700"
test "$(stat -c '%U %a' /usr/lib/checkfu/checkfu-toolbox)" = "root 755"
for page in checkfu checkfu-runner checkfu-runner-doctor checkfu-serve; do gzip -t "/usr/share/man/man1/$page.1.gz"; done
bash -n /usr/share/bash-completion/completions/checkfu-runner
checkfu-runner --config /usr/share/doc/checkfu-runner/runner.toml config show >/dev/null
grep -q '^u checkfu-runner ' /usr/lib/sysusers.d/checkfu-runner.conf
grep -q '^u checkfu ' /usr/lib/sysusers.d/checkfu.conf
grep -q '^m checkfu-runner docker' /usr/lib/sysusers.d/checkfu-runner.conf
su -s /bin/sh -c 'checkfu-runner --state-dir /var/lib/checkfu-runner status' checkfu-runner && exit 1 || test $? = 3
dpkg --verify checkfu checkfu-runner
echo kept >/var/lib/checkfu-runner/kept; echo max_sessions=2 >/etc/checkfu/runner.toml
dpkg -i /packages/*.deb
dpkg -r checkfu checkfu-runner
test ! -e /usr/bin/checkfu-runner; test ! -e /usr/lib/systemd/system/checkfu.service
test -e /var/lib/checkfu-runner/kept; test -e /etc/checkfu/runner.toml
dpkg -P checkfu checkfu-runner
traces >/tmp/after
diff /tmp/before /tmp/after
echo whole life
"#;

#[test]
fn packages_are_alike_each_time_and_live_from_install_to_purge_without_a_trace() {
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let (first, second) = (place.path().join("first"), place.path().join("second"));
    make(&first);
    make(&second);
    let sums = fs::read_to_string(first.join("SHA256SUMS")).unwrap();
    assert_eq!(sums, fs::read_to_string(second.join("SHA256SUMS")).unwrap());
    assert_eq!(sums.lines().count(), 3, "{sums}");
    succeed(Command::new("sha256sum").arg("-c").arg("SHA256SUMS").current_dir(&second));
    let listed = succeed(
        Command::new("tar").arg("-tzf").arg(
            fs::read_dir(&first)
                .unwrap()
                .map(|entry| entry.unwrap().path())
                .find(|path| path.extension().is_some_and(|end| end == "gz"))
                .unwrap(),
        ),
    );
    for file in [
        "bin/checkfu",
        "bin/checkfu-runner",
        "lib/checkfu/checkfu-toolbox",
        "lib/systemd/system/checkfu-runner.service",
    ] {
        assert!(listed.lines().any(|line| line.ends_with(file)), "{file} is not in\n{listed}");
    }
    let told = succeed(
        Command::new("docker")
            .args(["run", "--rm", "--network", "none", "--user", "0", "--entrypoint", "/bin/bash"])
            .arg("--volume")
            .arg(format!("{}:/packages:ro", first.display()))
            .args([IMAGE, "-c", LIFE]),
    );
    assert!(told.contains("whole life"), "{told}");
}
