//! An item, written on a condition; the item that fails a condition comes back and tells what the failure means. Renewals go
//! in batches, with an answer per statement. Expiry is in store time, which bounds the deadline a second time.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold::record::{Expiry, Moment, Record, Step, TokenPolicy};
use leasehold::{
    AcquireOutcome, AcquireRequest, Clock, Deadline, Finding, Granted, LeaseKey, LeaseStore, Observation,
    ReleaseOutcome, ReleaseRequest, RenewOutcome, RenewRequest, Scope, StoreError, StoreErrorKind,
    StoreProfile, SystemClock, Timing, TokenOrigin,
};

use super::{Answer, Unplugged, nowhere};

/// A conditional write: applied, or the item as it is.
pub(super) enum Conditional {
    Applied,
    Failed(Option<Record>),
}

#[async_trait]
pub(super) trait Wire: std::fmt::Debug + Send + Sync + 'static {
    /// `UpdateItem` with "free or expired, and version below": one request, whatever the record is.
    async fn take(&self, key: &LeaseKey, record: &Record) -> Answer<Conditional>;
    /// `UpdateItem` on the condition that the record is still as seen.
    async fn replace(&self, key: &LeaseKey, seen: Option<&Record>, record: &Record) -> Answer<Conditional>;
    /// `BatchExecuteStatement`: `SET seq, attempt, expires_at WHERE nonce, version, seq`, an answer per statement.
    async fn renew_all(&self, asks: &[RenewRequest], expires_ms: u64) -> Vec<Answer<Conditional>>;
    /// `GetItem`, consistent.
    async fn read(&self, key: &LeaseKey) -> Answer<Option<Record>>;
    /// The end of the interval in which the service's clock lies that can only hurt this side, in Unix milliseconds.
    fn earliest_ms(&self) -> u64;
    fn latest_ms(&self) -> u64;
}

#[derive(Debug)]
pub(super) struct Store<W> {
    wire: W,
    profile: StoreProfile,
}

impl<W: Wire> Store<W> {
    pub(super) fn new(wire: W) -> Self {
        let mut profile =
            StoreProfile::new("dynamodb", Timing::StoreTime, TokenOrigin::Record, Scope::Region);
        profile.max_batch = 25;
        Self { wire, profile }
    }

    fn moment(&self, current: Option<&Record>) -> Moment {
        let at = |at_ms| Expiry { timeline: Arc::from("store"), at_ms };
        let standing = current.and_then(|record| record.grant.as_ref());
        let over = standing.is_some_and(|grant| grant.is_over_at(&at(self.wire.earliest_ms())) == Some(true));
        Moment {
            over,
            now: at(self.wire.latest_ms()),
            floor_ms: self.wire.latest_ms(),
            unix_ms: SystemClock.read().unix_ms(),
        }
    }

    /// The holder stops when the service's clock may have reached the expiry, whatever its own says.
    fn bounded(&self, granted: Granted, expires_ms: u64) -> Granted {
        let length = Duration::from_millis(expires_ms.saturating_sub(self.wire.latest_ms()));
        granted.with_until(Deadline { since: SystemClock.read(), length })
    }

    async fn written(&self, key: &LeaseKey, seen: Option<&Record>, record: &Record) -> Answer<()> {
        match self.wire.replace(key, seen, record).await? {
            Conditional::Applied => Ok(()),
            Conditional::Failed(_) => {
                Err(StoreError::not_applied(StoreErrorKind::Unavailable, "the record has changed"))
            }
        }
    }
}

fn expiry_ms(record: &Record) -> u64 {
    record.grant.as_ref().and_then(|grant| grant.expiry.as_ref()).map_or(0, |expiry| expiry.at_ms)
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
        let hopeful = Record::acquire(None, ask, &self.moment(None), TokenPolicy::ClockFloor)?;
        let Step::Write(record, AcquireOutcome::Granted(granted)) = hopeful else { return nowhere() };
        let Conditional::Failed(current) = self.wire.take(&ask.key, &record).await? else {
            return Ok(AcquireOutcome::Granted(self.bounded(granted, expiry_ms(&record))));
        };
        // The same verb says what the failure means: our own write, contention, or a clock that is behind.
        match Record::acquire(current.as_ref(), ask, &self.moment(current.as_ref()), TokenPolicy::ClockFloor)?
        {
            Step::Keep(outcome) => Ok(outcome),
            Step::Write(record, outcome) => {
                self.written(&ask.key, current.as_ref(), &record).await?;
                Ok(outcome)
            }
        }
    }

    async fn renew(&self, asks: &[RenewRequest]) -> Vec<Result<RenewOutcome, StoreError>> {
        let expires_ms = |ask: &RenewRequest| {
            self.wire.latest_ms().saturating_add(u64::try_from(ask.ttl.as_millis()).unwrap_or(u64::MAX))
        };
        let answers = self.wire.renew_all(asks, asks.iter().map(expires_ms).max().unwrap_or(0)).await;
        let outcomes = answers.into_iter().zip(asks).map(|(answer, ask)| match answer? {
            Conditional::Applied => {
                let next = ask.grant.clone().with_seq(ask.grant.seq + 1);
                let granted = Granted::new(next, ask.attempt, ask.ttl);
                Ok(RenewOutcome::Renewed(self.bounded(granted, expires_ms(ask))))
            }
            Conditional::Failed(current) => {
                match Record::renew(current.as_ref(), ask, &self.moment(current.as_ref())) {
                    Step::Keep(outcome) => Ok(outcome),
                    Step::Write(..) => Err(StoreError::not_applied(
                        StoreErrorKind::Unavailable,
                        "the record has changed meanwhile",
                    )),
                }
            }
        });
        outcomes.collect()
    }

    async fn release(&self, ask: &ReleaseRequest) -> Result<ReleaseOutcome, StoreError> {
        let current = self.wire.read(&ask.key).await?;
        match Record::release(current.as_ref(), ask) {
            Step::Keep(outcome) => Ok(outcome),
            Step::Write(record, outcome) => {
                self.written(&ask.key, current.as_ref(), &record).await?;
                Ok(outcome)
            }
        }
    }

    async fn inspect(&self, key: &LeaseKey, _timeout: Duration) -> Result<Observation, StoreError> {
        let current = self.wire.read(key).await?;
        Ok(Record::observe(current.as_ref(), key, self.moment(current.as_ref()).over))
    }
}

#[async_trait]
impl Wire for Unplugged {
    async fn take(&self, _key: &LeaseKey, _record: &Record) -> Answer<Conditional> {
        nowhere()
    }
    async fn replace(
        &self,
        _key: &LeaseKey,
        _seen: Option<&Record>,
        _record: &Record,
    ) -> Answer<Conditional> {
        nowhere()
    }
    async fn renew_all(&self, asks: &[RenewRequest], _expires_ms: u64) -> Vec<Answer<Conditional>> {
        asks.iter().map(|_| nowhere()).collect()
    }
    async fn read(&self, _key: &LeaseKey) -> Answer<Option<Record>> {
        nowhere()
    }
    fn earliest_ms(&self) -> u64 {
        0
    }
    fn latest_ms(&self) -> u64 {
        1
    }
}
