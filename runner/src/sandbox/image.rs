//! The image of a sandbox: the local one when there is one, else pulled, never waiting without progress.

use super::{
    engine::{Engine, fault},
    error::Error,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bollard::{auth::DockerCredentials, errors::Error as Fault, query_parameters::CreateImageOptionsBuilder};
use futures_util::StreamExt as _;
use std::time::Duration;

const NO_PROGRESS_SECONDS: u64 = 90;

/// An image that is present.
#[derive(Debug, Clone)]
pub(super) struct Image {
    /// Its content id.
    pub(super) id: String,
    /// The `PATH` it sets.
    pub(super) path: Option<String>,
}

impl Engine {
    /// The image of this reference, pulled when it is missing.
    pub(super) async fn image(&self, reference: &str) -> Result<Image, Error> {
        if let Some(image) = self.local_image(reference).await? {
            return Ok(image);
        }
        self.pull(reference).await?;
        self.local_image(reference).await?.ok_or_else(|| Error::ImageNotFound { image: reference.to_owned() })
    }

    /// The image of this reference, when it is here.
    pub(super) async fn local_image(&self, reference: &str) -> Result<Option<Image>, Error> {
        match self.client.inspect_image(reference).await {
            Ok(found) => Ok(Some(Image {
                id: found.id.unwrap_or_default(),
                path: found.config.and_then(|config| path_of(&config.env.unwrap_or_default())),
            })),
            Err(Fault::DockerResponseServerError { status_code: 400 | 404, .. }) => Ok(None),
            Err(error) => Err(fault("look at an image", error)),
        }
    }

    async fn pull(&self, reference: &str) -> Result<(), Error> {
        let image = || reference.to_owned();
        let (name, tag) = split(reference);
        let options = CreateImageOptionsBuilder::default().from_image(name).tag(tag).build();
        let mut progress = self.client.create_image(Some(options), None, credentials(reference).await);
        loop {
            let next = tokio::time::timeout(Duration::from_secs(NO_PROGRESS_SECONDS), progress.next()).await;
            match next {
                Err(_) => return Err(Error::ImageStalled { image: image(), seconds: NO_PROGRESS_SECONDS }),
                Ok(None) => return Ok(()),
                Ok(Some(Ok(_))) => {}
                Ok(Some(Err(error))) => return Err(refused(reference, fault("pull an image", error))),
            }
        }
    }
}

fn refused(reference: &str, error: Error) -> Error {
    let image = reference.to_owned();
    match error {
        Error::Engine { status, detail, .. } => {
            let words = detail.to_ascii_lowercase();
            let absent = ["not found", "manifest unknown", "does not exist", "invalid reference"];
            if status == Some(404) || absent.iter().any(|phrase| words.contains(phrase)) {
                Error::ImageNotFound { image }
            } else {
                Error::ImagePull { image, detail }
            }
        }
        other => other,
    }
}

/// Name and tag, or name with digest and no tag. A port in the registry's name is no tag.
fn split(reference: &str) -> (&str, &str) {
    if reference.contains('@') {
        return (reference, "");
    }
    match reference.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, tag),
        _ => (reference, "latest"),
    }
}

fn path_of(env: &[String]) -> Option<String> {
    env.iter().find_map(|entry| entry.strip_prefix("PATH=")).map(str::to_owned)
}

/// The registry that a reference names, as Docker's configuration spells it.
fn registry(reference: &str) -> &str {
    match reference.split_once('/') {
        Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => host,
        _ => "https://index.docker.io/v1/",
    }
}

/// The login that the host's own Docker configuration holds for the registry. Unreadable means none.
async fn credentials(reference: &str) -> Option<DockerCredentials> {
    let directory = std::env::var_os("DOCKER_CONFIG")
        .map(std::path::PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| std::path::Path::new(&home).join(".docker")))?;
    let text = tokio::fs::read(directory.join("config.json")).await.ok()?;
    login(&serde_json::from_slice(&text).ok()?, registry(reference))
}

fn login(config: &serde_json::Value, registry: &str) -> Option<DockerCredentials> {
    let encoded = config.get("auths")?.get(registry)?.get("auth")?.as_str()?;
    let plain = String::from_utf8(STANDARD.decode(encoded).ok()?).ok()?;
    let (user, password) = plain.split_once(':')?;
    Some(DockerCredentials {
        username: Some(user.to_owned()),
        password: Some(password.to_owned()),
        serveraddress: Some(registry.to_owned()),
        ..Default::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_split_into_name_and_tag() {
        for (reference, name, tag) in [
            ("busybox", "busybox", "latest"),
            ("busybox:1.36", "busybox", "1.36"),
            ("host:5000/a/b", "host:5000/a/b", "latest"),
            ("host:5000/a/b:t", "host:5000/a/b", "t"),
            ("a@sha256:00", "a@sha256:00", ""),
        ] {
            assert_eq!(split(reference), (name, tag), "{reference}");
        }
    }

    #[test]
    fn the_login_of_the_right_registry_is_found() {
        let config = serde_json::json!({"auths": {"host:5000": {"auth": STANDARD.encode("me:se:cret")}}});
        let found = login(&config, registry("host:5000/a")).unwrap();
        assert_eq!((found.username.as_deref(), found.password.as_deref()), (Some("me"), Some("se:cret")));
        assert!(login(&config, registry("busybox")).is_none());
        assert!(login(&serde_json::json!([]), "x").is_none());
    }

    #[test]
    fn a_missing_image_and_a_failed_pull_are_told_apart() {
        let engine =
            |status, detail: &str| Error::Engine { action: "pull", status, detail: detail.to_owned() };
        assert!(matches!(refused("x", engine(Some(404), "")), Error::ImageNotFound { .. }));
        assert!(matches!(refused("x", engine(Some(500), "manifest unknown")), Error::ImageNotFound { .. }));
        assert!(matches!(refused("x", engine(Some(500), "dial tcp")), Error::ImagePull { .. }));
    }
}
