use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::acquire::{self, Patience, Term};
use crate::attempts::{Extent, Renewal};
use crate::chance::{Chance, OsChance};
use crate::clock::{Clock, Deadline, Reading, SystemClock};
use crate::error::{StoreError, StoreErrorKind};
use crate::holder::Holder;
use crate::key::LeaseKey;
use crate::lease::{LeaseView, Shared};
use crate::leases::{AcquireError, Inner, ResumeError, TryAcquire};
use crate::options::{LeaseOptions, OptionsError, check_ttl};
use crate::saved::SavedLease;
use crate::store::{Grant, LeaseStore, Observation, ReleaseOutcome, ReleaseRequest};
use crate::timing;
use crate::token::FencingToken;
use crate::validity::{LeaseState, LeaseStatus, LostReason};

/// The door without background work, for functions that are frozen between their calls.
///
/// No task, no timer, no request that was not asked for: a lease lasts for its ttl unless [`renew`](ManualLease::renew) is called.
/// Take one that lasts as long as the call may, [`acquire_until`](Self::acquire_until), and release it before the call returns.
///
/// ```
/// use std::time::Duration;
/// use leasehold::{LeaseKey, LeaseOptions, ManualLeases, MemoryStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let leases = ManualLeases::new(MemoryStore::new(), LeaseOptions::default())?;
/// // In a function: what is left of this invocation.
/// let left = Duration::from_secs(60);
/// if let Some(mut lease) = leases.acquire_until(&LeaseKey::new("nightly-report")?, left).await?.acquired() {
///     // Before what cannot be taken back: make sure.
///     lease.confirm().await?;
///     println!("write with token {}", lease.token());
///     lease.release().await?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ManualLeases {
    inner: Arc<Inner>,
}

impl ManualLeases {
    /// Takes leases from `store`, as `options` say.
    ///
    /// # Errors
    /// [`OptionsError`] when the store does not take the ttl, or for `hold_at_least`, which needs a keeper.
    pub fn new(store: impl LeaseStore, options: LeaseOptions) -> Result<Self, OptionsError> {
        Self::with_parts(Arc::new(store), options, Arc::new(SystemClock), Arc::new(OsChance))
    }

    /// The same, with the clock and the source of chance that everything is to run on.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_parts(
        store: Arc<dyn LeaseStore>,
        options: LeaseOptions,
        clock: Arc<dyn Clock>,
        chance: Arc<dyn Chance>,
    ) -> Result<Self, OptionsError> {
        options.check_against(store.profile())?;
        if !options.hold_at_least().is_zero() {
            return Err(OptionsError::HoldAtLeastNeedsKeeper);
        }
        Ok(Self { inner: Arc::new(Inner::new(store, options, clock, chance, None)) })
    }

    /// The store.
    pub fn store(&self) -> &dyn LeaseStore {
        self.inner.attempts.store()
    }

    /// Takes the key if it is free, for one ttl.
    ///
    /// # Errors
    /// [`AcquireError`]; that somebody holds the key is not an error.
    ///
    /// # Cancellation
    /// A grant that was won without an answer is left to expire, and keeps others away until then.
    pub async fn try_acquire(&self, key: &LeaseKey) -> Result<TryAcquire<ManualLease>, AcquireError> {
        self.contend(key, self.inner.options.ttl(), Patience::Once, None).await
    }

    /// Waits for at most `limit` until the key is free, and takes it for one ttl. Reads two to five times a second while it waits.
    ///
    /// # Errors
    /// [`AcquireError::TimedOut`] says who holds the key.
    ///
    /// # Cancellation
    /// As [`try_acquire`](Self::try_acquire).
    pub async fn acquire_within(&self, key: &LeaseKey, limit: Duration) -> Result<ManualLease, AcquireError> {
        match self.contend(key, self.inner.options.ttl(), Patience::Within(limit), None).await? {
            TryAcquire::Acquired(lease) => Ok(lease),
            TryAcquire::Held(contention) => {
                Err(AcquireError::TimedOut { contention: Some(contention), last_error: None })
            }
        }
    }

    /// Takes the key if it is free, for the `left` of an invocation: the lease ends, for us, when that has passed, and needs no
    /// renewal if the store takes a ttl so long. After a crash the key is free when the invocation would have ended.
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire).
    ///
    /// # Cancellation
    /// As [`try_acquire`](Self::try_acquire).
    pub async fn acquire_until(
        &self,
        key: &LeaseKey,
        left: Duration,
    ) -> Result<TryAcquire<ManualLease>, AcquireError> {
        let end = Deadline { since: self.inner.attempts.clock().read(), length: left };
        let profile = self.store().profile();
        let ttl = timing::ttl_for(left).clamp(profile.min_ttl, profile.max_ttl);
        self.contend(key, ttl, Patience::Once, Some(end)).await
    }

    /// Goes on with a lease that was [saved](ManualLease::save), by this process or another: same grant, same token. Renews it.
    ///
    /// # Errors
    /// [`ResumeError::Lost`] when it is not ours any more.
    ///
    /// # Cancellation
    /// It can be resumed once more until it has expired.
    pub async fn resume(&self, saved: &SavedLease) -> Result<ManualLease, ResumeError> {
        check_ttl(saved.ttl, self.store().profile())?;
        let (extent, term) = acquire::renew_saved(&self.inner, saved).await?;
        Ok(ManualLease::new(&self.inner, extent, term, None))
    }

    /// What the record of a key shows. Writes nothing. Stale when it arrives.
    ///
    /// # Errors
    /// When the store does not answer, or the record makes no sense.
    pub async fn inspect(&self, key: &LeaseKey) -> Result<Observation, StoreError> {
        self.inner.attempts.inspect(key, self.inner.options.ttl()).await
    }

    async fn contend(
        &self,
        key: &LeaseKey,
        ttl: Duration,
        patience: Patience,
        end: Option<Deadline>,
    ) -> Result<TryAcquire<ManualLease>, AcquireError> {
        Ok(match acquire::contend_here(&self.inner, key, ttl, patience).await? {
            TryAcquire::Acquired((extent, term)) => {
                TryAcquire::Acquired(ManualLease::new(&self.inner, extent, term, end))
            }
            TryAcquire::Held(contention) => TryAcquire::Held(contention),
        })
    }
}

