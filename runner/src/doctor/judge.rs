//! The judgements: what was read of the system in, a finding out. No looks, no clock.

use super::Finding;
use crate::{claim::admission, sandbox::preflight::Facts};
use std::{io, net::IpAddr};

/// Above this the signatures of pairing are refused.
const CLOCK_FAIL_MS: i64 = 5 * 60_000;
const CLOCK_WARN_MS: i64 = 5_000;
/// The engine's API that sandboxes were made with.
const API_MIN: (u32, u32) = (1, 41);
const FREE_WARN_PERCENT: u64 = 15;
const FREE_FAIL_PERCENT: u64 = 5;

/// Properties of the unit that [`unit`] reads.
pub const UNIT_PROPERTIES: &str =
    "LoadState,ActiveState,NoNewPrivileges,ProtectSystem,PrivateTmp,ProtectHome,CapabilityBoundingSet,Type";

/// The free part of a file system.
#[derive(Debug, Clone, Copy)]
pub struct Space {
    /// Bytes a user may still take.
    pub bytes_free: u64,
    /// Bytes in all.
    pub bytes: u64,
    /// Files a user may still make.
    pub inodes_free: u64,
    /// Files in all; 0 where the file system has no such bound.
    pub inodes: u64,
}

/// The state directory: `found` is whether it is a directory, its owner and mode.
#[must_use]
pub fn permissions(path: &str, found: Result<(bool, u32, u32), io::ErrorKind>, own: u32) -> Finding {
    const CHECK: &str = "state directory";
    match found {
        Err(io::ErrorKind::NotFound) => Finding::ok(CHECK, format!("{path} will be made at the first use")),
        Err(kind) => Finding::fail(
            CHECK,
            format!("{path} cannot be looked at: {kind}"),
            "run this as the runner's own user",
        ),
        Ok((false, ..)) => {
            Finding::fail(CHECK, format!("{path} is not a directory"), "name another one with --state-dir")
        }
        Ok((_, owner, _)) if owner != own => Finding::fail(
            CHECK,
            format!("{path} belongs to user {owner}, this is user {own}"),
            "run this as the runner's own user, such as with sudo -u checkfu-runner",
        ),
        Ok((_, _, mode)) if mode & 0o077 != 0 => Finding::warn(
            CHECK,
            format!("{path} has mode {:04o}", mode & 0o7777),
            format!("run: chmod 700 {path}"),
        ),
        Ok(_) => Finding::ok(CHECK, format!("{path}, mode 0700")),
    }
}

/// The proxy that requests take, without its credentials.
#[must_use]
pub fn proxy(environment: impl Iterator<Item = (String, String)>, loopback: Option<bool>) -> Finding {
    const CHECK: &str = "proxy";
    let all: Vec<(String, String)> = environment.filter(|(_, value)| !value.is_empty()).collect();
    let find = |names: [&str; 2]| {
        names
            .iter()
            .find_map(|name| all.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str()))
    };
    let https = find(["HTTPS_PROXY", "https_proxy"]).or_else(|| find(["ALL_PROXY", "all_proxy"]));
    match https {
        None => Finding::ok(CHECK, "none is set"),
        Some(_) if loopback == Some(true) => Finding::ok(CHECK, "set, and not used for this machine itself"),
        Some(value) => {
            let host = value.rsplit('@').next().unwrap_or_default();
            let host = host.split_once("://").map_or(host, |(_, host)| host);
            let except =
                find(["NO_PROXY", "no_proxy"]).map(|list| format!(", except for {list}")).unwrap_or_default();
            Finding::ok(CHECK, format!("{host}{except}"))
        }
    }
}

/// The addresses of the control plane's host.
#[must_use]
pub fn names(host: &str, found: Result<Vec<IpAddr>, String>, proxied: bool) -> Finding {
    const CHECK: &str = "name resolution";
    match found {
        Ok(addresses) if !addresses.is_empty() => {
            let list: Vec<String> = addresses.iter().take(4).map(ToString::to_string).collect();
            Finding::ok(CHECK, format!("{host} is {}", list.join(", ")))
        }
        _ if proxied => Finding::ok(CHECK, format!("{host} is not known here; the proxy resolves it")),
        Ok(_) => Finding::fail(CHECK, format!("{host} has no address"), "check the control plane's address"),
        Err(why) => Finding::fail(
            CHECK,
            format!("{host} cannot be resolved: {why}"),
            "check /etc/resolv.conf and that the name is right",
        ),
    }
}

