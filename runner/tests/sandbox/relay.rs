//! A relay in front of Docker's socket that loses requests or delivers them late.

use std::{
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{UnixListener, UnixStream},
    sync::{Notify, watch},
};

const DAEMON: &str = "/var/run/docker.sock";

#[derive(Clone)]
enum Fault {
    /// The connection ends and the daemon never hears of the request.
    Cut { left: usize },
    /// The connection ends and the daemon hears of it once it is delivered.
    Delay(Late),
    /// The answer ends after so many bytes.
    Shorten { bytes: u64 },
}

/// A request on its way.
#[derive(Clone, Default)]
pub(crate) struct Late {
    go: Arc<Notify>,
    done: Arc<Notify>,
}

impl Late {
    /// Lets it arrive, and waits until the daemon has carried it out.
    pub(crate) async fn deliver(&self) {
        self.go.notify_one();
        self.done.notified().await;
    }
}

/// The relay.
#[derive(Clone)]
pub(crate) struct Relay {
    faults: Arc<Mutex<Vec<(String, Fault)>>>,
    away: Arc<watch::Sender<bool>>,
    turned_away: Arc<AtomicUsize>,
}

impl Relay {
    pub(crate) fn listen(socket: &Path) -> Self {
        let relay = Self {
            faults: Arc::default(),
            away: Arc::new(watch::Sender::new(false)),
            turned_away: Arc::default(),
        };
        let listener = UnixListener::bind(socket).unwrap();
        let serving = relay.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if *serving.away.borrow() {
                    serving.turned_away.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                let (serving, mut away) = (serving.clone(), serving.away.subscribe());
                tokio::spawn(async move {
                    tokio::select! {
                        () = serving.serve(client) => {}
                        _ = away.wait_for(|away| *away) => {}
                    }
                });
            }
        });
        relay
    }

    /// Loses the next requests whose head holds these words.
    pub(crate) fn cut(&self, words: &str, times: usize) {
        self.faults.lock().unwrap().push((words.to_owned(), Fault::Cut { left: times }));
    }

    /// Lets the next request whose head holds these words arrive only when it is delivered.
    pub(crate) fn delay(&self, words: &str) -> Late {
        let late = Late::default();
        self.faults.lock().unwrap().push((words.to_owned(), Fault::Delay(late.clone())));
        late
    }

    /// Ends the answer to the next request whose head holds these words after so many bytes.
    pub(crate) fn shorten(&self, words: &str, bytes: u64) {
        self.faults.lock().unwrap().push((words.to_owned(), Fault::Shorten { bytes }));
    }

    /// Ends every connection and takes no other, as a daemon that restarts.
    pub(crate) fn go_away(&self) {
        self.away.send_replace(true);
    }

    pub(crate) fn come_back(&self) {
        self.away.send_replace(false);
    }

    /// How many were turned away.
    pub(crate) fn turned_away(&self) -> usize {
        self.turned_away.load(Ordering::Relaxed)
    }

    /// Faults that were asked for and have not happened.
    pub(crate) fn pending(&self) -> usize {
        self.faults.lock().unwrap().len()
    }

    fn fault(&self, piece: &[u8]) -> Option<Fault> {
        let mut faults = self.faults.lock().unwrap();
        let head = String::from_utf8_lossy(piece);
        let at = faults.iter().position(|(words, _)| is_head(&head) && head.contains(words))?;
        match &mut faults[at].1 {
            Fault::Cut { left } if *left > 1 => {
                *left -= 1;
                Some(Fault::Cut { left: *left })
            }
            _ => Some(faults.remove(at).1),
        }
    }

    async fn serve(self, client: UnixStream) {
        let Ok(daemon) = UnixStream::connect(DAEMON).await else { return };
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_daemon, mut to_daemon) = daemon.into_split();
        let allowed = Arc::new(Mutex::new(None::<u64>));
        let shortened = allowed.clone();
        let answers = async move {
            let mut piece = vec![0; 64 * 1024];
            loop {
                let count = from_daemon.read(&mut piece).await.unwrap_or(0);
                let left = *shortened.lock().unwrap();
                let count = left.map_or(count, |left| count.min(usize::try_from(left).unwrap()));
                if count == 0 || to_client.write_all(&piece[..count]).await.is_err() {
                    return;
                }
                if let Some(left) = &mut *shortened.lock().unwrap() {
                    *left -= count as u64;
                }
            }
        };
        let requests = async move {
            let mut piece = vec![0; 64 * 1024];
            loop {
                let count = from_client.read(&mut piece).await.unwrap_or(0);
                let request = &piece[..count];
                match self.fault(request) {
                    None => {}
                    Some(Fault::Cut { .. }) => return,
                    Some(Fault::Delay(late)) => {
                        tokio::spawn(deliver_late(request.to_vec(), late));
                        return;
                    }
                    Some(Fault::Shorten { bytes }) => *allowed.lock().unwrap() = Some(bytes),
                }
                if request.is_empty() || to_daemon.write_all(request).await.is_err() {
                    return;
                }
            }
        };
        // Whoever ends first ends both: a connection that one side has given up is of no use to the other.
        tokio::select! {
            () = answers => {}
            () = requests => {}
        }
    }
}

fn is_head(piece: &str) -> bool {
    ["GET ", "POST ", "PUT ", "HEAD ", "DELETE "].iter().any(|method| piece.starts_with(method))
}

async fn deliver_late(request: Vec<u8>, late: Late) {
    late.go.notified().await;
    let mut daemon = UnixStream::connect(DAEMON).await.unwrap();
    daemon.write_all(&request).await.unwrap();
    let mut answer = [0; 1024];
    let count = daemon.read(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer[..count]).into_owned();
    assert!(answer.starts_with("HTTP/1.1 2"), "{answer}");
    late.done.notify_one();
}
