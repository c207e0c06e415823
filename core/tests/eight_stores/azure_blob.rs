//! A native lease, timed by the service, and a token raised in the blob's metadata under it: look, lock, token, tied by the
//! ETag. Several requests, one logical step; asked again with the same nonce, it goes on where it was.

use std::time::Duration;

use async_trait::async_trait;
use leasehold::{
    AcquireOutcome, AcquireRequest, FencingToken, Finding, Grant, GrantState, Granted, LeaseKey, LeaseStore,
    Nonce, Observation, ReleaseOutcome, ReleaseRequest, RenewOutcome, RenewRequest, Scope, StoreError,
    StoreProfile, Timing, TokenOrigin,
};

use super::{Answer, Unplugged, held, nowhere, observation, token};

/// What a HEAD shows. Whose lease it is, it does not show; the metadata has a hash of the nonce.
pub(super) struct Blob {
    etag: String,
    token: u64,
    nonce_hash: String,
    holder: String,
    leased: bool,
}

#[async_trait]
pub(super) trait Wire: std::fmt::Debug + Send + Sync + 'static {
    async fn head(&self, key: &LeaseKey) -> Answer<Blob>;
    /// Lease Blob: acquire, with the nonce as proposed id and `If-Match`. False: somebody else has it, or the ETag moved.
    async fn lock(&self, key: &LeaseKey, id: &Nonce, ttl: Duration, etag: &str) -> Answer<bool>;
    /// Set Blob Metadata under the lease and `If-Match`: the new ETag.
    async fn set_token(&self, key: &LeaseKey, id: &Nonce, token: FencingToken, etag: &str) -> Answer<String>;
    /// Lease Blob: renew or release, with `If-Match`. False: not ours any more.
    async fn renew(&self, key: &LeaseKey, id: &Nonce, etag: &str) -> Answer<bool>;
    async fn release(&self, key: &LeaseKey, id: &Nonce) -> Answer<bool>;
    fn hash(&self, id: &Nonce) -> String;
}

#[derive(Debug)]
pub(super) struct Store<W> {
    wire: W,
    profile: StoreProfile,
}

impl<W: Wire> Store<W> {
    pub(super) fn new(wire: W) -> Self {
        let mut profile = StoreProfile::new("azblob", Timing::Server, TokenOrigin::Record, Scope::Region);
        (profile.min_ttl, profile.max_ttl) = (Duration::from_secs(15), Duration::from_secs(60));
        profile.requests_per_acquire = 3;
        Self { wire, profile }
    }

    fn granted(ask: &AcquireRequest, token: FencingToken, etag: String) -> AcquireOutcome {
        // The ETag of the token's write goes along: a renewal with it fails if anybody has issued a token since.
        let grant =
            Grant::new(ask.key.clone(), ask.nonce.clone(), token, 0).with_state(GrantState::new(etag));
        AcquireOutcome::Granted(Granted::new(grant, ask.attempt, ask.ttl))
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
        let blob = self.wire.head(&ask.key).await?;
        let last = token(blob.token)?;
        if blob.nonce_hash == self.wire.hash(&ask.nonce) {
            return Ok(Self::granted(ask, last, blob.etag));
        }
        if blob.leased || !self.wire.lock(&ask.key, &ask.nonce, ask.ttl, &blob.etag).await? {
            return Ok(AcquireOutcome::Held(held(&blob.holder, last, ask.ttl)));
        }
        let next = token(last.get() + 1)?;
        let etag = self.wire.set_token(&ask.key, &ask.nonce, next, &blob.etag).await?;
        Ok(Self::granted(ask, next, etag))
    }

    async fn renew(&self, asks: &[RenewRequest]) -> Vec<Result<RenewOutcome, StoreError>> {
        let mut answers = Vec::new();
        for ask in asks {
            let grant = &ask.grant;
            let etag = grant.state.expose().unwrap_or_default();
            answers.push(self.wire.renew(&grant.key, &grant.nonce, etag).await.map(|ours| {
                if ours {
                    // The service counts from the arrival of the newest renewal: the attempt just made.
                    let next = grant.clone().with_seq(grant.seq + 1);
                    RenewOutcome::Renewed(Granted::new(next, ask.attempt, ask.ttl))
                } else {
                    RenewOutcome::Superseded { by: None }
                }
            }));
        }
        answers
    }

    async fn release(&self, ask: &ReleaseRequest) -> Result<ReleaseOutcome, StoreError> {
        let ours = self.wire.release(&ask.key, &ask.nonce).await?;
        Ok(if ours { ReleaseOutcome::Released } else { ReleaseOutcome::AlreadyEnded })
    }

    async fn inspect(&self, key: &LeaseKey, _timeout: Duration) -> Result<Observation, StoreError> {
        let blob = self.wire.head(key).await?;
        let newest = token(blob.token)?;
        let standing = blob.leased.then(|| held(&blob.holder, newest, self.profile.max_ttl));
        Ok(observation(key, Some(newest), standing))
    }
}

#[async_trait]
impl Wire for Unplugged {
    async fn head(&self, _key: &LeaseKey) -> Answer<Blob> {
        nowhere()
    }
    async fn lock(&self, _key: &LeaseKey, _id: &Nonce, _ttl: Duration, _etag: &str) -> Answer<bool> {
        nowhere()
    }
    async fn set_token(
        &self,
        _key: &LeaseKey,
        _id: &Nonce,
        _token: FencingToken,
        _etag: &str,
    ) -> Answer<String> {
        nowhere()
    }
    async fn renew(&self, _key: &LeaseKey, _id: &Nonce, _etag: &str) -> Answer<bool> {
        nowhere()
    }
    async fn release(&self, _key: &LeaseKey, _id: &Nonce) -> Answer<bool> {
        nowhere()
    }
    fn hash(&self, _id: &Nonce) -> String {
        String::new()
    }
}
