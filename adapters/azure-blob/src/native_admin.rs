//! What an operator does to native leases. Without the lease id nobody can write to a leased blob; but anybody can break it.

use leasehold::record::{Record, Step};
use leasehold::{BreakHow, BreakOutcome, FencingToken, LeaseKey, StoreError, StoreErrorKind};

use crate::error::{of_fault, of_later_fault, overtaken};
use crate::name;
use crate::options::TokenSource;
use crate::port::{Call, Fault, LeaseState};
use crate::record;
use crate::store::{Look, Room, etag};

const ROUNDS: u32 = 3;

impl Room {
    pub(crate) async fn break_native(
        &self,
        key: &LeaseKey,
        seen: FencingToken,
        how: BreakHow,
    ) -> Result<BreakOutcome, StoreError> {
        let Some(look) = self.look(key).await? else { return Ok(BreakOutcome::NotCurrent) };
        let record = look.record.clone().filter(|record| record.version == seen && record.grant.is_some());
        let Some(record) = record.filter(|_| look.lease != LeaseState::Available) else {
            return Ok(BreakOutcome::NotCurrent);
        };
        // Without a period the lease lasts until its end and cannot be renewed.
        let seconds = (how == BreakHow::Immediate).then_some(0);
        if let Err(fault) = self.break_now(key, seconds, &look).await {
            return match fault.code() {
                Some("BlobNotFound" | "ConditionNotMet" | "LeaseNotPresentWithLeaseOperation") => {
                    Ok(BreakOutcome::NotCurrent)
                }
                _ => Err(of_fault(fault, Some(key))),
            };
        }
        if how == BreakHow::Immediate {
            // So that its holder finds no lease to release. Whoever was faster has taken the key already.
            let ended = Record { grant: None, ..record };
            match self.replace(key, record::render(self.kind, Some(&ended)), &look.etag).await {
                Ok(_) => {}
                Err(fault) if is_overtaking(&fault) => {}
                Err(fault) => return Err(of_later_fault(fault, key)),
            }
        }
        self.seen().forget(key);
        Ok(BreakOutcome::Broken)
    }

    async fn break_now(&self, key: &LeaseKey, seconds: Option<u32>, look: &Look) -> Result<(), Fault> {
        let call = Call::Break { blob: name::of_key(key), seconds, if_match: look.etag.clone() };
        self.call(&call).await.map(drop)
    }

    pub(crate) async fn raise_native(&self, key: &LeaseKey, floor: FencingToken) -> Result<(), StoreError> {
        for _ in 0..ROUNDS {
            let look = self.look(key).await?;
            let Step::Write(raised, ()) =
                Record::raise_floor(look.as_ref().and_then(|look| look.record.as_ref()), floor)
            else {
                return Ok(());
            };
            let Some(look) = look else {
                if self.create(key, Some(&raised)).await?.is_some() {
                    return Ok(());
                }
                continue;
            };
            if look.lease.is_locked() {
                match self.break_now(key, Some(0), &look).await {
                    Ok(()) => {}
                    Err(fault) if is_overtaking(&fault) => continue,
                    Err(fault) => return Err(of_fault(fault, Some(key))),
                }
            }
            self.seen().forget(key);
            match self.write_floor(key, &raised, look.etag).await {
                Ok(()) => return Ok(()),
                Err(fault) if is_overtaking(&fault) => {}
                Err(fault) => return Err(of_later_fault(fault, key)),
            }
        }
        Err(overtaken(key))
    }

    async fn write_floor(&self, key: &LeaseKey, raised: &Record, mut if_match: String) -> Result<(), Fault> {
        if self.options.token_source == TokenSource::PageBlob {
            let at_least = Some(raised.version.get());
            let call = Call::Sequence { blob: name::of_key(key), at_least, id: None, if_match };
            if_match = self.call(&call).await?.etag.unwrap_or_default();
        }
        self.replace(key, record::render(self.kind, Some(raised)), &if_match).await.map(drop)
    }

    pub(crate) async fn seal_native(&self, key: &LeaseKey, sealed: bool) -> Result<(), StoreError> {
        for _ in 0..ROUNDS {
            let look = self.look(key).await?;
            let Step::Write(record, ()) =
                Record::seal(look.as_ref().and_then(|look| look.record.as_ref()), sealed)
            else {
                return Ok(());
            };
            let written = match look {
                None => self.create(key, Some(&record)).await?.is_some(),
                Some(look) if look.lease.is_locked() => return Err(cannot_seal(key)),
                Some(look) => {
                    self.seen().forget(key);
                    match self.replace(key, record::render(self.kind, Some(&record)), &look.etag).await {
                        Ok(reply) => etag(key, reply.etag).is_ok(),
                        Err(fault) if is_overtaking(&fault) => false,
                        Err(fault) => return Err(of_fault(fault, Some(key))),
                    }
                }
            };
            if written {
                return Ok(());
            }
        }
        Err(overtaken(key))
    }
}

/// Whether somebody else has taken or written the blob in between.
fn is_overtaking(fault: &Fault) -> bool {
    matches!(
        fault.code(),
        Some("BlobNotFound" | "ConditionNotMet" | "LeaseIdMissing" | "LeaseNotPresentWithLeaseOperation")
    )
}

fn cannot_seal(key: &LeaseKey) -> StoreError {
    StoreError::not_applied(
        StoreErrorKind::Unsupported,
        "this key is held, and nobody but its holder can write to a leased blob: break the lease first, or seal it when it is free",
    )
    .with_key(key)
}
