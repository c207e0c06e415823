use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use tokio::sync::{mpsc, oneshot, watch};

use crate::acquire::{self, Patience};
use crate::attempts::Attempts;
use crate::chance::{Chance, ChanceError, OsChance};
use crate::clock::{Clock, SystemClock};
use crate::error::StoreError;
use crate::gaps::Gaps;
use crate::key::LeaseKey;
use crate::lease::{Command, Lease, LeaseView};
use crate::options::{LeaseOptions, OptionsError, check_ttl};
use crate::queue::Queue;
use crate::saved::SavedLease;
use crate::store::{Held, LeaseStore, Observation};
use crate::tasks::Tasks;
use crate::thread::{Alive, Ended};
use crate::token::FencingToken;
use crate::validity::LostReason;

/// The door: takes leases from a store and keeps them. Cheap to clone.
///
/// Needs a Tokio runtime: every lease has a task that renews it until it is released, dropped or lost.
///
/// ```
/// use leasehold::{LeaseKey, LeaseOptions, Leases, MemoryStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let leases = Leases::new(MemoryStore::new(), LeaseOptions::default())?;
/// let lease = leases.acquire(&LeaseKey::new("nightly-report")?).await?;
/// println!("write with token {}", lease.token());
/// lease.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Leases {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) attempts: Attempts,
    pub(crate) options: LeaseOptions,
    pub(crate) gaps: Gaps,
    pub(crate) queue: Queue,
    pub(crate) tasks: Tasks,
    /// Becomes true once, at shutdown.
    pub(crate) closing: watch::Sender<bool>,
    /// How many acquire calls are on their way, until they have given back what nobody wants.
    contending: watch::Sender<Vec<LeaseKey>>,
    kept: Mutex<HashMap<u64, Kept>>,
    next_id: AtomicU64,
    alive: Alive,
}

/// A lease that a keeper of ours keeps.
struct Kept {
    key: LeaseKey,
    token: FencingToken,
    commands: mpsc::UnboundedSender<Command>,
}

impl Leases {
    /// Takes leases from `store`, as `options` say.
    ///
    /// # Errors
    /// [`OptionsError`] when the store does not take the ttl.
    pub fn new(store: impl LeaseStore, options: LeaseOptions) -> Result<Self, OptionsError> {
        Self::with_parts(Arc::new(store), options, Arc::new(SystemClock), Arc::new(OsChance))
    }

    /// The same, with the clock and the source of chance that everything is to run on.
    ///
    /// # Errors
    /// [`OptionsError`] when the store does not take the ttl.
    pub fn with_parts(
        store: Arc<dyn LeaseStore>,
        options: LeaseOptions,
        clock: Arc<dyn Clock>,
        chance: Arc<dyn Chance>,
    ) -> Result<Self, OptionsError> {
        Self::with_tasks(store, options, clock, chance, Tasks::default())
    }

    pub(crate) fn with_tasks(
        store: Arc<dyn LeaseStore>,
        options: LeaseOptions,
        clock: Arc<dyn Clock>,
        chance: Arc<dyn Chance>,
        tasks: Tasks,
    ) -> Result<Self, OptionsError> {
        options.check_against(store.profile())?;
        Ok(Self { inner: Arc::new(Inner::new(store, options, clock, chance, Some(tasks))) })
    }

    /// The store.
    pub fn store(&self) -> &dyn LeaseStore {
        self.inner.attempts.store()
    }

    /// The options.
    pub fn options(&self) -> &LeaseOptions {
        &self.inner.options
    }

    /// Waits until the key is free and takes it.
    ///
    /// Waits without limit while others hold it; drop the future to stop, or use [`acquire_within`](Self::acquire_within).
    /// While it waits it only reads, two to five times a second. Waiters of one `Leases` get the key in the order in which
    /// they asked; among processes there is no order. It is not re-entrant: a lease of one's own keeps one waiting too.
    ///
    /// # Errors
    /// [`AcquireError`]; contention is not an error. A store that does not answer is asked again for one ttl.
    ///
    /// # Cancellation
    /// A grant that was won or may have been won is given back in the background.
    pub async fn acquire(&self, key: &LeaseKey) -> Result<Lease, AcquireError> {
        self.wait_for(key, Patience::Unlimited).await
    }

    /// The same, for at most `limit`. One limit over the whole call, whatever hangs.
    ///
    /// # Errors
    /// [`AcquireError::TimedOut`] when the limit is over; it says who holds the key, if this call has come to look. Within less than
    /// 50 ms nothing is asked.
    ///
    /// # Cancellation
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_within(&self, key: &LeaseKey, limit: Duration) -> Result<Lease, AcquireError> {
        self.wait_for(key, Patience::Within(limit)).await
    }

