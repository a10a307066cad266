//! Stops, wakes and kills the processes of the sandbox as a whole. Supervisors are spared: they
//! only watch, and have to report.

use rustix::process::Signal;

use crate::procfs::{Process, descendants, processes};
use crate::supervise::{own_pid, signal, stop_to_fixed_point};

/// What was stopped because the lease ended.
#[derive(Debug, Default)]
pub(super) struct Freezer {
    stopped: Vec<Process>,
}

impl Freezer {
    /// Stops everything that runs; called again while the lease is out, for what slipped through.
    pub(super) fn freeze(&mut self, spared: &[i32]) {
        let fresh = stop_to_fixed_point(|| {
            // What a process of the sandbox itself stopped must not be woken later.
            everything(spared).into_iter().filter(|process| !matches!(process.state, 'T' | 't')).collect()
        });
        self.stopped.extend(fresh);
    }

    /// Wakes what was stopped, unless its id belongs to another process by now.
    pub(super) fn thaw(&mut self) {
        let all = processes();
        for process in self.stopped.drain(..) {
            if all.iter().any(|now| now.pid == process.pid && now.started == process.started) {
                signal(process.pid, Signal::CONT);
            }
        }
    }
}

/// Every living process but this one and the spared ones.
fn everything(spared: &[i32]) -> Vec<Process> {
    let (own, all) = (own_pid(), processes());
    // As PID 1 everything here is ours, also what was put in from outside; in a test only our own.
    let found = if own == 1 { all } else { descendants(own, &all) };
    found.into_iter().filter(|p| p.alive() && p.pid != own && !spared.contains(&p.pid)).collect()
}

/// Kills everything but the spared ones.
pub(super) fn kill_everything(spared: &[i32]) {
    kill(|| everything(spared));
}

/// Kills what no living supervisor watches over.
pub(super) fn kill_strays(supervisors: &[i32]) {
    kill(|| {
        let all = processes();
        let watched: Vec<i32> = supervisors
            .iter()
            .flat_map(|pid| descendants(*pid, &all).into_iter().map(|p| p.pid).chain([*pid]))
            .collect();
        descendants(own_pid(), &all).into_iter().filter(|p| p.alive() && !watched.contains(&p.pid)).collect()
    });
}

fn kill(mut find: impl FnMut() -> Vec<Process>) {
    let found = stop_to_fixed_point(&mut find);
    for process in found.iter().chain(&find()) {
        signal(process.pid, Signal::KILL);
    }
}
