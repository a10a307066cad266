//! A TLS front of a plain server, with a certificate that a private authority signed: `tls/authority.pem`. Its keys are worth
//! nothing anywhere else.

use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};
use tokio_rustls::TlsAcceptor;

/// The host that the certificate is for, which no resolver knows.
pub const HOST: &str = "checkfu.test";

/// A front; dropping it closes everything.
#[derive(Debug)]
pub struct TlsFront {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl TlsFront {
    /// Listens on a free loopback port and passes what was encrypted on to `server`.
    pub async fn start(server: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let acceptor = TlsAcceptor::from(Arc::new(config()));
        Ok(Self { address, task: tokio::spawn(accept(listener, acceptor, server)) })
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The certificate of the authority that signed the front's.
#[must_use]
pub fn authority() -> PathBuf {
    file("authority.pem")
}

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("rig/tls").join(name)
}

fn config() -> ServerConfig {
    let certificate = CertificateDer::from_pem_file(file("server.pem")).expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(file("server.key")).expect("its key");
    ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the default versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("a certificate that fits its key")
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, server: SocketAddr) {
    // Owned here, so that the end of this task ends every connection.
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let acceptor = acceptor.clone();
        connections.spawn(async move {
            // A client that does not trust the certificate leaves; that is its own business.
            let Ok(mut client) = acceptor.accept(client).await else { return };
            let Ok(mut upstream) = TcpStream::connect(server).await else { return };
            let _ = tokio::io::copy_bidirectional(&mut client, &mut upstream).await;
        });
    }
}
