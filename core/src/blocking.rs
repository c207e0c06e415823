//! Leases without a runtime of the caller's. Behind the feature `blocking`.
//!
//! The keepers, the store and its connections live on [a thread of their own](crate::Leases::on_thread); calls here block the
//! calling thread until it has answered. Do not call them from async code: they would block its executor.
//!
//! ```
//! use leasehold::blocking::Leases;
//! use leasehold::{LeaseKey, LeaseOptions, MemoryStore};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let leases = Leases::new(LeaseOptions::default(), || async { Ok(MemoryStore::new()) })?;
//! let lease = leases.acquire(&LeaseKey::new("nightly-report")?)?;
//! println!("write with token {}", lease.token());
//! lease.release()?;
//! # Ok(())
//! # }
//! ```

use std::future::Future;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use crate::clock::SystemClock;
use crate::error::{StoreError, StoreErrorKind};
use crate::key::LeaseKey;
use crate::lease::LeaseView;
use crate::leases::{AcquireError, ResumeError, ShutdownError, TryAcquire};
use crate::options::LeaseOptions;
use crate::saved::SavedLease;
use crate::store::{LeaseStore, Observation, ReleaseOutcome};
use crate::thread::{self, Answer, OnThreadError};
use crate::token::FencingToken;
use crate::validity::{LeaseStatus, LostReason};

/// The door: [`leasehold::Leases`](crate::Leases), blocking. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Leases {
    leases: crate::Leases,
}

/// A lease that this process holds: [`leasehold::Lease`](crate::Lease), blocking.
#[derive(Debug)]
#[must_use = "dropping a lease gives it back"]
pub struct Lease {
    lease: crate::Lease,
    leases: crate::Leases,
}

impl Leases {
    /// Starts the keepers' thread and makes the store there.
    ///
    /// # Errors
    /// [`OnThreadError`] when the store could not be made, does not take the ttl, or the system gives no thread.
    pub fn new<S, F>(
        options: LeaseOptions,
        store: impl FnOnce() -> F + Send + 'static,
    ) -> Result<Self, OnThreadError>
    where
        S: LeaseStore,
        F: Future<Output = Result<S, StoreError>>,
    {
        let (answer, started) = mpsc::sync_channel(1);
        thread::start(options, Arc::new(SystemClock), store, Answer::Blocking(answer))?;
        let leases = started.recv().unwrap_or(Err(OnThreadError::Ended))?;
        Ok(Self { leases })
    }

    /// Waits until the key is free and takes it; see [`Leases::acquire`](crate::Leases::acquire).
    ///
    /// # Errors
    /// [`AcquireError`]; contention is not an error.
    pub fn acquire(&self, key: &LeaseKey) -> Result<Lease, AcquireError> {
        let (leases, key) = (self.leases.clone(), key.clone());
        let lease = self.block_on(async move { leases.acquire(&key).await });
        Ok(self.keep(lease.unwrap_or(Err(AcquireError::ShutDown))?))
    }

    /// The same, for at most `limit`.
    ///
    /// # Errors
    /// [`AcquireError::TimedOut`] says who holds the key.
    pub fn acquire_within(&self, key: &LeaseKey, limit: Duration) -> Result<Lease, AcquireError> {
        let (leases, key) = (self.leases.clone(), key.clone());
        let lease = self.block_on(async move { leases.acquire_within(&key, limit).await });
        Ok(self.keep(lease.unwrap_or(Err(AcquireError::ShutDown))?))
    }

    /// Takes the key if it is free, without waiting for a holder.
    ///
    /// # Errors
    /// [`AcquireError`]; that somebody holds the key is not an error.
    pub fn try_acquire(&self, key: &LeaseKey) -> Result<TryAcquire<Lease>, AcquireError> {
        let (leases, key) = (self.leases.clone(), key.clone());
        let tried = self.block_on(async move { leases.try_acquire(&key).await });
        Ok(match tried.unwrap_or(Err(AcquireError::ShutDown))? {
            TryAcquire::Acquired(lease) => TryAcquire::Acquired(self.keep(lease)),
            TryAcquire::Held(contention) => TryAcquire::Held(contention),
        })
    }

    /// Goes on with a saved lease; see [`Leases::resume`](crate::Leases::resume).
    ///
    /// # Errors
    /// [`ResumeError::Lost`] when it is not ours any more.
    pub fn resume(&self, saved: &SavedLease) -> Result<Lease, ResumeError> {
        let (leases, saved) = (self.leases.clone(), saved.clone());
        let lease = self.block_on(async move { leases.resume(&saved).await });
        Ok(self.keep(lease.unwrap_or(Err(ResumeError::ShutDown))?))
    }