    /// Takes the key if it is free, without waiting for a holder. One request in the ordinary case; a store that does not
    /// answer is asked again for at most a third of the ttl.
    ///
    /// # Errors
    /// [`AcquireError`]; that somebody holds the key is not an error.
    ///
    /// # Cancellation
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire(&self, key: &LeaseKey) -> Result<TryAcquire, AcquireError> {
        self.contend(key, Patience::Once).await
    }

    async fn wait_for(&self, key: &LeaseKey, patience: Patience) -> Result<Lease, AcquireError> {
        match self.contend(key, patience).await? {
            TryAcquire::Acquired(lease) => Ok(lease),
            TryAcquire::Held(contention) => {
                Err(AcquireError::TimedOut { contention: Some(contention), last_error: None })
            }
        }
    }

    async fn contend(&self, key: &LeaseKey, patience: Patience) -> Result<TryAcquire, AcquireError> {
        let (answer, answered) = oneshot::channel();
        // The task owns the nonce, so whatever becomes of the caller, somebody knows what to give back.
        self.inner.tasks.spawn(acquire::contend(Arc::clone(&self.inner), key.clone(), patience, answer));
        answered.await.unwrap_or(Err(AcquireError::ShutDown))
    }

    /// Goes on with a lease that was [saved](Lease::save): same grant, same token. Renews it once, and keeps it from then on
    /// with the ttl it was saved with.
    ///
    /// # Errors
    /// [`ResumeError::Lost`] when it is not ours any more.
    ///
    /// # Cancellation
    /// The lease is left to expire; it can be resumed once more until then.
    pub async fn resume(&self, saved: &SavedLease) -> Result<Lease, ResumeError> {
        check_ttl(saved.ttl, self.store().profile())?;
        let (answer, answered) = oneshot::channel();
        self.inner.tasks.spawn(acquire::resume(Arc::clone(&self.inner), saved.clone(), answer));
        answered.await.unwrap_or(Err(ResumeError::ShutDown))
    }

    /// Takes the key, runs `work` for as long as it is held, and gives it back when the work has ended.
    ///
    /// ```
    /// # use leasehold::{LeaseKey, LeaseOptions, Leases, MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let leases = Leases::new(MemoryStore::new(), LeaseOptions::default())?;
    /// let written = leases.run(&LeaseKey::new("nightly-report")?, |lease| async move { lease.token() }).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`RunError::Acquire`] when the work did not begin, [`RunError::Lost`] when it was stopped. A release that fails is
    /// logged: the work is done, and the lease expires by itself.
    ///
    /// # Cancellation
    /// Drops the work, then gives the lease back in the background.
    pub async fn run<W, F>(&self, key: &LeaseKey, work: W) -> Result<F::Output, RunError>
    where
        W: FnOnce(LeaseView) -> F,
        F: Future,
    {
        let lease = self.acquire(key).await?;
        let outcome = lease.run(work(lease.view())).await;
        if let Err(error) = lease.release().await {
            tracing::warn!(%key, %error, "the lease was not released and expires by itself");
        }
        outcome.map_err(RunError::Lost)
    }

    /// What the record of a key shows: who holds it, since when, with which token. Writes nothing. Stale when it arrives.
    ///
    /// # Errors
    /// When the store does not answer, or the record makes no sense.
    pub async fn inspect(&self, key: &LeaseKey) -> Result<Observation, StoreError> {
        self.inner.attempts.inspect(key, self.inner.options.ttl()).await
    }

