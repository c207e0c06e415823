//! One script per verb, timed by the server; the token is a counter beside the key, in the same slot, without expiry.

use std::time::Duration;

use async_trait::async_trait;
use leasehold::{
    AcquireOutcome, AcquireRequest, Finding, Grant, Granted, LeaseKey, LeaseStore, Nonce, Observation,
    ReleaseOutcome, ReleaseRequest, RenewOutcome, RenewRequest, Scope, StoreError, StoreProfile, Timing,
    TokenOrigin,
};

use super::{Answer, Unplugged, held, nowhere, observation, token};

/// What a script returns: the newest token, the standing label, and whether the standing nonce was the caller's.
pub(super) struct Reply {
    token: u64,
    label: Option<String>,
    ours: bool,
}

#[async_trait]
pub(super) trait Wire: std::fmt::Debug + Send + Sync + 'static {
    /// `if free then INCR fence; SET key nonce PX ttl`, and if it is ours already `PEXPIRE`: then this attempt counts.
    async fn acquire(&self, key: &LeaseKey, nonce: &Nonce, label: &str, ttl: Duration) -> Answer<Reply>;
    async fn renew(&self, key: &LeaseKey, nonce: &Nonce, ttl: Duration) -> Answer<Reply>;
    async fn release(&self, key: &LeaseKey, nonce: &Nonce) -> Answer<Reply>;
    async fn get(&self, key: &LeaseKey) -> Answer<Reply>;
}

#[derive(Debug)]
pub(super) struct Store<W> {
    wire: W,
    profile: StoreProfile,
}

impl<W: Wire> Store<W> {
    pub(super) fn new(wire: W) -> Self {
        // Replication is asynchronous: a failover may forget a grant and its token. The profile says so.
        Self {
            wire,
            profile: StoreProfile::new("redis", Timing::Server, TokenOrigin::NativePerKey, Scope::BestEffort),
        }
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
        let reply = self.wire.acquire(&ask.key, &ask.nonce, ask.holder.as_str(), ask.ttl).await?;
        let newest = token(reply.token)?;
        Ok(if reply.ours {
            let grant = Grant::new(ask.key.clone(), ask.nonce.clone(), newest, 0);
            AcquireOutcome::Granted(Granted::new(grant, ask.attempt, ask.ttl))
        } else {
            AcquireOutcome::Held(held(&reply.label.unwrap_or_default(), newest, ask.ttl))
        })
    }

    async fn renew(&self, asks: &[RenewRequest]) -> Vec<Result<RenewOutcome, StoreError>> {
        let mut answers = Vec::new();
        for ask in asks {
            let reply = self.wire.renew(&ask.grant.key, &ask.grant.nonce, ask.ttl).await;
            answers.push(reply.and_then(|reply| {
                if reply.ours {
                    let next = ask.grant.clone().with_seq(ask.grant.seq + 1);
                    return Ok(RenewOutcome::Renewed(Granted::new(next, ask.attempt, ask.ttl)));
                }
                Ok(RenewOutcome::Superseded { by: Some(token(reply.token)?) })
            }));
        }
        answers
    }

    async fn release(&self, ask: &ReleaseRequest) -> Result<ReleaseOutcome, StoreError> {
        let reply = self.wire.release(&ask.key, &ask.nonce).await?;
        Ok(match reply.label {
            _ if reply.ours => ReleaseOutcome::Released,
            Some(_) => ReleaseOutcome::HeldByOther { by: token(reply.token)? },
            None => ReleaseOutcome::AlreadyEnded,
        })
    }

    async fn inspect(&self, key: &LeaseKey, _timeout: Duration) -> Result<Observation, StoreError> {
        let reply = self.wire.get(key).await?;
        let newest = token(reply.token)?;
        Ok(observation(
            key,
            Some(newest),
            reply.label.map(|label| held(&label, newest, self.profile.max_ttl)),
        ))
    }
}

#[async_trait]
impl Wire for Unplugged {
    async fn acquire(&self, _key: &LeaseKey, _nonce: &Nonce, _label: &str, _ttl: Duration) -> Answer<Reply> {
        nowhere()
    }
    async fn renew(&self, _key: &LeaseKey, _nonce: &Nonce, _ttl: Duration) -> Answer<Reply> {
        nowhere()
    }
    async fn release(&self, _key: &LeaseKey, _nonce: &Nonce) -> Answer<Reply> {
        nowhere()
    }
    async fn get(&self, _key: &LeaseKey) -> Answer<Reply> {
        nowhere()
    }
}
