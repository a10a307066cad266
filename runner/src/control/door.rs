//! The listening side: who may come in, how much they may say, and what each order does.

use super::{Answer, Ask, Collected, SOCKET, short};
use crate::{claim::hold::Host, state::State, status::Reporter, supervisor::signals};
use std::{io, os::unix::fs::PermissionsExt as _, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{UnixListener, UnixStream},
    sync::watch,
    task::JoinSet,
};

const ASK_BYTES_MAX: u64 = 4 << 10;
const ASK_WAIT: Duration = Duration::from_secs(10);
const VISITORS_MAX: usize = 8;

/// The open door and everything behind it.
#[derive(Debug)]
pub(crate) struct Door {
    listener: UnixListener,
    desk: Arc<Desk>,
}

#[derive(Debug)]
struct Desk {
    state: State,
    host: Arc<Host>,
    reporter: Reporter,
    drained: watch::Sender<bool>,
}

impl Door {
    /// Listens. What an earlier start left under the name is removed: the lock on the directory says that it is dead.
    pub(crate) fn open(
        state: State,
        host: Arc<Host>,
        reporter: Reporter,
        drained: watch::Sender<bool>,
    ) -> io::Result<Self> {
        let (_directory, path) = short(&state)?;
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        std::fs::set_permissions(state.join(SOCKET), std::fs::Permissions::from_mode(0o600))?;
        Ok(Self { listener, desk: Arc::new(Desk { state, host, reporter, drained }) })
    }

    /// Answers until it is dropped.
    pub(crate) async fn serve(self) {
        let mut visitors = JoinSet::new();
        loop {
            tokio::select! {
                Some(_) = visitors.join_next() => {}
                came = self.listener.accept(), if visitors.len() < VISITORS_MAX => match came {
                    Ok((stream, _)) => {
                        let desk = Arc::clone(&self.desk);
                        visitors.spawn(async move {
                            if let Err(error) = desk.receive(stream).await {
                                tracing::debug!(%error, "a visitor of the control socket left early");
                            }
                        });
                    }
                    Err(error) => {
                        tracing::warn!(%error, "the control socket takes nobody in");
                        tokio::time::sleep(Duration::from_secs(1)).await;
                    }
                },
            }
        }
    }
}

impl Desk {
    async fn receive(&self, mut stream: UnixStream) -> io::Result<()> {
        let visitor = stream.peer_cred()?.uid();
        if visitor != rustix::process::geteuid().as_raw() && visitor != 0 {
            return Ok(());
        }
        let mut line = Vec::new();
        {
            let mut reader = BufReader::new((&mut stream).take(ASK_BYTES_MAX));
            tokio::time::timeout(ASK_WAIT, reader.read_until(b'\n', &mut line)).await??;
        }
        let answer = match serde_json::from_slice(&line) {
            Ok(ask) => self.answer(ask).await,
            Err(error) => Answer::Refused { why: format!("this daemon does not understand that: {error}") },
        };
        let mut reply = serde_json::to_vec(&answer)?;
        reply.push(b'\n');
        tokio::time::timeout(ASK_WAIT, stream.write_all(&reply)).await?
    }

    async fn answer(&self, ask: Ask) -> Answer {
        match ask {
            Ask::Status => Answer::Status { status: Box::new(self.reporter.now()) },
            Ask::Drain => self.drain(true).await,
            Ask::Undrain => {
                self.host.table.forgive();
                self.drain(false).await
            }
            Ask::Gc { dry_run } => match (self.host.executor.collect)(dry_run).await {
                Ok(reaped) => Answer::Collected {
                    sandboxes: reaped.iter().map(|one| Collected::of(one, dry_run)).collect(),
                },
                Err(why) => Answer::Refused { why },
            },
        }
    }

    /// Durable first, then in force.
    async fn drain(&self, drained: bool) -> Answer {
        let state = self.state.clone();
        let marked = tokio::task::spawn_blocking(move || signals::mark_drained(&state, drained)).await;
        match marked {
            Ok(Ok(())) => {
                self.drained.send_replace(drained);
                Answer::Drained { drained, sessions: self.host.table.shown().len() }
            }
            Ok(Err(error)) => Answer::Refused { why: error.to_string() },
            Err(error) => Answer::Refused { why: error.to_string() },
        }
    }
}
