//! A network that misbehaves on command: a relay between a client and a real server, over TCP or a local socket.
//! It knows bytes and connections only, nothing of what runs over them. Its condition holds for connections
//! already open as well as for new ones.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

/// What the link does to the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// Everything passes at once.
    Clear,
    /// Every piece waits this long, in both directions.
    Delayed(Duration),
    /// Connections are taken and stay, but no byte moves; as with a firewall that drops silently.
    Blackhole,
    /// Requests arrive; the first byte of an answer is swallowed and breaks its connection. The server has
    /// acted and the client cannot know.
    RepliesLost,
    /// New connections are closed at once.
    Refusing,
}

/// A relay to one server; dropping it closes everything.
#[derive(Debug)]
pub struct FaultyLink {
    address: Option<SocketAddr>,
    condition: watch::Sender<Condition>,
    fates: watch::Sender<Fate>,
    task: JoinHandle<()>,
}

/// What may happen to the connections that are open at one time.
#[derive(Debug, Clone, Default)]
struct Fate {
    cut: CancellationToken,
    stranded: CancellationToken,
}

trait Stream: AsyncRead + AsyncWrite + Send {}
impl<T: AsyncRead + AsyncWrite + Send> Stream for T {}
type Connection = Box<dyn Stream + Unpin>;

enum Listener {
    Tcp(TcpListener, SocketAddr),
    Local(UnixListener, PathBuf),
}

impl Listener {
    async fn accept(&self) -> io::Result<Connection> {
        Ok(match self {
            Self::Tcp(listener, _) => tcp(listener.accept().await?.0),
            Self::Local(listener, _) => Box::new(listener.accept().await?.0),
        })
    }

    /// How the server is reached, for one connection.
    fn server(&self) -> impl Future<Output = io::Result<Connection>> + Send + use<> {
        let (address, path) = match self {
            Self::Tcp(_, address) => (Some(*address), PathBuf::new()),
            Self::Local(_, path) => (None, path.clone()),
        };
        async move {
            Ok(match address {
                Some(address) => tcp(TcpStream::connect(address).await?),
                None => Box::new(UnixStream::connect(path).await?),
            })
        }
    }
}

/// Small pieces must not wait for each other: the link adds only the delay it is told to.
fn tcp(stream: TcpStream) -> Connection {
    let _ = stream.set_nodelay(true);
    Box::new(stream)
}

impl FaultyLink {
    /// Listens on a free loopback port and relays to `server`; starts clear.
    pub async fn start(server: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        Ok(Self::over(Listener::Tcp(listener, server), Some(address)))
    }

    /// Listens on a new local socket at `path` and relays to the one at `server`; starts clear.
    pub fn on_socket(path: PathBuf, server: PathBuf) -> io::Result<Self> {
        Ok(Self::over(Listener::Local(UnixListener::bind(path)?, server), None))
    }

    fn over(listener: Listener, address: Option<SocketAddr>) -> Self {
        let (condition, seen) = watch::channel(Condition::Clear);
        let (fates, fate) = watch::channel(Fate::default());
        let task = tokio::spawn(accept(listener, seen, fate));
        Self { address, condition, fates, task }
    }

    /// Where clients connect.
    ///
    /// # Panics
    /// When the relay listens on a local socket.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address.expect("a relay over TCP")
    }

    /// Where clients connect, as the base of a URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// Changes the condition from now on.
    pub fn set(&self, condition: Condition) {
        self.condition.send_replace(condition);
    }

    /// Breaks every open connection; new ones follow the condition.
    pub fn cut(&self) {
        self.fates.send_replace(Fate::default()).cut.cancel();
    }

    /// No byte moves any more on any open connection, and none is closed, as when a router forgets them; new ones follow the
    /// condition.
    pub fn strand(&self) {
        let fate = Fate { stranded: CancellationToken::new(), ..self.fates.borrow().clone() };
        self.fates.send_replace(fate).stranded.cancel();
    }
}

impl Drop for FaultyLink {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: Listener, condition: watch::Receiver<Condition>, fates: watch::Receiver<Fate>) {
    // Owned here, so that the end of this task ends every connection.
    let mut connections = JoinSet::new();
    loop {
        let Ok(client) = listener.accept().await else { return };
        while connections.try_join_next().is_some() {}
        if *condition.borrow() == Condition::Refusing {
            continue;
        }
        let Fate { cut, stranded } = fates.borrow().clone();
        let relaying = relay(client, listener.server(), condition.clone());
        connections.spawn(async move {
            tokio::pin!(relaying);
            tokio::select! {
                () = &mut relaying => {}
                () = cut.cancelled() => {}
                // Kept and moved no further, so that neither side hears anything.
                () = stranded.cancelled() => cut.cancelled().await,
            }
        });
    }
}

async fn relay(
    client: Connection,
    server: impl Future<Output = io::Result<Connection>>,
    condition: watch::Receiver<Condition>,
) {
    let mut seen = condition.clone();
    if seen.wait_for(|now| *now != Condition::Blackhole).await.is_err() {
        return;
    }
    let Ok(upstream) = server.await else { return };
    let (client_read, client_write) = tokio::io::split(client);
    let (server_read, server_write) = tokio::io::split(upstream);
    let requests = pump(client_read, server_write, condition.clone(), Direction::Requests);
    let replies = pump(server_read, client_write, condition, Direction::Replies);
    // The first break ends both directions; a mere end of one leaves the other open.
    let _ = tokio::try_join!(requests, replies);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Requests,
    Replies,
}

