//! The way out of a sandbox that may reach listed hosts.

use crate::rig::{Rig, bash, run, spec, text};
use checkfu_runner::sandbox::egress::{Reach, Reason};
use checkfu_shared::environment::{Network, Spec};
use std::net::Ipv4Addr;
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
