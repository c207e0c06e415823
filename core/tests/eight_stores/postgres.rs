//! A row, timed by the server's one clock: each verb is one statement that returns the row, whoever's it is.

use std::time::Duration;

use async_trait::async_trait;
use leasehold::record::{GrantRecord, Record};
use leasehold::{
    AcquireOutcome, AcquireRequest, Finding, Grant, Granted, LeaseKey, LeaseStore, Observation,
    ReleaseOutcome, ReleaseRequest, RenewOutcome, RenewRequest, Scope, StoreError, StoreErrorKind,
    StoreProfile, Timing, TokenOrigin,
};

use super::{Answer, Unplugged, held, nowhere};

#[async_trait]
pub(super) trait Wire: std::fmt::Debug + Send + Sync + 'static {
    /// `INSERT … ON CONFLICT DO UPDATE … WHERE free OR expires_at <= clock_timestamp()`, then the row as it stands.
    async fn acquire(&self, ask: &AcquireRequest) -> Answer<Record>;
    /// `UPDATE … WHERE nonce = $1 AND version = $2 AND seq = $3`, then the row as it stands.
    async fn renew(&self, ask: &RenewRequest) -> Answer<Option<Record>>;
    async fn release(&self, ask: &ReleaseRequest) -> Answer<ReleaseOutcome>;
    /// The row, and whether it is over by the server's clock.
    async fn read(&self, key: &LeaseKey) -> Answer<(Option<Record>, bool)>;
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
            profile: StoreProfile::new("postgres", Timing::Server, TokenOrigin::Record, Scope::Region),
        }
    }
}

fn standing(record: &Record) -> Answer<&GrantRecord> {
    record
        .grant
        .as_ref()
        .ok_or_else(|| StoreError::not_applied(StoreErrorKind::Corrupt, "the row shows no grant"))
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
        let record = self.wire.acquire(ask).await?;
        let grant = standing(&record)?;
        Ok(if grant.nonce == ask.nonce {
            let own = Grant::new(ask.key.clone(), ask.nonce.clone(), record.version, grant.seq);
            AcquireOutcome::Granted(Granted::new(own, grant.attempt, grant.ttl))
        } else {
            AcquireOutcome::Held(held(grant.holder.as_str(), record.version, grant.ttl))
        })
    }

    async fn renew(&self, asks: &[RenewRequest]) -> Vec<Result<RenewOutcome, StoreError>> {
        let mut answers = Vec::new();
        for ask in asks {
            answers.push(self.wire.renew(ask).await.map(|record| {
                let Some(record) = record else { return RenewOutcome::RecordGone };
                match &record.grant {
                    Some(grant) if grant.nonce == ask.grant.nonce && grant.seq == ask.grant.seq + 1 => {
                        let own = ask.grant.clone().with_seq(grant.seq);
                        RenewOutcome::Renewed(Granted::new(own, grant.attempt, grant.ttl))
                    }
                    _ => RenewOutcome::Superseded { by: Some(record.version) },
                }
            }));
        }
        answers
    }

    async fn release(&self, ask: &ReleaseRequest) -> Result<ReleaseOutcome, StoreError> {
        self.wire.release(ask).await
    }

    async fn inspect(&self, key: &LeaseKey, _timeout: Duration) -> Result<Observation, StoreError> {
        let (record, over) = self.wire.read(key).await?;
        Ok(Record::observe(record.as_ref(), key, over))
    }
}

#[async_trait]
impl Wire for Unplugged {
    async fn acquire(&self, _ask: &AcquireRequest) -> Answer<Record> {
        nowhere()
    }
    async fn renew(&self, _ask: &RenewRequest) -> Answer<Option<Record>> {
        nowhere()
    }
    async fn release(&self, _ask: &ReleaseRequest) -> Answer<ReleaseOutcome> {
        nowhere()
    }
    async fn read(&self, _key: &LeaseKey) -> Answer<(Option<Record>, bool)> {
        nowhere()
    }
}
