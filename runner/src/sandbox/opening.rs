//! Making or finding the container of a session. Its name is derived, so that whatever an earlier runner left behind,
//! at whichever step it died, is found and used again.

use super::{
    Docker, How, Open, Opened, Slot,
    container::Sandbox,
    egress::Proxy,
    error::Error,
    hold::Hold,
    image::Image,
    layout,
    link::{self, Line, QUEUE, State},
    spec::{self, Blueprint},
};
use bollard::{
    container::AttachContainerResults,
    models::{
        ContainerCreateBody, ContainerInspectResponse, ContainerState, ContainerStateStatusEnum as Status,
    },
};
use checkfu_shared::{
    environment::{Network, Profile},
    id::SessionId,
};
use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// What to do with what was found under our name.
#[derive(Debug, PartialEq, Eq)]
enum Plan {
    Create,
    /// It was created and never started, so that it holds nothing: an earlier attempt ended in between.
    StartOver,
    Adopt {
        paused: bool,
    },
    Restart,
    Replace(String),
    Refuse,
}

fn plan(found: Option<&ContainerInspectResponse>, instance: &str, session: SessionId) -> Plan {
    let Some(found) = found else { return Plan::Create };
    let labels = found.config.as_ref().and_then(|config| config.labels.clone()).unwrap_or_default();
    let is = |key: &str, value: &str| labels.get(key).is_some_and(|found| found == value);
    if !is(spec::LABEL_INSTANCE, instance) || !is(spec::LABEL_SESSION, &session.to_string()) {
        return Plan::Refuse;
    }
    match found.state.as_ref().and_then(|state| state.status) {
        Some(Status::RUNNING) => Plan::Adopt { paused: false },
        Some(Status::PAUSED) => Plan::Adopt { paused: true },
        Some(Status::EXITED) => Plan::Restart,
        Some(Status::CREATED) => Plan::StartOver,
        other => {
            let state = other.map_or_else(|| "unknown".to_owned(), |state| state.to_string());
            Plan::Replace(format!("the container was in the state {state:?}"))
        }
    }
}

/// How often a taken name is looked at again, and how long to wait between.
const LEFTOVER_LOOKS: u32 = 8;
const LEFTOVER_PAUSE: Duration = Duration::from_millis(100);

impl Docker {
    /// Opens the session's sandbox: adopts a running one, starts an exited one, creates one otherwise. A handle that
    /// was open for an earlier claim is closed first. When it returns, the toolbox has answered.
    ///
    /// # Errors
    /// Image errors as sentences; [`Error::NameTaken`] when a foreign container has our name;
    /// [`Error::Unresponsive`] or [`Error::Lost`] when the toolbox does not come up.
    pub async fn open(&self, open: Open) -> Result<Opened, Error> {
        let gate = self.gate(open.session_id);
        let _one_at_a_time = gate.lock().await;
        self.close_open(open.session_id).await;
        let tasks = TaskTracker::new();
        let closed = CancellationToken::new();
        self.inner.tasks.spawn(see_off(tasks.clone(), closed.clone()));
        // Whoever drops this future half way must not leave a proxy or a line behind.
        let unfinished = closed.clone().drop_guard();
        let opened = self.open_with(&open, &tasks, &closed).await?;
        unfinished.disarm();
        if let Some(slot) = self.slots().get_mut(&open.session_id) {
            slot.live = Arc::downgrade(&opened.sandbox);
            slot.used = Instant::now();
        }
        Ok(opened)
    }

