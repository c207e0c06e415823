//! The one room that spawns.

use std::fmt;
use std::future::Future;
use std::sync::{Mutex, PoisonError};

use tokio::task::JoinSet;

/// Tasks that end when told to, or when this is dropped.
pub(crate) struct Tasks(Mutex<Option<JoinSet<()>>>);

impl Tasks {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Some(JoinSet::new())))
    }

    /// Runs `task` on the caller's Tokio runtime; after [`Tasks::abort`], drops it.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(tasks) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            while tasks.try_join_next().is_some() {}
            tasks.spawn(task);
        }
    }

    /// Tells every task to end; each does at its next await.
    pub(crate) fn abort(&self) {
        drop(self.take());
    }

    /// Ends every task, and returns when there are none.
    pub(crate) async fn stop(&self) {
        if let Some(mut tasks) = self.take() {
            tasks.shutdown().await;
        }
    }

    fn take(&self) -> Option<JoinSet<()>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks").finish_non_exhaustive()
    }
}
