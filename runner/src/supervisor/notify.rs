//! What systemd is told: ready, stopping, and that the loops are alive. The watchdog looks at our own loops only: a control
//! plane or a Docker that is away is no reason to be killed.

use crate::claim::{hold::Host, lease::BootInstant};
use std::{
    env, io,
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixDatagram},
    },
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// How often a loop says that it is alive.
const BEAT: Duration = Duration::from_secs(5);
/// How old the last word of a loop may be.
const SILENCE_MAX_MS: u64 = 30_000;

/// When each loop last showed that it is alive.
#[derive(Debug, Clone)]
pub(crate) struct Pulse(Arc<[AtomicU64; 2]>);

/// The loops that are watched.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Loop {
    /// The one that takes work.
    Work = 0,
    /// The one that renews leases.
    Leases = 1,
}

impl Pulse {
    pub(crate) fn new() -> Self {
        let now = now_ms();
        Self(Arc::new([AtomicU64::new(now), AtomicU64::new(now)]))
    }

    /// Runs the work of a loop; as long as its task is scheduled, it counts as alive.
    pub(crate) async fn beating<T>(self, of: Loop, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        let mut tick = tokio::time::interval(BEAT);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                _ = tick.tick() => self.0[of as usize].store(now_ms(), Ordering::Relaxed),
            }
        }
    }

    /// The loop that has been silent for too long at `now_ms`.
    fn stuck(&self, now_ms: u64) -> Option<Loop> {
        let silent =
            |of: Loop| now_ms.saturating_sub(self.0[of as usize].load(Ordering::Relaxed)) > SILENCE_MAX_MS;
        [Loop::Work, Loop::Leases].into_iter().find(|of| silent(*of))
    }
}

fn now_ms() -> u64 {
    BootInstant::now().since_ms(BootInstant::from_ms(0))
}

/// Feeds the watchdog, if there is one, while every loop is alive.
pub(super) async fn watchdog(pulse: Pulse, host: Arc<Host>) {
    let leases = host.leases.clone();
    let beating = pulse.clone();
    let keeping = leases.spawn(beating.beating(Loop::Leases, std::future::pending::<()>()));
    let _ended = AbortOnDrop(keeping.abort_handle());
    let Some(period) = period(env::var("WATCHDOG_USEC").ok(), env::var("WATCHDOG_PID").ok()) else {
        return std::future::pending().await;
    };
    let mut tick = tokio::time::interval(period / 3);
    loop {
        tick.tick().await;
        match pulse.stuck(now_ms()) {
            None => tell(&format!("WATCHDOG=1\nSTATUS={} sessions", host.table.shown().len())),
            Some(of) => tracing::error!(?of, "a loop has stopped; systemd is to restart the runner"),
        }
    }
}

struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The watchdog's period, when it is meant for this process.
fn period(microseconds: Option<String>, pid: Option<String>) -> Option<Duration> {
    let period = microseconds?.parse().ok().filter(|period| *period > 0)?;
    let ours = pid.is_none_or(|pid| pid.parse() == Ok(std::process::id()));
    ours.then(|| Duration::from_micros(period))
}

/// The start is complete.
pub(super) fn ready() {
    tell("READY=1");
}

/// The runner stops and will be gone within `most`, whatever the unit's own patience is.
pub(super) fn stopping(most: Duration) {
    tell(&format!("STOPPING=1\nEXTEND_TIMEOUT_USEC={}", most.as_micros()));
}

/// Tells the service manager; without one it does nothing.
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
    fn words_reach_a_socket_with_a_path_and_one_without() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let name = format!("checkfu-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let (named, hidden) =
            (UnixDatagram::bind(&path).unwrap(), UnixDatagram::bind_addr(&address).unwrap());
        for (socket, receiver) in [(path.to_str().unwrap(), named), (&format!("@{name}"), hidden)] {
            send(socket, "READY=1").unwrap();
            let mut got = [0; 64];
            let length = receiver.recv(&mut got).unwrap();
            assert_eq!(&got[..length], b"READY=1");
        }
        assert!(send("/nowhere/at/all", "READY=1").is_err());
    }

    #[test]
    fn the_watchdog_is_only_fed_when_it_is_ours() {
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(period(text("60000000"), None), Some(Duration::from_secs(60)));
        assert_eq!(
            period(text("60000000"), text(&std::process::id().to_string())),
            Some(Duration::from_secs(60))
        );
        assert_eq!(period(text("60000000"), text("1")), None);
        assert_eq!(period(text("0"), None), None);
        assert_eq!(period(None, None), None);
    }

    #[test]
    fn a_silent_loop_is_noticed_whichever_it_is() {
        let pulse = Pulse::new();
        let start = now_ms();
        assert!(pulse.stuck(start + SILENCE_MAX_MS - 1_000).is_none());
        assert!(matches!(pulse.stuck(start + SILENCE_MAX_MS + 1_000), Some(Loop::Work)));
        pulse.0[Loop::Work as usize].store(start + SILENCE_MAX_MS, Ordering::Relaxed);
        assert!(matches!(pulse.stuck(start + SILENCE_MAX_MS + 1_000), Some(Loop::Leases)));
    }
}
