//! The way out of a sandbox that may reach listed hosts.

use crate::rig::{Rig, bash, run, spec, text};
use checkfu_runner::sandbox::{
    Sandbox,
    egress::{Reach, Reason},
};
use checkfu_shared::environment::{Network, Profile, Spec};
use std::{
    net::Ipv4Addr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

/// Answers every request on a port of its own; the address is a loopback one that only an exemption opens.
async fn server(body: &'static str) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") && stream.read_buf(&mut head).await.unwrap_or(0) > 0 {}
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            );
            let _gone = stream.write_all(answer.as_bytes()).await;
        }
    });
    port
}

#[tokio::test]
async fn only_the_listed_server_is_reached() {
    let (listed, other) = (server("listed").await, server("other").await);
    let rig = Rig::with_reach(Reach { exempt: vec![Ipv4Addr::LOCALHOST.into()] }).await;
    let network = Network::Limited { allowed_hosts: vec![format!("127.0.0.1:{listed}")] };
    let sandbox = rig.open(Spec { network, ..spec() }).await.unwrap().sandbox;
    assert_eq!(sandbox.warnings(), [""; 0]);
    // What the sandbox is told to leave alone is its own loopback, so the proxy is named here.
    let curl = "curl -sS --noproxy '' -x http://127.0.0.1:3128";
    assert_eq!(run(&sandbox, "c1", &format!("{curl} http://127.0.0.1:{listed}/")).await, "listed");
    let denied = run(&sandbox, "c2", &format!("{curl} -w ' %{{http_code}}' http://127.0.0.1:{other}/")).await;
    assert!(denied.contains("port_not_listed") && denied.ends_with(" 403"), "{denied}");
    let denied = run(&sandbox, "c3", "curl -sS -w ' %{http_code}' http://evil.example/").await;
    assert!(denied.contains("host_not_listed") && denied.ends_with(" 403"), "{denied}");
    let direct = format!("curl -sS --noproxy '*' -m 3 http://127.0.0.1:{listed}/");
    let direct = sandbox.call(bash("c4", &direct)).await.unwrap();
    assert_ne!(direct.exit_code, Some(0), "{}", text(&direct));
    let tunnel = sandbox.call(bash("c5", "curl -sS https://evil.example/")).await.unwrap();
    assert!(text(&tunnel).contains("403"), "{}", text(&tunnel));
    let denials = sandbox.denials().await;
    assert!(denials.iter().any(|denial| denial.host == "evil.example" && denial.port == 443), "{denials:?}");
    assert!(denials.iter().any(|denial| denial.reason == Reason::PortNotListed), "{denials:?}");
}

#[tokio::test]
async fn the_socket_cannot_be_replaced_and_survives_a_new_claim() {
    let listed = server("listed").await;
    let rig = Rig::with_reach(Reach { exempt: vec![Ipv4Addr::LOCALHOST.into()] }).await;
    let network = Network::Limited { allowed_hosts: vec![format!("127.0.0.1:{listed}")] };
    let with_network = Spec { network, ..spec() };
    let sandbox = rig.open(with_network.clone()).await.unwrap().sandbox;
    let attempt = "rm -f /.checkfu/net/proxy.sock || touch /.checkfu/net/x || mv /.checkfu/net /tmp/n || echo impossible";
    assert!(run(&sandbox, "c1", attempt).await.ends_with("impossible\n"));
    let sandbox = rig.docker.open(rig.request(with_network, 2)).await.unwrap().sandbox;
    let curl = format!("curl -sS --noproxy '' -x http://127.0.0.1:3128 http://127.0.0.1:{listed}/");
    assert_eq!(run(&sandbox, "c2", &curl).await, "listed");
}

