//! The one room that spawns.

use std::future::Future;

use tokio::runtime::Handle;

/// Where tasks run: on the caller's Tokio runtime, or always on one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tasks {
    runtime: Option<Handle>,
}

impl Tasks {
    /// Always on this runtime, whoever asks.
    pub(crate) const fn on(runtime: Handle) -> Self {
        Self { runtime: Some(runtime) }
    }

    #[expect(clippy::disallowed_methods, reason = "the one room that spawns")]
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(match &self.runtime {
            Some(runtime) => runtime.spawn(task),
            None => tokio::spawn(task),
        });
    }
}
