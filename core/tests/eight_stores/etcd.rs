//! A server-side lease and a transaction under it; the token is the key's create revision, one number for the whole cluster.
//! The server may grant another ttl than was asked, and that one counts.

use std::time::Duration;

use async_trait::async_trait;
use leasehold::{
    AcquireOutcome, AcquireRequest, Finding, Grant, GrantState, Granted, LeaseKey, LeaseStore, Nonce,
    Observation, ReleaseOutcome, ReleaseRequest, RenewOutcome, RenewRequest, Scope, StoreError,
    StoreErrorKind, StoreProfile, Timing, TokenOrigin,
};

use super::{Answer, Unplugged, held, nowhere, observation, token};

/// The key as it stands: create revision and value.
pub(super) struct Kv {
    create_revision: u64,
    label: String,
    ours: bool,
}

#[async_trait]
pub(super) trait Wire: std::fmt::Debug + Send + Sync + 'static {
    /// Grant a lease whose id is made from the nonce, so that asking again is asking for the same one: the ttl granted.
    async fn grant(&self, nonce: &Nonce, ttl: Duration) -> Answer<Duration>;
    /// `If create_revision(key) == 0 Then Put(key, label, lease) Else Get(key)`.
    async fn put_if_absent(&self, key: &LeaseKey, nonce: &Nonce, label: &str) -> Answer<Kv>;
    /// The ttl left; zero when the lease is gone.
    async fn keep_alive(&self, lease: &str) -> Answer<Duration>;
    async fn revoke(&self, nonce: &Nonce) -> Answer<bool>;
    async fn get(&self, key: &LeaseKey) -> Answer<Option<Kv>>;
}

#[derive(Debug)]
pub(super) struct Store<W> {
    wire: W,
    profile: StoreProfile,
}

impl<W: Wire> Store<W> {
    pub(super) fn new(wire: W) -> Self {
        let mut profile = StoreProfile::new("etcd", Timing::Server, TokenOrigin::NativeGlobal, Scope::Region);
        profile.requests_per_acquire = 2;
        profile.fifo = true;
        Self { wire, profile }
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
        let ttl = self.wire.grant(&ask.nonce, ask.ttl).await?;
        let kv = self.wire.put_if_absent(&ask.key, &ask.nonce, ask.holder.as_str()).await?;
        let number = token(kv.create_revision)?;
        Ok(if kv.ours {
            let grant = Grant::new(ask.key.clone(), ask.nonce.clone(), number, 0)
                .with_state(GrantState::new(ask.nonce.expose_hex()));
            AcquireOutcome::Granted(Granted::new(grant, ask.attempt, ttl))
        } else {
            AcquireOutcome::Held(held(&kv.label, number, ttl))
        })
    }

    async fn renew(&self, asks: &[RenewRequest]) -> Vec<Result<RenewOutcome, StoreError>> {
        let mut answers = Vec::new();
        for ask in asks {
            let Some(lease) = ask.grant.state.expose() else {
                answers.push(Err(StoreError::not_applied(
                    StoreErrorKind::Corrupt,
                    "the saved grant has no lease id",
                )));
                continue;
            };
            answers.push(self.wire.keep_alive(lease).await.map(|ttl| {
                if ttl.is_zero() {
                    return RenewOutcome::Superseded { by: None };
                }
                let next = ask.grant.clone().with_seq(ask.grant.seq + 1);
                RenewOutcome::Renewed(Granted::new(next, ask.attempt, ttl))
            }));
        }
        answers
    }

    async fn release(&self, ask: &ReleaseRequest) -> Result<ReleaseOutcome, StoreError> {
        let ended = self.wire.revoke(&ask.nonce).await?;
        Ok(if ended { ReleaseOutcome::Released } else { ReleaseOutcome::AlreadyEnded })
    }

    async fn inspect(&self, key: &LeaseKey, _timeout: Duration) -> Result<Observation, StoreError> {
        let Some(kv) = self.wire.get(key).await? else { return Ok(Observation::absent(key.clone())) };
        let number = token(kv.create_revision)?;
        Ok(observation(key, Some(number), Some(held(&kv.label, number, self.profile.max_ttl))))
    }
}

#[async_trait]
impl Wire for Unplugged {
    async fn grant(&self, _nonce: &Nonce, _ttl: Duration) -> Answer<Duration> {
        nowhere()
    }
    async fn put_if_absent(&self, _key: &LeaseKey, _nonce: &Nonce, _label: &str) -> Answer<Kv> {
        nowhere()
    }
    async fn keep_alive(&self, _lease: &str) -> Answer<Duration> {
        nowhere()
    }
    async fn revoke(&self, _nonce: &Nonce) -> Answer<bool> {
        nowhere()
    }
    async fn get(&self, _key: &LeaseKey) -> Answer<Option<Kv>> {
        nowhere()
    }
}
