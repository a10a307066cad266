//! The system calls a sandbox may make, as a Docker seccomp profile.
//! The list in `allowed-calls.txt` is every call of the kernel's x86 tables except those that need a capability no
//! sandbox has, reach keys, kernels, namespaces or NUMA policy, or are known escape aids (`io_uring`, `userfaultfd`).
//! Sockets are local, IP or netlink only: a namespace without network does not confine `AF_VSOCK` or `AF_ALG`,
//! and `socketcall`, through which 32-bit programs would get round that, is absent.

use serde_json::{Value, json};

const ALLOWED: &str = include_str!("allowed-calls.txt");
/// `AF_UNIX`, `AF_INET`, `AF_INET6`, `AF_NETLINK`.
const SOCKET_FAMILIES: [u64; 4] = [1, 2, 10, 16];
/// `PER_LINUX`, `PER_LINUX32`, both with `UNAME26`, and the query.
const PERSONALITIES: [u64; 5] = [0x0, 0x8, 0x2_0000, 0x2_0008, 0xffff_ffff];
/// Every `CLONE_NEW*` flag that `clone` takes.
const NEW_NAMESPACES: u64 = 0x7e02_0000;
const ENOSYS: u32 = 38;

/// The profile as the JSON that `SecurityOpt` carries after `seccomp=`.
pub(super) fn profile() -> Value {
    let mut calls = vec![json!({"names": ALLOWED.lines().collect::<Vec<_>>(), "action": "SCMP_ACT_ALLOW"})];
    calls.extend(SOCKET_FAMILIES.map(|family| when("socket", family, 0, "SCMP_CMP_EQ")));
    calls.extend(PERSONALITIES.map(|persona| when("personality", persona, 0, "SCMP_CMP_EQ")));
    calls.push(when("clone", NEW_NAMESPACES, 0, "SCMP_CMP_MASKED_EQ"));
    // The flags of `clone3` lie behind a pointer; libraries fall back to `clone` on ENOSYS only.
    calls.push(json!({"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": ENOSYS}));
    json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "archMap": [
            {"architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86"]},
            {"architecture": "SCMP_ARCH_AARCH64", "subArchitectures": ["SCMP_ARCH_ARM"]},
        ],
        "syscalls": calls,
    })
}

fn when(call: &str, value: u64, value_two: u64, op: &str) -> Value {
    json!({
        "names": [call],
        "action": "SCMP_ACT_ALLOW",
        "args": [{"index": 0, "value": value, "valueTwo": value_two, "op": op}],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<String> {
        let profile = profile();
        let calls = profile["syscalls"].as_array().unwrap();
        let free = calls.iter().filter(|call| call["action"] == "SCMP_ACT_ALLOW" && call["args"].is_null());
        free.flat_map(|call| call["names"].as_array().unwrap().clone())
            .map(|name| name.as_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn what_leaves_the_sandbox_is_not_allowed_freely() {
        let names = names();
        for call in [
            "socket",
            "socketcall",
            "clone",
            "clone3",
            "unshare",
            "setns",
            "mount",
            "bpf",
            "keyctl",
            "io_uring_setup",
            "userfaultfd",
            "kexec_load",
            "init_module",
            "open_by_handle_at",
            "pivot_root",
            "reboot",
            "personality",
        ] {
            assert!(!names.iter().any(|name| name == call), "{call} is allowed");
        }
        for call in ["execve", "openat", "futex", "wait4", "prctl", "landlock_create_ruleset"] {
            assert!(names.iter().any(|name| name == call), "{call} is missing");
        }
    }

    #[test]
    fn only_local_ip_and_netlink_sockets_are_allowed() {
        let profile = profile();
        let families: Vec<_> = profile["syscalls"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|call| call["names"] == json!(["socket"]))
            .map(|call| call["args"][0]["value"].as_u64().unwrap())
            .collect();
        assert_eq!(families, SOCKET_FAMILIES);
    }
}
