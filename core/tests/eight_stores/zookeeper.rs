//! Bound to a session that the client library keeps alive. A renewal sends nothing of its own: it asks when the server last
//! acknowledged the session, and the deadline counts from there, through the store's own bound.

use std::time::Duration;

use async_trait::async_trait;
use leasehold::{
    AcquireOutcome, AcquireRequest, Deadline, Finding, Grant, Granted, LeaseKey, LeaseStore, Nonce,
    Observation, Reading, ReleaseOutcome, ReleaseRequest, RenewOutcome, RenewRequest, Scope, StoreError,
    StoreProfile, Timing, TokenOrigin,
};

use super::{Answer, Unplugged, held, nowhere, observation, token};

/// The session: when the last acknowledged ping was sent, and the timeout that was negotiated. None: it has expired.
pub(super) type Session = Option<(Reading, Duration)>;

/// The first node in line, and whether its name has our nonce.
pub(super) struct First {
    czxid: u64,
    label: String,
    ours: bool,
}

#[async_trait]
pub(super) trait Wire: std::fmt::Debug + Send + Sync + 'static {
    /// An ephemeral sequential node with the nonce in its name, unless there is one; then the first in line.
    async fn enqueue(&self, key: &LeaseKey, nonce: &Nonce, label: &str) -> Answer<First>;
    /// Deletes the node with the nonce in its name.
    async fn leave(&self, key: &LeaseKey, nonce: &Nonce) -> Answer<bool>;
    async fn first(&self, key: &LeaseKey) -> Answer<Option<First>>;
    fn session(&self) -> Session;
}

#[derive(Debug)]
pub(super) struct Store<W> {
    wire: W,
    profile: StoreProfile,
}

impl<W: Wire> Store<W> {
    pub(super) fn new(wire: W) -> Self {
        let mut profile =
            StoreProfile::new("zookeeper", Timing::Session, TokenOrigin::NativeGlobal, Scope::Region);
        profile.requests_per_acquire = 2;
        profile.fifo = true;
        Self { wire, profile }
    }

    fn bounded(granted: Granted, (acknowledged, timeout): (Reading, Duration)) -> Granted {
        granted.with_until(Deadline { since: acknowledged, length: timeout })
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
        let first = self.wire.enqueue(&ask.key, &ask.nonce, ask.holder.as_str()).await?;
        let number = token(first.czxid)?;
        match self.wire.session() {
            Some(session) if first.ours => {
                let grant = Grant::new(ask.key.clone(), ask.nonce.clone(), number, 0);
                Ok(AcquireOutcome::Granted(Self::bounded(
                    Granted::new(grant, ask.attempt, session.1),
                    session,
                )))
            }
            _ => Ok(AcquireOutcome::Held(held(&first.label, number, ask.ttl))),
        }
    }

    async fn renew(&self, asks: &[RenewRequest]) -> Vec<Result<RenewOutcome, StoreError>> {
        let session = self.wire.session();
        let renewed = asks.iter().map(|ask| match session {
            Some(session) => {
                let next = ask.grant.clone().with_seq(ask.grant.seq + 1);
                Ok(RenewOutcome::Renewed(Self::bounded(Granted::new(next, ask.attempt, session.1), session)))
            }
            None => Ok(RenewOutcome::Superseded { by: None }),
        });
        renewed.collect()
    }

    async fn release(&self, ask: &ReleaseRequest) -> Result<ReleaseOutcome, StoreError> {
        let left = self.wire.leave(&ask.key, &ask.nonce).await?;
        Ok(if left { ReleaseOutcome::Released } else { ReleaseOutcome::AlreadyEnded })
    }

    async fn inspect(&self, key: &LeaseKey, _timeout: Duration) -> Result<Observation, StoreError> {
        let Some(first) = self.wire.first(key).await? else { return Ok(Observation::absent(key.clone())) };
        let number = token(first.czxid)?;
        Ok(observation(key, Some(number), Some(held(&first.label, number, self.profile.max_ttl))))
    }
}

#[async_trait]
impl Wire for Unplugged {
    async fn enqueue(&self, _key: &LeaseKey, _nonce: &Nonce, _label: &str) -> Answer<First> {
        nowhere()
    }
    async fn leave(&self, _key: &LeaseKey, _nonce: &Nonce) -> Answer<bool> {
        nowhere()
    }
    async fn first(&self, _key: &LeaseKey) -> Answer<Option<First>> {
        nowhere()
    }
    fn session(&self) -> Session {
        None
    }
}
