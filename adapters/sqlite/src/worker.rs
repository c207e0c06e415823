//! The one room that owns a thread.

use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::mpsc;
use std::thread;

use leasehold::StoreErrorKind;
use tokio::sync::oneshot;

use crate::error::Failure;

/// A thread with a state of its own, which does one job after the other. It ends when the last handle is dropped.
pub(crate) struct Worker<S> {
    jobs: mpsc::Sender<Job<S>>,
}

type Job<S> = Box<dyn FnOnce(&mut S) + Send>;

impl<S: 'static> Worker<S> {
    /// Starts the thread and makes its state there.
    pub(crate) async fn start(
        make: impl FnOnce() -> Result<S, Failure> + Send + 'static,
    ) -> Result<Self, Failure> {
        let (jobs, queue) = mpsc::channel::<Job<S>>();
        let (answer, made) = oneshot::channel();
        let work = move || match make() {
            Ok(mut state) => {
                // Nobody waits any more: then there are no handles either, and the queue is at its end.
                let _ = answer.send(Ok(()));
                while let Ok(job) = queue.recv() {
                    job(&mut state);
                }
            }
            Err(failure) => drop(answer.send(Err(failure))),
        };
        thread::Builder::new().name(String::from("lease-sqlite")).spawn(work).map_err(|error| {
            Failure::not_applied(
                StoreErrorKind::Unavailable,
                "no thread could be started for the store: raise the limit on threads of this process",
            )
            .with_source(error)
        })?;
        made.await.unwrap_or_else(|_| Err(Failure::defect()))?;
        Ok(Self { jobs })
    }

    /// Has the thread do `job` and waits for its answer.
    ///
    /// # Cancellation
    /// A job whose future is dropped before it has started never runs. One that has started runs to its end.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut S) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let (answer, done) = oneshot::channel();
        let job: Job<S> = Box::new(move |state| {
            if answer.is_closed() {
                return;
            }
            let outcome = panic::catch_unwind(AssertUnwindSafe(|| job(state)));
            // Whoever asked may have gone meanwhile.
            let _ = answer.send(outcome.unwrap_or_else(|_| Err(Failure::defect())));
        });
        // A refused job is dropped, and with it `answer`: that is noticed below.
        let _ = self.jobs.send(job);
        done.await.unwrap_or_else(|_| Err(Failure::defect()))
    }
}

impl<S> Clone for Worker<S> {
    fn clone(&self) -> Self {
        Self { jobs: self.jobs.clone() }
    }
}

impl<S> fmt::Debug for Worker<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::path::Path;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use leasehold::Effect;

    use super::*;

    async fn counter() -> Worker<u32> {
        Worker::start(|| Ok(0)).await.unwrap()
    }

    fn add(state: &mut u32) -> Result<u32, Failure> {
        *state += 1;
        Ok(*state)
    }

    #[tokio::test]
    async fn a_panic_is_one_unknown_answer_and_not_the_end() {
        let worker = counter().await;
        let failure = worker.call::<u32>(|_| panic!("on purpose")).await.unwrap_err();
        assert_eq!(failure.at(Path::new("/x")).effect(), Effect::Unknown);
        assert_eq!(worker.call(add).await.unwrap(), 1);
    }

    #[tokio::test]
    async fn a_job_that_nobody_waits_for_any_more_never_runs() {
        let worker = counter().await;
        let (open, gate) = mpsc::channel::<()>();
        let mut first = pin!(worker.call(move |state| {
            gate.recv().unwrap();
            add(state)
        }));
        assert!(poll(first.as_mut()).is_pending());
        {
            let second = pin!(worker.call(add));
            assert!(poll(second).is_pending());
        }
        open.send(()).unwrap();
        assert_eq!(first.await.unwrap(), 1);
        assert_eq!(worker.call(add).await.unwrap(), 2, "the dropped one has not counted");
    }

    #[tokio::test]
    async fn the_thread_ends_with_the_last_handle() {
        let (state, ended) = mpsc::channel::<()>();
        let worker = Worker::start(move || Ok(state)).await.unwrap();
        let other = worker.clone();
        drop(worker);
        other.call(|_| Ok(())).await.unwrap();
        drop(other);
        assert!(ended.recv().is_err(), "the state was dropped");
    }

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }
}
