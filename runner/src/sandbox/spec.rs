//! From an environment to the exact container that Docker is asked for. Pure: no clock, no I/O.
//! It must never yield a privileged container, a host namespace, a published port, a device or Docker's socket:
//! there is no field through which an environment could ask for one.

mod seccomp;

use bollard::models::{
    ContainerCreateBody, HostConfig, HostConfigLogConfig, Mount, MountBindOptions,
    MountBindOptionsPropagationEnum, MountType, MountVolumeOptions, ResourcesUlimits, RestartPolicy,
    RestartPolicyNameEnum,
};
use checkfu_shared::{
    environment::{self, Network, Profile},
    id::SessionId,
    time::Timestamp,
};
use ring::digest;
use std::{collections::HashMap, path::Path};

/// Open files that a sandbox's processes may have each.
pub const OPEN_FILES: i64 = 65_536;
/// The working directory of every sandbox.
pub const WORKSPACE: &str = "/workspace";
/// Where a session leaves what it wants to hand over.
pub const OUTPUTS: &str = "/mnt/session/outputs";
/// Where the toolbox finds the proxy's socket.
pub const NET: &str = "/.checkfu/net";
/// Where the toolbox itself lies.
pub const TOOLBOX: &str = "/.checkfu/bin/checkfu-toolbox";
/// The address inside the sandbox that the toolbox forwards to the proxy's socket.
pub const PROXY: &str = "http://127.0.0.1:3128";

/// The variables by which programs find the proxy.
pub(crate) const PROXY_VARIABLES: [&str; 4] = ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"];

/// The label that names whose container it is; nothing without our own value is ever touched.
pub const LABEL_INSTANCE: &str = "checkfu.instance";
/// The label that names the session.
pub const LABEL_SESSION: &str = "checkfu.session";
/// The label with the epoch that made the container.
pub const LABEL_EPOCH: &str = "checkfu.epoch";
/// The label with what the container is for: `sandbox`, or `volumes`.
pub const LABEL_ROLE: &str = "checkfu.role";
/// The label with the instant of creation.
pub const LABEL_CREATED: &str = "checkfu.created";

const FILE_BYTES: i64 = 4 << 30;
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// What root inside needs for package managers; everything else stays dropped.
const ROOT_CAPABILITIES: [&str; 7] =
    ["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID"];

/// Everything that decides what a sandbox's container looks like.
#[derive(Debug, Clone, Copy)]
pub struct Blueprint<'a> {
    /// The environment.
    pub spec: &'a environment::Spec,
    /// The image to start from, already present.
    pub image: &'a str,
    /// The `PATH` that the image sets, kept when there is one.
    pub image_path: Option<&'a str>,
    /// Whose container it is; stable across restarts of the runner.
    pub instance: &'a str,
    /// The session.
    pub session: SessionId,
    /// The claim's epoch.
    pub epoch: u64,
    /// Now.
    pub created: Timestamp,
    /// The toolbox on the host.
    pub toolbox: &'a Path,
    /// The directory on the host that holds the proxy's socket; not mounted when there is no network.
    pub net_dir: &'a Path,
    /// Another OCI runtime, such as `runsc`.
    pub runtime: Option<&'a str>,
    /// Open files per process; `None` is what the daemon itself has, where it may not give more than that.
    pub open_files: Option<i64>,
}

/// The name of a session's container: the same for the same instance and session, so that it is found again.
#[must_use]
pub fn container_name(instance: &str, session: SessionId) -> String {
    let digest = digest::digest(&digest::SHA256, instance.as_bytes());
    let tag: String = digest.as_ref().iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("checkfu-{tag}-{session}")
}

/// The name of the container through which the volumes of a sandbox with a read-only root get their owners.
#[must_use]
pub fn twin_name(name: &str) -> String {
    format!("{name}-volumes")
}

/// The same container with a writable root, never to be started.
#[must_use]
pub fn writable(mut body: ContainerCreateBody) -> ContainerCreateBody {
    if let Some(host) = &mut body.host_config {
        host.readonly_rootfs = Some(false);
    }
    if let Some(labels) = &mut body.labels {
        labels.insert(LABEL_ROLE.to_owned(), "volumes".to_owned());
    }
    body
}

/// The numeric user that everything in a sandbox runs as.
#[must_use]
pub const fn user_id(profile: Profile) -> u64 {
    match profile {
        Profile::Root => 0,
        Profile::Standard | Profile::Locked => 1000,
    }
}

/// The writable home directory.
#[must_use]
pub const fn home(profile: Profile) -> &'static str {
    match profile {
        Profile::Root => "/root",
        Profile::Standard | Profile::Locked => "/home/checkfu",
    }
}

/// The writable directories of a sandbox with a read-only root, and the suffix of the volume each lies on.
#[must_use]
pub const fn volumes(profile: Profile) -> &'static [(&'static str, &'static str)] {
    match profile {
        Profile::Standard | Profile::Root => &[],
        Profile::Locked => &[
            (WORKSPACE, "workspace"),
            (OUTPUTS, "outputs"),
            ("/mnt/session/uploads", "uploads"),
            ("/.checkfu/out", "out"),
            ("/.checkfu/state", "state"),
            ("/home/checkfu", "home"),
        ],
    }
}

