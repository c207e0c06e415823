//! A session lock (`GET_LOCK`) on a connection of its own, with a token from a counter row. The lock ends when the *server*
//! notices that the connection is gone, so a renewal is a round trip on that very connection. (Lease rows work as on
//! PostgreSQL; this is the opt-in store, and the harder one to fit.)

use std::time::Duration;

use async_trait::async_trait;
use leasehold::{
    AcquireOutcome, AcquireRequest, FencingToken, Finding, Grant, GrantState, Granted, LeaseKey, LeaseStore,
    Nonce, Observation, ReleaseOutcome, ReleaseRequest, RenewOutcome, RenewRequest, Scope, StoreError,
    StoreProfile, Timing, TokenOrigin,
};

use super::{Answer, Unplugged, held, nowhere, observation, token};

/// Who has the lock, by the counter row.
pub(super) struct Row {
    counter: u64,
    label: String,
    locked: bool,
}

#[async_trait]
pub(super) trait Wire: std::fmt::Debug + Send + Sync + 'static {
    /// Pins a connection to the nonce (the same one, asked again) and calls `GET_LOCK(key, 0)`: its connection id if it was got.
    async fn lock(&self, key: &LeaseKey, nonce: &Nonce) -> Answer<Option<String>>;
    /// Raises the counter under the lock.
    async fn count(&self, key: &LeaseKey, nonce: &Nonce, label: &str) -> Answer<u64>;
    /// `IS_USED_LOCK(key) = CONNECTION_ID()` on the pinned connection. False: another connection, or none.
    async fn still_locked(&self, key: &LeaseKey, connection: &str) -> Answer<bool>;
    /// `RELEASE_LOCK` and its checked result.
    async fn unlock(&self, key: &LeaseKey, nonce: &Nonce) -> Answer<bool>;
    async fn read(&self, key: &LeaseKey) -> Answer<Row>;
}

#[derive(Debug)]
pub(super) struct Store<W> {
    wire: W,
    profile: StoreProfile,
}

impl<W: Wire> Store<W> {
    pub(super) fn new(wire: W) -> Self {
        let mut profile = StoreProfile::new("mysql", Timing::Session, TokenOrigin::Record, Scope::Region);
        profile.requests_per_acquire = 2;
        Self { wire, profile }
    }

    fn held(&self, row: &Row) -> Answer<leasehold::Held> {
        Ok(held(&row.label, token(row.counter)?, self.profile.max_ttl))
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
        let Some(connection) = self.wire.lock(&ask.key, &ask.nonce).await? else {
            let row = self.wire.read(&ask.key).await?;
            return Ok(AcquireOutcome::Held(self.held(&row)?));
        };
        let number = token(self.wire.count(&ask.key, &ask.nonce, ask.holder.as_str()).await?)?;
        let grant =
            Grant::new(ask.key.clone(), ask.nonce.clone(), number, 0).with_state(GrantState::new(connection));
        Ok(AcquireOutcome::Granted(Granted::new(grant, ask.attempt, ask.ttl)))
    }

    async fn renew(&self, asks: &[RenewRequest]) -> Vec<Result<RenewOutcome, StoreError>> {
        let mut answers = Vec::new();
        for ask in asks {
            let connection = ask.grant.state.expose().unwrap_or_default();
            answers.push(self.wire.still_locked(&ask.grant.key, connection).await.map(|ours| {
                if ours {
                    let next = ask.grant.clone().with_seq(ask.grant.seq + 1);
                    RenewOutcome::Renewed(Granted::new(next, ask.attempt, ask.ttl))
                } else {
                    RenewOutcome::Superseded { by: None }
                }
            }));
        }
        answers
    }

    async fn release(&self, ask: &ReleaseRequest) -> Result<ReleaseOutcome, StoreError> {
        let ended = self.wire.unlock(&ask.key, &ask.nonce).await?;
        Ok(if ended { ReleaseOutcome::Released } else { ReleaseOutcome::AlreadyEnded })
    }

    async fn inspect(&self, key: &LeaseKey, _timeout: Duration) -> Result<Observation, StoreError> {
        let row = self.wire.read(key).await?;
        let newest = FencingToken::try_from(row.counter).ok();
        Ok(observation(key, newest, if row.locked { Some(self.held(&row)?) } else { None }))
    }
}

#[async_trait]
impl Wire for Unplugged {
    async fn lock(&self, _key: &LeaseKey, _nonce: &Nonce) -> Answer<Option<String>> {
        nowhere()
    }
    async fn count(&self, _key: &LeaseKey, _nonce: &Nonce, _label: &str) -> Answer<u64> {
        nowhere()
    }
    async fn still_locked(&self, _key: &LeaseKey, _connection: &str) -> Answer<bool> {
        nowhere()
    }
    async fn unlock(&self, _key: &LeaseKey, _nonce: &Nonce) -> Answer<bool> {
        nowhere()
    }
    async fn read(&self, _key: &LeaseKey) -> Answer<Row> {
        nowhere()
    }
}
