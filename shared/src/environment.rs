//! An environment revision in its compiled form, free of flags and abbreviations: what a runner needs to build a sandbox.

use serde::{Deserialize, Serialize};

/// What a sandbox is made of. Limits are non-zero; the control plane refuses others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// Any image reference that Docker resolves; `None` is the runner's default image.
    pub image: Option<String>,
    /// What it may reach.
    pub network: Network,
    /// What it may use.
    pub limits: Limits,
    /// How it is confined.
    pub profile: Profile,
    /// Packages to install, by installer.
    #[serde(default)]
    pub packages: Packages,
    /// Labels a runner must carry to be offered its sessions.
    #[serde(default)]
    pub placement_labels: Vec<String>,
}

/// What a sandbox may reach. A host is a name or `*.suffix`, with ports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Network {
    /// Nothing at all.
    None,
    /// The listed hosts only.
    Limited {
        /// `host` or `*.suffix`, optionally `:port`; without one, 443 and 80.
        allowed_hosts: Vec<String>,
    },
    /// Any public address.
    Unrestricted,
}

/// The resource limits of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Memory and swap together, bytes.
    pub memory_bytes: u64,
    /// Processors, thousandths of one.
    pub cpu_millis: u32,
    /// Processes and threads.
    pub pids: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { memory_bytes: 2 << 30, cpu_millis: 2_000, pids: 512 }
    }
}

/// How a sandbox is confined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// An unprivileged user, writable layer.
    #[default]
    Standard,
    /// Root inside, with seven capabilities.
    Root,
    /// Read-only root file system.
    Locked,
}

/// Packages by installer, in the order given.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Packages {
    /// Debian packages.
    #[serde(default)]
    pub apt: Vec<String>,
    /// Python packages.
    #[serde(default)]
    pub pip: Vec<String>,
    /// Node packages.
    #[serde(default)]
    pub npm: Vec<String>,
    /// Rust programs.
    #[serde(default)]
    pub cargo: Vec<String>,
}
