//! What the daemon tells `status`: one small file, replaced as a whole, written when something changed and now and then.

use crate::{
    claim::table::Shown,
    state::{self, State},
};
use checkfu_shared::{
    id::{InstanceId, RunnerId},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

const FILE: &str = "status.json";

/// The daemon at one instant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// When this was written.
    pub written_at: Timestamp,
    /// The daemon's process.
    pub pid: u32,
    /// Which start it is.
    pub instance_id: InstanceId,
    /// Who it is.
    pub runner_id: RunnerId,
    /// Its name.
    pub name: String,
    /// Its control plane.
    pub plane: String,
    /// One word: `starting`, `ready`, `full`, `waiting`, `unready`, `drained`, `draining`, `revoked`.
    pub state: String,
    /// Why it is not ready, in a sentence.
    pub reason: Option<String>,
    /// How many sessions fit.
    pub max_sessions: u32,
    /// Seconds since the control plane last answered.
    pub last_contact_s: Option<u64>,
    /// What is held.
    pub sessions: Vec<Shown>,
}

/// Replaces the file.
///
/// # Errors
/// [`state::Error`] when it cannot be written.
pub fn write(state: &State, status: &Status) -> Result<(), state::Error> {
    state.write(FILE, &serde_json::to_vec(status).unwrap_or_default())
}

/// The last status written; `None` when there is none that this version understands.
///
/// # Errors
/// [`state::Error`] when the file cannot be read.
pub fn read(state: &State) -> Result<Option<Status>, state::Error> {
    Ok(state.read(FILE)?.and_then(|content| serde_json::from_slice(&content).ok()))
}
