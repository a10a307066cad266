//! An environment's `config` in, the form to read back and the compiled form out. A flag is an abbreviation: what it grants
//! stands in `allowed_hosts` afterwards, and enforcement never sees the flag.

use super::hosts;
use crate::http::fields::{Fields, unsupported, wrong};
use checkfu_shared::{
    environment::{Limits, Network, Packages, Profile, Spec},
    problem::{Code, Problem},
};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

const HOSTS_MAX: usize = 256;
const PACKAGES_MAX: usize = 128;
const LABELS_MAX: usize = 16;
const MEMORY_BYTES: std::ops::RangeInclusive<u64> = (16 << 20)..=(1 << 40);
const CPU_MILLIS: std::ops::RangeInclusive<u64> = 10..=1_024_000;
const PIDS: std::ops::RangeInclusive<u64> = 16..=1_000_000;

/// A configuration as read back, with its compiled form.
pub(crate) type Compiled = (Value, Spec);

/// Compiles `config`; none means the default image without network.
///
/// # Errors
/// A refusal naming the first member that breaks a rule.
pub(crate) fn compile(config: Option<Fields>) -> Result<Compiled, Problem> {
    let Some(mut fields) = config else { return Ok((json!({"type": "self_hosted"}), bare())) };
    let kind = fields.required_text("type", 1, 64)?;
    let (mut shown, mut spec) = match kind.as_str() {
        "self_hosted" => (Map::new(), bare()),
        "cloud" => cloud(&mut fields)?,
        _ => return Err(wrong(&fields.path("type"), "must be self_hosted or cloud")),
    };
    shown.insert("type".to_owned(), kind.into());
    additions(&mut fields, &mut shown, &mut spec)?;
    fields.end()?;
    Ok((Value::Object(shown), spec))
}

fn bare() -> Spec {
    Spec {
        image: None,
        network: Network::None,
        limits: Limits::default(),
        profile: Profile::default(),
        packages: Packages::default(),
        placement_labels: Vec::new(),
    }
}

fn cloud(fields: &mut Fields) -> Result<(Map<String, Value>, Spec), Problem> {
    let (packages_shown, packages) = packages(fields.object("packages")?)?;
    let (networking, network, may_install) = networking(fields.object("networking")?)?;
    if packages != Packages::default() && !may_install {
        let rule = "cannot be installed without reaching their registries; set `networking.allow_package_managers` or choose unrestricted networking";
        return Err(wrong(&fields.path("packages"), rule));
    }
    let shown = [("networking".to_owned(), networking), ("packages".to_owned(), packages_shown)];
    Ok((shown.into_iter().collect(), Spec { network, packages, ..bare() }))
}

/// The networking to read back, compiled, and whether package registries are within reach.
fn networking(fields: Option<Fields>) -> Result<(Value, Network, bool), Problem> {
    let Some(mut fields) = fields else {
        return Ok((json!({"type": "unrestricted"}), Network::Unrestricted, true));
    };
    let kind = fields.required_text("type", 1, 64)?;
    let compiled = match kind.as_str() {
        "unrestricted" => (json!({"type": kind}), Network::Unrestricted, true),
        "none" => (json!({"type": kind}), Network::None, false),
        "limited" => limited(&mut fields)?,
        _ => return Err(wrong(&fields.path("type"), "must be unrestricted, limited or none")),
    };
    fields.end()?;
    Ok(compiled)
}

fn limited(fields: &mut Fields) -> Result<(Value, Network, bool), Problem> {
    let path = fields.path("allowed_hosts");
    let listed = fields.texts("allowed_hosts", HOSTS_MAX)?.unwrap_or_default();
    let mcp = fields.flag("allow_mcp_servers")?.unwrap_or(false);
    let managers = fields.flag("allow_package_managers")?.unwrap_or(false);
    let normal = |(at, host): (usize, &String)| hosts::normal(host, &format!("{path}[{at}]"));
    let mut reach: BTreeSet<String> = listed.iter().enumerate().map(normal).collect::<Result<_, _>>()?;
    if managers {
        reach.extend(hosts::PACKAGE_HOSTS.map(str::to_owned));
    }
    if reach.is_empty() {
        let rule = if mcp {
            "reaches nothing: `allow_mcp_servers` opens no host, since a sandbox never dials an MCP server itself. Name a host or choose networking of type none"
        } else {
            "reaches nothing. Name a host or choose networking of type none"
        };
        return Err(wrong(&path, rule));
    }
    let allowed_hosts: Vec<String> = reach.into_iter().collect();
    let shown = json!({
        "type": "limited",
        "allowed_hosts": allowed_hosts,
        "allow_mcp_servers": mcp,
        "allow_package_managers": managers,
    });
    Ok((shown, Network::Limited { allowed_hosts }, managers))
}

