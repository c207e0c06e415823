//! The one room that spawns.

use std::future::Future;

/// Runs all of them at once, each as a task, and returns what they return, in their order.
#[expect(clippy::disallowed_methods, reason = "the one room that spawns")]
pub(crate) async fn all_at_once<T, F>(runners: impl IntoIterator<Item = F> + Send) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let tasks: Vec<_> = runners.into_iter().map(tokio::spawn).collect();
    let mut results = Vec::with_capacity(tasks.len());
    for task in tasks {
        match task.await {
            Ok(result) => results.push(result),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(cancelled) => panic!("the runtime ended before the race did: {cancelled}"),
            },
        }
    }
    results
}
