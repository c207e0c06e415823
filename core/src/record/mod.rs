//! The compare-and-set record protocol: what a lease's record says, and what each verb makes of it.
//!
//! For stores that keep one small record per key and can replace it on a condition (a transaction, a conditional write,
//! an ETag). Pure: no clock, no network. An adapter reads a [`Record`], asks one of its verbs for a [`Step`], and carries
//! it out in one atomic write; or sends the condition first and gives the record that failed it to the same verb, to learn
//! what the failure means.
//!
//! Why it is written this way: the token lives in the record and the record is never deleted, so tokens outlive releases.
//! Own writes are recognised by the nonce in every verb, so a lost answer is never read as somebody else's grant. Renewal
//! compares `seq`, so a delayed duplicate cannot move the expiry back.

mod observations;
mod store_time;

use std::sync::Arc;
use std::time::Duration;

pub use observations::{Observations, Sight};
pub use store_time::{StoreAnswer, StoreTime};

use crate::clock::saturating_ms;
use crate::error::{StoreError, StoreErrorKind};
use crate::holder::Holder;
use crate::key::LeaseKey;
use crate::nonce::{AttemptId, Nonce};
use crate::store::{
    AcquireOutcome, AcquireRequest, BreakHow, BreakOutcome, Grant, Granted, Held, Observation,
    ReleaseOutcome, ReleaseRequest, RenewOutcome, RenewRequest,
};
use crate::token::FencingToken;

/// The record of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "an adapter that forgets a field must not compile")]
pub struct Record {
    /// The newest grant's token, or the floor. Never falls.
    pub version: FencingToken,
    /// The grant that stands. Present if and only if it has neither been released nor broken; it may be over.
    pub grant: Option<GrantRecord>,
    /// Whether an operator has closed the key to new grants.
    pub sealed: bool,
}

/// The part of a [`Record`] that is there while a grant stands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "an adapter that forgets a field must not compile")]
pub struct GrantRecord {
    /// Identifies the grant. Secret.
    pub nonce: Nonce,
    /// The attempt that wrote the record last.
    pub attempt: AttemptId,
    /// A label for people.
    pub holder: Holder,
    /// How often the grant has been renewed.
    pub seq: u64,
    /// The ttl that the holder chose. Observers use this one, not their own.
    pub ttl: Duration,
    /// When it was granted, by the holder's wall clock. For people.
    pub since_ms: u64,
    /// When it expires, by the last writer's wall clock. For people.
    pub until_ms: u64,
    /// When others may take over; nothing where only observation can tell.
    pub expiry: Option<Expiry>,
    /// Whether an operator has asked the holder to stop.
    pub break_requested: bool,
}

/// When others may take over.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "complete by nature: on which clock, and when")]
pub struct Expiry {
    /// The clock that `at_ms` counts on: a machine's boot, a server. Times of two timelines are not comparable.
    pub timeline: Arc<str>,
    /// Milliseconds since that clock's origin.
    pub at_ms: u64,
}

/// What the store knows of time as it takes a step.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "an adapter that forgets a field must not compile")]
pub struct Moment {
    /// Whether the grant that stands in the record is over, by the store's rule.
    pub over: bool,
    /// Now, on the store's timeline. A grant made or renewed in this step expires at `now` and its ttl.
    pub now: Expiry,
    /// The token floor of this step, Unix milliseconds in the store's time; 0 where tokens are counted.
    pub floor_ms: u64,
    /// Unix milliseconds by the wall clock. For people.
    pub unix_ms: u64,
}

/// How tokens are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenPolicy {
    /// The greater of the last token and one, and the Unix time in milliseconds. The order never depends on a clock; the
    /// clock only lifts the floor, so that a deleted record, a restore or a move to another store cannot make tokens fall.
    #[default]
    ClockFloor,
    /// The last token and one: small numbers that people can read.
    Sequential {
        /// What a key without a record counts from.
        seed: u64,
    },
}

impl TokenPolicy {
    /// The token that follows `last`.
    fn next(self, last: Option<FencingToken>, floor_ms: u64) -> Option<FencingToken> {
        let last = last.map(FencingToken::get);
        let next = match self {
            Self::ClockFloor => last.unwrap_or(0).checked_add(1)?.max(floor_ms),
            Self::Sequential { seed } => last.unwrap_or(seed).checked_add(1)?,
        };
        FencingToken::try_from(next).ok()
    }
}

