//! Logical requests: one step at a store, asked again until it is known.
//!
//! The store makes one attempt and says honestly what happened. Here is everything that follows from the answer: when to ask
//! again, which attempt landed, what deadline that makes.

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use crate::chance::{self, Chance, ChanceError};
use crate::clock::{Clock, Deadline, Reading};
use crate::error::{Effect, StoreError, StoreErrorKind};
use crate::key::LeaseKey;
use crate::nonce::AttemptId;
use crate::renewals::Renewals;
use crate::store::{
    AcquireOutcome, AcquireRequest, Grant, Granted, LeaseStore, Observation, ReleaseOutcome, ReleaseRequest,
    RenewOutcome, RenewRequest,
};
use crate::tasks::Tasks;
use crate::timing;
use crate::validity::LostReason;

/// The longest that one attempt to release or to look may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// A store with the clock and the chance that requests to it run on.
pub(crate) struct Attempts {
    store: Arc<dyn LeaseStore>,
    renewals: Renewals,
    clock: Arc<dyn Clock>,
    chance: Arc<dyn Chance>,
}

/// How a logical renewal ended.
pub(crate) enum Renewal {
    /// Extended.
    Renewed(Extent),
    /// Definitely lost.
    Lost(LostReason),
    /// Nothing known, and no time left for another attempt.
    GaveUp(Option<Arc<StoreError>>),
}

/// A grant as it stands in the store, and what that allows.
pub(crate) struct Extent {
    pub(crate) grant: Grant,
    /// When the attempt that is in the store was sent.
    pub(crate) sent: Reading,
    pub(crate) deadline: Deadline,
}

/// The attempts of one logical request.
#[derive(Debug, Default)]
pub(crate) struct Sends(Vec<(AttemptId, Reading)>);

/// Whether and when to ask again.
#[derive(Debug, Default)]
pub(crate) struct Retry {
    failures: u32,
    skewed: bool,
}

impl Attempts {
    /// `tasks`: where renewals may be gathered for a batch; nowhere, and each goes alone.
    pub(crate) fn new(
        store: Arc<dyn LeaseStore>,
        clock: Arc<dyn Clock>,
        chance: Arc<dyn Chance>,
        tasks: Option<Tasks>,
    ) -> Self {
        let renewals = match tasks {
            Some(tasks) => Renewals::gathered(Arc::clone(&store), Arc::clone(&clock), tasks),
            None => Renewals::singly(Arc::clone(&store)),
        };
        Self { renewals, store, clock, chance }
    }

    pub(crate) fn store(&self) -> &dyn LeaseStore {
        &*self.store
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    pub(crate) fn chance(&self) -> &dyn Chance {
        &*self.chance
    }

    /// A number in [0, 1), for jitter.
    pub(crate) fn fraction(&self) -> f64 {
        chance::fraction(&*self.chance)
    }

    /// One attempt to acquire.
    pub(crate) async fn acquire(&self, ask: &AcquireRequest) -> Result<AcquireOutcome, StoreError> {
        self.once(&ask.key, ask.timeout, self.store.acquire(ask)).await
    }

    /// Renews `grant` until the store has answered or `limit` is near. `resumed`: another process may have renewed it before
    /// us and not have heard of it, so that one attempt which is not ours may stand in the record; `on_adopted` hears of it.
    pub(crate) async fn renew(
        &self,
        mut grant: Grant,
        ttl: Duration,
        limit: Deadline,
        mut resumed: bool,
        on_error: impl Fn(&Arc<StoreError>) + Send,
        mut on_adopted: impl FnMut(&Grant) + Send,
    ) -> Renewal {
        let mut sends = Sends::default();
        let mut retry = Retry::default();
        let mut last_error = None;
        loop {
            let left = limit.remaining(&self.clock.read());
            let Some(timeout) = timing::attempt_timeout(ttl, left) else {
                return Renewal::GaveUp(last_error);
            };
            let answer = match sends.begin(self) {
                Ok(attempt) => {
                    let ask = RenewRequest { timeout, ..RenewRequest::new(grant.clone(), attempt, ttl) };
                    self.once(&grant.key, timeout, self.renewals.renew(ask)).await
                }
                Err(error) => Err(StoreError::not_applied(
                    StoreErrorKind::Other,
                    "the renewal could not be marked for want of randomness",
                )
                .with_source(error)),
            };
            match answer {
                Ok(RenewOutcome::Renewed(granted)) => match sends.extent(granted, &self.clock.read()) {
                    Ok(extent) => return Renewal::Renewed(extent),
                    Err(theirs) if resumed => {
                        resumed = false;
                        grant = theirs;
                        sends = Sends::default();
                        on_adopted(&grant);
                    }
                    Err(_) => return Renewal::Lost(LostReason::Cloned),
                },
                Ok(RenewOutcome::Broken) => return Renewal::Lost(LostReason::Broken),
                Ok(RenewOutcome::Cloned) => return Renewal::Lost(LostReason::Cloned),
                Ok(RenewOutcome::RecordGone) => return Renewal::Lost(LostReason::RecordGone),
                Ok(RenewOutcome::Superseded { by }) => return Renewal::Lost(LostReason::Superseded { by }),
                Err(error) => {
                    // No error is a loss: only the record can say so, and the deadline.
                    sends.settle(&error);
                    let error = Arc::new(error);
                    on_error(&error);
                    // Never so long that no attempt fits in after it, whatever the store has asked for.
                    let left = limit.remaining(&self.clock.read());
                    let wait = retry.after(&error, self.fraction()).min(left / 2);
                    last_error = Some(error);
                    self.clock.sleep(wait).await;
                }
            }
        }
    }

    /// Releases until the store has answered or `limit` has passed; with none, once.
    pub(crate) async fn release(
        &self,
        mut ask: ReleaseRequest,
        limit: Duration,
    ) -> Result<ReleaseOutcome, StoreError> {
        let limit = Deadline { since: self.clock.read(), length: limit };
        let mut retry = Retry::default();
        let mut may_have_landed = false;
        loop {
            let left = limit.remaining(&self.clock.read());
            ask.timeout = if limit.length.is_zero() { PATIENCE } else { PATIENCE.min(left) };
            match self.once(&ask.key, ask.timeout, self.store.release(&ask)).await {
                Ok(ReleaseOutcome::AlreadyEnded) if may_have_landed => return Ok(ReleaseOutcome::Released),
                Ok(outcome) => return Ok(outcome),
                Err(error) => {
                    may_have_landed |= error.effect() == Effect::Unknown;
                    let wait = retry.after(&error, self.fraction());
                    if retry.is_in_vain(&error) || wait >= limit.remaining(&self.clock.read()) {
                        return Err(error);
                    }
                    self.clock.sleep(wait).await;
                }
            }
        }
    }

    /// One look at a key.
    pub(crate) async fn inspect(&self, key: &LeaseKey, limit: Duration) -> Result<Observation, StoreError> {
        let timeout = PATIENCE.min(limit);
        self.once(key, timeout, self.store.inspect(key, timeout)).await
    }

    /// Awaits `step` for at most `timeout`. A store that panics has not answered.
    async fn once<T>(
        &self,
        key: &LeaseKey,
        timeout: Duration,
        step: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let step = AssertUnwindSafe(step).catch_unwind();
        tokio::select! {
            biased;
            answer = step => answer.unwrap_or_else(|_| {
                Err(StoreError::unknown(
                    StoreErrorKind::Other,
                    "the store's adapter panicked: report this to its author",
                )
                .with_key(key))
            }),
            () = self.clock.sleep(timeout) => Err(StoreError::unknown(
                StoreErrorKind::Unavailable,
                format!("the store gave no answer within {timeout:?}: look at its health and at the network in between"),
            )
            .with_key(key)),
        }
    }
}

impl fmt::Debug for Attempts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempts").field("store", &self.store).finish_non_exhaustive()
    }
}

