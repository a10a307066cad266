//! From a permitted host to a connection: resolved here, every address checked, the checked one dialled.

use super::{Reach, address::is_public, authority::Host, denied::Reason};
use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};
use tokio::{
    net::{TcpStream, lookup_host},
    time::timeout,
};

const RESOLVE_WAIT: Duration = Duration::from_secs(5);
const CONNECT_WAIT: Duration = Duration::from_secs(10);

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("the address may not be reached")]
    Denied(Reason),
    #[error("the name cannot be resolved")]
    Unresolvable,
    #[error("the host does not answer")]
    Unreachable,
}

pub(super) async fn dial(host: &Host, port: u16, reach: &Reach) -> Result<TcpStream, Error> {
    dial_by(host, port, reach, resolve).await
}

/// The name is asked for once: whatever it answers later, the addresses that were checked are the ones dialled.
async fn dial_by(
    host: &Host,
    port: u16,
    reach: &Reach,
    resolve: impl AsyncFn(&str, u16) -> io::Result<Vec<IpAddr>>,
) -> Result<TcpStream, Error> {
    let addresses = match host {
        Host::Address(address) => vec![*address],
        Host::Name(name) => resolve(name, port).await.map_err(|_| Error::Unresolvable)?,
    };
    connect(&permitted(addresses, reach)?, port).await
}

async fn resolve(name: &str, port: u16) -> io::Result<Vec<IpAddr>> {
    // The dot keeps the host's search domains out of it.
    let found = timeout(RESOLVE_WAIT, lookup_host((format!("{name}."), port))).await;
    let found = found.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    Ok(found.map(|address| address.ip()).collect())
}

/// All or nothing: one private address among public ones is a rebinding attempt, not a spare.
fn permitted(addresses: Vec<IpAddr>, reach: &Reach) -> Result<Vec<IpAddr>, Error> {
    if addresses.is_empty() {
        return Err(Error::Unresolvable);
    }
    let permitted = |address: &IpAddr| is_public(*address) || reach.exempt.contains(address);
    if addresses.iter().all(permitted) { Ok(addresses) } else { Err(Error::Denied(Reason::PrivateAddress)) }
}

async fn connect(addresses: &[IpAddr], port: u16) -> Result<TcpStream, Error> {
    let attempts = async {
        for address in addresses {
            if let Ok(stream) = TcpStream::connect(SocketAddr::new(*address, port)).await {
                return Ok(stream);
            }
        }
        Err(Error::Unreachable)
    };
    timeout(CONNECT_WAIT, attempts).await.unwrap_or(Err(Error::Unreachable))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn a_name_that_changes_its_answer_is_dialled_where_it_was_checked() {
        let checked: IpAddr = [127, 0, 0, 2].into();
        let listener = TcpListener::bind((checked, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let reach = Reach { exempt: vec![checked] };
        let asked = Cell::new(0);
        let rebinding = async |_: &str, _: u16| {
            asked.set(asked.get() + 1);
            Ok(vec![if asked.get() == 1 { checked } else { [127, 0, 0, 1].into() }])
        };
        let name = Host::Name("rebinds.test".into());
        let stream = dial_by(&name, port, &reach, rebinding).await.unwrap();
        assert_eq!((stream.peer_addr().unwrap().ip(), asked.get()), (checked, 1));
        let again = dial_by(&name, port, &reach, rebinding).await;
        assert!(matches!(again, Err(Error::Denied(Reason::PrivateAddress))), "{again:?}");
    }

    #[test]
    fn one_private_address_spoils_all() {
        let addresses =
            |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpAddr>>();
        let reach = Reach { exempt: addresses(&["10.0.0.9"]) };
        assert!(permitted(addresses(&["1.1.1.1", "8.8.8.8"]), &reach).is_ok());
        assert!(permitted(addresses(&["10.0.0.9", "8.8.8.8"]), &reach).is_ok());
        for bad in [&["1.1.1.1", "127.0.0.1"][..], &["10.0.0.8"], &["::1"]] {
            let denied = permitted(addresses(bad), &reach);
            assert!(matches!(denied, Err(Error::Denied(Reason::PrivateAddress))), "{bad:?}");
        }
        assert!(matches!(permitted(Vec::new(), &reach), Err(Error::Unresolvable)));
    }
}
