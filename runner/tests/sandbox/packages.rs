//! Packages that are installed once into an image of their own, from a repository that the test serves.

use crate::{
    network::{files, serve_outputs},
    rig::{Rig, docker, run, spec},
};
use checkfu_runner::sandbox::{Error, Open, egress::Reach};
use checkfu_shared::{
    environment::{Network, Packages, Spec},
    id::SessionId,
};
use std::{net::Ipv4Addr, sync::atomic::Ordering};

/// A Debian package and its index, made inside a sandbox.
const MAKE: &str = r#"mkdir -p p/DEBIAN p/usr/bin && cd /workspace
printf '#!/bin/sh\necho packaged\n' > p/usr/bin/checkfu-probe && chmod 755 p/usr/bin/checkfu-probe
printf 'Package: checkfu-probe\nVersion: 1.0\nArchitecture: all\nMaintainer: nobody <a@b.test>\nDescription: probe\n' \
    > p/DEBIAN/control
out=/mnt/session/outputs/repo && mkdir -p $out && dpkg-deb -Zgzip --root-owner-group --build p $out/probe.deb >/dev/null
{ cat p/DEBIAN/control; echo "Filename: ./probe.deb"; echo "Size: $(stat -c %s $out/probe.deb)"
  echo "SHA256: $(sha256sum < $out/probe.deb | cut -d' ' -f1)"; } > $out/Packages"#;

/// An image whose only package source is the test's, removed with everything that was made of it.
struct Base {
    name: String,
    label: String,
}

impl Base {
    fn make(rig: &Rig, port: u16) -> Self {
        let name = format!("checkfu/test-apt:{}", rig.session);
        let source = format!("deb [trusted=yes] http://127.0.0.2:{port}/repo ./");
        let script = format!("rm -rf /etc/apt/sources.list.d/*; echo '{source}' > /etc/apt/sources.list");
        let label = format!("checkfu.instance={}", rig.config.instance);
        let image = rig.config.default_image.as_str();
        let made = format!("checkfu-test-{}", rig.session);
        docker(&[
            "run",
            "--user",
            "0:0",
            "--name",
            &made,
            "--label",
            &label,
            "--network",
            "none",
            image,
            "sh",
            "-c",
            &script,
        ]);
        docker(&["commit", &made, &name]);
        docker(&["rm", "-f", &made]);
        Self { name, label: format!("label={label}") }
    }
}

impl Drop for Base {
    fn drop(&mut self) {
        // An image cannot go before what runs from it.
        for container in docker(&["ps", "-aq", "--filter", &self.label]).lines() {
            docker(&["rm", "-fv", container]);
        }
        let since = format!("since={}", self.name);
        for image in
            docker(&["images", "-q", "--filter", &since, "--filter", "reference=checkfu/derived"]).lines()
        {
            docker(&["rmi", "-f", image]);
        }
        docker(&["rmi", "-f", &self.name]);
    }
}

fn another(spec: Spec) -> Open {
    Open { session_id: SessionId::mint(), epoch: 1, spec, lease_ms: 60_000, keep_ms: 60_000 }
}

#[tokio::test]
async fn packages_are_installed_once_and_are_there_in_every_later_sandbox() {
    let served = tempfile::tempdir().unwrap();
    let (port, requests) = files(served.path().to_owned()).await;
    let rig = Rig::with_reach(Reach { exempt: vec![Ipv4Addr::new(127, 0, 0, 2).into()] }).await;
    let maker = rig.sandbox().await;
    run(&maker, "make", MAKE).await;
    serve_outputs(&rig, &maker, served.path()).await;
    let base = Base::make(&rig, port);
    let with = |apt: &str, pip: &[&str]| Spec {
        image: Some(base.name.clone()),
        network: Network::Limited { allowed_hosts: vec![format!("127.0.0.2:{port}")] },
        packages: Packages {
            apt: vec![apt.to_owned()],
            pip: pip.iter().map(|name| (*name).to_owned()).collect(),
            ..Packages::default()
        },
        ..spec()
    };
    // Two at once share one installation.
    let open = || rig.docker.open(another(with("checkfu-probe", &[])));
    let (first, second) = tokio::join!(open(), open());
    for opened in [first.unwrap(), second.unwrap()] {
        assert_eq!(
            run(&opened.sandbox, "c1", "checkfu-probe; id -u; pwd").await,
            "packaged\n1000\n/workspace\n"
        );
    }
    let asked = requests.load(Ordering::Relaxed);
    assert!(asked > 0);
    let cut_off = Spec { network: Network::None, ..with("checkfu-probe", &[]) };
    let later = rig.docker.open(another(cut_off)).await.unwrap().sandbox;
    let probe = "checkfu-probe; env | grep -ci 'proxy=h' || true";
    assert_eq!(run(&later, "c1", probe).await, "packaged\n0\n");
    assert_eq!(requests.load(Ordering::Relaxed), asked, "it was installed again");

    for (spec, installer, word) in [
        (with("no-such-package", &[]), "apt", "no-such-package"),
        (with("checkfu-probe", &["x"]), "pip", "no pip"),
    ] {
        let refused = rig.docker.open(another(spec)).await.unwrap_err();
        assert!(
            matches!(&refused, Error::Packages { installer: found, .. } if *found == installer),
            "{refused:?}"
        );
        assert!(refused.to_string().contains(word), "{refused}");
    }
    // The maker and the three that opened; no builder is left.
    assert_eq!(rig.docker.list().await.unwrap().len(), 4);
}
