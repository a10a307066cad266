//! The proxy as a sandbox sees it, against servers on this machine that only an exemption makes reachable.

use super::{hello::tests::client_hello, *};
use std::{net::Ipv4Addr, path::PathBuf, time::Duration};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, UnixStream},
};

struct Rig {
    proxy: Proxy,
    socket: PathBuf,
    closed: CancellationToken,
    tasks: TaskTracker,
    _directory: tempfile::TempDir,
}

impl Rig {
    async fn start(network: Network, exempt: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let deep = directory.path().join("d".repeat(100)).join("net");
        let (tasks, closed) = (TaskTracker::new(), CancellationToken::new());
        let reach = Reach { exempt: if exempt { vec![Ipv4Addr::LOCALHOST.into()] } else { Vec::new() } };
        let proxy = Proxy::start(&network, &reach, &deep, &tasks, &closed).await.unwrap();
        // Clients have the same bound on paths as servers.
        let socket = directory.path().join("s");
        std::os::unix::fs::symlink(deep.join(SOCKET), &socket).unwrap();
        Self { proxy, socket, closed, tasks, _directory: directory }
    }

    async fn limited(hosts: &[String]) -> Self {
        Self::start(Network::Limited { allowed_hosts: hosts.to_vec() }, true).await
    }

    async fn say(&self, request: &str) -> String {
        let mut stream = UnixStream::connect(&self.socket).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        String::from_utf8(answer).unwrap()
    }

    async fn stop(self) {
        self.closed.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// A server that answers every connection with what it was sent up to a blank line, once.
async fn echo_server() -> (u16, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let task = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") && stream.read_buf(&mut head).await.unwrap() > 0 {}
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", head.len());
            stream.write_all(&[answer.as_bytes(), &head].concat()).await.unwrap();
        }
    });
    (port, task)
}

async fn byte_server() -> (u16, tokio::task::JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let task = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut seen = Vec::new();
        stream.read_to_end(&mut seen).await.unwrap();
        seen
    });
    (port, task)
}

#[tokio::test]
async fn a_listed_host_is_reached_by_plain_http_without_hop_headers() {
    let (port, server) = echo_server().await;
    let host = format!("127.0.0.1:{port}");
    let rig = Rig::limited(std::slice::from_ref(&host)).await;
    let answer = rig
        .say(&format!(
            "GET http://{host}/a?b HTTP/1.1\r\nHost: {host}\r\nX-Mine: 1\r\nX-Hop: 1\r\n\
             Connection: close, x-hop\r\nProxy-Authorization: secret\r\nUpgrade: h2c\r\n\r\n"
        ))
        .await;
    let seen = answer.split_once("\r\n\r\n").unwrap().1.to_ascii_lowercase();
    assert!(seen.starts_with("get /a?b http/1.1\r\n"), "{answer}");
    assert!(seen.contains("x-mine: 1") && seen.contains(&format!("host: {host}")), "{seen}");
    for gone in ["x-hop", "secret", "h2c", "proxy-"] {
        assert!(!seen.contains(gone), "{gone} in {seen}");
    }
    server.abort();
    rig.stop().await;
}

#[tokio::test]
async fn what_is_not_allowed_gets_a_reason_and_is_counted() {
    let (port, server) = echo_server().await;
    let host = format!("127.0.0.1:{port}");
    let rig = Rig::limited(std::slice::from_ref(&host)).await;
    for (line, named, reason) in [
        ("GET http://evil.test/ HTTP/1.1".to_owned(), "evil.test".to_owned(), "host_not_listed"),
        ("CONNECT evil.test:443 HTTP/1.1".to_owned(), "evil.test:443".to_owned(), "host_not_listed"),
        ("GET http://127.0.0.1:1/ HTTP/1.1".to_owned(), "127.0.0.1:1".to_owned(), "port_not_listed"),
        (format!("GET http://{host}/ HTTP/1.1"), "evil.test".to_owned(), "host_mismatch"),
        ("GET http://0x7f.1/ HTTP/1.1".to_owned(), "0x7f.1".to_owned(), "bad_authority"),
        ("GET http://u@127.0.0.1/ HTTP/1.1".to_owned(), "127.0.0.1".to_owned(), "bad_authority"),
        ("GET https://evil.test/ HTTP/1.1".to_owned(), "evil.test".to_owned(), "bad_authority"),
        ("GET / HTTP/1.1".to_owned(), host.clone(), "bad_authority"),
    ] {
        let answer = rig.say(&format!("{line}\r\nHost: {named}\r\nConnection: close\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 403"), "{line}: {answer}");
        assert!(answer.contains(&format!("x-checkfu-egress: {reason}")), "{line}: {answer}");
    }
    let total: u64 = rig.proxy.denials().await.iter().map(|denial| denial.count).sum();
    assert_eq!(total, 8);
    server.abort();
    rig.stop().await;
}

