//! What Docker is asked for, field by field, and that no environment gets more.

use super::*;
use checkfu_shared::environment::{Limits, Packages, Spec};
use proptest::prelude::*;
use serde_json::{Value, json};

fn spec(network: Network, profile: Profile) -> Spec {
    Spec {
        image: None,
        network,
        limits: Limits::default(),
        profile,
        packages: Packages::default(),
        placement_labels: Vec::new(),
    }
}

fn built(spec: &Spec) -> Value {
    serde_json::to_value(container(&Blueprint {
        spec,
        image: "img",
        image_path: None,
        instance: "rnr",
        session: SessionId::from_bytes([7; 16]),
        epoch: 3,
        created: Timestamp::from_ms(0),
        toolbox: Path::new("/opt/toolbox"),
        net_dir: Path::new("/var/net"),
        runtime: None,
        open_files: Some(OPEN_FILES),
    }))
    .unwrap()
}

#[test]
fn a_standard_sandbox_without_network_is_exactly_this() {
    let mut body = built(&spec(Network::None, Profile::Standard));
    let security = body["HostConfig"]["SecurityOpt"].take();
    assert_eq!(security[0], "no-new-privileges:true");
    assert!(security[1].as_str().unwrap().starts_with(r#"seccomp={"archMap""#), "{}", security[1]);
    let mut host = body["HostConfig"].take();
    host.as_object_mut().unwrap().remove("SecurityOpt");
    body.as_object_mut().unwrap().remove("HostConfig");
    assert_eq!(
        host,
        json!({
            "NetworkMode": "none", "IpcMode": "private", "Privileged": false, "ReadonlyRootfs": false,
            "CapDrop": ["ALL"],
            "Memory": 2_147_483_648_u64, "MemorySwap": 2_147_483_648_u64,
            "NanoCpus": 2_000_000_000, "PidsLimit": 512,
            "Ulimits": [
                {"Name": "nofile", "Soft": 65536, "Hard": 65536},
                {"Name": "core", "Soft": 0, "Hard": 0},
                {"Name": "fsize", "Soft": 4_294_967_296_u64, "Hard": 4_294_967_296_u64},
            ],
            "LogConfig": {"Type": "none"}, "RestartPolicy": {"Name": "no"},
            "AutoRemove": false, "Init": false,
            "Mounts": [{
                "Type": "bind", "Source": "/opt/toolbox", "Target": "/.checkfu/bin/checkfu-toolbox",
                "ReadOnly": true, "BindOptions": {"NonRecursive": true, "Propagation": "rprivate"},
            }],
        })
    );
    let session = "sess_07070707070707070707070707070707";
    assert_eq!(
        body,
        json!({
            "Image": "img",
            "User": "1000:1000",
            "Entrypoint": ["/.checkfu/bin/checkfu-toolbox"],
            "Cmd": [],
            "WorkingDir": "/workspace",
            "Hostname": "sandbox",
            "Env": [
                "HOME=/home/checkfu",
                "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
            ],
            "Labels": {
                "checkfu.instance": "rnr", "checkfu.session": session, "checkfu.epoch": "3",
                "checkfu.role": "sandbox", "checkfu.created": "1970-01-01T00:00:00.000Z",
            },
            "OpenStdin": true, "StdinOnce": false, "Tty": false,
            "AttachStdin": true, "AttachStdout": true, "AttachStderr": false,
            "NetworkDisabled": true,
            "Healthcheck": {"Test": ["NONE"]},
        })
    );
}

#[test]
fn only_a_sandbox_with_network_has_the_proxy() {
    let limited = spec(Network::Limited { allowed_hosts: Vec::new() }, Profile::Standard);
    for (spec, has) in [
        (spec(Network::None, Profile::Standard), false),
        (limited, true),
        (spec(Network::Unrestricted, Profile::Standard), true),
    ] {
        let body = built(&spec);
        let mounted =
            body["HostConfig"]["Mounts"].as_array().unwrap().iter().any(|mount| mount["Target"] == NET);
        let told = body["Env"].to_string().contains("https_proxy=http://127.0.0.1:3128");
        assert_eq!((mounted, told), (has, has), "{:?}", spec.network);
        assert_eq!(body["HostConfig"]["NetworkMode"], "none");
    }
}

#[test]
fn root_inside_has_seven_capabilities_and_its_own_home() {
    let body = built(&spec(Network::None, Profile::Root));
    assert_eq!(body["User"], "0:0");
    assert_eq!(body["Env"][0], "HOME=/root");
    assert_eq!(body["HostConfig"]["CapDrop"], json!(["ALL"]));
    assert_eq!(body["HostConfig"]["CapAdd"].as_array().unwrap().len(), 7);
}

#[test]
fn a_locked_sandbox_writes_only_to_labelled_volumes_and_tmp() {
    let body = built(&spec(Network::None, Profile::Locked));
    assert_eq!(body["HostConfig"]["ReadonlyRootfs"], true);
    let mounts = body["HostConfig"]["Mounts"].as_array().unwrap();
    let writable: Vec<_> = mounts.iter().filter(|mount| mount["ReadOnly"] == false).collect();
    assert_eq!(writable.len(), volumes(Profile::Locked).len());
    for mount in writable {
        assert_eq!(mount["Type"], "volume");
        assert_eq!(mount["VolumeOptions"]["Labels"]["checkfu.instance"], "rnr");
    }
    assert!(!body["HostConfig"]["Tmpfs"].to_string().contains("noexec"));
}

#[test]
fn the_name_depends_on_instance_and_session_alone() {
    let session = SessionId::from_bytes([1; 16]);
    assert_eq!(container_name("a", session), container_name("a", session));
    assert_ne!(container_name("a", session), container_name("b", session));
    assert_ne!(container_name("a", session), container_name("a", SessionId::from_bytes([2; 16])));
}

fn any_spec() -> impl Strategy<Value = Spec> {
    let network = prop_oneof![
        Just(Network::None),
        Just(Network::Unrestricted),
        proptest::collection::vec(".*", 0..4).prop_map(|allowed_hosts| Network::Limited { allowed_hosts }),
    ];
    let profile = prop_oneof![Just(Profile::Standard), Just(Profile::Root), Just(Profile::Locked)];
    (network, profile, any::<u64>(), any::<u32>(), any::<u32>(), proptest::option::of(".*")).prop_map(
        |(network, profile, memory_bytes, cpu_millis, pids, image)| Spec {
            image,
            limits: Limits { memory_bytes, cpu_millis, pids },
            ..spec(network, profile)
        },
    )
}

proptest! {
    #[test]
    fn no_environment_yields_a_way_out(spec in any_spec()) {
        let body = built(&spec);
        let host = &body["HostConfig"];
        prop_assert_eq!(&host["Privileged"], false);
        prop_assert_eq!(&host["NetworkMode"], "none");
        prop_assert_eq!(&host["CapDrop"], &json!(["ALL"]));
        for field in ["PidMode", "UTSMode", "UsernsMode", "CgroupnsMode", "Devices", "DeviceRequests", "PortBindings",
            "Binds", "VolumesFrom", "CgroupParent", "PublishAllPorts", "GroupAdd"] {
            prop_assert!(host[field].is_null(), "{} is set", field);
        }
        for mount in host["Mounts"].as_array().unwrap() {
            if mount["Type"] == "bind" {
                prop_assert!(["/opt/toolbox", "/var/net"].contains(&mount["Source"].as_str().unwrap()));
                prop_assert_eq!(&mount["ReadOnly"], true);
            }
        }
        prop_assert!(!body.to_string().contains("docker.sock"));
        prop_assert!(!host["SecurityOpt"].to_string().contains("unconfined"));
    }
}
