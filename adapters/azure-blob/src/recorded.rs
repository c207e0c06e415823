//! Record mode: `leasehold::record` over the blob's metadata, each write on the condition of the ETag.
//!
//! A grant is over when the service's `Date` is its `Last-Modified` and its ttl, and then some: both are the service's own, so no
//! other clock counts. Nonces are hashed on the way in, see [`public`].

use std::sync::Arc;
use std::time::Duration;

use leasehold::record::{Expiry, Moment, Record, Step};
use leasehold::{
    AcquireOutcome, AcquireRequest, BreakHow, BreakOutcome, FencingToken, Granted, LeaseKey, Nonce,
    Observation, ReleaseOutcome, ReleaseRequest, RenewOutcome, RenewRequest, StoreError,
};

use crate::error::{no_store_clock, of_fault, overtaken};
use crate::port::LeaseState;
use crate::record::{self, COUNTS_FROM, Left, SERVICE, milliseconds, public};
use crate::store::{Look, Room, etag};

const ROUNDS: u32 = 3;

/// How exact `Date` and `Last-Modified` are: they name a second.
const RESOLUTION: Duration = Duration::from_secs(1);

impl Room {
    pub(crate) async fn acquire_record(&self, ask: &AcquireRequest) -> Result<AcquireOutcome, StoreError> {
        let mut hashed = ask.clone();
        hashed.nonce = public(&ask.nonce);
        let warm = self.seen().free(&ask.key);
        let (left, outcome) = self
            .settle(&ask.key, warm, |record, moment| {
                Record::acquire(record, &hashed, moment, self.options.tokens)
            })
            .await?;
        Ok(match outcome {
            AcquireOutcome::Granted(granted) => {
                self.time.note_token(granted.grant.token.get());
                AcquireOutcome::Granted(own(granted, &ask.nonce, left.as_ref()))
            }
            other => other,
        })
    }

    pub(crate) async fn renew_record(&self, ask: &RenewRequest) -> Result<RenewOutcome, StoreError> {
        let grant = &ask.grant;
        let mut hashed = ask.clone();
        hashed.grant.nonce = public(&grant.nonce);
        let warm = self.as_left(&grant.key, Left::of_state(&grant.state));
        let settled =
            self.settle(&grant.key, warm, |record, moment| Ok(Record::renew(record, &hashed, moment))).await;
        let (left, outcome) = match settled {
            // With the container everything is gone, if a second request says so too.
            Err(error) if error.code() == Some("ContainerNotFound") => {
                return match self.look(&grant.key).await {
                    Err(again) if again.code() == error.code() => Ok(RenewOutcome::RecordGone),
                    _ => Err(error),
                };
            }
            settled => settled?,
        };
        Ok(match outcome {
            RenewOutcome::Renewed(granted) => {
                RenewOutcome::Renewed(own(granted, &grant.nonce, left.as_ref()))
            }
            other => other,
        })
    }

    pub(crate) async fn release_record(&self, ask: &ReleaseRequest) -> Result<ReleaseOutcome, StoreError> {
        let mut hashed = ask.clone();
        hashed.nonce = public(&ask.nonce);
        let warm = self.as_left(&ask.key, Left::of_state(&ask.state));
        let (left, outcome) =
            self.settle(&ask.key, warm, |record, _| Ok(Record::release(record, &hashed))).await?;
        if let (ReleaseOutcome::Released, Some(free)) = (&outcome, self.as_left(&ask.key, left)) {
            self.seen().note_free(&ask.key, free);
        }
        Ok(outcome)
    }

    pub(crate) async fn break_record(
        &self,
        key: &LeaseKey,
        seen: FencingToken,
        how: BreakHow,
    ) -> Result<BreakOutcome, StoreError> {
        Ok(self.settle(key, None, |record, _| Ok(Record::break_grant(record, seen, how))).await?.1)
    }

    pub(crate) async fn raise_record(&self, key: &LeaseKey, floor: FencingToken) -> Result<(), StoreError> {
        self.settle(key, None, |record, _| Ok(Record::raise_floor(record, floor))).await?;
        Ok(())
    }

    pub(crate) async fn seal_record(&self, key: &LeaseKey, sealed: bool) -> Result<(), StoreError> {
        self.settle(key, None, |record, _| Ok(Record::seal(record, sealed))).await?;
        Ok(())
    }

    pub(crate) fn observe_record(&self, key: &LeaseKey, look: Option<&Look>) -> Observation {
        let over = look.is_some_and(|look| self.is_over(look).unwrap_or(false));
        Record::observe(look.and_then(|look| look.record.as_ref()), key, over)
    }