/// What a verb makes of a record.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete by nature: write or do not")]
pub enum Step<O> {
    /// Leave the record as it is; this is the answer.
    Keep(O),
    /// Replace the record by this one, on the condition that it is still as read; then this is the answer.
    Write(Record, O),
}

impl Record {
    /// Acquire: takes the key if it is free or its grant is over; recognises its own earlier attempt.
    ///
    /// # Errors
    /// When no token is left above the last one.
    pub fn acquire(
        current: Option<&Self>,
        ask: &AcquireRequest,
        moment: &Moment,
        policy: TokenPolicy,
    ) -> Result<Step<AcquireOutcome>, StoreError> {
        let standing = current.and_then(|record| record.grant.as_ref().map(|grant| (record, grant)));
        if let Some((record, grant)) = standing {
            if grant.nonce == ask.nonce {
                let own = Grant::new(ask.key.clone(), ask.nonce.clone(), record.version, grant.seq);
                return Ok(Step::Keep(AcquireOutcome::Granted(Granted::new(own, grant.attempt, grant.ttl))));
            }
        }
        if current.is_some_and(|record| record.sealed) {
            return Ok(Step::Keep(AcquireOutcome::Sealed));
        }
        if let Some((record, grant)) = standing.filter(|_| !moment.over) {
            return Ok(Step::Keep(AcquireOutcome::Held(grant.held(record.version, false))));
        }
        let Some(version) = policy.next(current.map(|record| record.version), moment.floor_ms) else {
            return Err(StoreError::not_applied(
                StoreErrorKind::Corrupt,
                "the fencing token has reached the greatest number there is, so this key can be granted no more: use another key",
            )
            .with_key(&ask.key));
        };
        let grant = GrantRecord {
            nonce: ask.nonce.clone(),
            attempt: ask.attempt,
            holder: ask.holder.clone(),
            seq: 0,
            ttl: ask.ttl,
            since_ms: moment.unix_ms,
            until_ms: moment.until_ms(ask.ttl),
            expiry: Some(moment.expiry(ask.ttl)),
            break_requested: false,
        };
        let own = Grant::new(ask.key.clone(), ask.nonce.clone(), version, 0);
        Ok(Step::Write(
            Self { version, grant: Some(grant), sealed: false },
            AcquireOutcome::Granted(Granted::new(own, ask.attempt, ask.ttl)),
        ))
    }

    /// Renew: a compare-and-set on `seq`; recognises its own earlier attempt; never moves the expiry back.
    pub fn renew(current: Option<&Self>, ask: &RenewRequest, moment: &Moment) -> Step<RenewOutcome> {
        let asked = &ask.grant;
        let Some(record) = current.filter(|record| record.version >= asked.token) else {
            return Step::Keep(RenewOutcome::RecordGone);
        };
        let same = |grant: &&GrantRecord| grant.nonce == asked.nonce && record.version == asked.token;
        let Some(grant) = record.grant.as_ref().filter(same) else {
            let taken = record.grant.is_some() || record.version > asked.token;
            return Step::Keep(if taken {
                RenewOutcome::Superseded { by: Some(record.version) }
            } else {
                RenewOutcome::Broken
            });
        };
        if grant.seq < asked.seq {
            // The record has been put back to an earlier state.
            return Step::Keep(RenewOutcome::RecordGone);
        }
        let ahead = grant.seq - asked.seq;
        if ahead == 1 {
            // Ours if the attempt is one of ours, which the caller knows.
            let own = Grant { seq: grant.seq, ..asked.clone() };
            return Step::Keep(RenewOutcome::Renewed(Granted::new(own, grant.attempt, grant.ttl)));
        }
        if ahead > 1 {
            return Step::Keep(RenewOutcome::Cloned);
        }
        if grant.break_requested {
            return Step::Keep(RenewOutcome::Broken);
        }
        let seq = asked.seq.saturating_add(1);
        let expiry = moment.expiry(ask.ttl).no_earlier_than(grant.expiry.as_ref());
        // Observers watch for the ttl: a shorter one must not end for them before the expiry that stays.
        let left = Duration::from_millis(expiry.at_ms.saturating_sub(moment.now.at_ms));
        let renewed = GrantRecord {
            attempt: ask.attempt,
            seq,
            ttl: ask.ttl.max(left),
            until_ms: grant.until_ms.max(moment.until_ms(ask.ttl)),
            expiry: Some(expiry),
            ..grant.clone()
        };
        let own = Grant { seq, ..asked.clone() };
        Step::Write(
            Self { grant: Some(renewed), ..record.clone() },
            RenewOutcome::Renewed(Granted::new(own, ask.attempt, ask.ttl)),
        )
    }

