//! Leases of the service's own: look, lock, token, tied to one another by the ETag.
//!
//! The token is written on the condition that nothing has been written since the look, so each is greater than all before it
//! whatever the lease does; and under the lease, so it is numbered after every earlier lease has ended. The service times a lease by
//! the arrival of the newest lock or renewal: the attempt just made, whenever that succeeded.

use std::sync::Arc;
use std::time::Duration;

use leasehold::record::{Expiry, Moment, Record, Step};
use leasehold::{
    AcquireOutcome, AcquireRequest, FencingToken, Grant, Granted, Held, Holder, LeaseKey, Observation,
    ReleaseOutcome, ReleaseRequest, RenewOutcome, RenewRequest, StoreError, StoreErrorKind,
};

use crate::error::{being_taken, ended_before_its_token, of_fault, of_later_fault, overtaken};
use crate::name;
use crate::options::TokenSource;
use crate::port::{Call, Fault, LeaseId, LeaseState};
use crate::record::{self, Left, SERVICE, public};
use crate::store::{Look, Room, etag};

/// How often a step is begun anew because others were faster.
const ROUNDS: u32 = 3;

/// How an attempt to take a blob, as it was seen, ended.
enum Taken {
    Outcome(AcquireOutcome),
    /// It is not as it was seen.
    Stale,
}

impl Room {
    pub(crate) async fn acquire_lease(&self, ask: &AcquireRequest) -> Result<AcquireOutcome, StoreError> {
        let key = &ask.key;
        let mut warm = self.seen().free(key);
        for _ in 0..ROUNDS {
            let look = match warm.take() {
                Some(look) => Some(look),
                None => match self.look(key).await? {
                    Some(look) => Some(look),
                    None => self.create(key, None).await?,
                },
            };
            let Some(look) = look else { continue };
            if let Taken::Outcome(outcome) = self.take(ask, look).await? {
                return Ok(outcome);
            }
        }
        Err(overtaken(key))
    }

    async fn take(&self, ask: &AcquireRequest, look: Look) -> Result<Taken, StoreError> {
        let (key, nonce) = (&ask.key, public(&ask.nonce));
        let is_own = shows(&look, &nonce);
        let locked = look.lease.is_locked();
        if is_own && locked {
            return self.extend(ask, look).await;
        }
        if look.record.as_ref().is_some_and(|record| record.sealed) {
            return Ok(Taken::Outcome(AcquireOutcome::Sealed));
        }
        // Who has the lease, a look does not show. It may be somebody who has no token yet, and it may be ourselves, by a lock whose
        // answer was lost. Asking for it tells the one, and a little time the other. Once for each grant.
        if locked && self.seen().is_settled(key, &look.etag, &nonce) {
            return self.held(key, &look).map(|held| Taken::Outcome(AcquireOutcome::Held(held)));
        }
        if !locked {
            self.seen().note_free(key, look.clone());
        }
        // Decided before the lock: one without a token helps nobody.
        let next = self.next(ask, &look)?;
        self.seen().unsettle(nonce.clone());
        match self.call(&self.lock(ask, &look.etag)).await {
            Ok(reply) if reply.lease_is_ours == Some(false) => return Err(another_lease(key)),
            Ok(_) => {}
            Err(fault) => {
                return match fault.code() {
                    Some("LeaseAlreadyPresent" | "LeaseIsBreakingAndCannotBeAcquired") => {
                        self.seen().settle(&nonce);
                        self.contended(key).await
                    }
                    Some("ConditionNotMet" | "BlobNotFound") => {
                        self.seen().forget(key);
                        Ok(Taken::Stale)
                    }
                    _ => Err(of_fault(fault, Some(key))),
                };
            }
        }
        let last = look.record.map(|record| record.version);
        let (etag, record) = self.issue(ask, look.etag, last, next).await?;
        let mut seen = self.seen();
        seen.settle(&nonce);
        seen.forget(key);
        drop(seen);
        self.time.note_token(record.version.get());
        Ok(Taken::Outcome(AcquireOutcome::Granted(self.granted(ask, etag, &record))))
    }

