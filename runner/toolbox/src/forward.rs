//! Carries TCP connections of the sandbox to a unix socket, byte for byte. The proxy behind the
//! socket decides; nothing is decided here. One thread with poll serves all connections, so that
//! the sandbox cannot use up processes or memory through it.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, poll};

const MAX_CONNECTIONS: usize = 256;
const BUFFER_BYTES: usize = 32 * 1024;
/// HTTP with CONNECT, and SOCKS5.
const PORTS: [u16; 2] = [3128, 1080];

/// Starts forwarding in a thread when the runner mounted a proxy socket below `root`; returns
/// what does not work, in words.
#[must_use]
pub fn start_if_wanted(root: &Path) -> Vec<String> {
    let socket = root.join("net").join("proxy.sock");
    if !socket.parent().is_some_and(Path::is_dir) {
        return Vec::new();
    }
    PORTS.iter().filter_map(|port| start(SocketAddr::from(([127, 0, 0, 1], *port)), &socket).err()).collect()
}

fn start(listen: SocketAddr, socket: &Path) -> Result<(), String> {
    let failed = |error: io::Error| format!("{listen} cannot be forwarded to the proxy: {error}");
    let listener = TcpListener::bind(listen).map_err(failed)?;
    let socket = socket.to_owned();
    // The thread lives as long as the process.
    std::thread::Builder::new()
        .name("forward".into())
        .spawn(move || drop(forward(&listener, &socket)))
        .map(drop)
        .map_err(failed)
}

/// Forwards in this thread until polling fails.
///
/// # Errors
/// When the address cannot be bound or polling fails.
pub fn run(listen: SocketAddr, socket: &Path) -> io::Result<()> {
    forward(&TcpListener::bind(listen)?, socket)
}

#[derive(Default)]
struct Flow {
    held: Vec<u8>,
    ended: bool,
    passed_on: bool,
}

impl Flow {
    /// Moves bytes one step; an error ends the connection.
    fn step(&mut self, mut from: impl Read, mut to: impl Write) -> io::Result<()> {
        if self.held.is_empty() && !self.ended {
            let mut buffer = [0_u8; BUFFER_BYTES];
            match from.read(&mut buffer) {
                Ok(0) => self.ended = true,
                Ok(count) => self.held.extend_from_slice(buffer.get(..count).unwrap_or_default()),
                Err(error) => return later(error),
            }
        }
        while !self.held.is_empty() {
            match to.write(&self.held) {
                Ok(count) => drop(self.held.drain(..count)),
                Err(error) => return later(error),
            }
        }
        Ok(())
    }
}

fn later(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(()),
        _ => Err(error),
    }
}

struct Connection {
    tcp: TcpStream,
    unix: UnixStream,
    up: Flow,
    down: Flow,
}

impl Connection {
    fn open(tcp: TcpStream, socket: &Path) -> io::Result<Self> {
        let unix = UnixStream::connect(socket)?;
        tcp.set_nonblocking(true)?;
        tcp.set_nodelay(true)?;
        unix.set_nonblocking(true)?;
        Ok(Self { tcp, unix, up: Flow::default(), down: Flow::default() })
    }

    fn wanted(&self) -> (PollFlags, PollFlags) {
        let wants = |incoming: &Flow, outgoing: &Flow| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, incoming.held.is_empty() && !incoming.ended);
            flags.set(PollFlags::OUT, !outgoing.held.is_empty());
            flags
        };
        (wants(&self.up, &self.down), wants(&self.down, &self.up))
    }

    /// Moves what can be moved; false when the connection is over.
    fn step(&mut self) -> bool {
        let moved = self.up.step(&self.tcp, &self.unix).and_then(|()| self.down.step(&self.unix, &self.tcp));
        if moved.is_err() {
            return false;
        }
        if self.up.ended && self.up.held.is_empty() && !self.up.passed_on {
            self.up.passed_on = true;
            let _closed_already = self.unix.shutdown(Shutdown::Write);
        }
        if self.down.ended && self.down.held.is_empty() && !self.down.passed_on {
            self.down.passed_on = true;
            let _closed_already = self.tcp.shutdown(Shutdown::Write);
        }
        !(self.up.passed_on && self.down.passed_on)
    }
}

fn forward(listener: &TcpListener, socket: &Path) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let mut connections: Vec<Connection> = Vec::new();
    loop {
        let accepting = connections.len() < MAX_CONNECTIONS;
        let mut fds: Vec<PollFd<'_>> = Vec::new();
        for connection in &connections {
            let (tcp, unix) = connection.wanted();
            fds.push(PollFd::new(&connection.tcp, tcp));
            fds.push(PollFd::new(&connection.unix, unix));
        }
        if accepting {
            fds.push(PollFd::new(listener, PollFlags::IN));
        }
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let mut pairs = ready.chunks_exact(2);
        connections.retain_mut(|connection| {
            !pairs.next().is_some_and(|pair| pair.contains(&true)) || connection.step()
        });
        if accepting && let Ok((tcp, _)) = listener.accept() {
            // Without a proxy the client sees its connection closed at once.
            connections.extend(Connection::open(tcp, socket));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn bytes_and_ends_pass_both_ways() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("proxy.sock");
        let proxy = UnixListener::bind(&path).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || forward(&listener, &path));
        let sent = vec![b'x'; 1_000_000];
        let expected = sent.len();
        let server = std::thread::spawn(move || {
            let (mut peer, _) = proxy.accept().unwrap();
            let mut got = Vec::new();
            peer.read_to_end(&mut got).unwrap();
            peer.write_all(&got).unwrap();
            got.len()
        });
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(&sent).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut back = Vec::new();
        client.read_to_end(&mut back).unwrap();
        assert_eq!((server.join().unwrap(), back), (expected, sent));
    }

    #[test]
    fn without_a_proxy_the_client_is_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || forward(&listener, Path::new("/nowhere/proxy.sock")));
        let mut got = Vec::new();
        let _reset = TcpStream::connect(address).unwrap().read_to_end(&mut got);
        assert!(got.is_empty());
    }
}