    /// Release: ends the grant with this nonce and keeps the token.
    pub fn release(current: Option<&Self>, ask: &ReleaseRequest) -> Step<ReleaseOutcome> {
        let Some(record) = current else {
            return Step::Keep(ReleaseOutcome::AlreadyEnded);
        };
        match &record.grant {
            Some(grant) if grant.nonce == ask.nonce => {
                Step::Write(Self { grant: None, ..record.clone() }, ReleaseOutcome::Released)
            }
            Some(_) => Step::Keep(ReleaseOutcome::HeldByOther { by: record.version }),
            None => match ask.token {
                Some(token) if record.version > token => {
                    Step::Keep(ReleaseOutcome::HeldByOther { by: record.version })
                }
                _ => Step::Keep(ReleaseOutcome::AlreadyEnded),
            },
        }
    }

    /// Break: ends the grant with the token `seen`, or asks its holder to stop.
    pub fn break_grant(current: Option<&Self>, seen: FencingToken, how: BreakHow) -> Step<BreakOutcome> {
        let standing = current.filter(|record| record.version == seen);
        let Some((record, grant)) = standing.and_then(|record| Some((record, record.grant.as_ref()?))) else {
            return Step::Keep(BreakOutcome::NotCurrent);
        };
        let grant = match how {
            BreakHow::Graceful => Some(GrantRecord { break_requested: true, ..grant.clone() }),
            BreakHow::Immediate => None,
        };
        Step::Write(Self { grant, ..record.clone() }, BreakOutcome::Broken)
    }

    /// Raise the floor: every later token is greater than `floor`. A grant whose token is thereby too low ends.
    pub fn raise_floor(current: Option<&Self>, floor: FencingToken) -> Step<()> {
        match current {
            Some(record) if record.version >= floor => Step::Keep(()),
            _ => {
                let sealed = current.is_some_and(|record| record.sealed);
                Step::Write(Self { version: floor, grant: None, sealed }, ())
            }
        }
    }

    /// Seal or unseal: whether new grants are made. A grant that stands goes on.
    pub fn seal(current: Option<&Self>, sealed: bool) -> Step<()> {
        match current {
            Some(record) if record.sealed == sealed => Step::Keep(()),
            Some(record) => Step::Write(Self { sealed, ..record.clone() }, ()),
            None if sealed => Step::Write(Self { version: FencingToken::MIN, grant: None, sealed }, ()),
            None => Step::Keep(()),
        }
    }

    /// What others may see of the record. `over`: whether the grant that stands is over, by the store's rule.
    pub fn observe(current: Option<&Self>, key: &LeaseKey, over: bool) -> Observation {
        let mut seen = Observation::absent(key.clone());
        if let Some(record) = current {
            seen.token = Some(record.version);
            seen.sealed = record.sealed;
            seen.held = record.grant.as_ref().map(|grant| grant.held(record.version, over));
        }
        seen
    }
}

impl GrantRecord {
    fn held(&self, version: FencingToken, over: bool) -> Held {
        Held {
            seq: self.seq,
            since_ms: Some(self.since_ms),
            until_ms: Some(self.until_ms),
            claimable: over,
            break_requested: self.break_requested,
            ..Held::new(self.holder.clone(), version, self.ttl)
        }
    }

    /// Whether the expiry lies on `now`'s timeline and has been reached. `None` where the timelines differ or there is no
    /// expiry: only observation can tell.
    pub fn is_over_at(&self, now: &Expiry) -> Option<bool> {
        let expiry = self.expiry.as_ref()?;
        (expiry.timeline == now.timeline).then_some(expiry.at_ms <= now.at_ms)
    }
}

impl Moment {
    fn expiry(&self, ttl: Duration) -> Expiry {
        let at_ms = self.now.at_ms.saturating_add(saturating_ms(ttl));
        Expiry { timeline: Arc::clone(&self.now.timeline), at_ms }
    }

    fn until_ms(&self, ttl: Duration) -> u64 {
        self.unix_ms.saturating_add(saturating_ms(ttl))
    }
}

impl Expiry {
    fn no_earlier_than(self, last: Option<&Self>) -> Self {
        match last {
            Some(last) if last.timeline == self.timeline && last.at_ms > self.at_ms => last.clone(),
            _ => self,
        }
    }
}

#[cfg(test)]
mod tests;