/// Why a connection broke: it carries nothing, because nobody can do anything about it.
#[derive(Debug)]
struct Broken;

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut condition: watch::Receiver<Condition>,
    direction: Direction,
) -> Result<(), Broken> {
    let mut piece = vec![0; 16 * 1024];
    loop {
        let size = from.read(&mut piece).await.map_err(|_| Broken)?;
        let now = *condition.wait_for(|now| *now != Condition::Blackhole).await.map_err(|_| Broken)?;
        if size == 0 {
            return to.shutdown().await.map_err(|_| Broken);
        }
        match now {
            Condition::RepliesLost if direction == Direction::Replies => return Err(Broken),
            Condition::Delayed(delay) => tokio::time::sleep(delay).await,
            _ => {}
        }
        to.write_all(&piece[..size]).await.map_err(|_| Broken)?;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::wait;

    /// A server that answers each byte with the next one and counts what it got.
    async fn counting_server() -> (SocketAddr, Arc<AtomicUsize>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let counted = Arc::clone(&counted);
                tokio::spawn(async move {
                    while let Ok(byte) = stream.read_u8().await {
                        counted.fetch_add(1, Ordering::SeqCst);
                        if stream.write_u8(byte + 1).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        (address, count)
    }

    async fn exchange(stream: &mut TcpStream, byte: u8) -> io::Result<u8> {
        stream.write_u8(byte).await?;
        stream.read_u8().await
    }

    async fn linked() -> (FaultyLink, Arc<AtomicUsize>) {
        let (server, count) = counting_server().await;
        (FaultyLink::start(server).await.unwrap(), count)
    }

    #[tokio::test]
    async fn a_clear_link_passes_everything_and_ends_with_its_client() {
        let (link, _) = linked().await;
        let mut stream = TcpStream::connect(link.address()).await.unwrap();
        assert_eq!(exchange(&mut stream, 1).await.unwrap(), 2);
        link.set(Condition::Delayed(Duration::from_millis(5)));
        assert_eq!(exchange(&mut stream, 2).await.unwrap(), 3);
        stream.shutdown().await.unwrap();
        assert!(stream.read_u8().await.is_err());
    }

    #[tokio::test]
    async fn a_blackhole_holds_bytes_until_it_clears() {
        let (link, count) = linked().await;
        let mut stream = TcpStream::connect(link.address()).await.unwrap();
        exchange(&mut stream, 1).await.unwrap();
        link.set(Condition::Blackhole);
        let mut late = TcpStream::connect(link.address()).await.unwrap();
        stream.write_u8(5).await.unwrap();
        late.write_u8(6).await.unwrap();
        let answer = tokio::time::timeout(Duration::from_millis(50), stream.read_u8()).await;
        assert!(answer.is_err() && count.load(Ordering::SeqCst) == 1);
        link.set(Condition::Clear);
        assert_eq!(stream.read_u8().await.unwrap(), 6);
        assert_eq!(late.read_u8().await.unwrap(), 7);
    }

    #[tokio::test]
    async fn a_lost_reply_leaves_the_server_having_acted() {
        let (link, count) = linked().await;
        link.set(Condition::RepliesLost);
        let mut stream = TcpStream::connect(link.address()).await.unwrap();
        assert!(exchange(&mut stream, 1).await.is_err());
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn a_cut_breaks_open_connections_and_spares_later_ones() {
        let (link, _) = linked().await;
        let mut stream = TcpStream::connect(link.address()).await.unwrap();
        exchange(&mut stream, 1).await.unwrap();
        link.cut();
        assert!(stream.read_u8().await.is_err());
        let mut later = TcpStream::connect(link.address()).await.unwrap();
        assert_eq!(exchange(&mut later, 1).await.unwrap(), 2);
    }

    #[tokio::test]
    async fn a_stranded_connection_moves_no_byte_and_stays_open_beside_new_ones() {
        let (link, count) = linked().await;
        let mut stream = TcpStream::connect(link.address()).await.unwrap();
        exchange(&mut stream, 1).await.unwrap();
        link.strand();
        stream.write_u8(5).await.unwrap();
        let mut later = TcpStream::connect(link.address()).await.unwrap();
        assert_eq!(exchange(&mut later, 1).await.unwrap(), 2);
        assert_eq!(count.load(Ordering::SeqCst), 2);
        assert!(tokio::time::timeout(Duration::from_millis(50), stream.read_u8()).await.is_err());
        link.cut();
        assert!(stream.read_u8().await.is_err() && later.read_u8().await.is_err());
    }

    #[tokio::test]
    async fn a_local_socket_is_relayed_as_well() {
        let dir = tempfile::tempdir().unwrap();
        let (server, path) = (dir.path().join("server"), dir.path().join("link"));
        let listener = UnixListener::bind(&server).unwrap();
        let link = FaultyLink::on_socket(path.clone(), server).unwrap();
        let mut stream = UnixStream::connect(&path).await.unwrap();
        let (mut served, _) = listener.accept().await.unwrap();
        stream.write_u8(1).await.unwrap();
        assert_eq!(served.read_u8().await.unwrap(), 1);
        served.write_u8(2).await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), 2);
        link.cut();
        assert!(stream.read_u8().await.is_err());
    }

    #[tokio::test]
    async fn a_refusing_link_takes_nobody() {
        let (link, count) = linked().await;
        link.set(Condition::Refusing);
        wait::until("a refused connection", async || {
            let mut stream = TcpStream::connect(link.address()).await.ok()?;
            exchange(&mut stream, 1).await.is_err().then_some(())
        })
        .await;
        assert_eq!(count.load(Ordering::SeqCst), 0);
    }
}