    /// Ends every lease and refuses new ones: for a process that is about to stop.
    ///
    /// Stop the work first. Waiters return [`AcquireError::ShutDown`] at once, and what a call on its way may have won is given
    /// back. Every guard and view says that it is lost;
    /// what [`Lease::run`] runs is stopped, and each lease is released when that has ended. One that cannot be released
    /// disturbs no other.
    ///
    /// # Errors
    /// [`ShutdownError`] names the leases that were not released within `timeout`; they expire by themselves.
    ///
    /// # Cancellation
    /// The releases go on in the background.
    pub async fn shutdown(&self, timeout: Duration) -> Result<(), ShutdownError> {
        self.inner.closing.send_replace(true);
        let mut over = std::pin::pin!(self.inner.attempts.clock().sleep(timeout).shared());
        let mut failures = self.inner.end_all(over.as_mut().clone()).await;
        // A call that was on its way gives back what it won, or hands it to a keeper that is told to.
        let mut contending = self.inner.contending.subscribe();
        tokio::select! {
            biased;
            // The sender lives as long as `self`.
            _ = contending.wait_for(Vec::is_empty) => {}
            () = over.as_mut().clone() => {}
        }
        let unsettled: Vec<_> = contending.borrow().iter().map(|key| (key.clone(), None)).collect();
        let late = self.inner.end_all(over.as_mut().clone()).await;
        for (key, error) in late.into_iter().chain(unsettled) {
            // One that did not end the first time is named once.
            if !failures.iter().any(|(known, _)| *known == key) {
                failures.push((key, error));
            }
        }
        if failures.is_empty() { Ok(()) } else { Err(ShutdownError { failures }) }
    }
}

impl Inner {
    /// `tasks`: where keepers run; nowhere, in manual mode.
    pub(crate) fn new(
        store: Arc<dyn LeaseStore>,
        options: LeaseOptions,
        clock: Arc<dyn Clock>,
        chance: Arc<dyn Chance>,
        tasks: Option<Tasks>,
    ) -> Self {
        Self {
            gaps: Gaps::new(Arc::clone(&clock)),
            attempts: Attempts::new(store, clock, chance, tasks.clone()),
            options,
            queue: Queue::default(),
            tasks: tasks.unwrap_or_default(),
            closing: watch::Sender::new(false),
            contending: watch::Sender::new(Vec::new()),
            kept: Mutex::default(),
            next_id: AtomicU64::new(0),
            alive: Alive::new(),
        }
    }

    /// Tells every keeper to end its lease, and waits until they have, or until `over` completes.
    async fn end_all(
        &self,
        over: impl Future<Output = ()> + Clone + Send,
    ) -> Vec<(LeaseKey, Option<StoreError>)> {
        let tell = |kept: &Kept| {
            let (answer, ended) = oneshot::channel();
            // A keeper that has gone has nothing to release; its answer never comes and counts as done.
            let _ = kept.commands.send(Command::ShutDown(answer));
            (kept.key.clone(), ended)
        };
        let endings: Vec<_> = self.kept().values().map(tell).collect();
        let failures = join_all(endings.into_iter().map(|(key, ended)| {
            let over = over.clone();
            async move {
                tokio::select! {
                    biased;
                    ended = ended => match ended {
                        Ok(Err(error)) => Some((key, Some(error))),
                        Ok(Ok(_)) | Err(_) => None,
                    },
                    () = over => Some((key, None)),
                }
            }
        }));
        failures.await.into_iter().flatten().collect()
    }

    /// Counts one acquire call until the returned note is dropped.
    pub(crate) fn note_contending(self: &Arc<Self>, key: &LeaseKey) -> ContendingNote {
        self.contending.send_modify(|calls| calls.push(key.clone()));
        ContendingNote { inner: Arc::clone(self), key: key.clone() }
    }

    /// Completes when this has been dropped: no `Leases` and no keeper is left.
    pub(crate) fn ended(&self) -> Ended {
        self.alive.ended()
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<u64, Kept>> {
        // Inserting and removing leave nothing half done.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a keeper keeps a lease, until the returned note is dropped.
    pub(crate) fn note_kept(
        self: &Arc<Self>,
        key: &LeaseKey,
        token: FencingToken,
        commands: mpsc::UnboundedSender<Command>,
    ) -> KeptNote {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.kept().insert(id, Kept { key: key.clone(), token, commands });
        KeptNote { inner: Arc::clone(self), id }
    }

    /// What a holder's grant looks like to us: contention, perhaps with ourselves.
    pub(crate) fn contention(&self, key: &LeaseKey, held: Held) -> Contention {
        let own = self.kept().values().any(|kept| kept.key == *key && kept.token == held.token);
        Contention { held, own }
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner")
            .field("store", self.attempts.store())
            .field("options", &self.options)
            .field("kept", &self.kept().len())
            .finish_non_exhaustive()
    }
}

/// Keeps a lease in the list of those that a shutdown ends.
#[derive(Debug)]
pub(crate) struct KeptNote {
    inner: Arc<Inner>,
    id: u64,
}

impl Drop for KeptNote {
    fn drop(&mut self) {
        self.inner.kept().remove(&self.id);
    }
}

/// Counts an acquire call for a shutdown to wait for.
#[derive(Debug)]
pub(crate) struct ContendingNote {
    inner: Arc<Inner>,
    key: LeaseKey,
}

impl Drop for ContendingNote {
    fn drop(&mut self) {
        self.inner.contending.send_modify(|calls| {
            if let Some(at) = calls.iter().position(|key| *key == self.key) {
                calls.swap_remove(at);
            }
        });
    }
}

/// What [`Leases::try_acquire`] found.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete by nature: taken or not")]
pub enum TryAcquire<L = Lease> {
    /// The lease.
    Acquired(L),
    /// Somebody holds the key.
    Held(Contention),
}

impl<L> TryAcquire<L> {
    /// The lease, if it was acquired.
    pub fn acquired(self) -> Option<L> {
        match self {
            Self::Acquired(lease) => Some(lease),
            Self::Held(_) => None,
        }
    }
}

/// Who holds a key that was asked for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Contention {
    /// The grant, as its record shows it.
    pub held: Held,
    /// Whether it is a lease that this same [`Leases`] keeps: a second acquire is contention too. Never in manual mode, which keeps
    /// none.
    pub own: bool,
}

impl fmt::Display for Contention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Held { holder, token, .. } = &self.held;
        write!(f, "held by {holder} with token {token}")?;
        if self.own {
            f.write_str(" (a lease of this same process: leases are not re-entrant)")?;
        }
        Ok(())
    }
}

