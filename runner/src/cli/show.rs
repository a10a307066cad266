//! `status`: what the daemon wrote last, and whether it still runs.

use super::{
    Status,
    exit::{Exit, Failure},
};
use checkfu_runner::{identity::Identity, state::State, status};

pub(crate) fn main(state: &State, arguments: &Status) -> Result<Exit, Failure> {
    let running = state.is_locked()?;
    // Why it does not run is more useful than that it does not.
    let identity = if running { None } else { Some(Identity::load(state)?) };
    let last = status::read(state)?.filter(|_| running);
    if arguments.json {
        println!("{}", serde_json::json!({ "running": running, "status": last }));
        return Ok(if running { Exit::Success } else { Exit::NotRunning });
    }
    if let Some(identity) = identity {
        println!("{} ({}) for {}: not running", identity.name, identity.runner_id, identity.plane);
        return Ok(Exit::NotRunning);
    }
    let Some(last) = last else {
        println!("starting");
        return Ok(Exit::Success);
    };
    let reason = last.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
    println!("{} ({}) for {}", last.name, last.runner_id, last.plane);
    println!("state         {}{reason}", last.state);
    println!("sessions      {} of {}", last.sessions.len(), last.max_sessions);
    let contact = last
        .last_contact_s
        .map_or_else(|| "never".to_owned(), |seconds| format!("{seconds} s before {}", last.written_at));
    println!("last contact  {contact}");
    for held in &last.sessions {
        let stall = held.stall.as_deref().map(|stall| format!(", {stall}")).unwrap_or_default();
        println!(
            "  {}  lease {}, {} of {} events delivered, {} s{stall}",
            held.session_id, held.lease, held.acked, held.events, held.held_s
        );
    }
    Ok(Exit::Success)
}