    /// The token was issued by an earlier attempt. Its lease is renewed, not taken again: a copy of this request that arrives late
    /// then locks nothing that has been released.
    async fn extend(&self, ask: &AcquireRequest, look: Look) -> Result<Taken, StoreError> {
        let (key, id) = (&ask.key, LeaseId::of(&ask.nonce));
        let call = Call::Renew { blob: name::of_key(key), id, if_match: look.etag.clone() };
        match self.call(&call).await {
            Ok(reply) if reply.lease_is_ours == Some(false) => self.contended(key).await,
            Ok(_) => match look.record {
                Some(record) => {
                    Ok(Taken::Outcome(AcquireOutcome::Granted(self.granted(ask, look.etag, &record))))
                }
                None => Ok(Taken::Stale),
            },
            Err(fault) => match fault.code() {
                Some("BlobNotFound" | "ConditionNotMet") => Ok(Taken::Stale),
                Some(
                    "LeaseIdMismatchWithLeaseOperation"
                    | "LeaseIsBrokenAndCannotBeRenewed"
                    | "LeaseLost"
                    | "LeaseNotPresentWithLeaseOperation",
                ) => self.contended(key).await,
                _ => Err(of_fault(fault, Some(key))),
            },
        }
    }

    fn lock(&self, ask: &AcquireRequest, etag: &str) -> Call {
        Call::Acquire {
            blob: name::of_key(&ask.key),
            id: LeaseId::of(&ask.nonce),
            seconds: u32::try_from(lease_ttl(ask.ttl).as_secs()).unwrap_or(u32::MAX),
            if_match: String::from(etag),
        }
    }

    /// The record of the next grant.
    fn next(&self, ask: &AcquireRequest, look: &Look) -> Result<Record, StoreError> {
        let mut public_ask = ask.clone();
        public_ask.nonce = public(&ask.nonce);
        public_ask.ttl = lease_ttl(ask.ttl);
        let floor_ms = self.floor_ms(&ask.key)?;
        let free = look.record.as_ref().map(|record| Record { grant: None, sealed: false, ..record.clone() });
        let now = Expiry { timeline: Arc::from(SERVICE), at_ms: floor_ms };
        let moment = Moment { over: true, now, floor_ms, unix_ms: self.time.now().unix_ms() };
        match Record::acquire(free.as_ref(), &public_ask, &moment, self.options.tokens)? {
            Step::Write(record, _) => Ok(record),
            Step::Keep(_) => Err(overtaken(&ask.key)),
        }
    }

    /// Numbers the grant, under its lease.
    async fn issue(
        &self,
        ask: &AcquireRequest,
        mut if_match: String,
        last: Option<FencingToken>,
        mut next: Record,
    ) -> Result<(String, Record), StoreError> {
        let key = &ask.key;
        let (blob, id) = (name::of_key(key), LeaseId::of(&ask.nonce));
        if self.options.token_source == TokenSource::PageBlob {
            let call = Call::Sequence { blob: blob.clone(), at_least: None, id: Some(id.clone()), if_match };
            let reply = match self.call(&call).await {
                Ok(reply) => reply,
                Err(fault) => return self.not_issued(ask, fault).await,
            };
            next.version = self.number(key, last, reply.sequence)?;
            if_match = etag(key, reply.etag)?;
        }
        let metadata = record::render(self.kind, Some(&next));
        match self.call(&Call::SetMetadata { blob, metadata, id: Some(id), if_match }).await {
            Ok(reply) => Ok((etag(key, reply.etag)?, next)),
            Err(fault) => self.not_issued(ask, fault).await,
        }
    }

    /// The service's number as a token. Not above the last one only if somebody has set it back.
    fn number(
        &self,
        key: &LeaseKey,
        last: Option<FencingToken>,
        sequence: Option<u64>,
    ) -> Result<FencingToken, StoreError> {
        let counted = sequence.and_then(|number| FencingToken::try_from(number).ok());
        counted.filter(|token| Some(*token) > last).ok_or_else(|| {
            StoreError::unknown(
                StoreErrorKind::Corrupt,
                "the page blob's sequence number lies below the last token: somebody has set it back; raise it above",
            )
            .with_key(key)
        })
    }

    /// The token was refused under our own lock: it has been issued by an earlier attempt, or the lock has ended.
    async fn not_issued(&self, ask: &AcquireRequest, fault: Fault) -> Result<(String, Record), StoreError> {
        let key = &ask.key;
        let code = fault.code().unwrap_or_default().to_owned();
        let ended = matches!(
            code.as_str(),
            "BlobNotFound"
                | "ConditionNotMet"
                | "LeaseIdMismatchWithBlobOperation"
                | "LeaseIdMissing"
                | "LeaseLost"
                | "LeaseNotPresentWithBlobOperation"
        );
        if !ended {
            return Err(of_later_fault(fault, key));
        }
        if code == "ConditionNotMet" {
            let look = self.look(key).await.map_err(|_| ended_before_its_token(key, &code))?;
            let own =
                look.filter(|look| shows(look, &public(&ask.nonce)) && look.lease == LeaseState::Leased);
            if let Some(Look { etag, record: Some(record), .. }) = own {
                return Ok((etag, record));
            }
        }
        self.seen().forget(key);
        Err(ended_before_its_token(key, &code))
    }

