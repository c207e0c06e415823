//! Leases kept on a thread of their own: renewed whatever the caller's executor does.

use std::future::Future;
use std::sync::Arc;
use std::thread::Builder;

use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};

use crate::chance::OsChance;
use crate::clock::{Clock, SystemClock};
use crate::error::StoreError;
use crate::leases::Leases;
use crate::options::{LeaseOptions, OptionsError};
use crate::store::LeaseStore;
use crate::tasks::Tasks;

impl Leases {
    /// Leases whose keepers live on a thread of their own, with a runtime of their own, and talk to a store that was made there.
    ///
    /// A keeper is a task, and tasks stand still while the executor is blocked: by a long computation, a blocking call, too little
    /// CPU. Then a lease is lost, in time, but lost. These are renewed all the same. `store` runs on the thread, so that its
    /// connections are driven there too. The thread ends when the last lease has ended and the last `Leases` is dropped.
    ///
    /// A guard dropped after its own runtime has gone is released by the thread.
    ///
    /// # Errors
    /// [`OnThreadError`] when the store could not be made, does not take the ttl, or the system gives no thread.
    ///
    /// # Cancellation
    /// The thread ends.
    ///
    /// ```
    /// use leasehold::{LeaseKey, LeaseOptions, Leases, MemoryStore, StoreError};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let leases = Leases::on_thread(LeaseOptions::default(), || async { Ok(MemoryStore::new()) }).await?;
    /// let lease = leases.acquire(&LeaseKey::new("index")?).await?;
    /// // A computation that never awaits does not cost the lease.
    /// lease.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn on_thread<S, F>(
        options: LeaseOptions,
        store: impl FnOnce() -> F + Send + 'static,
    ) -> Result<Self, OnThreadError>
    where
        S: LeaseStore,
        F: Future<Output = Result<S, StoreError>>,
    {
        Self::on_thread_with_clock(options, Arc::new(SystemClock), store).await
    }

    /// The same, with the clock that everything is to run on.
    ///
    /// # Errors
    /// As [`on_thread`](Self::on_thread).
    ///
    /// # Cancellation
    /// As [`on_thread`](Self::on_thread).
    pub async fn on_thread_with_clock<S, F>(
        options: LeaseOptions,
        clock: Arc<dyn Clock>,
        store: impl FnOnce() -> F + Send + 'static,
    ) -> Result<Self, OnThreadError>
    where
        S: LeaseStore,
        F: Future<Output = Result<S, StoreError>>,
    {
        let (answer, started) = oneshot::channel();
        start(options, clock, store, Answer::Async(answer))?;
        started.await.unwrap_or_else(|_| Err(OnThreadError::Ended))
    }
}

type Outcome = Result<Leases, OnThreadError>;

/// Where the leases go, or why there are none.
pub(crate) enum Answer {
    Async(oneshot::Sender<Outcome>),
    #[cfg(feature = "blocking")]
    Blocking(std::sync::mpsc::SyncSender<Outcome>),
}

impl Answer {
    /// Completes when nobody waits any more, as far as that can be told.
    async fn unwanted(&mut self) {
        match self {
            Self::Async(answer) => answer.closed().await,
            #[cfg(feature = "blocking")]
            Self::Blocking(_) => std::future::pending().await,
        }
    }

    /// Says whether somebody has taken it.
    fn send(self, outcome: Outcome) -> bool {
        match self {
            Self::Async(answer) => answer.send(outcome).is_ok(),
            #[cfg(feature = "blocking")]
            Self::Blocking(answer) => answer.send(outcome).is_ok(),
        }
    }
}

/// Starts the thread.
pub(crate) fn start<S, F>(
    options: LeaseOptions,
    clock: Arc<dyn Clock>,
    store: impl FnOnce() -> F + Send + 'static,
    mut answer: Answer,
) -> Result<(), OnThreadError>
where
    S: LeaseStore,
    F: Future<Output = Result<S, StoreError>>,
{
    let thread = move || {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                answer.send(Err(OnThreadError::NoThread(error)));
                return;
            }
        };
        runtime.block_on(async move {
            let made = tokio::select! {
                biased;
                made = store() => made,
                () = answer.unwanted() => return,
            };
            let leases = made.map_err(OnThreadError::Store).and_then(|store| {
                let tasks = Tasks::on(Handle::current());
                Leases::with_tasks(Arc::new(store), options, clock, Arc::new(OsChance), tasks)
                    .map_err(OnThreadError::Options)
            });
            // Keepers hold the leases' inner part, and so does everybody who has a `Leases`.
            let ended = leases.as_ref().ok().map(|leases| leases.inner.ended());
            if answer.send(leases) {
                if let Some(ended) = ended {
                    ended.wait().await;
                }
            }
        });
    };
    Builder::new().name(String::from("leasehold-keeper")).spawn(thread).map_err(OnThreadError::NoThread)?;
    Ok(())
}

/// Tells when the inner part of some leases has gone: its half of a channel lives there.
#[derive(Debug)]
pub(crate) struct Alive(watch::Sender<()>);

/// Waits for the other half to go.
#[derive(Debug)]
pub(crate) struct Ended(watch::Receiver<()>);

impl Alive {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(()))
    }

    pub(crate) fn ended(&self) -> Ended {
        Ended(self.0.subscribe())
    }
}

impl Ended {
    async fn wait(mut self) {
        // Nothing is ever sent.
        while self.0.changed().await.is_ok() {}
    }
}

/// Leases that could not be put on a thread.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OnThreadError {
    /// The thread ended before it had made the store: making it panicked.
    #[error("the keeper's thread ended while it made the store: see the panic that it printed")]
    Ended,
    /// The system gives no thread, or no runtime for it.
    #[error("the system gives no thread for the keepers: look at its limits")]
    NoThread(#[source] std::io::Error),
    /// The store does not take the ttl.
    #[error("the store does not take these options")]
    Options(#[from] OptionsError),
    /// The store could not be made.
    #[error("the store could not be opened")]
    Store(#[from] StoreError),
}
