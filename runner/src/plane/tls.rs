//! How the runner recognises its control plane: the machine's authorities, the bundled public ones, and those of `--ca`.
//! There is no way to skip verification.

use super::issuer::issuer;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme,
    client::{
        VerifierBuilderError, WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::ring,
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// Why the trusted authorities cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file of `--ca` cannot be used.
    #[error("{path} has no usable certificate authority in PEM form: {reason}", path = path.display())]
    Authority {
        /// Which file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The cryptography refuses its own defaults.
    #[error("the TLS library cannot be set up")]
    Setup(#[from] rustls::Error),
    /// No authority can be used to verify with.
    #[error("the certificate authorities cannot be set up")]
    Verifier(#[from] VerifierBuilderError),
}

/// A certificate that nobody trusted signed.
#[derive(Debug, thiserror::Error)]
#[error(
    "its certificate was issued by `{issuer}`, which is not trusted here; name that authority with --ca FILE or SSL_CERT_FILE"
)]
struct Untrusted {
    issuer: String,
}

/// The usual verification; it only says more when the issuer is unknown.
#[derive(Debug)]
struct Naming(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for Naming {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified = self.0.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        verified.map_err(|error| match error {
            rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
                // The last one of the chain is what an authority here would have to vouch for.
                let issuer = issuer(intermediates.last().unwrap_or(end_entity));
                let issuer = issuer.unwrap_or_else(|| "an authority without a name".to_owned());
                rustls::Error::Other(OtherError(Arc::new(Untrusted { issuer })))
            }
            other => other,
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// The client side of TLS 1.2 and 1.3. `SSL_CERT_FILE` and `SSL_CERT_DIR` replace the machine's store when they are set.
///
/// # Errors
/// [`Error`] when `extra_ca` cannot be used.
pub fn config(extra_ca: Option<&Path>) -> Result<ClientConfig, Error> {
    let mut roots = RootCertStore::empty();
    roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    let native = rustls_native_certs::load_native_certs();
    for error in &native.errors {
        tracing::warn!(%error, "some of this machine's certificate authorities cannot be read");
    }
    roots.add_parsable_certificates(native.certs);
    if let Some(path) = extra_ca {
        add(&mut roots, path)?;
    }
    let provider = Arc::new(ring::default_provider());
    let usual =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build()?;
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Naming(usual)))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn add(roots: &mut RootCertStore, path: &Path) -> Result<(), Error> {
    let refuse = |reason: String| Error::Authority { path: path.to_owned(), reason };
    let mut count = 0;
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| refuse(error.to_string()))? {
        roots
            .add(certificate.map_err(|error| refuse(error.to_string()))?)
            .map_err(|error| refuse(error.to_string()))?;
        count += 1;
    }
    if count == 0 { Err(refuse("no CERTIFICATE section".to_owned())) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bundled_authorities_are_enough_to_start() {
        assert_eq!(config(None).unwrap().alpn_protocols.len(), 2);
    }

    #[test]
    fn a_file_without_a_certificate_is_named_and_explained() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.pem");
        for content in ["", "hello", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            std::fs::write(&path, content).unwrap();
            let error = config(Some(&path)).unwrap_err().to_string();
            assert!(error.contains("ca.pem"), "{error}");
        }
        assert!(config(Some(&dir.path().join("absent"))).is_err());
    }
}
