//! How processes are ended: asked first, then stopped to a fixed point and killed.
//! Stopping first keeps a process that forks faster than we look from outrunning us.

use std::collections::HashSet;

use rustix::process::{Pid, Signal, kill_process};

use crate::procfs::{Process, descendants, processes};

const MAX_PASSES: usize = 200;

/// The id of this process.
pub(crate) fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_pid()
}

/// Everything below `root` that is not a zombie.
pub(crate) fn living(root: i32) -> Vec<Process> {
    descendants(root, &processes()).into_iter().filter(Process::alive).collect()
}

/// Signals one process; one that is gone meanwhile needs none.
pub(crate) fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _gone = kill_process(pid, signal);
    }
}

/// Asks everything below `root` to end, and wakes what is stopped so that it can.
pub(super) fn ask_all(root: i32) {
    for process in living(root) {
        signal(process.pid, Signal::TERM);
        signal(process.pid, Signal::CONT);
    }
}

/// Stops what `find` finds until it finds nothing new, and returns all of it.
pub(crate) fn stop_to_fixed_point(mut find: impl FnMut() -> Vec<Process>) -> Vec<Process> {
    let (mut seen, mut stopped) = (HashSet::new(), Vec::new());
    for _ in 0..MAX_PASSES {
        let fresh: Vec<Process> =
            find().into_iter().filter(|process| seen.insert((process.pid, process.started))).collect();
        if fresh.is_empty() {
            break;
        }
        for process in &fresh {
            signal(process.pid, Signal::STOP);
        }
        stopped.extend(fresh);
    }
    stopped
}

/// Stops everything below `root` to a fixed point, then kills it. The caller sees to it that
/// what was killed is reaped, and calls again while something is left.
pub(crate) fn kill_all(root: i32) {
    let found = stop_to_fixed_point(|| living(root));
    for process in found.iter().chain(&living(root)) {
        signal(process.pid, Signal::KILL);
    }
}
