//! What a sandbox cannot do.

use crate::rig::{Rig, bash, run, spec, text};
use checkfu_shared::environment::{Profile, Spec};

#[tokio::test]
async fn nothing_is_reachable_without_a_network() {
    let rig = Rig::start().await;
    let sandbox = rig.sandbox().await;
    let probe = r#"
import socket, sys
reached = []
def attempt(name, family, kind, address):
    try:
        s = socket.socket(family, kind)
        s.settimeout(2)
        s.connect(address)
        s.send(b"x")
        reached.append(name)
    except OSError as error:
        pass
for host in ["1.1.1.1", "8.8.8.8", "169.254.169.254", "172.17.0.1", "127.0.0.11"]:
    attempt("tcp " + host, socket.AF_INET, socket.SOCK_STREAM, (host, 80))
    if host != "127.0.0.11":
        attempt("udp " + host, socket.AF_INET, socket.SOCK_DGRAM, (host, 53))
attempt("v6", socket.AF_INET6, socket.SOCK_STREAM, ("2606:4700:4700::1111", 80))
for name, family, kind in [("vsock", 40, socket.SOCK_STREAM), ("alg", 38, socket.SOCK_SEQPACKET),
                           ("packet", 17, socket.SOCK_RAW), ("raw", socket.AF_INET, socket.SOCK_RAW)]:
    try:
        socket.socket(family, kind)
        reached.append(name)
    except OSError:
        pass
try:
    socket.getaddrinfo("example.com", 80)
    reached.append("dns")
except OSError:
    pass
print("reached:", reached)
"#;
    let command = format!(
        "cat > p.py <<'EOF'\n{probe}\nEOF\npython3 p.py; ls /.checkfu; cat /proc/net/dev | grep -c : "
    );
    let out = run(&sandbox, "c1", &command).await;
    assert!(out.starts_with("reached: []\n"), "{out}");
    assert!(!out.contains("net\n"), "{out}");
    assert!(out.ends_with("1\n"), "more than loopback: {out}");
}

#[tokio::test]
async fn privileges_namespaces_and_the_toolbox_are_out_of_reach() {
    let rig = Rig::start().await;
    for profile in [Profile::Standard, Profile::Root] {
        rig.docker.remove_session(rig.session).await.unwrap();
        let sandbox = rig.open(Spec { profile, ..spec() }).await.unwrap().sandbox;
        for (number, attempt) in [
            "unshare -Ur true",
            "unshare -n true",
            "mount -t tmpfs x /mnt",
            "cat /proc/1/environ",
            "head -c1 /proc/1/mem",
            "readlink /proc/1/fd/0",
            "head -c1 /.checkfu/bin/checkfu-toolbox > /dev/null && echo x >> /.checkfu/bin/checkfu-toolbox",
            "mknod /tmp/d c 1 3 && head -c1 /tmp/d",
            "python3 -c 'import ctypes,sys; sys.exit(0 if ctypes.CDLL(None).syscall(425,1,0)>=0 else 1)'",
        ]
        .into_iter()
        .enumerate()
        {
            let outcome = sandbox.call(bash(&format!("c{number}"), attempt)).await.unwrap();
            assert!(outcome.exit_code != Some(0), "{profile:?} could: {attempt}: {}", text(&outcome));
        }
        let status = run(
            &sandbox,
            "caps",
            "grep -E 'CapEff|NoNewPrivs|Seccomp:' /proc/self/status | tr -s '\\t\\n' ' '",
        )
        .await;
        assert!(status.contains("NoNewPrivs: 1") && status.contains("Seccomp: 2"), "{status}");
        let capabilities = if profile == Profile::Root { "00000000000000fb" } else { "0000000000000000" };
        assert!(status.contains(capabilities), "{profile:?}: {status}");
    }
}

#[tokio::test]
async fn limits_are_in_force_and_ordinary_programs_work() {
    let rig = Rig::start().await;
    let sandbox = rig.sandbox().await;
    // In units of 1 KiB. The limit on open files depends on what the daemon may give.
    assert_eq!(run(&sandbox, "c1", "ulimit -c; ulimit -f").await, "0\n4194304\n");
    let work = "git init -q r && cd r && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x && \
        git log --oneline | wc -l && python3 -c 'import threading,subprocess; \
        t=threading.Thread(target=lambda: print(subprocess.check_output([\"echo\",\"ok\"]).decode(), end=\"\")); t.start(); t.join()'";
    assert_eq!(run(&sandbox, "c2", work).await, "1\nok\n");
    let outcome = sandbox.call(bash("c3", "tail /dev/zero; echo over")).await.unwrap();
    assert!(outcome.oom_kills >= 1, "{outcome:?}");
}

#[tokio::test]
async fn a_repository_of_another_owner_is_usable() {
    let rig = Rig::start().await;
    let sandbox = rig.open(Spec { profile: Profile::Root, ..spec() }).await.unwrap().sandbox;
    let work = "git init -q r && chown -R 4321:4321 r && git -C r status --short && echo fine";
    assert_eq!(run(&sandbox, "c1", work).await, "fine\n");
}
