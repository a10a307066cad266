//! Whether this host can confine a sandbox at all: a daemon without cgroups accepts every limit and enforces none.
//! The judgement is pure; it never guesses what the daemon left out of its answer in the host's favour.

use super::error::Error;
use bollard::models::{SystemInfo, SystemInfoCgroupDriverEnum};

/// What the host offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The limits it ignores; empty unless they were accepted by name.
    pub missing: Vec<&'static str>,
    /// Version of the engine.
    pub engine: String,
    /// The runtime that containers get by default.
    pub runtime: String,
    /// Whether the daemon itself runs without root.
    pub rootless: bool,
}

/// What a daemon says of itself, without a judgement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Version of the engine.
    pub engine: String,
    /// Version of its API that was agreed on.
    pub api: String,
    /// Which control groups it uses.
    pub cgroups: Option<String>,
    /// Whether the daemon itself runs without root.
    pub rootless: bool,
    /// The limits it ignores.
    pub missing: Vec<&'static str>,
}

/// Judges the daemon's description of itself.
///
/// # Errors
/// [`Error::Unsafe`] when a limit is not enforced and `accept_missing` is not set.
pub fn judge(info: &SystemInfo, accept_missing: bool) -> Result<Report, Error> {
    let has = |field: Option<bool>| field.unwrap_or(false);
    let no_cgroups = matches!(
        info.cgroup_driver,
        None | Some(SystemInfoCgroupDriverEnum::NONE | SystemInfoCgroupDriverEnum::EMPTY)
    );
    let missing: Vec<&'static str> = [
        (no_cgroups, "control groups"),
        (!has(info.memory_limit), "memory limits"),
        (!has(info.pids_limit), "process limits"),
        (!has(info.cpu_cfs_quota), "processor limits"),
    ]
    .into_iter()
    .filter_map(|(absent, name)| absent.then_some(name))
    .collect();
    if !missing.is_empty() && !accept_missing {
        return Err(Error::Unsafe { missing: missing.join(", ") });
    }
    let options = info.security_options.as_deref().unwrap_or_default();
    Ok(Report {
        missing,
        engine: info.server_version.clone().unwrap_or_default(),
        runtime: info.default_runtime.clone().unwrap_or_default(),
        rootless: options.iter().any(|option| option.contains("rootless")),
    })
}

/// Judges whether the daemon has the runtime that was asked for; its default one always is there.
///
/// # Errors
/// [`Error::NoRuntime`].
pub fn has_runtime(info: &SystemInfo, wanted: Option<&str>) -> Result<(), Error> {
    // A daemon that does not list its runtimes says nothing against this one.
    let (Some(wanted), Some(known)) = (wanted, &info.runtimes) else { return Ok(()) };
    if known.contains_key(wanted) {
        return Ok(());
    }
    let mut known: Vec<&str> = known.keys().map(String::as_str).collect();
    known.sort_unstable();
    Err(Error::NoRuntime { name: wanted.to_owned(), known: known.join(", ") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn a_runtime_the_daemon_does_not_know_is_refused_with_those_it_knows() {
        let runtimes = ["runc", "io.containerd.runc.v2"].map(|name| (name.to_owned(), Default::default()));
        let info = SystemInfo { runtimes: Some(HashMap::from(runtimes)), ..sound() };
        assert!(has_runtime(&info, None).is_ok());
        assert!(has_runtime(&info, Some("runc")).is_ok());
        let text = has_runtime(&info, Some("nope")).unwrap_err().to_string();
        assert!(text.contains("\"nope\"") && text.contains("io.containerd.runc.v2, runc"), "{text}");
    }

    fn sound() -> SystemInfo {
        SystemInfo {
            memory_limit: Some(true),
            pids_limit: Some(true),
            cpu_cfs_quota: Some(true),
            cgroup_driver: Some(SystemInfoCgroupDriverEnum::CGROUPFS),
            ..Default::default()
        }
    }

    #[test]
    fn a_host_that_enforces_limits_passes() {
        assert_eq!(judge(&sound(), false).unwrap().missing, [""; 0]);
    }

    #[test]
    fn a_host_that_ignores_limits_is_refused_unless_accepted_by_name() {
        let cases: [(SystemInfo, &str); 4] = [
            (SystemInfo { memory_limit: Some(false), ..sound() }, "memory limits"),
            (SystemInfo { pids_limit: None, ..sound() }, "process limits"),
            (
                SystemInfo { cgroup_driver: Some(SystemInfoCgroupDriverEnum::NONE), ..sound() },
                "control groups",
            ),
            (SystemInfo { cpu_cfs_quota: Some(false), ..sound() }, "processor limits"),
        ];
        for (info, missing) in cases {
            let text = judge(&info, false).unwrap_err().to_string();
            assert!(text.contains(missing), "{text}");
            assert_eq!(judge(&info, true).unwrap().missing, [missing]);
        }
    }
}
