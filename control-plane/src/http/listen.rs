//! Serves connections over HTTP/1.1 until the order to stop: then no new ones, the open ones finish within a grace.
//! Bounds what a slow or hostile client can hold: connections, and the time to send a request's head.

use crate::config::Tls;
use axum::{Router, extract::ConnectInfo};
use hyper::{Request, body::Incoming, server::conn::http1};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use rustls::{
    ServerConfig,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject},
    },
};
use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

const HEAD_MAX: Duration = Duration::from_secs(30);
const HEAD_BYTES_MAX: usize = 64 << 10;
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long a TLS handshake may take.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// Why TLS cannot be offered.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or holds no PEM of the wanted kind.
    #[error("{} cannot be used", file.display())]
    File {
        /// Which.
        file: PathBuf,
        /// Why.
        #[source]
        source: pem::Error,
    },
    /// Certificate and key do not fit each other, or are of no use.
    #[error("certificate and key cannot be used together")]
    Pair(#[source] rustls::Error),
}

/// Reads certificate and key.
///
/// # Errors
/// [`TlsError`] naming the file.
pub fn acceptor(tls: &Tls) -> Result<TlsAcceptor, TlsError> {
    let failed = |file: &Path| {
        let file = file.to_owned();
        move |source| TlsError::File { file, source }
    };
    let chain = CertificateDer::pem_file_iter(&tls.cert_file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(failed(&tls.cert_file))?;
    let key = PrivateKeyDer::from_pem_file(&tls.key_file).map_err(failed(&tls.key_file))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Pair)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(TlsError::Pair)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Serves `router` on `listener` until `stop`, then waits at most `grace` for the open connections.
pub async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    router: Router,
    connections_max: usize,
    stop: CancellationToken,
    grace: Duration,
) {
    let permits = Arc::new(Semaphore::new(connections_max));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => continue,
            accepted = accept(&listener, &permits) => accepted,
        };
        match accepted {
            Ok((stream, peer, permit)) => {
                let (router, stop, tls) = (router.clone(), stop.clone(), tls.clone());
                connections.spawn(async move {
                    greet(stream, tls, peer, router, stop).await;
                    drop(permit);
                });
            }
            Err(error) => {
                // Mostly a lack of file descriptors, which passes as connections end.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    let all = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(grace, all).await.is_err() {
        tracing::warn!(connections = connections.len(), "connections were cut at the end of the grace");
        connections.shutdown().await;
    }
}

async fn accept(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, SocketAddr, tokio::sync::OwnedSemaphorePermit)> {
    let permit = permits.clone().acquire_owned().await.map_err(std::io::Error::other)?;
    let (stream, peer) = listener.accept().await?;
    Ok((stream, peer, permit))
}

/// Begins TLS where it is spoken.
async fn greet(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    peer: SocketAddr,
    router: Router,
    stop: CancellationToken,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY was refused");
    }
    let Some(tls) = tls else { return connection(stream, peer, router, stop).await };
    let handshake = tokio::time::timeout(HANDSHAKE_MAX, tls.accept(stream));
    let shaken = tokio::select! {
        shaken = handshake => shaken,
        () = stop.cancelled() => return,
    };
    match shaken {
        Ok(Ok(stream)) => Box::pin(connection(stream, peer, router, stop)).await,
        Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
        Err(_) => tracing::debug!("a TLS handshake took too long"),
    }
}

async fn connection<S>(stream: S, peer: SocketAddr, router: Router, stop: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    // Throttles count by where a connection comes from; a header could say anything.
    let router = router.map_request(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(peer));
        request
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::pin!(serving);
    let ended = tokio::select! {
        ended = &mut serving => ended,
        () = stop.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke off");
    }
}