/// How far this machine's clock is ahead of the server's, given that a header tells whole seconds.
#[must_use]
pub fn clock(ahead_ms: i64) -> Finding {
    const CHECK: &str = "clock";
    let seconds = ahead_ms / 1_000;
    let word = if seconds < 0 { "behind" } else { "ahead of" };
    let seen = format!("{} s {word} the control plane", seconds.abs());
    match ahead_ms.abs() {
        CLOCK_FAIL_MS.. => Finding::fail(CHECK, seen, "set the clock, such as with timedatectl set-ntp true"),
        CLOCK_WARN_MS.. => {
            Finding::warn(CHECK, seen, "turn time synchronisation on: timedatectl set-ntp true")
        }
        _ => Finding::ok(CHECK, "within 5 s of the control plane"),
    }
}

/// Free memory.
#[must_use]
pub fn memory(meminfo: &str) -> Finding {
    match admission::memory(meminfo) {
        Some(why) => Finding::warn(
            "memory",
            why,
            "no session begins until memory is free; stop something, or lower max_sessions",
        ),
        None => Finding::ok("memory", "enough is free to begin a session"),
    }
}

/// Room on one file system.
#[must_use]
pub fn disk(check: &'static str, path: &str, space: Space) -> Finding {
    let percent = |free: u64, all: u64| free.saturating_mul(100).checked_div(all).unwrap_or(100);
    let (bytes, inodes) = (percent(space.bytes_free, space.bytes), percent(space.inodes_free, space.inodes));
    let seen = format!(
        "{path}: {bytes} % of the space ({} GiB) and {inodes} % of the inodes are free",
        space.bytes_free >> 30
    );
    match bytes.min(inodes) {
        ..FREE_FAIL_PERCENT => Finding::fail(
            check,
            seen,
            "make room: docker system df, then docker image prune; checkfu-runner gc",
        ),
        FREE_FAIL_PERCENT..FREE_WARN_PERCENT => {
            Finding::warn(check, seen, "make room soon: docker system df shows what takes it")
        }
        _ => Finding::ok(check, seen),
    }
}

/// The engine behind the socket.
#[must_use]
pub fn engine(facts: &Facts) -> Finding {
    const CHECK: &str = "Docker";
    let root =
        if facts.rootless { "rootless" } else { "with root's rights: who may use its socket is root here" };
    let seen = format!("engine {}, API {}, {root}", facts.engine, facts.api);
    let mut parts = facts.api.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    if (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) < API_MIN {
        return Finding::fail(
            CHECK,
            seen,
            format!("update Docker: API {}.{} is the oldest that is known to work", API_MIN.0, API_MIN.1),
        );
    }
    Finding::ok(CHECK, seen)
}

/// Which limits hold in a container.
#[must_use]
pub fn limits(facts: &Facts, accepted: bool) -> Finding {
    const CHECK: &str = "limits";
    let version = facts.cgroups.as_deref().unwrap_or("unknown");
    if facts.missing.is_empty() {
        return Finding::ok(
            CHECK,
            format!("memory, processes and processor, by control groups version {version}"),
        );
    }
    let seen = format!("{} are not enforced (control groups version {version})", facts.missing.join(", "));
    if accepted {
        return Finding::warn(
            CHECK,
            seen,
            "accepted by accept_missing_limits; a session can starve this host",
        );
    }
    Finding::fail(
        CHECK,
        seen,
        "use a host with control groups version 2, or accept it with --accept-missing-limits",
    )
}

/// The unit as systemd has it; `None` without systemd.
#[must_use]
pub fn unit(shown: Option<&str>) -> Finding {
    const CHECK: &str = "service";
    let Some(shown) = shown else { return Finding::ok(CHECK, "systemd does not run here") };
    let get = |name: &str| {
        shown.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).unwrap_or_default()
    };
    if get("LoadState") != "loaded" {
        return Finding::ok(CHECK, "no unit checkfu-runner.service is installed");
    }
    let weak: Vec<&str> = [
        ("NoNewPrivileges", get("NoNewPrivileges") == "yes"),
        ("ProtectSystem", get("ProtectSystem") == "strict"),
        ("PrivateTmp", get("PrivateTmp") == "yes"),
        ("ProtectHome", get("ProtectHome") == "yes"),
        ("CapabilityBoundingSet", get("CapabilityBoundingSet").is_empty()),
        ("Type", get("Type") == "notify"),
    ]
    .into_iter()
    .filter_map(|(name, holds)| (!holds).then_some(name))
    .collect();
    if weak.is_empty() {
        return Finding::ok(CHECK, format!("checkfu-runner.service is {} and hardened", get("ActiveState")));
    }
    Finding::warn(
        CHECK,
        format!("checkfu-runner.service is weaker than shipped: {}", weak.join(", ")),
        "compare with systemctl cat checkfu-runner; a drop-in may have changed it",
    )
}
