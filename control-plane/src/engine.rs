//! The only writer of session logs: it loads a session's state, lets the domain decide, commits events and state in one
//! transaction, then wakes whoever waits. Nothing is visible before it is durable.

mod admission;
mod append;
mod approvals;
mod budgets;
mod capability;
mod claims;
mod directives;
mod governance;
mod key;
mod lease;
mod ledger;
mod log;
mod offer;
mod pairing;
mod reads;
mod recover;
pub mod replay;
mod runners;
mod sessions;
mod settlement;
mod standing;
mod sweep;
mod tokens;
mod uploads;
pub mod verify;

#[cfg(test)]
mod tests;

pub use crate::record::*;
pub use approvals::{Answer, ApprovalQuery, Credential};
pub use budgets::{BudgetChange, BudgetRecord};
pub use capability::Capability;
pub use ledger::Metered;
pub use standing::StandingWish;
pub use tokens::Caller;
pub use uploads::Incoming;

use crate::{
    audit,
    fanout::Fanout,
    files::Files,
    store::{self, Store},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use checkfu_shared::{
    problem::{Code, Problem},
    protocol::Tempo,
    time::{Clock, Timestamp},
};
use log::Hint;
use ring::signature::{Ed25519KeyPair, KeyPair};
use rusqlite::{Connection, Transaction};
use std::{path::PathBuf, sync::Arc};
use tokio::sync::watch;

/// What an engine is made of.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where files in custody, staging and the server key live.
    pub data_dir: PathBuf,
    /// How fast runners go.
    pub tempo: Tempo,
    /// The share of a model's window, in percent, at which a conversation is summed up; 0 means never.
    pub compact_at_percent: u8,
}

/// A handle on the engine; clones share it.
#[derive(Debug, Clone)]
pub struct Engine(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Store,
    clock: Arc<dyn Clock>,
    tempo: Tempo,
    compact_at_percent: u8,
    key: key::ServerKey,
    signer: Ed25519KeyPair,
    files: Files,
    uploads: uploads::Open,
    wakes: Arc<Wakes>,
}

/// Whom a commit wakes.
#[derive(Debug)]
struct Wakes {
    fanout: Fanout,
    /// Changes whenever an open claim poll has to look again.
    queue: watch::Sender<u64>,
}

impl Wakes {
    fn wake(&self, hints: Vec<Hint>) {
        for hint in &hints {
            self.fanout.close_previews(hint.session, &hint.durable);
            self.fanout.advance(hint.session, hint.head);
        }
        if hints.iter().any(|hint| hint.queue) {
            self.look_again();
        }
    }

    fn look_again(&self) {
        self.queue.send_modify(|turn| *turn = turn.wrapping_add(1));
    }
}

/// What a job of the writer works with.
struct Cx {
    now: Timestamp,
    tempo: Tempo,
    hints: Vec<Hint>,
}

impl Engine {
    /// An engine over an open store. Every live claim gets one full lease, since nobody could renew while it was down.
    ///
    /// # Errors
    /// When the data directory or the server key in it cannot be used.
    pub async fn open(store: Store, clock: Arc<dyn Clock>, settings: Settings) -> Result<Self, Problem> {
        let data_dir = settings.data_dir.clone();
        let in_use = store.read(is_in_use).await?;
        let opened = tokio::task::spawn_blocking(move || {
            let key = key::ServerKey::open(&data_dir, in_use)?;
            let signer = key.signer()?;
            Ok::<_, std::io::Error>((key, signer, Files::at(&data_dir)?))
        })
        .await;
        let (key, signer, files) = match opened {
            Ok(Ok(opened)) => opened,
            Ok(Err(error)) => {
                return Err(Problem::new(
                    Code::Internal,
                    format!(
                        "The data directory cannot be used: {error}. Check also its owner and its free space."
                    ),
                ));
            }
            Err(_) => return Err(Problem::new(Code::Stopping, "The server is stopping.")),
        };
        let wakes = Arc::new(Wakes { fanout: Fanout::default(), queue: watch::channel(0).0 });
        let Settings { tempo, compact_at_percent, .. } = settings;
        let uploads = uploads::Open::default();
        let inner = Inner { store, clock, tempo, compact_at_percent, key, signer, files, uploads, wakes };
        let engine = Self(Arc::new(inner));
        engine.grant_full_leases().await?;
        Ok(engine)
    }

    /// The hints to waiting readers.
    #[must_use]
    pub fn fanout(&self) -> &Fanout {
        &self.0.wakes.fanout
    }

    /// The files in custody.
    #[must_use]
    pub fn custody(&self) -> &Files {
        &self.0.files
    }

    /// How fast runners go.
    #[must_use]
    pub fn tempo(&self) -> Tempo {
        self.0.tempo
    }

    /// This server's public key and its signature of a text, both in base64. Whoever has one export can tell others of this
    /// server by the key.
    #[must_use]
    pub fn sign_export(&self, text: &str) -> (String, String) {
        let signer = &self.0.signer;
        let signature = signer.sign(text.as_bytes());
        (BASE64_STANDARD.encode(signer.public_key().as_ref()), BASE64_STANDARD.encode(signature.as_ref()))
    }

    fn store(&self) -> &Store {
        &self.0.store
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.0.clock.now()
    }

    /// Runs one change in the writer and wakes whom it concerns once it is durable.
    async fn change<T, F>(&self, job: F) -> Result<T, Problem>
    where
        T: Send + 'static,
        F: FnOnce(&Transaction<'_>, &mut Cx) -> Result<T, store::Error> + Send + 'static,
    {
        // The job must not hold the engine: the last handle would then close the store from its own thread.
        let (clock, tempo, wakes) = (self.0.clock.clone(), self.0.tempo, self.0.wakes.clone());
        let act = audit::current();
        let job = move |tx: &Transaction<'_>| {
            let mut cx = Cx { now: clock.now(), tempo, hints: Vec::new() };
            let value = job(tx, &mut cx)?;
            audit::note(tx, act.as_ref(), cx.now, None)?;
            Ok((value, cx.hints))
        };
        Ok(self.0.store.write_then(job, move |hints| wakes.wake(hints)).await?)
    }
}

/// Whether something is stored that was keyed with the server key.
fn is_in_use(conn: &Connection) -> Result<bool, store::Error> {
    let sql = "select exists (select 1 from workspaces) or exists (select 1 from sessions)";
    Ok(conn.query_row(sql, [], |row| row.get(0))?)
}

/// A duration of the wire for arithmetic on instants.
fn ms(duration: u64) -> i64 {
    i64::try_from(duration).unwrap_or(i64::MAX)
}

/// The refusal of a claim that is over.
fn fenced() -> Problem {
    Problem::new(
        Code::Fenced,
        "This claim is over: a newer epoch owns the session, or it was settled. Stop the work; nothing more is taken.",
    )
}
