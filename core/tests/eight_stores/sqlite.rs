//! A row, replaced under the database's write lock: the record protocol decides between read and write.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold::record::{Expiry, Moment, Record, Step, TokenPolicy};
use leasehold::{
    AcquireOutcome, AcquireRequest, Clock, Finding, LeaseKey, LeaseStore, Observation, ReleaseOutcome,
    ReleaseRequest, RenewOutcome, RenewRequest, Scope, StoreError, StoreProfile, SystemClock, Timing,
    TokenOrigin,
};

use super::{Answer, Unplugged, nowhere};

#[async_trait]
pub(super) trait Wire: std::fmt::Debug + Send + Sync + 'static {
    /// `BEGIN IMMEDIATE` and the row.
    async fn lock_and_read(&self, key: &LeaseKey) -> Answer<Option<Record>>;
    /// The row, if it is to be replaced, and `COMMIT`.
    async fn write_and_unlock(&self, key: &LeaseKey, record: Option<&Record>) -> Answer<()>;
}

#[derive(Debug)]
pub(super) struct Store<W> {
    wire: W,
    profile: StoreProfile,
}

impl<W: Wire> Store<W> {
    pub(super) fn new(wire: W) -> Self {
        Self {
            wire,
            profile: StoreProfile::new("sqlite", Timing::Machine, TokenOrigin::Record, Scope::Machine),
        }
    }

    /// The machine's boot clock times all its processes.
    fn moment(current: Option<&Record>) -> Moment {
        let reading = SystemClock.read();
        let at_ms = u64::try_from(reading.boot.as_millis()).unwrap_or(u64::MAX);
        let now = Expiry { timeline: Arc::from("this boot"), at_ms };
        let standing = current.and_then(|record| record.grant.as_ref());
        let over = standing.is_some_and(|grant| grant.is_over_at(&now) == Some(true));
        Moment { over, now, floor_ms: reading.unix_ms(), unix_ms: reading.unix_ms() }
    }

    async fn step<O: Send>(
        &self,
        key: &LeaseKey,
        verb: impl FnOnce(Option<&Record>, &Moment) -> Answer<Step<O>> + Send,
    ) -> Answer<O> {
        let current = self.wire.lock_and_read(key).await?;
        let step = verb(current.as_ref(), &Self::moment(current.as_ref()))?;
        let (write, outcome) = match step {
            Step::Keep(outcome) => (None, outcome),
            Step::Write(record, outcome) => (Some(record), outcome),
        };
        self.wire.write_and_unlock(key, write.as_ref()).await?;
        Ok(outcome)
    }
}

#[async_trait]
impl<W: Wire> LeaseStore for Store<W> {
    fn profile(&self) -> &StoreProfile {
        &self.profile
    }

    async fn check(&self) -> Result<Vec<Finding>, StoreError> {
        Ok(Vec::new())
    }

    async fn acquire(&self, ask: &AcquireRequest) -> Result<AcquireOutcome, StoreError> {
        self.step(&ask.key, |current, now| Record::acquire(current, ask, now, TokenPolicy::ClockFloor)).await
    }

    async fn renew(&self, asks: &[RenewRequest]) -> Vec<Result<RenewOutcome, StoreError>> {
        let mut answers = Vec::new();
        for ask in asks {
            answers
                .push(self.step(&ask.grant.key, |current, now| Ok(Record::renew(current, ask, now))).await);
        }
        answers
    }

    async fn release(&self, ask: &ReleaseRequest) -> Result<ReleaseOutcome, StoreError> {
        self.step(&ask.key, |current, _| Ok(Record::release(current, ask))).await
    }

    async fn inspect(&self, key: &LeaseKey, _timeout: Duration) -> Result<Observation, StoreError> {
        let current = self.wire.lock_and_read(key).await?;
        self.wire.write_and_unlock(key, None).await?;
        let over = Self::moment(current.as_ref()).over;
        Ok(Record::observe(current.as_ref(), key, over))
    }
}

#[async_trait]
impl Wire for Unplugged {
    async fn lock_and_read(&self, _key: &LeaseKey) -> Answer<Option<Record>> {
        nowhere()
    }
    async fn write_and_unlock(&self, _key: &LeaseKey, _record: Option<&Record>) -> Answer<()> {
        nowhere()
    }
}
