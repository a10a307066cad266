//! A company's HTTP proxy: it asks for a password, tunnels to the one host it knows, and cuts tunnels in which nothing moves.
//! It keeps what it was asked for, so that a test can tell what went through it.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
    time::Instant,
};

/// The name and password that it wants.
pub const CREDENTIALS: &str = "worker:canary-proxy-password-9c41";
const HEAD_BYTES_MAX: usize = 16 << 10;

#[derive(Debug)]
struct Ways {
    host: String,
    server: SocketAddr,
    idle: Duration,
    resolves: AtomicBool,
    asked: Mutex<Vec<String>>,
}

/// A proxy; dropping it closes every tunnel.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    ways: Arc<Ways>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Listens on a free loopback port; tunnels to `host` lead to `server` and are cut after `idle` without a byte.
    pub async fn start(host: &str, server: SocketAddr, idle: Duration) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let ways = Arc::new(Ways {
            host: host.to_owned(),
            server,
            idle,
            resolves: AtomicBool::new(true),
            asked: Mutex::default(),
        });
        let task = tokio::spawn(accept(listener, Arc::clone(&ways)));
        Ok(Self { address, ways, task })
    }

    /// Its address with `credentials`, as the environment names a proxy.
    #[must_use]
    pub fn url(&self, credentials: &str) -> String {
        format!("http://{credentials}@{}", self.address)
    }

    /// Whether the proxy's resolver knows the host; it does at first.
    pub fn resolves(&self, does: bool) {
        self.ways.resolves.store(does, Ordering::SeqCst);
    }

    /// The first line of every request and how it was answered.
    #[must_use]
    pub fn asked(&self) -> Vec<String> {
        self.ways.asked.lock().expect("no panic while it was held").clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, ways: Arc<Ways>) {
    let mut tunnels = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        while tunnels.try_join_next().is_some() {}
        tunnels.spawn(serve(client, Arc::clone(&ways)));
    }
}

async fn serve(mut client: TcpStream, ways: Arc<Ways>) {
    let Some(head) = head(&mut client).await else { return };
    let line = head.lines().next().unwrap_or_default().to_owned();
    let wanted = format!("basic {}", BASE64_STANDARD.encode(CREDENTIALS));
    let said = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("proxy-authorization").then(|| value.trim().to_owned())
    });
    let authorized = said.is_some_and(|said| said.to_lowercase() == wanted.to_lowercase());
    let known = line.starts_with(&format!("CONNECT {}:", ways.host)) && ways.resolves.load(Ordering::SeqCst);
    let status = match (authorized, known) {
        (false, _) => "407 Proxy Authentication Required",
        (true, false) => "502 Host Not Found",
        (true, true) => "200 Connection Established",
    };
    ways.asked.lock().expect("no panic while it was held").push(format!("{line} -> {status}"));
    let answer = format!("HTTP/1.1 {status}\r\n\r\n");
    if client.write_all(answer.as_bytes()).await.is_err() || !status.starts_with("200") {
        return;
    }
    let Ok(server) = TcpStream::connect(ways.server).await else { return };
    tunnel(client, server, ways.idle).await;
}

async fn head(client: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() == HEAD_BYTES_MAX {
            return None;
        }
        head.push(client.read_u8().await.ok()?);
    }
    String::from_utf8(head).ok()
}

/// Until either side ends or nothing moved for `idle`.
async fn tunnel(mut client: TcpStream, mut server: TcpStream, idle: Duration) {
    let (mut up, mut down) = (vec![0; 16 << 10], vec![0; 16 << 10]);
    let mut last = Instant::now();
    loop {
        let moved = tokio::select! {
            read = client.read(&mut up) => pass(read, &up, &mut server).await,
            read = server.read(&mut down) => pass(read, &down, &mut client).await,
            () = tokio::time::sleep_until(last + idle) => None,
        };
        if moved.is_none() {
            return;
        }
        last = Instant::now();
    }
}

async fn pass(read: io::Result<usize>, bytes: &[u8], to: &mut TcpStream) -> Option<()> {
    let size = read.ok().filter(|size| *size > 0)?;
    to.write_all(&bytes[..size]).await.ok()
}
