//! The Docker Engine API, reduced to what sandboxes use, each request with a bound in time and a typed error.
//! Paths and words of the daemon never leave this module except in an error's `detail`.

use super::error::Error;
use bollard::{
    container::AttachContainerResults,
    errors::Error as Fault,
    models::{ContainerCreateBody, ContainerInspectResponse, ContainerSummary, SystemInfo},
    query_parameters as query,
};
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use std::{collections::HashMap, path::Path, time::Duration};

const DEFAULT_SOCKET: &str = "/var/run/docker.sock";
const REQUEST_SECONDS: u64 = 60;

/// What lies at a path: a Go file mode, and bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stat {
    pub(crate) mode: u32,
    pub(crate) size: u64,
}

/// A connection to one daemon. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Engine {
    pub(super) client: bollard::Docker,
}

impl Engine {
    pub(super) async fn connect(socket: Option<&Path>) -> Result<Self, Error> {
        let path = match socket {
            Some(path) => path.to_string_lossy().into_owned(),
            None => from_environment(std::env::var("DOCKER_HOST").ok())?,
        };
        if let Err(error) = tokio::net::UnixStream::connect(&path).await {
            return Err(match error.kind() {
                std::io::ErrorKind::NotFound => Error::NoSocket { path },
                std::io::ErrorKind::PermissionDenied => Error::SocketDenied { path },
                _ => Error::Unavailable { detail: error.to_string() },
            });
        }
        let unreachable = |error: Fault| Error::Unavailable { detail: error.to_string() };
        let client = bollard::Docker::connect_with_unix(&path, REQUEST_SECONDS, bollard::API_DEFAULT_VERSION)
            .map_err(unreachable)?;
        Ok(Self { client: client.negotiate_version().await.map_err(unreachable)? })
    }

    /// The version of the API that was agreed on.
    pub(super) fn api(&self) -> String {
        self.client.client_version().to_string()
    }

    pub(super) async fn info(&self) -> Result<SystemInfo, Error> {
        self.client.info().await.map_err(|error| fault("describe itself", error))
    }

    /// The container of this name, or `None` when there is none.
    pub(super) async fn inspect(&self, name: &str) -> Result<Option<ContainerInspectResponse>, Error> {
        let found = self.client.inspect_container(name, None::<query::InspectContainerOptions>).await;
        absent(found, "look at a sandbox")
    }

    /// Creates a container; `None` when the name is taken.
    pub(super) async fn create(&self, name: &str, body: ContainerCreateBody) -> Result<Option<()>, Error> {
        let options = query::CreateContainerOptionsBuilder::default().name(name).build();
        match self.client.create_container(Some(options), body).await {
            Ok(_) => Ok(Some(())),
            Err(Fault::DockerResponseServerError { status_code: 409, .. }) => Ok(None),
            Err(error) => Err(fault("create a sandbox", error)),
        }
    }

    pub(super) async fn put(&self, name: &str, path: &str, tar: Vec<u8>) -> Result<(), Error> {
        let options = query::UploadToContainerOptionsBuilder::default().path(path).build();
        let body = bollard::body_full(tar.into());
        let sent = self.client.upload_to_container(name, Some(options), body).await;
        sent.map_err(|error| fault("prepare a sandbox", error))
    }

    pub(super) async fn start(&self, name: &str) -> Result<(), Error> {
        let started = self.client.start_container(name, None::<query::StartContainerOptions>).await;
        started.map_err(|error| fault("start a sandbox", error))
    }

    pub(super) async fn attach(&self, name: &str) -> Result<AttachContainerResults, Error> {
        let options =
            query::AttachContainerOptionsBuilder::default().stream(true).stdin(true).stdout(true).build();
        let attached = self.client.attach_container(name, Some(options));
        match tokio::time::timeout(Duration::from_secs(REQUEST_SECONDS), attached).await {
            Ok(attached) => attached.map_err(|error| fault("attach to a sandbox", error)),
            Err(_) => Err(Error::Unavailable { detail: "attach timed out".to_owned() }),
        }
    }

    /// Pauses a container; one that is paused already stays so. Whether the daemon says that this changed anything.
    pub(super) async fn pause(&self, name: &str) -> Result<bool, Error> {
        settled(self.client.pause_container(name).await, "is already paused", "pause a sandbox")
    }

    /// Lets a paused container go on; one that is not paused stays so. Whether the daemon says that this changed
    /// anything.
    pub(super) async fn unpause(&self, name: &str) -> Result<bool, Error> {
        settled(self.client.unpause_container(name).await, "is not paused", "unpause a sandbox")
    }

    /// Kills a container's processes; its files stay.
    pub(super) async fn kill(&self, name: &str) -> Result<(), Error> {
        let killed = self.client.kill_container(name, None::<query::KillContainerOptions>).await;
        settled(killed, "is not running", "stop a sandbox").map(|_was_running| ())
    }

    /// Removes a container by force; one that is gone counts as removed.
    pub(super) async fn remove(&self, name: &str) -> Result<(), Error> {
        let options = query::RemoveContainerOptionsBuilder::default().force(true).v(true).build();
        match self.client.remove_container(name, Some(options)).await {
            Err(Fault::DockerResponseServerError { status_code: 409, message })
                if message.contains("already in progress") =>
            {
                Ok(())
            }
            removed => absent(removed, "remove a sandbox").map(|_| ()),
        }
    }

