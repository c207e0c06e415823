//! The one room that spawns.

use std::future::Future;

/// Runs `task` on the caller's Tokio runtime.
#[expect(clippy::disallowed_methods, reason = "the one room that spawns")]
pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    drop(tokio::spawn(task));
}
