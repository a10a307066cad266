//! Packages of an environment, installed once into an image of their own that every later sandbox starts from. The image
//! is named by its content: what it starts from and what is installed, so that nothing else ever decides which one is used.
//! The installation runs in a sandbox like any other, under the environment's own network policy, and never on this host.

mod script;

use super::{
    Docker, Open,
    container::{Request, Sandbox},
    error::Error,
    image::Image,
    spec,
};
use bollard::{models::ContainerConfig, query_parameters::CommitContainerOptionsBuilder};
use checkfu_shared::{
    environment::{Limits, Packages, Profile, Spec},
    id::SessionId,
};
use checkfu_toolbox::call::{Bash, Block, Outcome, Tool};
use ring::digest;
use std::time::Duration;

/// Repository of the images made here.
const REPOSITORY: &str = "checkfu/derived";
/// Counts up when the same packages would be installed differently.
const RECIPE: u32 = 1;
/// One installer's time.
const INSTALL_WAIT: Duration = Duration::from_secs(25 * 60);
const LEASE_MS: u64 = 2 * 60 * 60 * 1_000;
/// How much of an installer's last words is shown.
const TAIL_CHARS: usize = 600;

/// The digest of what an image with these packages is made of.
fn key(base: &str, packages: &Packages) -> [u8; 32] {
    let mut content = digest::Context::new(&digest::SHA256);
    content.update(format!("{RECIPE}\n{base}\n").as_bytes());
    for (installer, names) in script::installers(packages) {
        content.update(format!("{installer} {}\n", names.len()).as_bytes());
        for name in names {
            content.update(format!("{name}\n").as_bytes());
        }
    }
    let mut key = [0; 32];
    key.copy_from_slice(content.finish().as_ref());
    key
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Docker {
    /// The image to start from: the one that was resolved, or the one made of it with the environment's packages, which is
    /// made now when it is missing.
    pub(super) async fn with_packages(&self, open: &Open, base: Image) -> Result<Image, Error> {
        let packages = &open.spec.packages;
        if script::installers(packages).next().is_none() {
            return Ok(base);
        }
        let key = key(&base.id, packages);
        let tag = hex(&key);
        let reference = format!("{REPOSITORY}:{tag}");
        // Two sandboxes of one environment must not both install; of different ones it would only take longer.
        let _one_at_a_time = self.inner.installs.lock().await;
        if let Some(image) = self.inner.engine.local_image(&reference).await? {
            return Ok(image);
        }
        let mut id = [0; 16];
        id.copy_from_slice(&key[..16]);
        let session = SessionId::from_bytes(id);
        let unlisted = self.unlist(session);
        let installed = self.install(open, &base, session, &tag).await;
        // Also what an installation that was cut off by a crash left.
        let removed = self.remove_session(session).await;
        drop(unlisted);
        installed?;
        removed?;
        let image = self.inner.engine.local_image(&reference).await?;
        image.ok_or(Error::ImageNotFound { image: reference })
    }

    async fn install(&self, open: &Open, base: &Image, session: SessionId, tag: &str) -> Result<(), Error> {
        self.remove_session(session).await?;
        let spec = Spec {
            image: Some(base.id.clone()),
            network: open.spec.network.clone(),
            limits: Limits::default(),
            profile: Profile::Root,
            packages: Packages::default(),
            placement_labels: Vec::new(),
        };
        let open_builder = Open { session_id: session, epoch: 1, spec, lease_ms: LEASE_MS, keep_ms: 60_000 };
        // A sandbox without packages: it opens without coming back here.
        let builder = Box::pin(self.open(open_builder)).await?.sandbox;
        for (installer, names) in script::installers(&open.spec.packages) {
            install_by(&builder, installer, &script::of(installer, names)).await?;
        }
        let name = builder.container().to_owned();
        builder.close().await;
        self.inner.engine.kill(&name).await?;
        self.inner.engine.commit(&name, REPOSITORY, tag).await
    }
}

async fn install_by(builder: &Sandbox, installer: &'static str, script: &str) -> Result<(), Error> {
    let timeout_ms = u64::try_from(INSTALL_WAIT.as_millis()).unwrap_or(u64::MAX);
    let bash = Bash { command: Some(script.to_owned()), timeout_ms: Some(timeout_ms), ..Bash::default() };
    let request =
        Request { call_id: installer.to_owned(), thread: installer.to_owned(), tool: Tool::Bash(bash) };
    let outcome = builder.call(request).await?;
    if outcome.exit_code == Some(0) {
        return Ok(());
    }
    Err(Error::Packages { installer, said: last_words(&outcome) })
}

fn last_words(outcome: &Outcome) -> String {
    let text: String = outcome
        .content
        .iter()
        .map(|block| match block {
            Block::Text { text } => text.as_str(),
            _ => "",
        })
        .collect();
    let count = text.chars().count();
    text.chars().skip(count.saturating_sub(TAIL_CHARS)).collect::<String>().trim().to_owned()
}

impl super::Engine {
    /// Makes an image of a container that has ended. What the container was told about its own run is not in it.
    async fn commit(&self, name: &str, repository: &str, tag: &str) -> Result<(), Error> {
        let options = CommitContainerOptionsBuilder::default()
            .container(name)
            .repo(repository)
            .tag(tag)
            .comment("packages of a Checkfu environment")
            .build();
        // The daemon adds the container's own variables to these; an empty one is as good as none.
        let env = spec::PROXY_VARIABLES.iter().map(|variable| format!("{variable}=")).collect();
        let config = ContainerConfig {
            env: Some(env),
            user: Some("0:0".to_owned()),
            entrypoint: Some(Vec::new()),
            cmd: Some(vec!["/bin/sh".to_owned()]),
            ..Default::default()
        };
        match self.client.commit_container(options, config).await {
            Ok(_) => Ok(()),
            Err(error) => Err(super::engine::fault("keep installed packages as an image", error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_follows_the_content_and_nothing_else() {
        let packages = |apt: &[&str], pip: &[&str]| Packages {
            apt: apt.iter().map(|name| (*name).to_owned()).collect(),
            pip: pip.iter().map(|name| (*name).to_owned()).collect(),
            ..Packages::default()
        };
        let one = key("sha256:a", &packages(&["jq"], &[]));
        assert_eq!(one, key("sha256:a", &packages(&["jq"], &[])));
        for other in [
            key("sha256:b", &packages(&["jq"], &[])),
            key("sha256:a", &packages(&["jq=1"], &[])),
            key("sha256:a", &packages(&[], &["jq"])),
            key("sha256:a", &packages(&["jq", "x"], &[])),
            key("sha256:a", &packages(&["jq"], &["x"])),
        ] {
            assert_ne!(one, other);
        }
    }

    #[test]
    fn an_installers_last_words_are_cut_from_the_front() {
        let long = format!("{}E: no such package", "x".repeat(5_000));
        let words = last_words(&Outcome::text(long));
        assert!(words.ends_with("E: no such package") && words.chars().count() == TAIL_CHARS);
    }
}