fn packages(fields: Option<Fields>) -> Result<(Value, Packages), Problem> {
    let mut packages = Packages::default();
    if let Some(mut fields) = fields {
        if fields.text("type")?.is_some_and(|kind| kind != "packages") {
            return Err(wrong(&fields.path("type"), "must be packages"));
        }
        packages.apt = installed(&mut fields, "apt")?;
        packages.pip = installed(&mut fields, "pip")?;
        packages.npm = installed(&mut fields, "npm")?;
        packages.cargo = installed(&mut fields, "cargo")?;
        for name in ["gem", "go"] {
            if !installed(&mut fields, name)?.is_empty() {
                let message =
                    format!("Packages by `{name}` are not installed yet. Use an image that has them.");
                return Err(unsupported(&fields.path(name), &message));
            }
        }
        fields.end()?;
    }
    let shown = json!({
        "type": "packages",
        "apt": packages.apt,
        "cargo": packages.cargo,
        "gem": [],
        "go": [],
        "npm": packages.npm,
        "pip": packages.pip,
    });
    Ok((shown, packages))
}

fn installed(fields: &mut Fields, name: &str) -> Result<Vec<String>, Problem> {
    let path = fields.path(name);
    let names = fields.texts(name, PACKAGES_MAX)?.unwrap_or_default();
    for (at, text) in names.iter().enumerate() {
        // What begins with a dash is an option, what has a blank is two arguments.
        let plain = text.len() <= 256
            && !text.starts_with('-')
            && text.bytes().all(|byte| {
                byte.is_ascii_graphic() && !b"'\"`$\\;&|<>(){}".contains(&byte)
                    || byte == b'<'
                    || byte == b'>'
            });
        if !plain {
            return Err(wrong(&format!("{path}[{at}]"), "must be a package name, optionally with a version"));
        }
    }
    Ok(names)
}

/// Our own members, on either type.
fn additions(fields: &mut Fields, shown: &mut Map<String, Value>, spec: &mut Spec) -> Result<(), Problem> {
    if let Some(image) = fields.text("image")? {
        if image.is_empty() || image.len() > 512 || !image.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(wrong(&fields.path("image"), "must be an image reference such as debian:trixie"));
        }
        shown.insert("image".to_owned(), image.clone().into());
        spec.image = Some(image);
    }
    if let Some(limits) = fields.object("resources")? {
        spec.limits = resources(limits)?;
        shown.insert("resources".to_owned(), json!(spec.limits));
    }
    if let Some(profile) = fields.value("profile") {
        spec.profile = serde_json::from_value(profile)
            .map_err(|_| wrong(&fields.path("profile"), "must be standard, root or locked"))?;
        shown.insert("profile".to_owned(), json!(spec.profile));
    }
    if let Some(mut placement) = fields.object("placement")? {
        spec.placement_labels = labels(&mut placement, "labels")?;
        placement.end()?;
        shown.insert("placement".to_owned(), json!({"labels": spec.placement_labels}));
    }
    if fields.value("retention").is_some() {
        let message = "Retention is not enforced yet, so it is not accepted. Leave `retention` out.";
        return Err(unsupported(&fields.path("retention"), message));
    }
    Ok(())
}

fn resources(mut fields: Fields) -> Result<Limits, Problem> {
    let standard = Limits::default();
    let memory = fields.whole("memory_bytes", *MEMORY_BYTES.start(), *MEMORY_BYTES.end())?;
    let cpu = fields.whole("cpu_millis", *CPU_MILLIS.start(), *CPU_MILLIS.end())?;
    let pids = fields.whole("pids", *PIDS.start(), *PIDS.end())?;
    fields.end()?;
    let small =
        |wanted: Option<u64>, standard| wanted.and_then(|n| u32::try_from(n).ok()).unwrap_or(standard);
    Ok(Limits {
        memory_bytes: memory.unwrap_or(standard.memory_bytes),
        cpu_millis: small(cpu, standard.cpu_millis),
        pids: small(pids, standard.pids),
    })
}

/// Takes a list of runner labels.
///
/// # Errors
/// `invalid_request` when one is no label.
pub(crate) fn labels(fields: &mut Fields, name: &str) -> Result<Vec<String>, Problem> {
    let path = fields.path(name);
    let labels = fields.texts(name, LABELS_MAX)?.unwrap_or_default();
    for (at, label) in labels.iter().enumerate() {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:=/-".contains(&byte);
        if label.len() > 64 || !label.bytes().all(plain) {
            let rule = "must have 1 to 64 letters, digits, `_`, `.`, `:`, `=`, `/` or `-`";
            return Err(wrong(&format!("{path}[{at}]"), rule));
        }
    }
    let unique: BTreeSet<String> = labels.into_iter().collect();
    Ok(unique.into_iter().collect())
}

/// Refuses an update that would change what kind of environment it is.
///
/// # Errors
/// `invalid_config_type_change`.
pub(crate) fn same_type(old: &Value, new: &Value) -> Result<(), Problem> {
    let (old, new) = (old["type"].as_str().unwrap_or_default(), new["type"].as_str().unwrap_or_default());
    if old == new {
        return Ok(());
    }
    let message =
        format!("The environment is of type {old} and cannot become {new}. Create another environment.");
    Err(Problem::new(Code::InvalidConfigTypeChange, message).with("field", "config.type"))
}

#[cfg(test)]
mod tests;