    async fn open_with(
        &self,
        open: &Open,
        tasks: &TaskTracker,
        closed: &CancellationToken,
    ) -> Result<Opened, Error> {
        let proxy = match &open.spec.network {
            Network::None => None,
            network => {
                let reach = &self.inner.config.reach;
                Some(Proxy::start(network, reach, &self.net_dir(open.session_id), tasks, closed).await?)
            }
        };
        let name = spec::container_name(&self.inner.config.instance, open.session_id);
        let (how, attached) = self.bring_up_past_leftovers(open, &name).await?;
        let (commands, inbox) = mpsc::channel(QUEUE);
        let (state, seen) = watch::channel(State::Opening);
        let line = Line {
            engine: self.inner.engine.clone(),
            name: name.clone(),
            epoch: open.epoch,
            lease_until: Instant::now() + Duration::from_millis(open.lease_ms),
            keep_ms: open.keep_ms,
            commands: inbox,
            state,
            closed: closed.clone(),
        };
        tasks.spawn(link::own(line, attached));
        let sandbox = Sandbox {
            session: open.session_id,
            hold: Hold::new(
                self.inner.engine.clone(),
                name.clone(),
                self.inner.tasks.clone(),
                closed.clone(),
            ),
            name,
            engine: self.inner.engine.clone(),
            commands,
            state: seen,
            closed: closed.clone(),
            proxy,
            tasks: tasks.clone(),
        };
        if how == How::Adopted {
            sandbox.hold.doubt();
        }
        match sandbox.ready().await {
            Err(Error::Lost) if how != How::Adopted => return Err(self.why_gone(&sandbox.name).await),
            ready => ready?,
        }
        Ok(Opened { sandbox: Arc::new(sandbox), how })
    }

    /// What a container that did not stay up died of.
    async fn why_gone(&self, name: &str) -> Error {
        let found = self.inner.engine.inspect(name).await;
        let state = found.map(|found| found.and_then(|found| found.state));
        match state {
            Ok(Some(state)) if ended_by_itself(&state) => Error::ToolboxEnded,
            // Removed or killed under us, or nobody can say: another try may go better.
            Ok(_) => Error::Lost,
            Err(error) => error,
        }
    }

    /// As [`Self::bring_up`]. The daemon may finish a creation whose request was dropped after we looked and before we create;
    /// then the name is taken by a container of our own, which the next look finds.
    async fn bring_up_past_leftovers(
        &self,
        open: &Open,
        name: &str,
    ) -> Result<(How, AttachContainerResults), Error> {
        for _ in 0..LEFTOVER_LOOKS {
            match self.bring_up(open, name).await {
                Err(Error::NameTaken { .. }) => tokio::time::sleep(LEFTOVER_PAUSE).await,
                outcome => return outcome,
            }
        }
        self.bring_up(open, name).await
    }

    /// Gives a running container and an attach to it.
    async fn bring_up(&self, open: &Open, name: &str) -> Result<(How, AttachContainerResults), Error> {
        let engine = &self.inner.engine;
        let found = engine.inspect(name).await?;
        match plan(found.as_ref(), &self.inner.config.instance, open.session_id) {
            Plan::Refuse => Err(Error::NameTaken { name: name.to_owned() }),
            Plan::Adopt { paused } => {
                if paused {
                    engine.unpause(name).await?;
                }
                Ok((How::Adopted, engine.attach(name).await?))
            }
            Plan::Restart => Ok((How::Restarted, self.attach_and_start(name).await?)),
            Plan::StartOver => {
                engine.remove(name).await?;
                let (image, attached) = self.create(open, name).await?;
                Ok((How::Created { image: image.id }, attached))
            }
            Plan::Replace(reason) => {
                engine.remove(name).await?;
                let (_, attached) = self.create(open, name).await?;
                Ok((How::Replaced { reason }, attached))
            }
            Plan::Create => {
                let (image, attached) = self.create(open, name).await?;
                Ok((How::Created { image: image.id }, attached))
            }
        }
    }

    async fn create(&self, open: &Open, name: &str) -> Result<(Image, AttachContainerResults), Error> {
        let reference = open.spec.image.as_deref().unwrap_or(&self.inner.config.default_image);
        let image = self.inner.engine.image(reference).await?;
        let image = self.with_packages(open, image).await?;
        let few_files = self.inner.few_files.load(Ordering::Relaxed);
        match self.create_from(open, name, &image, few_files).await {
            Err(error) if exceeds_limit(&error) && !few_files => {
                tracing::warn!(
                    "this Docker daemon cannot raise the limit on open files; sandboxes get its own"
                );
                self.inner.few_files.store(true, Ordering::Relaxed);
                self.inner.engine.remove(name).await?;
                let attached = self.create_from(open, name, &image, true).await?;
                Ok((image, attached))
            }
            created => created.map(|attached| (image, attached)),
        }
    }

