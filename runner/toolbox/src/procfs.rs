//! What the kernel says about processes and cgroup counters of this sandbox.
//! Reads `/proc` and `/sys/fs/cgroup`; signals nothing.

use std::collections::HashSet;
use std::fs;

use rustix::process::Pid;

/// One process, as `/proc/<pid>/stat` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: i32,
    /// Its parent's id.
    pub parent: i32,
    /// State letter; `Z` is a zombie, `T` is stopped.
    pub state: char,
    /// Clock ticks between boot and its start: tells a reused id apart.
    pub started: u64,
    /// Short name of the program.
    pub name: String,
}

impl Process {
    /// The id in the form that signals want.
    #[must_use]
    pub fn id(&self) -> Option<Pid> {
        Pid::from_raw(self.pid)
    }

    /// Whether it can still do anything.
    #[must_use]
    pub const fn alive(&self) -> bool {
        !matches!(self.state, 'Z' | 'X')
    }
}

/// Every process in this pid namespace.
#[must_use]
pub fn processes() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| {
            let name = entry.ok()?.file_name();
            let pid: i32 = name.to_str()?.parse().ok()?;
            parse_stat(&String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/stat")).ok()?))
        })
        .collect()
}

fn parse_stat(line: &str) -> Option<Process> {
    // The name may hold anything, parentheses and newlines included; the last `)` ends it.
    let (pid, rest) = line.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let started = fields.nth(17)?.parse().ok()?;
    Some(Process { pid: pid.parse().ok()?, parent, state, started, name: name.to_owned() })
}

/// Those of `all` that descend from `root`, without `root` itself.
#[must_use]
pub fn descendants(root: i32, all: &[Process]) -> Vec<Process> {
    let mut family = HashSet::from([root]);
    loop {
        let before = family.len();
        family.extend(all.iter().filter(|p| family.contains(&p.parent)).map(|p| p.pid).collect::<Vec<_>>());
        if family.len() == before {
            break;
        }
    }
    all.iter().filter(|p| p.pid != root && family.contains(&p.pid)).cloned().collect()
}

/// Out-of-memory kills in this cgroup since it was made; 0 when nothing counts them.
#[must_use]
pub fn oom_kills() -> u64 {
    ["/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"]
        .iter()
        .find_map(|path| counter(&fs::read_to_string(path).ok()?, "oom_kill"))
        .unwrap_or(0)
}

fn counter(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

/// How many more processes and threads the sandbox may start; `None` when there is no limit.
#[must_use]
pub fn pids_left() -> Option<u64> {
    ["/sys/fs/cgroup", "/sys/fs/cgroup/pids"].iter().find_map(|folder| {
        let max: u64 = fs::read_to_string(format!("{folder}/pids.max")).ok()?.trim().parse().ok()?;
        let current: u64 = fs::read_to_string(format!("{folder}/pids.current")).ok()?.trim().parse().ok()?;
        Some(max.saturating_sub(current))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_parentheses_and_newlines_are_read() {
        let line = "42 (a) (b\n) S 7 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 99 5 6";
        let process = parse_stat(line).unwrap();
        assert_eq!((process.pid, process.parent, process.state, process.started), (42, 7, 'S', 99));
        assert_eq!(process.name, "a) (b\n");
    }

    #[test]
    fn this_process_is_seen_and_descends_from_its_parent() {
        let me = i32::try_from(std::process::id()).unwrap();
        let all = processes();
        let found = all.iter().find(|p| p.pid == me).unwrap();
        assert!(descendants(found.parent, &all).iter().any(|p| p.pid == me));
        assert!(!descendants(me, &all).iter().any(|p| p.pid == me));
    }

    #[test]
    fn counters_are_found_by_their_whole_name() {
        assert_eq!(counter("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n", "oom_kill"), Some(3));
        assert_eq!(counter("low 0\noom 1\noom_kill 2\noom_group_kill 0\n", "oom_kill"), Some(2));
        assert_eq!(counter("", "oom_kill"), None);
    }
}