#[tokio::test]
async fn a_private_address_is_refused_even_when_listed_or_unrestricted() {
    let (port, server) = echo_server().await;
    let host = format!("127.0.0.1:{port}");
    for network in [Network::Limited { allowed_hosts: vec![host.clone()] }, Network::Unrestricted] {
        let rig = Rig::start(network, false).await;
        let answer = rig
            .say(&format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"))
            .await;
        assert!(answer.contains("private_address"), "{answer}");
        rig.stop().await;
    }
    server.abort();
}

async fn connect(rig: &Rig, host: &str) -> UnixStream {
    let mut stream = UnixStream::connect(&rig.socket).await.unwrap();
    stream.write_all(format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        assert!(stream.read_buf(&mut head).await.unwrap() > 0, "{}", String::from_utf8_lossy(&head));
    }
    assert!(head.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&head));
    stream
}

#[tokio::test]
async fn a_tunnel_carries_a_split_handshake_and_nothing_before_it_was_judged() {
    let (port, server) = byte_server().await;
    let host = format!("127.0.0.1:{port}");
    let rig = Rig::limited(std::slice::from_ref(&host)).await;
    let mut stream = connect(&rig, &host).await;
    let hello = client_hello(None, 16);
    for piece in hello.chunks(11) {
        stream.write_all(piece).await.unwrap();
        tokio::task::yield_now().await;
    }
    stream.write_all(b"after").await.unwrap();
    stream.shutdown().await.unwrap();
    let seen = server.await.unwrap();
    assert_eq!(seen, [&hello[..], b"after"].concat());
    rig.stop().await;
}

#[tokio::test]
async fn a_tunnel_for_another_name_or_protocol_sends_nothing() {
    for (first, reason) in [
        (client_hello(Some("evil.test"), 16_384), Reason::SniMismatch),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), Reason::NotTls),
    ] {
        let (port, server) = byte_server().await;
        let host = format!("127.0.0.1:{port}");
        let rig = Rig::limited(std::slice::from_ref(&host)).await;
        let mut stream = connect(&rig, &host).await;
        stream.write_all(&first).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer[0], 21, "no TLS alert");
        assert_eq!(server.await.unwrap(), b"", "something went out");
        assert_eq!(rig.proxy.denials().await[0].reason, reason);
        rig.stop().await;
    }
}

#[tokio::test]
async fn the_socket_is_reachable_and_its_parent_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let leaf = directory.path().join("net/sess_1");
    let first = listen(&leaf).unwrap();
    drop(first);
    listen(&leaf).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&leaf.join(SOCKET)), 0o666);
    assert_eq!(mode(&leaf), 0o755);
    assert_eq!(mode(&directory.path().join("net")), 0o700);
}

#[tokio::test]
async fn a_closed_proxy_ends_its_connections() {
    let rig = Rig::limited(&[]).await;
    let mut stream = UnixStream::connect(&rig.socket).await.unwrap();
    stream.write_all(b"GET http://").await.unwrap();
    tokio::time::timeout(Duration::from_secs(5), rig.stop()).await.unwrap();
    assert_eq!(stream.read(&mut [0; 8]).await.unwrap_or(0), 0);
}
