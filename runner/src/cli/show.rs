//! `status`: what the running daemon says of itself, or why none runs.

use super::{
    Status,
    exit::{Exit, Failure},
};
use checkfu_runner::{
    control::{self, Answer, Ask},
    identity::Identity,
    state::State,
    status,
};

pub(crate) fn main(state: &State, arguments: &Status) -> Result<Exit, Failure> {
    let running = state.is_locked()?;
    // Why it does not run is more useful than that it does not.
    let identity = if running { None } else { Some(Identity::load(state)?) };
    let now = if running { current(state)? } else { None };
    if arguments.json {
        println!("{}", serde_json::json!({ "running": running, "status": now }));
        return Ok(if running { Exit::Success } else { Exit::NotRunning });
    }
    if let Some(identity) = identity {
        println!("{} ({}) for {}: not running", identity.name, identity.runner_id, identity.plane);
        return Ok(Exit::NotRunning);
    }
    match now {
        Some(now) => print!("{}", told(&now)),
        None => println!("starting"),
    }
    Ok(Exit::Success)
}

fn current(state: &State) -> Result<Option<status::Status>, Failure> {
    match super::asked(state, &Ask::Status)? {
        Some(Answer::Status { status }) => Ok(Some(*status)),
        Some(other) => Err(super::unexpected(&other)),
        // It holds the directory and does not listen yet.
        None => Ok(None),
    }
}

fn told(now: &status::Status) -> String {
    let ago = |seconds: Option<u64>| {
        seconds.map_or_else(|| "never".to_owned(), |seconds| format!("{seconds} s ago"))
    };
    let reason = now.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let counts = now.counts;
    let mut text = format!(
        "{} ({}) for {}\n\
         state         {}{reason}\n\
         slots         {} of {} taken\n\
         last poll     {}\n\
         last contact  {}\n\
         spool         {} KiB wait for the control plane, of at most {} MiB\n\
         since start   {} settled, {} given back, {} lost, {} left open\n",
        now.name,
        now.runner_id,
        now.plane,
        now.state,
        now.sessions.len(),
        now.max_sessions,
        ago(now.last_poll_s),
        ago(now.last_contact_s),
        now.spool_bytes.div_ceil(1 << 10),
        now.spool_bytes_max >> 20,
        counts.claims_settled,
        counts.claims_given_back,
        counts.claims_lost,
        counts.claims_unsettled,
    );
    for held in &now.sessions {
        let stall = held.stall.as_deref().map(|stall| format!(", {stall}")).unwrap_or_default();
        text.push_str(&format!(
            "  {}  {}, lease {}, {} of {} events delivered, {} s{stall}\n",
            held.session_id, held.phase, held.lease, held.acked, held.events, held.held_s
        ));
    }
    text
}

/// Says where the daemon's log is; this program writes to its standard error and keeps none itself.
pub(crate) fn logs() -> Exit {
    println!(
        "The daemon logs to its standard error. As a service: journalctl -u checkfu-runner -f\n\
         Started by hand: where its standard error goes. CHECKFU_LOG=debug and --log-format json tell more."
    );
    Exit::Success
}

/// `drain` and `undrain`.
pub(crate) fn drain(state: &State, drains: bool) -> Result<Exit, Failure> {
    let ask = if drains { Ask::Drain } else { Ask::Undrain };
    match super::asked(state, &ask)? {
        Some(Answer::Drained { drained: true, sessions }) => {
            println!(
                "Drained: no work is taken, {sessions} sessions go on. `checkfu-runner undrain` ends it."
            );
            Ok(Exit::Success)
        }
        Some(Answer::Drained { drained: false, .. }) => {
            println!("Work is taken again.");
            Ok(Exit::Success)
        }
        Some(other) => Err(super::unexpected(&other)),
        None => {
            let _lock = super::lock(state)?;
            control::mark_drained(state, drains)?;
            println!(
                "No daemon runs; the next one {}.",
                if drains { "will take no work" } else { "takes work" }
            );
            Ok(Exit::Success)
        }
    }
}