/// A lease that nobody renews but its owner.
///
/// Dropped, it is left to expire: without a background nobody could release it. Lost is for good: a process that wakes from a
/// freeze finds [`is_held`](Self::is_held) false before it has asked anybody.
#[must_use = "a dropped lease keeps others away until its ttl is over: release it"]
pub struct ManualLease {
    inner: Arc<Inner>,
    shared: Arc<Shared>,
    grant: Grant,
    ttl: Duration,
    granted_ms: u64,
    deadline: Deadline,
    /// A renewal may have landed without our knowing: one attempt may be found in the store that is of no call we know of.
    in_doubt: bool,
}

impl ManualLease {
    fn new(inner: &Arc<Inner>, extent: Extent, term: Term, end: Option<Deadline>) -> Self {
        Self {
            inner: Arc::clone(inner),
            shared: acquire::share(inner, &extent, &term, end),
            grant: extent.grant,
            ttl: term.ttl,
            granted_ms: term.granted_ms,
            deadline: extent.deadline,
            in_doubt: false,
        }
    }

    /// What the lease is on.
    pub fn key(&self) -> &LeaseKey {
        &self.shared.key
    }

    /// The label under which others see it.
    pub fn holder(&self) -> &Holder {
        &self.shared.holder
    }

    /// The grant's fencing token.
    pub fn token(&self) -> FencingToken {
        self.shared.token
    }

    /// When it was granted: the clocks as the request was sent.
    pub fn granted(&self) -> Reading {
        self.shared.granted
    }

