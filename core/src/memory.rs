use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use crate::clock::{Clock, SystemClock, saturating_ms};
use crate::error::StoreError;
use crate::key::LeaseKey;
use crate::profile::{Scope, StoreProfile, Timing, TokenOrigin};
use crate::record::{Expiry, Moment, Record, Step, TokenPolicy};
use crate::store::{
    AcquireOutcome, AcquireRequest, BreakHow, BreakOutcome, Finding, LeaseAdmin, LeaseStore, Observation,
    ReleaseOutcome, ReleaseRequest, RenewOutcome, RenewRequest,
};
use crate::token::FencingToken;

/// Leases among the tasks of one process: the reference store, and the one for tests.
///
/// Clones share their records. Everything is gone when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    records: Arc<Mutex<BTreeMap<LeaseKey, Record>>>,
    clock: Arc<dyn Clock>,
    tokens: TokenPolicy,
    profile: Arc<StoreProfile>,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        let mut profile = StoreProfile::new("memory", Timing::Server, TokenOrigin::Record, Scope::Process);
        profile.min_ttl = Duration::from_secs(1);
        profile.token_survives_deletion = true;
        profile.detects_clones = true;
        profile.max_batch = 1024;
        Self {
            records: Arc::default(),
            clock: Arc::new(SystemClock),
            tokens: TokenPolicy::default(),
            profile: Arc::new(profile),
        }
    }

    /// Timed by `clock`. The clock is the store's own, as a server's is: holders may have others.
    #[must_use]
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// With tokens made by this policy.
    #[must_use]
    pub fn with_tokens(self, tokens: TokenPolicy) -> Self {
        let mut profile = StoreProfile::clone(&self.profile);
        profile.token_survives_deletion = tokens == TokenPolicy::ClockFloor;
        Self { tokens, profile: Arc::new(profile), ..self }
    }

    /// Deletes the record of `key`, as nobody should. For tests of what a holder makes of it.
    #[cfg(feature = "testing")]
    pub fn delete_record(&self, key: &LeaseKey) {
        self.lock().remove(key);
    }

    /// Nonce, in hexadecimal, and `seq` of the grant that stands in the record of `key`. For tests of what a copy can do.
    #[cfg(feature = "testing")]
    pub fn peek(&self, key: &LeaseKey) -> Option<(String, u64)> {
        let grant = self.lock().get(key)?.grant.clone()?;
        Some((grant.nonce.expose_hex(), grant.seq))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<LeaseKey, Record>> {
        // No step leaves the map half changed, so a panic elsewhere has not spoilt it.
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn moment(&self, current: Option<&Record>) -> Moment {
        let reading = self.clock.read();
        let now = Expiry { timeline: Arc::from("process"), at_ms: saturating_ms(reading.boot) };
        let over = is_over(current, &now);
        Moment { over, now, floor_ms: reading.unix_ms(), unix_ms: reading.unix_ms() }
    }

    fn step<O>(
        &self,
        key: &LeaseKey,
        verb: impl FnOnce(Option<&Record>, &Moment) -> Result<Step<O>, StoreError>,
    ) -> Result<O, StoreError> {
        let mut records = self.lock();
        let current = records.get(key);
        Ok(match verb(current, &self.moment(current))? {
            Step::Keep(outcome) => outcome,
            Step::Write(record, outcome) => {
                records.insert(key.clone(), record);
                outcome
            }
        })
    }
}

fn is_over(current: Option<&Record>, now: &Expiry) -> bool {
    current.and_then(|record| record.grant.as_ref()).is_some_and(|grant| grant.is_over_at(now) == Some(true))
}

#[async_trait]
impl LeaseStore for MemoryStore {
    fn profile(&self) -> &StoreProfile {
        &self.profile
    }

    async fn check(&self) -> Result<Vec<Finding>, StoreError> {
        Ok(Vec::new())
    }

    async fn acquire(&self, ask: &AcquireRequest) -> Result<AcquireOutcome, StoreError> {
        self.step(&ask.key, |current, moment| Record::acquire(current, ask, moment, self.tokens))
    }

    async fn renew(&self, asks: &[RenewRequest]) -> Vec<Result<RenewOutcome, StoreError>> {
        asks.iter()
            .map(|ask| self.step(&ask.grant.key, |current, moment| Ok(Record::renew(current, ask, moment))))
            .collect()
    }

    async fn release(&self, ask: &ReleaseRequest) -> Result<ReleaseOutcome, StoreError> {
        self.step(&ask.key, |current, _| Ok(Record::release(current, ask)))
    }

    async fn inspect(&self, key: &LeaseKey, _timeout: Duration) -> Result<Observation, StoreError> {
        let records = self.lock();
        let current = records.get(key);
        Ok(Record::observe(current, key, self.moment(current).over))
    }
}

#[async_trait]
impl LeaseAdmin for MemoryStore {
    async fn list(
        &self,
        prefix: &str,
        after: Option<&LeaseKey>,
        limit: usize,
    ) -> Result<Vec<Observation>, StoreError> {
        let records = self.lock();
        let start = match after.map(LeaseKey::as_str) {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        Ok(records
            .range::<str, _>((start, Bound::Unbounded))
            .take_while(|(key, _)| key.as_str().starts_with(prefix))
            .take(limit)
            .map(|(key, record)| Record::observe(Some(record), key, self.moment(Some(record)).over))
            .collect())
    }

    async fn break_lease(
        &self,
        key: &LeaseKey,
        seen: FencingToken,
        how: BreakHow,
    ) -> Result<BreakOutcome, StoreError> {
        self.step(key, |current, _| Ok(Record::break_grant(current, seen, how)))
    }

    async fn raise_floor(&self, key: &LeaseKey, floor: FencingToken) -> Result<(), StoreError> {
        self.step(key, |current, _| Ok(Record::raise_floor(current, floor)))
    }

    async fn seal(&self, key: &LeaseKey, sealed: bool) -> Result<(), StoreError> {
        self.step(key, |current, _| Ok(Record::seal(current, sealed)))
    }
}
