//! One connection from a sandbox: CONNECT tunnels and plain HTTP in absolute form, each request judged by itself.
//! Nothing is sent upstream before the request has been judged, and nothing but that request is.

use super::{
    Reach,
    authority::{self, Host},
    denied::{Denials, Reason},
    dial,
    hello::{self, Sniffed},
    policy::Policy,
};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, combinators::BoxBody};
use hyper::{
    Method, Request, Response, StatusCode, Uri,
    body::Incoming,
    header::{self, HeaderMap, HeaderName, HeaderValue},
    service::service_fn,
    upgrade::Upgraded,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{convert::Infallible, io, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpStream, UnixStream},
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

const HEAD_WAIT: Duration = Duration::from_secs(10);
const HELLO_WAIT: Duration = Duration::from_secs(10);
const ANSWER_WAIT: Duration = Duration::from_secs(300);
const IDLE_WAIT: Duration = Duration::from_secs(300);
const MAX_LIFE: Duration = Duration::from_secs(3_600);
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// A fatal TLS alert, `unrecognized_name`.
const WRONG_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];

/// Connection-level headers, which concern the sandbox and this proxy alone.
const HOP_HEADERS: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

type Body = BoxBody<Bytes, hyper::Error>;

/// What every connection of one sandbox shares.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) policy: Policy,
    pub(super) reach: Reach,
    pub(super) denials: Arc<Denials>,
    pub(super) tasks: TaskTracker,
    pub(super) closed: CancellationToken,
}

/// Where a request wants to go.
#[derive(Debug)]
struct Target {
    host: Host,
    port: u16,
}

