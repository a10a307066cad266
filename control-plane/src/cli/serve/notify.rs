//! What systemd is told: ready, stopping, and that this program's tasks are scheduled. Nothing else is looked at, so that
//! neither a full disk nor a provider that is away can get the server killed.

use std::{
    env, io,
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixDatagram},
    },
    time::Duration,
};

/// The start is complete.
pub(super) fn ready() {
    tell("READY=1");
}

/// The server stops.
pub(super) fn stopping() {
    tell("STOPPING=1");
}

/// Feeds the watchdog, if there is one. It ends with the task it runs in.
pub(super) async fn watchdog() {
    let Some(period) = period(env::var("WATCHDOG_USEC").ok(), env::var("WATCHDOG_PID").ok()) else {
        return std::future::pending().await;
    };
    let mut tick = tokio::time::interval(period / 3);
    loop {
        tick.tick().await;
        tell("WATCHDOG=1");
    }
}

/// The watchdog's period, when it is meant for this process.
fn period(microseconds: Option<String>, pid: Option<String>) -> Option<Duration> {
    let period = microseconds?.parse().ok().filter(|period| *period > 0)?;
    let ours = pid.is_none_or(|pid| pid.parse() == Ok(std::process::id()));
    ours.then(|| Duration::from_micros(period))
}

fn tell(words: &str) {
    let Some(socket) = env::var("NOTIFY_SOCKET").ok().filter(|socket| !socket.is_empty()) else { return };
    if let Err(error) = send(&socket, words) {
        tracing::debug!(%error, "the service manager was not told");
    }
}

fn send(socket: &str, words: &str) -> io::Result<()> {
    let address = match socket.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(words.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_reach_the_service_manager() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let receiver = UnixDatagram::bind(&path).unwrap();
        send(path.to_str().unwrap(), "READY=1").unwrap();
        let mut got = [0; 64];
        let length = receiver.recv(&mut got).unwrap();
        assert_eq!(&got[..length], b"READY=1");
        assert!(send("/nowhere/at/all", "READY=1").is_err());
    }

    #[test]
    fn the_watchdog_is_only_fed_when_it_is_ours() {
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(period(text("60000000"), None), Some(Duration::from_secs(60)));
        assert_eq!(period(text("60000000"), text("1")), None);
        assert_eq!(period(text("no"), None), None);
        assert_eq!(period(None, None), None);
    }
}