/// The labels of a session's container and volumes.
#[must_use]
pub fn labels(plan: &Blueprint<'_>) -> HashMap<String, String> {
    [
        (LABEL_INSTANCE, plan.instance.to_owned()),
        (LABEL_SESSION, plan.session.to_string()),
        (LABEL_EPOCH, plan.epoch.to_string()),
        (LABEL_ROLE, "sandbox".to_owned()),
        (LABEL_CREATED, plan.created.to_string()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into()
}

/// The container to create.
#[must_use]
pub fn container(plan: &Blueprint<'_>) -> ContainerCreateBody {
    let user = user_id(plan.spec.profile);
    ContainerCreateBody {
        image: Some(plan.image.to_owned()),
        user: Some(format!("{user}:{user}")),
        entrypoint: Some(vec![TOOLBOX.to_owned()]),
        cmd: Some(Vec::new()),
        working_dir: Some(WORKSPACE.to_owned()),
        hostname: Some("sandbox".to_owned()),
        env: Some(environment(plan)),
        labels: Some(labels(plan)),
        open_stdin: Some(true),
        stdin_once: Some(false),
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(false),
        tty: Some(false),
        network_disabled: Some(true),
        // The image's own check would run beside the toolbox, unseen and unbounded.
        healthcheck: Some(bollard::models::HealthConfig {
            test: Some(vec!["NONE".to_owned()]),
            ..Default::default()
        }),
        host_config: Some(host_config(plan)),
        ..Default::default()
    }
}

fn host_config(plan: &Blueprint<'_>) -> HostConfig {
    let limits = &plan.spec.limits;
    let memory = i64::try_from(limits.memory_bytes).unwrap_or(i64::MAX);
    let locked = plan.spec.profile == Profile::Locked;
    HostConfig {
        network_mode: Some("none".to_owned()),
        ipc_mode: Some("private".to_owned()),
        privileged: Some(false),
        readonly_rootfs: Some(locked),
        cap_drop: Some(vec!["ALL".to_owned()]),
        cap_add: (plan.spec.profile == Profile::Root).then(|| ROOT_CAPABILITIES.map(str::to_owned).to_vec()),
        security_opt: Some(vec![
            "no-new-privileges:true".to_owned(),
            format!("seccomp={}", seccomp::profile()),
        ]),
        memory: Some(memory),
        memory_swap: Some(memory),
        nano_cpus: Some(i64::from(limits.cpu_millis) * 1_000_000),
        pids_limit: Some(i64::from(limits.pids)),
        ulimits: Some(ulimits(plan.open_files)),
        log_config: Some(HostConfigLogConfig { typ: Some("none".to_owned()), config: None }),
        restart_policy: Some(RestartPolicy {
            name: Some(RestartPolicyNameEnum::NO),
            maximum_retry_count: None,
        }),
        auto_remove: Some(false),
        init: Some(false),
        mounts: Some(mounts(plan)),
        tmpfs: locked
            .then(|| HashMap::from([("/tmp".to_owned(), "rw,exec,nosuid,nodev,size=512m".to_owned())])),
        runtime: plan.runtime.map(str::to_owned),
        ..Default::default()
    }
}

fn ulimits(open_files: Option<i64>) -> Vec<ResourcesUlimits> {
    let open_files = open_files.map(|count| ulimit("nofile", count));
    open_files.into_iter().chain([ulimit("core", 0), ulimit("fsize", FILE_BYTES)]).collect()
}

fn ulimit(name: &str, value: i64) -> ResourcesUlimits {
    ResourcesUlimits { name: Some(name.to_owned()), soft: Some(value), hard: Some(value) }
}

fn mounts(plan: &Blueprint<'_>) -> Vec<Mount> {
    let mut mounts = vec![bind(plan.toolbox, TOOLBOX)];
    if plan.spec.network != Network::None {
        mounts.push(bind(plan.net_dir, NET));
    }
    let name = container_name(plan.instance, plan.session);
    mounts.extend(volumes(plan.spec.profile).iter().map(|(target, suffix)| Mount {
        typ: Some(MountType::VOLUME),
        source: Some(format!("{name}-{suffix}")),
        target: Some((*target).to_owned()),
        read_only: Some(false),
        volume_options: Some(MountVolumeOptions {
            no_copy: Some(true),
            labels: Some(labels(plan)),
            ..Default::default()
        }),
        ..Default::default()
    }));
    mounts
}

// Never `Binds`: those create a missing source as root, and a submount below a read-only one stays writable.
fn bind(source: &Path, target: &str) -> Mount {
    Mount {
        typ: Some(MountType::BIND),
        source: Some(source.to_string_lossy().into_owned()),
        target: Some(target.to_owned()),
        read_only: Some(true),
        bind_options: Some(MountBindOptions {
            non_recursive: Some(true),
            propagation: Some(MountBindOptionsPropagationEnum::RPRIVATE),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn environment(plan: &Blueprint<'_>) -> Vec<String> {
    let mut env = vec![
        format!("HOME={}", home(plan.spec.profile)),
        format!("PATH={}", plan.image_path.unwrap_or(DEFAULT_PATH)),
        "GIT_CONFIG_COUNT=1".to_owned(),
        "GIT_CONFIG_KEY_0=safe.directory".to_owned(),
        "GIT_CONFIG_VALUE_0=*".to_owned(),
    ];
    if plan.spec.network != Network::None {
        for name in PROXY_VARIABLES {
            env.push(format!("{name}={PROXY}"));
        }
        for name in ["no_proxy", "NO_PROXY"] {
            env.push(format!("{name}=localhost,127.0.0.1,::1"));
        }
        env.push("NODE_USE_ENV_PROXY=1".to_owned());
    }
    env
}

#[cfg(test)]
mod tests;