    /// Carries a step out on the blob as it was seen, or as it is, and once more if it has changed meanwhile. With the blob as it
    /// was left.
    async fn settle<O>(
        &self,
        key: &LeaseKey,
        mut warm: Option<Look>,
        verb: impl Fn(Option<&Record>, &Moment) -> Result<Step<O>, StoreError>,
    ) -> Result<(Option<Left>, O), StoreError> {
        for _ in 0..ROUNDS {
            let is_warm = warm.is_some();
            let look = match warm.take() {
                Some(look) => Some(look),
                None => self.look(key).await?,
            };
            let moment = self.moment(key, look.as_ref())?;
            match verb(look.as_ref().and_then(|look| look.record.as_ref()), &moment)? {
                // What was only remembered decides nothing.
                Step::Keep(_) if is_warm => {}
                Step::Keep(outcome) => return Ok((look.map(|look| self.left_by(look)), outcome)),
                Step::Write(record, outcome) => {
                    self.seen().forget(key);
                    if let Some(left) = self.write(key, look.as_ref(), &record).await? {
                        return Ok((Some(left), outcome));
                    }
                }
            }
        }
        Err(overtaken(key))
    }

    /// Writes `record` if the blob is still as it was seen. Nothing if it is not.
    async fn write(
        &self,
        key: &LeaseKey,
        look: Option<&Look>,
        record: &Record,
    ) -> Result<Option<Left>, StoreError> {
        let mut metadata = record::render(self.kind, Some(record));
        let Some(look) = look else {
            let made = self.create(key, Some(record)).await?;
            return Ok(made.map(|made| Left { etag: made.etag, modified_ms: made.modified_ms, metadata }));
        };
        // Every write sets Last-Modified. One that is no renewal must not make the grant younger.
        if let Some(modified_ms) = look.modified_ms.filter(|_| is_same_stretch(look.record.as_ref(), record))
        {
            metadata.insert(String::from(COUNTS_FROM), modified_ms.to_string());
        }
        match self.replace(key, metadata.clone(), &look.etag).await {
            Ok(reply) => {
                let modified_ms = record::counts_from(&metadata, reply.last_modified_ms);
                Ok(Some(Left { etag: etag(key, reply.etag)?, modified_ms, metadata }))
            }
            Err(fault) if matches!(fault.code(), Some("BlobNotFound" | "ConditionNotMet")) => Ok(None),
            Err(fault) => Err(of_fault(fault, Some(key))),
        }
    }

    /// The service's time as a step on this blob needs it. No later than it is: what is left of a grant must not be underrated.
    fn moment(&self, key: &LeaseKey, look: Option<&Look>) -> Result<Moment, StoreError> {
        let modified_ms = look.and_then(|look| look.modified_ms);
        let now_ms = self.time.earliest_ms().or(modified_ms).unwrap_or(0);
        let over = match look {
            Some(look) => self.is_over(look).ok_or_else(|| no_store_clock(key))?,
            None => false,
        };
        let now = Expiry { timeline: Arc::from(SERVICE), at_ms: now_ms };
        Ok(Moment { over, now, floor_ms: self.floor_ms(key)?, unix_ms: self.time.now().unix_ms() })
    }

    /// Whether the grant that stands is over. Not known where the answer lacks a time of the service's own.
    fn is_over(&self, look: &Look) -> Option<bool> {
        let Some(grant) = look.record.as_ref().and_then(|record| record.grant.as_ref()) else {
            return Some(false);
        };
        let Some(date_ms) = look.date_ms else {
            // Remembered, and not read now: then it stands.
            return look.modified_ms.map(|_| false);
        };
        let length = grant.ttl.saturating_add(RESOLUTION).saturating_add(self.options.max_skew);
        Some(date_ms.saturating_sub(look.modified_ms?) >= milliseconds(length))
    }

    fn left_by(&self, look: Look) -> Left {
        let mut metadata = record::render(self.kind, look.record.as_ref());
        metadata.extend(look.modified_ms.map(|modified| (String::from(COUNTS_FROM), modified.to_string())));
        Left { etag: look.etag, modified_ms: look.modified_ms, metadata }
    }

    /// What was left as if it had been looked at, without the time of an answer.
    fn as_left(&self, key: &LeaseKey, left: Option<Left>) -> Option<Look> {
        let left = left?;
        let record = record::parse(key, self.kind, &left.metadata, left.modified_ms).ok()?;
        let modified_ms = Some(left.modified_ms?);
        Some(Look {
            etag: left.etag,
            record,
            lease: LeaseState::Available,
            modified_ms,
            date_ms: None,
            sequence: None,
        })
    }
}

/// Whether the same grant stands in both, renewed no more in the one than in the other.
fn is_same_stretch(before: Option<&Record>, after: &Record) -> bool {
    let stretch =
        |record: &Record| record.grant.as_ref().map(|grant| (grant.nonce.clone(), grant.attempt, grant.seq));
    let after = stretch(after);
    after.is_some() && before.map(stretch) == Some(after)
}

/// A grant with its own nonce and the blob as it was left.
fn own(mut granted: Granted, nonce: &Nonce, left: Option<&Left>) -> Granted {
    granted.grant.nonce = nonce.clone();
    if let Some(left) = left {
        granted.grant = granted.grant.with_state(left.state());
    }
    granted
}
