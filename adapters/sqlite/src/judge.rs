//! Whether a grant is over.

use std::sync::Arc;
use std::time::Duration;

use leasehold::record::{Expiry, Moment, Observations, Record, Sight};
use leasehold::{Clock, LeaseKey};

/// How many records of other boots are watched at a time. One is some hundred bytes.
const WATCHED: usize = 1024;

/// Judges by the boot clock, and a grant that another boot has timed by watching it for its whole ttl.
#[derive(Debug)]
pub(crate) struct Judge {
    clock: Arc<dyn Clock>,
    timeline: Arc<str>,
    watched: Observations,
}

impl Judge {
    pub(crate) fn new(clock: Arc<dyn Clock>, timeline: Arc<str>) -> Self {
        Self { clock, timeline, watched: Observations::new(WATCHED) }
    }

    /// The moment of a step on `key`. Call it when the record has been read, so that nothing read is younger than it.
    pub(crate) fn moment(&mut self, key: &LeaseKey, current: Option<&Record>) -> Moment {
        let reading = self.clock.read();
        let now = self.now(reading.boot);
        let over = self.is_over(key, current, &now, reading.boot);
        Moment { over, now, floor_ms: reading.unix_ms(), unix_ms: reading.unix_ms() }
    }

    /// Whether the grant in a record is known to be over, without beginning to watch it.
    pub(crate) fn glance(&self, current: &Record) -> bool {
        let now = self.now(self.clock.read().boot);
        current.grant.as_ref().is_some_and(|grant| grant.is_over_at(&now) == Some(true))
    }

    /// Forgets what was seen of `key`: its record has been written.
    pub(crate) fn forget(&mut self, key: &LeaseKey) {
        self.watched.forget(key);
    }

    fn is_over(&mut self, key: &LeaseKey, current: Option<&Record>, now: &Expiry, arrived: Duration) -> bool {
        let Some((record, grant)) = current.and_then(|record| Some((record, record.grant.as_ref()?))) else {
            self.watched.forget(key);
            return false;
        };
        match grant.is_over_at(now) {
            Some(over) => {
                self.watched.forget(key);
                over
            }
            None => {
                let sight = Sight { nonce: grant.nonce.clone(), seq: grant.seq, version: record.version };
                self.watched.note(key, sight, grant.ttl, arrived)
            }
        }
    }

    fn now(&self, boot: Duration) -> Expiry {
        let at_ms = u64::try_from(boot.as_millis()).unwrap_or(u64::MAX);
        Expiry { timeline: Arc::clone(&self.timeline), at_ms }
    }
}