    /// Takes the key, runs `work` on this thread, and gives the key back.
    ///
    /// Nothing can stop a function that runs on a thread: `work` has to look at [`LeaseView::is_held`] between its steps, and give
    /// its token to what it writes to. A release that fails is logged.
    ///
    /// # Errors
    /// When the key was not acquired; `work` has not run.
    pub fn run<T>(&self, key: &LeaseKey, work: impl FnOnce(&LeaseView) -> T) -> Result<T, AcquireError> {
        let lease = self.acquire(key)?;
        let output = work(&lease.view());
        if let Err(error) = lease.release() {
            tracing::warn!(%key, %error, "the lease was not released and expires by itself");
        }
        Ok(output)
    }

    /// What the record of a key shows. Writes nothing. Stale when it arrives.
    ///
    /// # Errors
    /// When the store does not answer, or the record makes no sense.
    pub fn inspect(&self, key: &LeaseKey) -> Result<Observation, StoreError> {
        let (leases, key) = (self.leases.clone(), key.clone());
        self.block_on(async move { leases.inspect(&key).await }).unwrap_or_else(|| Err(thread_gone()))
    }

    /// Ends every lease and refuses new ones; see [`Leases::shutdown`](crate::Leases::shutdown).
    ///
    /// # Errors
    /// [`ShutdownError`] names the leases that were not released within `timeout`; they expire by themselves.
    pub fn shutdown(&self, timeout: Duration) -> Result<(), ShutdownError> {
        let leases = self.leases.clone();
        self.block_on(async move { leases.shutdown(timeout).await }).unwrap_or(Ok(()))
    }

    fn keep(&self, lease: crate::Lease) -> Lease {
        Lease { lease, leases: self.leases.clone() }
    }

    fn block_on<T: Send + 'static>(&self, call: impl Future<Output = T> + Send + 'static) -> Option<T> {
        block_on(&self.leases, call)
    }
}

impl Lease {
    /// What the lease is on.
    pub fn key(&self) -> &LeaseKey {
        self.lease.key()
    }

    /// The grant's fencing token.
    pub fn token(&self) -> FencingToken {
        self.lease.token()
    }

    /// Whether the holder may act now; see [`Lease::is_held`](crate::Lease::is_held).
    pub fn is_held(&self) -> bool {
        self.lease.is_held()
    }

    /// How long the holder may act if nothing more is heard from the store.
    pub fn remaining(&self) -> Duration {
        self.lease.remaining()
    }

    /// State and deadline.
    pub fn status(&self) -> LeaseStatus {
        self.lease.status()
    }

    /// A look at the lease that can be cloned.
    pub fn view(&self) -> LeaseView {
        self.lease.view()
    }

    /// Makes sure of the lease by a renewal now; see [`Lease::confirm`](crate::Lease::confirm).
    ///
    /// # Errors
    /// The reason, when the lease is lost.
    pub fn confirm(&self) -> Result<Duration, LostReason> {
        let confirmed = block_on(&self.leases, self.lease.confirming());
        confirmed.unwrap_or(Err(LostReason::Expired { last_error: None }))
    }

    /// Ends the lease. Call it when the work has ended; see [`Lease::release`](crate::Lease::release).
    ///
    /// # Errors
    /// When the store did not confirm it. The lease then frees itself at the end of its ttl.
    pub fn release(self) -> Result<ReleaseOutcome, StoreError> {
        let Self { lease, leases } = self;
        block_on(&leases, lease.release()).unwrap_or_else(|| Err(thread_gone()))
    }

    /// Stops renewing and leaves the lease to expire.
    pub fn abandon(self) {
        self.lease.abandon();
    }

    /// Stops renewing and returns what another process needs to go on; see [`Lease::save`](crate::Lease::save).
    ///
    /// # Errors
    /// The reason, when it is lost.
    pub fn save(self) -> Result<SavedLease, LostReason> {
        let Self { lease, leases } = self;
        block_on(&leases, lease.save()).unwrap_or(Err(LostReason::Expired { last_error: None }))
    }
}

/// Runs `call` on the keepers' thread and waits for it. Nothing when that thread has gone.
fn block_on<T: Send + 'static>(
    leases: &crate::Leases,
    call: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    let (answer, answered) = mpsc::sync_channel(1);
    leases.inner.tasks.spawn(async move {
        // Somebody who does not wait any more does not want it.
        let _ = answer.send(call.await);
    });
    answered.recv().ok()
}

fn thread_gone() -> StoreError {
    StoreError::unknown(
        StoreErrorKind::Unavailable,
        "the keepers' thread has gone: the lease expires by itself",
    )
}
