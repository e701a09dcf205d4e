//! What runs for as long as the hub does: one set, so that a task which ends ends the hub, and the hub says which.

use std::future::Future;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinSet;

/// Running tasks with their names.
#[derive(Debug, Default)]
pub struct Tasks(JoinSet<&'static str>);

impl Tasks {
    /// Starts one.
    pub fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.spawn_on(&Handle::current(), name, task);
    }

    /// Starts one on the threads of another runtime.
    pub fn spawn_on(&mut self, threads: &Handle, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let named = async move {
            task.await;
            name
        };
        self.0.spawn_on(named, threads);
    }

    /// Waits for the first that ends; for ever when there is none.
    pub async fn first_ended(&mut self) -> String {
        match self.0.join_next().await {
            None => std::future::pending().await,
            Some(Ok(name)) => name.to_owned(),
            Some(Err(error)) => error.to_string(),
        }
    }

    /// Waits until all have ended, but not longer than this; false when some were given up.
    pub async fn all_ended(mut self, most: Duration) -> bool {
        let all = async { while self.0.join_next().await.is_some() {} };
        tokio::time::timeout(most, all).await.is_ok()
    }
}