    async fn create_from(
        &self,
        open: &Open,
        name: &str,
        image: &Image,
        few_files: bool,
    ) -> Result<AttachContainerResults, Error> {
        let body = self.body(open, image, few_files);
        if self.inner.engine.create(name, body).await?.is_none() {
            return Err(Error::NameTaken { name: name.to_owned() });
        }
        self.lay_out(open, name).await?;
        self.attach_and_start(name).await
    }

    fn body(&self, open: &Open, image: &Image, few_files: bool) -> ContainerCreateBody {
        let config = &self.inner.config;
        spec::container(&Blueprint {
            spec: &open.spec,
            image: &image.id,
            image_path: image.path.as_deref(),
            instance: &config.instance,
            session: open.session_id,
            epoch: open.epoch,
            created: config.clock.now(),
            toolbox: &config.toolbox,
            net_dir: &self.net_dir(open.session_id),
            runtime: config.runtime.as_deref(),
            open_files: (!few_files).then_some(spec::OPEN_FILES),
        })
    }

    async fn lay_out(&self, open: &Open, name: &str) -> Result<(), Error> {
        let engine = &self.inner.engine;
        let archive = layout::archive(open.spec.profile);
        let archive = archive.map_err(|error| Error::host("prepare a sandbox", &error))?;
        if open.spec.profile != Profile::Locked {
            return engine.put(name, "/", archive).await;
        }
        // Docker writes nothing to a read-only root, and never changes the owner of the directory it extracts to.
        // A twin that is never started has the same volumes and takes the archive.
        let twin = spec::twin_name(name);
        let reference = open.spec.image.as_deref().unwrap_or(&self.inner.config.default_image);
        let image = self.with_packages(open, engine.image(reference).await?).await?;
        engine.remove(&twin).await?;
        engine.create(&twin, spec::writable(self.body(open, &image, true))).await?;
        let put = engine.put(&twin, "/", archive).await;
        engine.remove(&twin).await?;
        put
    }

    /// The attach comes first: what the toolbox says before anybody listens would be lost.
    async fn attach_and_start(&self, name: &str) -> Result<AttachContainerResults, Error> {
        let attached = self.inner.engine.attach(name).await?;
        self.inner.engine.start(name).await?;
        Ok(attached)
    }

    pub(super) fn net_dir(&self, session: SessionId) -> PathBuf {
        self.inner.config.state_dir.join("net").join(session.to_string())
    }

    /// Ends the session's processes and keeps its files. A session without a container counts as stopped.
    ///
    /// # Errors
    /// Those of the daemon.
    pub async fn stop_session(&self, session: SessionId) -> Result<(), Error> {
        let gate = self.gate(session);
        let _one_at_a_time = gate.lock().await;
        self.close_open(session).await;
        let name = spec::container_name(&self.inner.config.instance, session);
        if !self.is_ours(&name).await? {
            return Ok(());
        }
        match self.inner.engine.kill(&name).await {
            Err(Error::Lost) => Ok(()),
            stopped => stopped,
        }
    }

