//! The whole server over TCP: a refused body leaves the connection usable, streams end on stop, a panic is a refusal.

use super::*;
use axum::routing::get;
use checkfu_shared::time::SystemClock;
use std::net::SocketAddr;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

struct Server {
    address: SocketAddr,
    key: String,
    stop: CancellationToken,
    task: JoinHandle<Result<(), crate::Error>>,
    _dir: TempDir,
}

async fn start() -> Server {
    let dir = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let config = Config::new(dir.path());
    let task = tokio::spawn(crate::serve(config, listener, Arc::new(SystemClock), stop.clone()));
    let path = dir.path().join("admin.key");
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The first answer comes when the first start is over.
    ask(&mut stream, "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let key = std::fs::read_to_string(path).unwrap().trim().to_owned();
    Server { address, key, stop, task, _dir: dir }
}

/// Sends `text` and reads one reply with a length.
async fn ask(stream: &mut TcpStream, text: &str) -> (u16, Value) {
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).await.unwrap();
    (status, serde_json::from_slice(&body).unwrap())
}

impl Server {
    fn head(&self, method: &str, path: &str, length: usize) -> String {
        let key = &self.key;
        format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\nanthropic-version: x\r\ncontent-length: {length}\r\n\r\n"
        )
    }

    async fn end(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_body_too_large_is_refused_and_the_connection_goes_on() {
    use std::os::unix::fs::PermissionsExt;
    let server = start().await;
    let mode = std::fs::metadata(server._dir.path().join("admin.key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let length = (32 << 20) + 1;
    let request = server.head("POST", "/v1/agents", length) + &" ".repeat(length);
    let (status, body) = ask(&mut stream, &request).await;
    assert_eq!((status, &body["error"]["details"]["error_code"]), (413, &json!("too_large")));
    let (status, body) = ask(&mut stream, &server.head("GET", "/v1/agents", 0)).await;
    assert_eq!((status, &body["data"]), (200, &json!([])));
    drop(stream);
    server.end().await;
}

#[tokio::test]
async fn an_open_stream_ends_when_the_server_stops() {
    let server = start().await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let post = |path: &str, body: Value| {
        let body = body.to_string();
        server.head("POST", path, body.len()) + &body
    };
    let (_, agent) = ask(&mut stream, &post("/v1/agents", json!({"name": "a", "model": "m"}))).await;
    let (_, environment) = ask(&mut stream, &post("/v1/environments", json!({"name": "e"}))).await;
    let body = json!({"agent": agent["id"], "environment_id": environment["id"]});
    let (_, session) = ask(&mut stream, &post("/v1/sessions", body)).await;
    let path = format!("/v1/sessions/{}/events/stream", session["id"].as_str().unwrap());
    stream.write_all(server.head("GET", &path, 0).as_bytes()).await.unwrap();
    let mut seen = String::new();
    while !seen.contains(": open") {
        let mut bytes = [0; 1024];
        let count = stream.read(&mut bytes).await.unwrap();
        seen.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
    }
    server.stop.cancel();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.unwrap();
    assert!(rest.ends_with("0\r\n\r\n"), "the stream was cut: {rest:?}");
    server.end().await;
}

#[tokio::test]
async fn a_second_start_makes_no_second_key() {
    let dir = tempfile::tempdir().unwrap();
    let open = async || {
        let stop = CancellationToken::new();
        crate::serve::open(Config::new(dir.path()), Arc::new(SystemClock), stop).await.unwrap().store.close();
        std::fs::read_to_string(dir.path().join("admin.key")).unwrap()
    };
    assert_eq!(open().await, open().await);
}

#[tokio::test]
async fn a_panic_is_an_internal_refusal_that_says_nothing_of_itself() {
    async fn fragile() -> reply::Answer {
        panic!("secret detail")
    }
    let bench = Bench::new().await;
    let layer = middleware::from_fn_with_state(bench.plane.clone(), reply::stamp);
    let router = Router::new().route("/", get(fragile)).layer(layer).with_state(bench.plane.clone());
    let got = read(router.oneshot(Request::get("/").body(Body::empty()).unwrap()).await.unwrap()).await;
    got.refused(500, "internal");
    assert!(!got.body.to_string().contains("secret detail"));
    assert!(got.headers.contains_key("request-id"));
}

#[tokio::test]
async fn a_server_with_a_certificate_speaks_tls_and_a_plain_request_gets_no_answer() {
    let dir = tempfile::tempdir().unwrap();
    let (cert_file, key_file) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    std::fs::write(&cert_file, include_str!("tls/cert.pem")).unwrap();
    std::fs::write(&key_file, include_str!("tls/key.pem")).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let mut config = Config::new(dir.path().join("data"));
    config.tls = Some(crate::config::Tls { cert_file: cert_file.clone(), key_file: key_file.clone() });
    let task = tokio::spawn(crate::serve(config, listener, Arc::new(SystemClock), stop.clone()));

    let mut roots = rustls::RootCertStore::empty();
    let pem = include_bytes!("tls/cert.pem");
    let cert =
        <rustls::pki_types::CertificateDer<'_> as rustls::pki_types::pem::PemObject>::from_pem_slice(pem);
    roots.add(cert.unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(client));
    let name = "plane.test".try_into().unwrap();
    let mut stream = connector.connect(name, TcpStream::connect(address).await.unwrap()).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut reply = Vec::new();
    // The peer may close without a TLS farewell; what came before it counts.
    let _ = stream.read_to_end(&mut reply).await;
    assert!(reply.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&reply));

    let mut plain = TcpStream::connect(address).await.unwrap();
    plain.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut reply = Vec::new();
    let _ = plain.read_to_end(&mut reply).await;
    assert!(!reply.starts_with(b"HTTP"), "a plain request was answered");
    stop.cancel();
    task.await.unwrap().unwrap();
    let swapped = crate::config::Tls { cert_file: key_file, key_file: cert_file };
    assert!(listen::acceptor(&swapped).is_err());
}