impl Sends {
    /// Marks a new attempt. Its time is read before the request is built: the deadline counts from here.
    pub(crate) fn begin(&mut self, attempts: &Attempts) -> Result<AttemptId, ChanceError> {
        let attempt = AttemptId::draw(attempts.chance())?;
        self.0.push((attempt, attempts.clock.read()));
        Ok(attempt)
    }

    /// The newest attempt has failed. One that was not applied cannot be found in a record later.
    pub(crate) fn settle(&mut self, error: &StoreError) {
        if error.effect() == Effect::NotApplied {
            self.0.pop();
        }
    }

    /// What a grant in the store allows, if one of these attempts put it there. Else the grant, which a copy of us made. `now` is
    /// read after the answer arrived: two deadlines can be compared only from an instant that lies after both beginnings.
    pub(crate) fn extent(&self, granted: Granted, now: &Reading) -> Result<Extent, Grant> {
        let Some((_, sent)) = self.0.iter().find(|(attempt, _)| *attempt == granted.attempt) else {
            return Err(granted.grant);
        };
        let own = Deadline { since: *sent, length: timing::validity(granted.ttl) };
        let deadline =
            granted.until.map_or(own, |until| own.earlier(until.before(timing::margin(granted.ttl)), now));
        Ok(Extent { grant: granted.grant, sent: *sent, deadline })
    }
}

impl Retry {
    /// How long to wait after `error` before asking again.
    pub(crate) fn after(&mut self, error: &StoreError, fraction: f64) -> Duration {
        self.failures = self.failures.saturating_add(1);
        let back_off = if error.is_transient() {
            timing::back_off(self.failures, fraction)
        } else {
            timing::patient_back_off(self.failures)
        };
        back_off.max(error.retry_after().unwrap_or_default())
    }

    /// Whether asking again cannot help. A request turned away for a wrong clock is sent once more, since the answer
    /// carried the right time.
    pub(crate) fn is_in_vain(&mut self, error: &StoreError) -> bool {
        let skewed = error.kind() == StoreErrorKind::ClockSkew;
        !error.is_transient() || (skewed && std::mem::replace(&mut self.skewed, true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FencingToken, Nonce};

    fn at(ms: u64) -> Reading {
        let time = Duration::from_millis(ms);
        Reading { monotonic: time, boot: time, wall: time }
    }

    /// The store's bound begins when the answer came, ours when the question was sent: the earlier of the two counts.
    #[test]
    fn of_two_bounds_the_earlier_counts_however_late_the_answer_came() {
        let ttl = Duration::from_secs(30);
        let attempt = AttemptId::from_record(1);
        let sends = Sends(vec![(attempt, at(0))]);
        for (arrived, left_by_store) in [(1_800, 29_900), (1_800, 20_000), (0, 31_000), (5_000, 60_000)] {
            let key = LeaseKey::new("k").unwrap();
            let grant = Grant::new(key, Nonce::from_bytes([1; 16]), FencingToken::MIN, 0);
            let until = Deadline { since: at(arrived), length: Duration::from_millis(left_by_store) };
            let granted = Granted::new(grant, attempt, ttl).with_until(until);
            let extent = sends.extent(granted, &at(arrived)).unwrap();
            let own_end = timing::validity(ttl);
            let store_end = Duration::from_millis(arrived + left_by_store) - timing::margin(ttl);
            let now = at(arrived);
            let end = now.boot + extent.deadline.remaining(&now);
            assert_eq!(end, own_end.min(store_end), "arrived {arrived}, left {left_by_store}");
        }
    }
}