    /// Removes the volumes that carry all of these label values.
    pub(super) async fn remove_volumes(&self, labels: [String; 2]) -> Result<(), Error> {
        let filters = HashMap::from([("label".to_owned(), labels.to_vec())]);
        let options = query::ListVolumesOptionsBuilder::default().filters(&filters).build();
        let listed = self.client.list_volumes(Some(options)).await;
        let listed = listed.map_err(|error| fault("list volumes", error))?;
        for volume in listed.volumes.unwrap_or_default() {
            let removed = self.client.remove_volume(&volume.name, None::<query::RemoveVolumeOptions>).await;
            absent(removed, "remove a volume")?;
        }
        Ok(())
    }

    /// Every container, running or not, that carries this label value. Never called with an empty filter.
    pub(super) async fn list(&self, label: &str) -> Result<Vec<ContainerSummary>, Error> {
        let filters = HashMap::from([("label".to_owned(), vec![label.to_owned()])]);
        let options = query::ListContainersOptionsBuilder::default().all(true).filters(&filters).build();
        self.client.list_containers(Some(options)).await.map_err(|error| fault("list sandboxes", error))
    }

    /// The paths that differ from the image, as text; what is no UTF-8 in them is replaced.
    pub(crate) async fn changes(&self, name: &str) -> Result<Vec<String>, Error> {
        let changes = self.client.container_changes(name).await;
        let changes = changes.map_err(|error| fault("list the outputs", error))?.unwrap_or_default();
        Ok(changes.into_iter().map(|change| change.path).collect())
    }

    /// What lies at a path, without following a link there; `None` when nothing does.
    pub(crate) async fn stat(&self, name: &str, path: &str) -> Result<Option<Stat>, Error> {
        let options = query::ContainerArchiveInfoOptionsBuilder::default().path(path).build();
        let found =
            absent(self.client.get_container_archive_info(name, Some(options)).await, "look at a file")?;
        Ok(found.map(|found| Stat { mode: found.file_mode, size: u64::try_from(found.size).unwrap_or(0) }))
    }

    /// The archive of one path, uncompressed, as it arrives.
    pub(crate) fn get(
        &self,
        name: &str,
        path: &str,
    ) -> impl Stream<Item = Result<Bytes, Error>> + Send + use<> {
        let options = query::DownloadFromContainerOptionsBuilder::default().path(path).build();
        let stream = self.client.download_from_container(name, Some(options));
        stream.map(|piece| piece.map_err(|error| fault("read the outputs", error)))
    }
}

fn from_environment(value: Option<String>) -> Result<String, Error> {
    match value.filter(|value| !value.is_empty()) {
        None => Ok(DEFAULT_SOCKET.to_owned()),
        Some(value) => match value.strip_prefix("unix://") {
            Some(path) => Ok(path.to_owned()),
            None => Err(Error::NotLocal { value }),
        },
    }
}

fn absent<T>(answer: Result<T, Fault>, action: &'static str) -> Result<Option<T>, Error> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(Fault::DockerResponseServerError { status_code: 404, .. }) => Ok(None),
        Err(error) => Err(fault(action, error)),
    }
}

/// 304 and 409 say that the container is already as asked, or that it cannot be; only the words tell which. Whether
/// it was otherwise before.
fn settled(answer: Result<(), Fault>, already: &str, action: &'static str) -> Result<bool, Error> {
    match answer {
        Err(Fault::DockerResponseServerError { status_code: 404, .. }) => Err(Error::Lost),
        Err(Fault::DockerResponseServerError { message, .. })
            if message.to_ascii_lowercase().contains(already) =>
        {
            Ok(false)
        }
        answer => answer.map(|()| true).map_err(|error| fault(action, error)),
    }
}

pub(super) fn fault(action: &'static str, error: Fault) -> Error {
    match error {
        Fault::DockerResponseServerError { status_code, message } => {
            Error::Engine { action, status: Some(status_code), detail: message }
        }
        Fault::DockerStreamError { error } => Error::Engine { action, status: None, detail: error },
        other => Error::Unavailable { detail: other.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unix_sockets_are_taken_from_the_environment() {
        assert_eq!(from_environment(None).unwrap(), DEFAULT_SOCKET);
        assert_eq!(from_environment(Some(String::new())).unwrap(), DEFAULT_SOCKET);
        assert_eq!(from_environment(Some("unix:///x.sock".into())).unwrap(), "/x.sock");
        assert!(matches!(from_environment(Some("tcp://h:1".into())), Err(Error::NotLocal { .. })));
    }

    #[test]
    fn a_container_that_is_already_as_asked_is_no_error() {
        let conflict = |message: &str| {
            Err(Fault::DockerResponseServerError { status_code: 409, message: message.to_owned() })
        };
        let paused = settled(conflict("Container x is already paused"), "is already paused", "pause");
        assert!(matches!(paused, Ok(false)));
        assert!(matches!(settled(Ok(()), "is already paused", "pause"), Ok(true)));
        assert!(settled(conflict("cannot pause: cgroups"), "is already paused", "pause").is_err());
    }

    #[tokio::test]
    async fn a_missing_socket_is_a_sentence() {
        let error = Engine::connect(Some(Path::new("/nonexistent/docker.sock"))).await.unwrap_err();
        assert!(error.to_string().starts_with("there is no Docker socket at /nonexistent"), "{error}");
    }
}
