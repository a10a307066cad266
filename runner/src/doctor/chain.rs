//! Who vouches for the control plane's certificate. A first handshake judges as the runner does; only when it fails, a second
//! one just looks at the certificate, and sends nothing.

use super::Finding;
use crate::plane::tls;
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::ring,
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use std::{
    net::{TcpStream, ToSocketAddrs as _},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

const CHECK: &str = "certificate";
const WAIT: Duration = Duration::from_secs(10);

pub(super) async fn examine(host: &str, port: u16, ca: Option<&Path>) -> Finding {
    let config = match tls::config(ca) {
        Ok(config) => config,
        Err(error) => return Finding::fail(CHECK, error.to_string(), "correct --ca"),
    };
    let host = host.trim_matches(['[', ']']).to_owned();
    let looked = tokio::task::spawn_blocking(move || {
        let trusted = handshake(&host, port, config);
        match trusted {
            Ok(certificate) => Ok(certificate),
            Err(why) => Err((why, look(&host, port))),
        }
    });
    match looked.await {
        Ok(outcome) => judge(outcome),
        Err(error) => Finding::fail(CHECK, error.to_string(), "this is a defect of the runner"),
    }
}

fn judge(outcome: Result<Vec<u8>, (String, Option<Vec<u8>>)>) -> Finding {
    let issuer =
        |certificate: &[u8]| issuer(certificate).unwrap_or_else(|| "an unnamed authority".to_owned());
    match outcome {
        Ok(certificate) => {
            Finding::ok(CHECK, format!("issued by {}, which is trusted here", issuer(&certificate)))
        }
        Err((why, Some(certificate))) => Finding::fail(
            CHECK,
            format!("issued by {}, and not accepted: {why}", issuer(&certificate)),
            "if that authority is yours, name its certificate with --ca FILE; if not, something reads along",
        ),
        Err((why, None)) => Finding::fail(CHECK, why, "check address, port and firewall"),
    }
}

/// The server's certificate, after a complete handshake.
fn handshake(host: &str, port: u16, config: ClientConfig) -> Result<Vec<u8>, String> {
    let address = (host, port).to_socket_addrs().map_err(|error| error.to_string())?.next();
    let address = address.ok_or("the name has no address")?;
    let mut stream =
        TcpStream::connect_timeout(&address, WAIT).map_err(|error| format!("no connection: {error}"))?;
    let timed = stream.set_read_timeout(Some(WAIT)).and_then(|()| stream.set_write_timeout(Some(WAIT)));
    timed.map_err(|error| error.to_string())?;
    let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
    let mut connection = ClientConnection::new(Arc::new(config), name).map_err(|error| error.to_string())?;
    while connection.is_handshaking() {
        connection.complete_io(&mut stream).map_err(|error| error.to_string())?;
    }
    let certificates = connection.peer_certificates().unwrap_or_default();
    certificates.first().map(|first| first.to_vec()).ok_or_else(|| "it showed no certificate".to_owned())
}

fn look(host: &str, port: u16) -> Option<Vec<u8>> {
    let seen = Arc::new(Onlooker::default());
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().ok()?;
    let config = builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(&seen) as Arc<dyn ServerCertVerifier>)
        .with_no_client_auth();
    // It refuses in the end, so that nothing could ever be sent over this connection.
    let _ = handshake(host, port, config);
    seen.0.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Remembers the certificate it is shown, and refuses it.
#[derive(Debug, Default)]
struct Onlooker(Mutex<Option<Vec<u8>>>);

impl ServerCertVerifier for Onlooker {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(certificate.to_vec());
        Err(rustls::Error::General("only looked at".to_owned()))
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("only looked at".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("only looked at".to_owned()))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// The issuer's name in a certificate: its common name, else its organisation.
fn issuer(certificate: &[u8]) -> Option<String> {
    let (_, whole, _) = element(certificate)?;
    let (_, signed, _) = element(whole)?;
    let (tag, _, after) = element(signed)?;
    // The version is optional; then come serial number, algorithm and issuer.
    let from_serial = if tag == 0xa0 { after } else { signed };
    let (_, _, rest) = element(from_serial)?;
    let (_, _, rest) = element(rest)?;
    let (_, mut names, _) = element(rest)?;
    let mut organisation = None;
    while let Some((_, set, rest)) = element(names) {
        names = rest;
        let Some((_, pair, _)) = element(set) else { continue };
        let Some((_, kind, value)) = element(pair) else { continue };
        let Some((_, text, _)) = element(value) else { continue };
        let text: String =
            String::from_utf8_lossy(text).chars().filter(|c| !c.is_control()).take(100).collect();
        match kind {
            [0x55, 0x04, 0x03] => return Some(format!("\"{text}\"")),
            [0x55, 0x04, 0x0a] => organisation = Some(format!("\"{text}\"")),
            _ => {}
        }
    }
    organisation
}

/// The first element in DER: its tag, its content, and what follows it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let mut length = usize::from(first);
    if first >= 0x80 {
        let count = usize::from(first & 0x7f);
        if count == 0 || count > 4 || rest.len() < count {
            return None;
        }
        let (digits, after) = rest.split_at(count);
        length = digits.iter().fold(0, |length, digit| (length << 8) | usize::from(*digit));
        rest = after;
    }
    (rest.len() >= length).then(|| (tag, &rest[..length], &rest[length..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn der(tag: u8, content: &[u8]) -> Vec<u8> {
        assert!(content.len() < 0x80);
        [&[tag, u8::try_from(content.len()).unwrap()], content].concat()
    }

    fn name(kind: u8, text: &str) -> Vec<u8> {
        der(0x31, &der(0x30, &[der(0x06, &[0x55, 0x04, kind]), der(0x0c, text.as_bytes())].concat()))
    }

    fn certificate(version: bool, names: &[Vec<u8>]) -> Vec<u8> {
        let head = if version { der(0xa0, &der(0x02, &[2])) } else { Vec::new() };
        let parts = [head, der(0x02, &[7]), der(0x30, &der(0x06, &[1])), der(0x30, &names.concat())].concat();
        der(0x30, &der(0x30, &parts))
    }

    #[test]
    fn the_issuer_is_named_by_its_common_name_else_its_organisation() {
        let both = [name(0x0a, "Corp"), name(0x03, "Corp Inspection CA")];
        assert_eq!(issuer(&certificate(true, &both)).unwrap(), "\"Corp Inspection CA\"");
        assert_eq!(issuer(&certificate(false, &both[..1])).unwrap(), "\"Corp\"");
        assert_eq!(issuer(&certificate(true, &[])), None);
    }

    #[test]
    fn a_certificate_cut_anywhere_is_no_panic() {
        let whole = certificate(true, &[name(0x03, "CA")]);
        for length in 0..whole.len() {
            assert_eq!(issuer(&whole[..length]), None, "{length}");
        }
        assert_eq!(element(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]), None);
    }

    #[test]
    fn an_unaccepted_certificate_names_its_issuer_and_says_what_to_do() {
        let finding = judge(Err(("unknown".to_owned(), Some(certificate(true, &[name(0x03, "Corp CA")])))));
        assert!(finding.seen.contains("Corp CA") && finding.advice.unwrap().contains("--ca"));
    }
}