pub(super) async fn connection(desk: Arc<Desk>, stream: UnixStream) {
    let closed = desk.closed.clone();
    let service = service_fn(move |request| {
        let desk = desk.clone();
        async move { Ok::<_, Infallible>(answer(&desk, request).await) }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WAIT)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    tokio::select! {
        () = closed.cancelled() => {}
        served = timeout(MAX_LIFE, served) => {
            if let Ok(Err(error)) = served {
                tracing::debug!(%error, "a proxy connection ended early");
            }
        }
    }
}

async fn answer(desk: &Arc<Desk>, request: Request<Incoming>) -> Response<Body> {
    let answered = if request.method() == Method::CONNECT {
        tunnel(desk, request).await
    } else {
        forward(desk, request).await
    };
    answered.unwrap_or_else(|refusal| refusal.response())
}

/// Why a request got no upstream answer.
#[derive(Debug)]
enum Refusal {
    Denied(Reason),
    Upstream(&'static str),
}

impl Refusal {
    fn response(&self) -> Response<Body> {
        let (status, code, text) = match self {
            Self::Denied(reason) => (
                StatusCode::FORBIDDEN,
                reason.as_str(),
                "this sandbox may not reach that; ask for the host to be added to the environment's allowed hosts",
            ),
            Self::Upstream(code) => {
                (StatusCode::BAD_GATEWAY, *code, "the host could not be reached from the runner")
            }
        };
        let body = format!("{{\"error\":\"{code}\",\"message\":\"{text}\"}}\n");
        let mut response = Response::new(full(body));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert("x-checkfu-egress", HeaderValue::from_static(code));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }
}

fn full(body: String) -> Body {
    Full::new(Bytes::from(body)).map_err(|never: Infallible| match never {}).boxed()
}

fn deny(desk: &Desk, asked: &str, port: u16, reason: Reason) -> Refusal {
    desk.denials.add(asked, port, reason);
    Refusal::Denied(reason)
}

/// Reads and judges where a request goes.
fn judge(desk: &Desk, uri: &Uri, default_port: Option<u16>) -> Result<Target, Refusal> {
    let asked = uri.authority().map(|authority| authority.as_str()).unwrap_or_default();
    let read = authority::authority(asked).ok().and_then(|(host, port)| Some((host, port.or(default_port)?)));
    let Some((host, port)) = read else { return Err(deny(desk, asked, 0, Reason::BadAuthority)) };
    match desk.policy.allows(&host, port) {
        Ok(()) => Ok(Target { host, port }),
        Err(reason) => Err(deny(desk, &host.to_string(), port, reason)),
    }
}

async fn dial(desk: &Desk, target: &Target) -> Result<TcpStream, Refusal> {
    dial::dial(&target.host, target.port, &desk.reach).await.map_err(|error| match error {
        dial::Error::Denied(reason) => deny(desk, &target.host.to_string(), target.port, reason),
        dial::Error::Unresolvable => Refusal::Upstream("unresolvable"),
        dial::Error::Unreachable => Refusal::Upstream("unreachable"),
    })
}

async fn tunnel(desk: &Arc<Desk>, mut request: Request<Incoming>) -> Result<Response<Body>, Refusal> {
    let target = judge(desk, request.uri(), None)?;
    let upstream = dial(desk, &target).await?;
    let upgrade = hyper::upgrade::on(&mut request);
    let owner = desk.clone();
    desk.tasks.spawn(async move {
        let carried = async {
            if let Ok(upgraded) = upgrade.await {
                carry(&owner, &target, upgraded, upstream).await;
            }
        };
        tokio::select! {
            () = owner.closed.cancelled() => {}
            _ = timeout(MAX_LIFE, carried) => {}
        }
    });
    Ok(Response::new(full(String::new())))
}

/// Looks at the handshake before the first byte goes out.
async fn carry(desk: &Desk, target: &Target, upgraded: Upgraded, mut upstream: TcpStream) {
    let mut inside = TokioIo::new(upgraded);
    let mut first = Vec::new();
    if desk.policy.demands_sni() {
        let verdict = match timeout(HELLO_WAIT, read_hello(&mut inside, &mut first)).await {
            Ok(Ok(sniffed)) => judge_hello(&sniffed, &target.host),
            _ => Err(Reason::NotTls),
        };
        if let Err(reason) = verdict {
            desk.denials.add(&target.host.to_string(), target.port, reason);
            // The tunnel was granted already; the alert is the only answer left that a client understands.
            let _told = inside.write_all(&WRONG_NAME).await;
            let _closed = inside.shutdown().await;
            return;
        }
    }
    if upstream.write_all(&first).await.is_ok() {
        relay(inside, upstream).await;
    }
}

async fn read_hello<S: AsyncRead + Unpin>(inside: &mut S, first: &mut Vec<u8>) -> io::Result<Sniffed> {
    loop {
        match hello::sniff(first) {
            Sniffed::More => {}
            sniffed => return Ok(sniffed),
        }
        let mut piece = [0; 4096];
        let count = inside.read(&mut piece).await?;
        if count == 0 {
            return Ok(Sniffed::NotTls);
        }
        first.extend_from_slice(piece.get(..count).unwrap_or_default());
    }
}

fn judge_hello(sniffed: &Sniffed, asked: &Host) -> Result<(), Reason> {
    match (sniffed, asked) {
        (Sniffed::Name(name), asked) => match authority::host(name) {
            Ok(named) if named == *asked => Ok(()),
            _ => Err(Reason::SniMismatch),
        },
        // An address cannot stand in a handshake's name.
        (Sniffed::Nameless, Host::Address(_)) => Ok(()),
        (Sniffed::Nameless, Host::Name(_)) => Err(Reason::NoSni),
        (Sniffed::More | Sniffed::NotTls, _) => Err(Reason::NotTls),
    }
}

/// Copies both ways until both ends are done or nothing has moved for a while.
async fn relay<A, B>(inside: A, outside: B)
where
    A: AsyncRead + AsyncWrite,
    B: AsyncRead + AsyncWrite,
{
    let (inside_read, inside_write) = tokio::io::split(inside);
    let (outside_read, outside_write) = tokio::io::split(outside);
    let moved = std::sync::atomic::AtomicU64::new(0);
    let watch = async {
        let mut seen = u64::MAX;
        loop {
            let now = moved.load(std::sync::atomic::Ordering::Relaxed);
            if now == seen {
                return;
            }
            seen = now;
            tokio::time::sleep(IDLE_WAIT).await;
        }
    };
    let both = async {
        tokio::join!(copy(inside_read, outside_write, &moved), copy(outside_read, inside_write, &moved));
    };
    tokio::select! {
        () = watch => {}
        () = both => {}
    }
}

async fn copy<R, W>(mut from: R, mut to: W, moved: &std::sync::atomic::AtomicU64)
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut piece = vec![0; 16 * 1024];
    while let Ok(count) = from.read(&mut piece).await {
        if count == 0 || to.write_all(piece.get(..count).unwrap_or_default()).await.is_err() {
            break;
        }
        moved.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
    let _closed = to.shutdown().await;
}

async fn forward(desk: &Arc<Desk>, request: Request<Incoming>) -> Result<Response<Body>, Refusal> {
    if request.uri().scheme_str() != Some("http") {
        let asked = request.uri().to_string();
        return Err(deny(desk, &asked, 0, Reason::BadAuthority));
    }
    let target = judge(desk, request.uri(), Some(80))?;
    if !host_agrees(request.headers(), &target) {
        return Err(deny(desk, &target.host.to_string(), target.port, Reason::HostMismatch));
    }
    let upstream = dial(desk, &target).await?;
    let broken = |_| Refusal::Upstream("upstream_failed");
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(upstream)).await.map_err(broken)?;
    let closed = desk.closed.clone();
    desk.tasks.spawn(async move {
        tokio::select! {
            () = closed.cancelled() => {}
            _ = timeout(MAX_LIFE, connection) => {}
        }
    });
    let asked = sender.send_request(outward(request)?);
    let answered = timeout(ANSWER_WAIT, asked).await.map_err(|_| Refusal::Upstream("upstream_timed_out"))?;
    let mut response = answered.map_err(broken)?;
    drop_hop_headers(response.headers_mut());
    Ok(response.map(|body| body.boxed()))
}

/// The request as the origin sees it: path only, no header that concerns this hop.
fn outward(request: Request<Incoming>) -> Result<Request<Incoming>, Refusal> {
    let (mut parts, body) = request.into_parts();
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    parts.uri = path.parse().map_err(|_| Refusal::Upstream("bad_path"))?;
    drop_hop_headers(&mut parts.headers);
    Ok(Request::from_parts(parts, body))
}

fn drop_hop_headers(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .filter(|name| *name != header::HOST && *name != header::CONTENT_LENGTH)
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in HOP_HEADERS {
        headers.remove(name);
    }
}

/// Exactly one `Host`, and it says the same as the request's own authority.
fn host_agrees(headers: &HeaderMap, target: &Target) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(first), None) = (hosts.next(), hosts.next()) else { return false };
    let read = first.to_str().ok().and_then(|text| authority::authority(text).ok());
    read.is_some_and(|(host, port)| host == target.host && port.unwrap_or(80) == target.port)
}
