//! The table of long tasks: what each one's death means, and the order of stopping. Every task is joined.

use std::{future::Future, time::Duration};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The long tasks of one server. Any of them ending before the order to stop stops the server: each is needed.
#[derive(Debug)]
pub(crate) struct Supervisor {
    tasks: JoinSet<&'static str>,
    stop: CancellationToken,
}

impl Supervisor {
    /// An empty table under a stop order.
    #[must_use]
    pub(crate) fn new(stop: CancellationToken) -> Self {
        Self { tasks: JoinSet::new(), stop }
    }

    /// Starts a task that ends by itself once `stop` is cancelled.
    pub(crate) fn start(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(async move {
            task.await;
            name
        });
    }

    /// Waits for the order to stop, or gives it when a task dies; the name of the dead task, if one did.
    pub(crate) async fn watch(&mut self) -> Option<&'static str> {
        tokio::select! {
            () = self.stop.cancelled() => None,
            Some(ended) = self.tasks.join_next() => {
                if self.stop.is_cancelled() {
                    return None;
                }
                let name = ended.unwrap_or("a task that panicked");
                tracing::error!(task = name, "a task ended that must not; the server stops");
                self.stop.cancel();
                Some(name)
            }
        }
    }

    /// Joins all tasks; those that go on past `grace` are aborted and named in the log.
    pub(crate) async fn join(mut self, grace: Duration) {
        self.stop.cancel();
        let all = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(grace, all).await.is_err() {
            tracing::warn!(tasks = self.tasks.len(), "tasks went on past their grace and were aborted");
            self.tasks.shutdown().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_dies_stops_the_others_and_all_are_joined() {
        let stop = CancellationToken::new();
        let mut supervisor = Supervisor::new(stop.clone());
        let waiting = stop.clone();
        supervisor.start("patient", async move { waiting.cancelled().await });
        supervisor.start("short", async {});
        assert_eq!(supervisor.watch().await, Some("short"));
        assert!(stop.is_cancelled());
        supervisor.join(Duration::from_secs(60)).await;
    }

    #[tokio::test]
    async fn a_panic_counts_as_a_death() {
        let stop = CancellationToken::new();
        let mut supervisor = Supervisor::new(stop);
        supervisor.start("fragile", async { panic!("on purpose") });
        assert_eq!(supervisor.watch().await, Some("a task that panicked"));
    }
}