/// A lease that was not acquired.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// No nonce could be drawn.
    #[error("no lease was asked for")]
    Chance(#[from] ChanceError),
    /// The store answered so slowly that the grant was over when it came. It was given back.
    #[error(
        "the store took longer to grant the lease than the lease lasts: raise the ttl, or look at the store's latency"
    )]
    ExpiredOnArrival,
    /// An operator has closed the key to new grants.
    #[error(
        "the key is sealed: an operator has closed it to new grants, perhaps because it has moved to another store"
    )]
    Sealed,
    /// [`Leases::shutdown`] was called, or the runtime is ending.
    #[error("leases are not taken any more: this process is shutting down")]
    ShutDown,
    /// The store could not do it. [`StoreError::is_transient`] tells whether trying again later makes sense.
    #[error("the store could not grant the lease")]
    Store(#[from] StoreError),
    /// The limit is over.
    #[error("the lease did not come free within the time given{}", describe(.contention.as_ref()))]
    TimedOut {
        /// Who holds the key, if that was seen.
        contention: Option<Contention>,
        /// What the last attempt met, if it failed.
        #[source]
        last_error: Option<StoreError>,
    },
}

fn describe(contention: Option<&Contention>) -> String {
    contention.map(|contention| format!(": {contention}")).unwrap_or_default()
}

/// A saved lease that was not resumed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResumeError {
    /// It is not ours any more. For good.
    #[error("the saved lease is lost: {0}")]
    Lost(LostReason),
    /// The store does not take its ttl.
    #[error("the lease was saved with a ttl that this store does not take")]
    Options(#[from] OptionsError),
    /// [`Leases::shutdown`] was called, or the runtime is ending.
    #[error("leases are not taken any more: this process is shutting down")]
    ShutDown,
    /// The store did not say. It can be tried again until the lease has expired.
    #[error("the store did not say whether the lease is still held")]
    Store(#[from] StoreError),
}

/// Work that did not run to its end under its lease.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// It did not begin.
    #[error("the work did not begin")]
    Acquire(#[from] AcquireError),
    /// It was stopped, since its lease was lost.
    #[error("the work was stopped: {0}")]
    Lost(LostReason),
}

/// Leases that a shutdown could not release.
#[derive(Debug, thiserror::Error)]
#[error("{} not released and expire by themselves: {}", count(.failures.len()), names(.failures))]
pub struct ShutdownError {
    failures: Vec<(LeaseKey, Option<StoreError>)>,
}

impl ShutdownError {
    /// Each lease, with the store's error; without one where the timeout came first.
    pub fn failures(&self) -> impl Iterator<Item = (&LeaseKey, Option<&StoreError>)> {
        self.failures.iter().map(|(key, error)| (key, error.as_ref()))
    }
}

fn count(number: usize) -> String {
    if number == 1 { String::from("1 lease was") } else { format!("{number} leases were") }
}

fn names(failures: &[(LeaseKey, Option<StoreError>)]) -> String {
    let names: Vec<_> = failures
        .iter()
        .map(|(key, error)| match error {
            Some(error) => error.to_string(),
            None => format!("lease `{key}`: the timeout came first"),
        })
        .collect();
    names.join("; ")
}