    /// Removes the session's container, its volumes and its proxy directory. What is gone already counts as removed.
    ///
    /// # Errors
    /// Those of the daemon.
    pub async fn remove_session(&self, session: SessionId) -> Result<(), Error> {
        let gate = self.gate(session);
        let _one_at_a_time = gate.lock().await;
        self.close_open(session).await;
        let name = spec::container_name(&self.inner.config.instance, session);
        for name in [spec::twin_name(&name), name] {
            if self.is_ours(&name).await? {
                self.inner.engine.remove(&name).await?;
            }
        }
        let own = format!("{}={}", spec::LABEL_INSTANCE, self.inner.config.instance);
        self.inner.engine.remove_volumes([own, format!("{}={session}", spec::LABEL_SESSION)]).await?;
        match tokio::fs::remove_dir_all(self.net_dir(session)).await {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::host("remove a proxy directory", &error));
            }
            _ => {}
        }
        self.forget(session);
        Ok(())
    }

    async fn is_ours(&self, name: &str) -> Result<bool, Error> {
        let found = self.inner.engine.inspect(name).await?;
        let labels = found.and_then(|found| found.config).and_then(|config| config.labels);
        Ok(labels.is_some_and(|labels| ours(&labels, &self.inner.config.instance)))
    }

    fn forget(&self, session: SessionId) {
        self.slots().retain(|known, slot: &mut Slot| *known != session || slot.live.strong_count() > 0);
    }
}

/// Waits for the end of everything that served one opening.
async fn see_off(tasks: TaskTracker, closed: CancellationToken) {
    closed.cancelled().await;
    tasks.close();
    tasks.wait().await;
}

/// Whether the first process ended of its own accord, and not because the daemon or the kernel killed it.
fn ended_by_itself(state: &ContainerState) -> bool {
    const KILLED: i64 = 128 + 9;
    state.status == Some(Status::EXITED) && state.exit_code != Some(KILLED)
}

/// Whether the runtime was not allowed to set a limit of a process.
fn exceeds_limit(error: &Error) -> bool {
    matches!(error, Error::Engine { detail, .. } if detail.contains("rlimit"))
}

fn ours(labels: &HashMap<String, String>, instance: &str) -> bool {
    labels.get(spec::LABEL_INSTANCE).is_some_and(|found| found == instance)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bollard::models::ContainerConfig;

    fn found(instance: &str, session: SessionId, status: Option<Status>) -> ContainerInspectResponse {
        let labels = HashMap::from([
            (spec::LABEL_INSTANCE.to_owned(), instance.to_owned()),
            (spec::LABEL_SESSION.to_owned(), session.to_string()),
        ]);
        ContainerInspectResponse {
            config: Some(ContainerConfig { labels: Some(labels), ..Default::default() }),
            state: Some(ContainerState { status, ..Default::default() }),
            ..Default::default()
        }
    }

    #[test]
    fn what_is_found_decides_what_is_done() {
        let session = SessionId::from_bytes([1; 16]);
        let with = |status| plan(Some(&found("me", session, Some(status))), "me", session);
        assert_eq!(plan(None, "me", session), Plan::Create);
        assert_eq!(with(Status::RUNNING), Plan::Adopt { paused: false });
        assert_eq!(with(Status::PAUSED), Plan::Adopt { paused: true });
        assert_eq!(with(Status::EXITED), Plan::Restart);
        assert_eq!(with(Status::CREATED), Plan::StartOver);
        assert!(matches!(with(Status::DEAD), Plan::Replace(_)));
        assert!(matches!(plan(Some(&found("me", session, None)), "me", session), Plan::Replace(_)));
    }

    #[test]
    fn only_a_first_process_that_ended_of_itself_is_the_toolboxs_fault() {
        for (status, exit_code, want) in [
            (Status::EXITED, Some(0), true),
            (Status::EXITED, Some(2), true),
            (Status::EXITED, Some(137), false),
            (Status::RUNNING, Some(0), false),
            (Status::REMOVING, Some(0), false),
        ] {
            let state = ContainerState { status: Some(status), exit_code, ..Default::default() };
            assert_eq!(ended_by_itself(&state), want, "{status} {exit_code:?}");
        }
    }

    #[test]
    fn a_foreign_container_is_never_used() {
        let session = SessionId::from_bytes([1; 16]);
        let other = SessionId::from_bytes([2; 16]);
        for found in [found("you", session, Some(Status::RUNNING)), found("me", other, Some(Status::EXITED))]
        {
            assert_eq!(plan(Some(&found), "me", session), Plan::Refuse);
        }
        let bare = ContainerInspectResponse::default();
        assert_eq!(plan(Some(&bare), "me", session), Plan::Refuse);
    }
}