/// Serves the regular files below a directory by plain HTTP, on a loopback address that no client takes for its own.
/// Gives its port and how many requests it has had.
pub(crate) async fn files(directory: std::path::PathBuf) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind((Ipv4Addr::new(127, 0, 0, 2), 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = requests.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::Relaxed);
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") && stream.read_buf(&mut head).await.unwrap_or(0) > 0 {}
            let head = String::from_utf8_lossy(&head).into_owned();
            let path = head.split(' ').nth(1).unwrap_or("/").split('?').next().unwrap_or("/");
            let found = std::fs::read(directory.join(path.trim_start_matches('/')));
            let (status, body) = found.map_or(("404 Not Found", Vec::new()), |body| ("200 OK", body));
            let answer =
                format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
            let _gone = stream.write_all(answer.as_bytes()).await;
            let _gone = stream.write_all(&body).await;
        }
    });
    (port, requests)
}

/// Puts what a sandbox left in its outputs below `directory`, by its own names.
pub(crate) async fn serve_outputs(rig: &Rig, sandbox: &Sandbox, directory: &Path) {
    let limits = checkfu_runner::outputs::Limits { files: 200, ..Default::default() };
    let capture = sandbox.capture(&rig.directory.path().join("spool"), limits).await.unwrap();
    for file in &capture.files {
        let path = directory.join(std::str::from_utf8(&file.path).unwrap());
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::copy(file.spool.as_ref().unwrap(), path).unwrap();
    }
}

#[tokio::test]
async fn git_curl_and_python_work_through_the_proxy_by_their_environment_alone() {
    let served = tempfile::tempdir().unwrap();
    let (port, _) = files(served.path().to_owned()).await;
    let rig = Rig::with_reach(Reach { exempt: vec![Ipv4Addr::new(127, 0, 0, 2).into()] }).await;
    let network = Network::Limited { allowed_hosts: vec![format!("127.0.0.2:{port}")] };
    let sandbox = rig.open(Spec { network, ..spec() }).await.unwrap().sandbox;
    let make = "git init -q -b main r && cd r && echo content > file && git add . && \
        git -c user.name=a -c user.email=a@b commit -q -m x && \
        git clone -q --bare . /mnt/session/outputs/r.git && cd /mnt/session/outputs/r.git && \
        rm -rf hooks && git update-server-info";
    run(&sandbox, "make", make).await;
    serve_outputs(&rig, &sandbox, served.path()).await;
    let base = format!("http://127.0.0.2:{port}");
    let clone = format!("cd && git clone -q {base}/r.git cloned && cat cloned/file");
    assert_eq!(run(&sandbox, "git", &clone).await, "content\n");
    let head = run(&sandbox, "curl", &format!("curl -sSf {base}/r.git/HEAD")).await;
    assert_eq!(head, "ref: refs/heads/main\n");
    let python = format!(
        "python3 -c 'import urllib.request as u; print(u.urlopen(\"{base}/r.git/HEAD\").read().decode())'"
    );
    assert_eq!(run(&sandbox, "python", &python).await.trim(), head.trim());
    let refused = sandbox.call(bash("other", "git ls-remote http://127.0.0.3/r.git")).await.unwrap();
    assert!(text(&refused).contains("403"), "{}", text(&refused));
    let denials = sandbox.denials().await;
    assert_eq!((denials[0].host.as_str(), denials[0].port, denials[0].count), ("127.0.0.3", 80, 1));
}

#[tokio::test]
async fn the_proxys_port_is_taken_before_anything_else_runs() {
    let rig = Rig::start().await;
    let network = Network::Limited { allowed_hosts: vec!["ok.test".into()] };
    for profile in [Profile::Standard, Profile::Root] {
        rig.docker.remove_session(rig.session).await.unwrap();
        let spec = Spec { network: network.clone(), profile, ..spec() };
        let sandbox = rig.open(spec).await.unwrap().sandbox;
        let bind = r#"python3 - <<'EOF'
import socket
for port in (3128, 1080):
    for address in ("127.0.0.1", "0.0.0.0"):
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            s.bind((address, port))
            s.listen()
            print("bound", address, port)
        except OSError:
            pass
EOF"#;
        assert_eq!(run(&sandbox, "c1", bind).await, "(no output)", "{profile:?}");
    }
}
