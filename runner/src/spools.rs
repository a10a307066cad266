//! The spool directories of all claims: one each under `spool/`, found again after a restart; fenced ones are kept aside
//! for audit, a bounded number of them. It never opens an event file itself.

use crate::{outbox::Spool, state::State};
use checkfu_shared::{
    id::{ClaimId, RunId, SessionId},
    protocol::{claim::Claim, recover::HeldClaim},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::HashSet,
    fs, io,
    path::{Path, PathBuf},
};

const META: &str = "meta.json";
/// How many spools of fenced claims are kept.
const ASIDE_MAX: usize = 16;

/// Whose events a spool holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Meta {
    pub(crate) claim_id: ClaimId,
    pub(crate) epoch: u64,
    pub(crate) session_id: SessionId,
    pub(crate) run_id: RunId,
}

impl From<&Claim> for Meta {
    fn from(claim: &Claim) -> Self {
        Self { claim_id: claim.id, epoch: claim.epoch, session_id: claim.session_id, run_id: claim.run_id }
    }
}

/// A claim found on this disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) meta: Meta,
    pub(crate) next_index: u64,
}

impl From<&Found> for HeldClaim {
    fn from(found: &Found) -> Self {
        Self { id: found.meta.claim_id, epoch: found.meta.epoch, next_index: found.next_index }
    }
}

/// All spools of a runner.
#[derive(Debug, Clone)]
pub(crate) struct Spools {
    live: PathBuf,
    aside: PathBuf,
}

impl Spools {
    /// Uses `spool` and `aside` of the state directory.
    pub(crate) fn open(state: &State) -> Result<Self, crate::state::Error> {
        let (live, aside) = (state.join("spool"), state.join("aside"));
        State::open(&live)?;
        State::open(&aside)?;
        Ok(Self { live, aside })
    }

    /// The directory of a confirmed claim, durable together with whose it is.
    pub(crate) async fn begin(&self, meta: &Meta) -> io::Result<PathBuf> {
        let (this, meta) = (self.clone(), *meta);
        blocking(move || {
            let dir = this.dir(meta.claim_id);
            let state = State::open(&dir).map_err(io::Error::other)?;
            let content = serde_json::to_vec(&meta).map_err(io::Error::other)?;
            state.write(META, &content).map_err(io::Error::other)?;
            crate::state::sync_directory(&this.live)?;
            Ok(dir)
        })
        .await
    }

    /// Every claim on this disk. What cannot be understood is set aside, once.
    pub(crate) async fn found(&self) -> io::Result<Vec<Found>> {
        let this = self.clone();
        blocking(move || {
            let mut all = Vec::new();
            for entry in fs::read_dir(&this.live)? {
                let path = entry?.path();
                match read(&path) {
                    Ok(found) => all.push(found),
                    Err(error) => {
                        tracing::warn!(path = %path.display(), %error, "a spool cannot be read and is set aside");
                        this.shelve(&path)?;
                    }
                }
            }
            all.sort_unstable_by_key(|found| found.meta.claim_id);
            Ok(all)
        })
        .await
    }

    /// Removes the spool of a settled claim.
    pub(crate) async fn remove(&self, claim: ClaimId) -> io::Result<()> {
        let dir = self.dir(claim);
        blocking(move || gone(fs::remove_dir_all(dir))).await
    }

    /// Keeps the spool of a fenced claim for audit.
    pub(crate) async fn set_aside(&self, claim: ClaimId) -> io::Result<()> {
        let this = self.clone();
        blocking(move || this.shelve(&this.dir(claim))).await
    }

    fn dir(&self, claim: ClaimId) -> PathBuf {
        self.live.join(claim.to_string())
    }

    fn shelve(&self, path: &Path) -> io::Result<()> {
        let Some(name) = path.file_name() else { return Ok(()) };
        let target = self.aside.join(name);
        gone(fs::remove_dir_all(&target))?;
        gone(fs::rename(path, target))?;
        let mut kept = fs::read_dir(&self.aside)?
            .map(|entry| entry.and_then(|entry| Ok((entry.metadata()?.modified()?, entry.path()))))
            .collect::<io::Result<Vec<_>>>()?;
        kept.sort_unstable();
        for (_, old) in kept.iter().take(kept.len().saturating_sub(ASIDE_MAX)) {
            gone(fs::remove_dir_all(old))?;
        }
        Ok(())
    }
}

/// The sessions whose claims are on this disk, for a look from outside the daemon. It changes nothing.
///
/// # Errors
/// When the directory cannot be listed.
pub fn sessions(state: &State) -> io::Result<HashSet<SessionId>> {
    let entries = match fs::read_dir(state.join("spool")) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(HashSet::new()),
        Err(error) => return Err(error),
    };
    let mut sessions = HashSet::new();
    for entry in entries {
        sessions.extend(meta(&entry?.path()).map(|meta| meta.session_id).ok());
    }
    Ok(sessions)
}

fn meta(path: &Path) -> io::Result<Meta> {
    let state = State::open(path).map_err(io::Error::other)?;
    let content = state.read(META).map_err(io::Error::other)?.ok_or(io::ErrorKind::NotFound)?;
    serde_json::from_slice(&content).map_err(io::Error::other)
}

fn read(path: &Path) -> io::Result<Found> {
    let meta = meta(path)?;
    if path.file_name().and_then(|name| name.to_str()) != Some(&meta.claim_id.to_string()) {
        return Err(io::Error::other("it belongs to another claim than its directory says"));
    }
    Ok(Found { meta, next_index: Spool::open(path, 0)?.next() })
}

fn gone(outcome: io::Result<()>) -> io::Result<()> {
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    crate::machine::blocking(work).await?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(n: u8) -> Meta {
        Meta {
            claim_id: ClaimId::from_bytes([n; 16]),
            epoch: u64::from(n),
            session_id: SessionId::from_bytes([n; 16]),
            run_id: RunId::from_bytes([n; 16]),
        }
    }

    #[tokio::test]
    async fn claims_are_found_again_and_what_is_damaged_is_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        let spools = Spools::open(&State::open(dir.path()).unwrap()).unwrap();
        for n in [1, 2, 3] {
            let path = spools.begin(&meta(n)).await.unwrap();
            Spool::open(&path, 0).unwrap().append(&vec![b"{}".to_vec(); n.into()]).unwrap();
        }
        State::open(&spools.dir(meta(2).claim_id)).unwrap().write(META, b"{\"epoch\":").unwrap();
        spools.remove(meta(3).claim_id).await.unwrap();
        spools.remove(meta(3).claim_id).await.unwrap();
        assert_eq!(spools.found().await.unwrap(), [Found { meta: meta(1), next_index: 1 }]);
        assert!(spools.aside.join(meta(2).claim_id.to_string()).exists());
    }

    #[tokio::test]
    async fn only_so_many_fenced_spools_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let spools = Spools::open(&State::open(dir.path()).unwrap()).unwrap();
        for n in 0..20 {
            spools.begin(&meta(n)).await.unwrap();
            spools.set_aside(meta(n).claim_id).await.unwrap();
        }
        assert_eq!(fs::read_dir(&spools.aside).unwrap().count(), ASIDE_MAX);
        assert!(spools.found().await.unwrap().is_empty());
    }
}