    fn granted(&self, ask: &AcquireRequest, etag: String, record: &Record) -> Granted {
        let metadata = record::render(self.kind, Some(record));
        let state = Left { etag, modified_ms: None, metadata }.state();
        let grant = Grant::new(ask.key.clone(), ask.nonce.clone(), record.version, 0).with_state(state);
        let ttl = record.grant.as_ref().map_or_else(|| lease_ttl(ask.ttl), |grant| grant.ttl);
        Granted::new(grant, ask.attempt, ttl)
    }

    /// The lock was refused: somebody else has the blob. One more look tells who.
    async fn contended(&self, key: &LeaseKey) -> Result<Taken, StoreError> {
        match self.look(key).await? {
            Some(look) if look.lease.is_locked() => {
                self.held(key, &look).map(|held| Taken::Outcome(AcquireOutcome::Held(held)))
            }
            _ => Ok(Taken::Stale),
        }
    }

    /// Who holds a blob that is locked. In the moment between lock and token nobody can say.
    fn held(&self, key: &LeaseKey, look: &Look) -> Result<Held, StoreError> {
        let now = self.time.now().boot;
        if self.seen().is_being_taken(key, look, now) {
            return Err(being_taken(key));
        }
        self.seen().note_held(key, look.clone());
        let seen = self.observe_lease(key, Some(look));
        Ok(seen.held.unwrap_or_else(|| unnumbered(look)))
    }

    pub(crate) fn observe_lease(&self, key: &LeaseKey, look: Option<&Look>) -> Observation {
        let record = look.and_then(|look| look.record.as_ref());
        let mut seen = Record::observe(record, key, false);
        let Some(look) = look else { return seen };
        seen.held = match look.lease {
            LeaseState::Available => None,
            state => seen.held.map(|mut held| {
                held.claimable = !state.is_locked();
                held.break_requested = state == LeaseState::Breaking;
                // Renewals leave no trace, so the end is not known.
                held.until_ms = None;
                held
            }),
        };
        if look.lease.is_locked() && seen.held.is_none() {
            seen.held = Some(unnumbered(look));
        }
        seen
    }

    pub(crate) async fn renew_lease(&self, ask: &RenewRequest) -> Result<RenewOutcome, StoreError> {
        let grant = &ask.grant;
        let Some(left) = self.left(grant).await? else {
            return self.after_loss(grant, None).await;
        };
        let call = Call::Renew {
            blob: name::of_key(&grant.key),
            id: LeaseId::of(&grant.nonce),
            if_match: left.etag.clone(),
        };
        match self.call(&call).await {
            // The emulator renews an expired lease for anybody's id, and answers with the old one's.
            Ok(reply) if reply.lease_is_ours == Some(false) => self.after_loss(grant, None).await,
            Ok(_) => {
                let next = grant.clone().with_seq(grant.seq.saturating_add(1)).with_state(left.state());
                // The service renews for as long as it was leased, whatever was asked.
                let ttl = record::parse(&grant.key, self.kind, &left.metadata, None)?
                    .and_then(|record| record.grant)
                    .map_or(ask.ttl, |grant| grant.ttl);
                Ok(RenewOutcome::Renewed(Granted::new(next, ask.attempt, ttl)))
            }
            Err(fault) => match fault.code() {
                Some(
                    "BlobNotFound"
                    | "ConditionNotMet"
                    | "ContainerBeingDeleted"
                    | "ContainerNotFound"
                    | "LeaseIdMismatchWithLeaseOperation"
                    | "LeaseIsBrokenAndCannotBeRenewed"
                    | "LeaseLost"
                    | "LeaseNotPresentWithLeaseOperation",
                ) => self.after_loss(grant, Some(fault)).await,
                _ => Err(of_fault(fault, Some(&grant.key))),
            },
        }
    }

    /// The blob as the grant left it: kept with the grant, or looked up. Nothing if it shows another grant.
    async fn left(&self, grant: &Grant) -> Result<Option<Left>, StoreError> {
        if let Some(left) = Left::of_state(&grant.state) {
            return Ok(Some(left));
        }
        let look = self.look(&grant.key).await?;
        let own = look.filter(|look| shows(look, &public(&grant.nonce)));
        Ok(own.map(|look| Left {
            metadata: record::render(self.kind, look.record.as_ref()),
            modified_ms: None,
            etag: look.etag,
        }))
    }