    /// Whether the holder may act now; see [`Lease::is_held`](crate::Lease::is_held).
    pub fn is_held(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// How long the holder may act unless it renews.
    pub fn remaining(&self) -> Duration {
        self.shared.validity.remaining()
    }

    /// State and deadline.
    pub fn status(&self) -> LeaseStatus {
        self.shared.validity.status()
    }

    /// A look at the lease that can be cloned.
    pub fn view(&self) -> LeaseView {
        LeaseView::new(Arc::clone(&self.shared))
    }

    /// Runs `work` for as long as the lease is held; see [`Lease::run`](crate::Lease::run).
    ///
    /// # Errors
    /// The reason, when the lease was lost before `work` ended.
    ///
    /// # Cancellation
    /// Drops `work`. The lease is kept.
    pub async fn run<W: Future>(&self, work: W) -> Result<W::Output, LostReason> {
        self.shared.run(work).await
    }

    /// Extends the lease by its ttl from now, and returns how long it is then held. Asks again if the store does not answer, for
    /// at most a third of the ttl, and never past the deadline.
    ///
    /// # Errors
    /// [`RenewError::Lost`] when it is lost, without a request if that is known already. [`RenewError::Store`] when the store did
    /// not say: it is held until its deadline, and can be renewed again.
    ///
    /// # Cancellation
    /// The renewal may have landed; the next one finds out.
    pub async fn renew(&mut self) -> Result<Duration, RenewError> {
        if let LeaseState::Lost(reason) = self.status().state {
            return Err(RenewError::Lost(reason));
        }
        let now = self.inner.attempts.clock().read();
        let limit = self.deadline.earlier(Deadline { since: now, length: self.ttl / 3 }, &now);
        let shared = Arc::clone(&self.shared);
        let note = |error: &Arc<StoreError>| shared.validity.note_error(Arc::clone(error));
        // Stays in doubt if this call is dropped.
        let in_doubt = std::mem::replace(&mut self.in_doubt, true);
        let grant = self.grant.clone();
        let adopted = &mut self.grant;
        let adopt = |grant: &Grant| *adopted = grant.clone();
        match self.inner.attempts.renew(grant, self.ttl, limit, in_doubt, note, adopt).await {
            Renewal::Renewed(extent) => {
                self.in_doubt = false;
                self.deadline = self.deadline.later(extent.deadline, &self.inner.attempts.clock().read());
                self.grant = extent.grant;
                self.shared.validity.extend(self.deadline);
            }
            Renewal::Lost(reason) => {
                self.shared.validity.lose(reason);
            }
            Renewal::GaveUp(error) => {
                let error = error.map_or_else(no_answer, |error| StoreError::clone(&error));
                return Err(RenewError::Store(error));
            }
        }
        match self.status().state {
            LeaseState::Lost(reason) => Err(RenewError::Lost(reason)),
            _ => Ok(self.remaining()),
        }
    }

    /// Makes sure of the lease before an act that cannot be taken back: a renewal, for another reason.
    ///
    /// # Errors
    /// As [`renew`](Self::renew).
    ///
    /// # Cancellation
    /// As [`renew`](Self::renew).
    pub async fn confirm(&mut self) -> Result<Duration, RenewError> {
        self.renew().await
    }

    /// Ends the lease. Call it when the work has ended. A lease that is lost already is no error.
    ///
    /// # Errors
    /// When the store did not confirm it. The lease then frees itself at the end of its ttl.
    ///
    /// # Cancellation
    /// The release may have landed; the lease expires in any case.
    pub async fn release(self) -> Result<ReleaseOutcome, StoreError> {
        if let LeaseState::Lost(LostReason::Cloned) = self.status().state {
            // The copy may be at work under this very nonce.
            return Ok(ReleaseOutcome::AlreadyEnded);
        }
        self.shared.validity.lose(LostReason::Released);
        self.inner.attempts.release(ReleaseRequest::of(&self.grant), timing::RELEASE_AT_LEAST).await
    }

    /// Puts the lease aside for another call of this function: see [`ManualLeases::resume`]. It expires unless it is resumed.
    ///
    /// # Errors
    /// The reason, when it is lost.
    pub fn save(self) -> Result<SavedLease, LostReason> {
        if let LeaseState::Lost(reason) = self.status().state {
            return Err(reason);
        }
        Ok(SavedLease {
            grant: self.grant.clone(),
            holder: self.shared.holder.clone(),
            ttl: self.ttl,
            granted_ms: self.granted_ms,
        })
    }
}

impl Drop for ManualLease {
    fn drop(&mut self) {
        self.shared.validity.lose(LostReason::Released);
    }
}

impl fmt::Debug for ManualLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManualLease")
            .field("key", &self.shared.key)
            .field("token", &self.shared.token)
            .field("status", &self.shared.validity)
            .finish_non_exhaustive()
    }
}

fn no_answer() -> StoreError {
    StoreError::not_applied(
        StoreErrorKind::Unavailable,
        "the deadline is too near for another attempt to renew: renew earlier, at a third of the ttl",
    )
}

/// A renewal that did not extend a [`ManualLease`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RenewError {
    /// It is not ours any more. For good.
    #[error("the lease is lost: {0}")]
    Lost(LostReason),
    /// The store did not say. It is held until its deadline.
    #[error("the store did not say whether the lease is extended")]
    Store(#[source] StoreError),
}