    /// A renewal was refused: what has become of the grant.
    async fn after_loss(&self, grant: &Grant, fault: Option<Fault>) -> Result<RenewOutcome, StoreError> {
        let look = match self.look(&grant.key).await {
            // With the container everything is gone.
            Err(error) if error.code() == Some("ContainerNotFound") => None,
            look => look?,
        };
        let Some((look, record)) = look.and_then(|look| Some((look.lease, look.record?))) else {
            return Ok(RenewOutcome::RecordGone);
        };
        if record.version < grant.token {
            // The blob has been put back to an earlier state.
            return Ok(RenewOutcome::RecordGone);
        }
        let is_own = record.grant.as_ref().is_some_and(|own| own.nonce == public(&grant.nonce));
        Ok(match look {
            _ if record.version > grant.token || (record.grant.is_some() && !is_own) => {
                RenewOutcome::Superseded { by: Some(record.version) }
            }
            LeaseState::Leased if fault.as_ref().is_some_and(Fault::is_absence) => {
                // It is there, and ours: the refusal was about something else.
                return Err(
                    fault.map_or_else(|| overtaken(&grant.key), |fault| of_fault(fault, Some(&grant.key)))
                );
            }
            // Somebody has it and has no token yet.
            LeaseState::Leased => RenewOutcome::Superseded { by: None },
            _ => RenewOutcome::Broken,
        })
    }

    pub(crate) async fn release_lease(&self, ask: &ReleaseRequest) -> Result<ReleaseOutcome, StoreError> {
        let key = &ask.key;
        let call = Call::Release { blob: name::of_key(key), id: LeaseId::of(&ask.nonce) };
        match self.call(&call).await {
            Ok(reply) => {
                self.remember_free(ask, reply.etag);
                Ok(ReleaseOutcome::Released)
            }
            Err(fault) => match fault.code() {
                Some("BlobNotFound") => Ok(ReleaseOutcome::AlreadyEnded),
                Some(
                    "LeaseIdMismatchWithLeaseOperation" | "LeaseLost" | "LeaseNotPresentWithLeaseOperation",
                ) => self.after_release(ask).await,
                _ => Err(of_fault(fault, Some(key))),
            },
        }
    }

    /// What was released is free as it was left: the next acquire needs no look.
    fn remember_free(&self, ask: &ReleaseRequest, etag: Option<String>) {
        let mut seen = self.seen();
        seen.settle(&public(&ask.nonce));
        let Some(left) = Left::of_state(&ask.state).filter(|left| Some(&left.etag) == etag.as_ref()) else {
            return;
        };
        if let Ok(record) = record::parse(&ask.key, self.kind, &left.metadata, None) {
            let lease = LeaseState::Available;
            seen.note_free(
                &ask.key,
                Look { etag: left.etag, record, lease, modified_ms: None, date_ms: None, sequence: None },
            );
        }
    }

    /// There was nothing to release: whether somebody has come after.
    async fn after_release(&self, ask: &ReleaseRequest) -> Result<ReleaseOutcome, StoreError> {
        let Some(look) = self.look(&ask.key).await? else {
            return Ok(ReleaseOutcome::AlreadyEnded);
        };
        let Some(record) = &look.record else {
            return Ok(ReleaseOutcome::AlreadyEnded);
        };
        let is_later = ask.token.is_some_and(|token| record.version > token);
        let is_anothers = look.lease.is_locked() && !shows(&look, &public(&ask.nonce));
        Ok(if is_later || is_anothers {
            ReleaseOutcome::HeldByOther { by: record.version }
        } else {
            ReleaseOutcome::AlreadyEnded
        })
    }
}

/// Whether the newest token is of this grant.
fn shows(look: &Look, public_nonce: &leasehold::Nonce) -> bool {
    let grant = look.record.as_ref().and_then(|record| record.grant.as_ref());
    grant.is_some_and(|grant| grant.nonce == *public_nonce)
}

/// Whole seconds, as the service counts them: never less than was asked.
fn lease_ttl(ttl: Duration) -> Duration {
    Duration::from_secs(ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0))
}

/// A blob that is locked by somebody who has not said who he is.
fn unnumbered(look: &Look) -> Held {
    let newest = look.record.as_ref().map_or(FencingToken::MIN, |record| record.version);
    Held::new(Holder::from_record(""), newest, Duration::from_secs(60))
}

fn another_lease(key: &LeaseKey) -> StoreError {
    StoreError::unknown(
        StoreErrorKind::Other,
        "the service leased the blob under another id than was asked for: look for what lies between, and report this",
    )
    .with_key(key)
}
