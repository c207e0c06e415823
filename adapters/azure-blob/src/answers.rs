//! The service's time, learnt from its answers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::record::{StoreAnswer, StoreTime};
use leasehold::{Clock, Reading};

use crate::port::{Fault, Refusal};

/// What is known of the service's time. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct ServiceTime {
    clock: Arc<dyn Clock>,
    known: Arc<Mutex<Known>>,
}

#[derive(Debug, Default)]
struct Known {
    time: StoreTime,
    /// The highest floor so far.
    floor_ms: u64,
    /// The newest answer alone: what a signature is dated by. One that was wrong is then refused only once.
    newest: Option<StoreAnswer>,
}

impl ServiceTime {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, known: Arc::default() }
    }

    pub(crate) fn now(&self) -> Reading {
        self.clock.read()
    }

    /// Keeps an answer to a request that was begun at `sent`, on the boot clock.
    pub(crate) fn note(&self, date_ms: Option<u64>, sent: Duration) {
        if let Some(date_ms) = date_ms {
            let answer = StoreAnswer { date_ms, sent, arrived: self.now().boot };
            let mut known = self.lock();
            known.time.note(answer);
            known.newest = Some(answer);
        }
    }

    /// The latest that the service's clock can show now.
    pub(crate) fn latest_ms(&self) -> Option<u64> {
        let boot = self.now().boot;
        self.lock().time.latest_ms(boot)
    }

    /// The floor of a token that is made now: the latest that the service's clock can show, and no less than any floor before. The
    /// latest alone goes back by up to a second when an answer that came late in its second makes room for an earlier one.
    pub(crate) fn floor_ms(&self) -> Option<u64> {
        let boot = self.now().boot;
        let mut known = self.lock();
        let latest = known.time.latest_ms(boot)?;
        known.floor_ms = known.floor_ms.max(latest);
        Some(known.floor_ms)
    }

    /// A token has been issued. Tokens of later grants lie above it even if the key is deleted, unless it lies far ahead of the time:
    /// then its floor was raised by hand, and other keys must not follow.
    pub(crate) fn note_token(&self, token: u64) {
        let mut known = self.lock();
        if token < known.floor_ms.saturating_add(1000) {
            known.floor_ms = known.floor_ms.max(token.saturating_add(1));
        }
    }

    /// The earliest that the service's clock can show now.
    pub(crate) fn earliest_ms(&self) -> Option<u64> {
        let boot = self.now().boot;
        self.lock().time.earliest_ms(boot)
    }

    /// About what the service's clock shows; this machine's wall clock where nothing is known. For dating requests.
    #[cfg(feature = "client")]
    pub(crate) fn about_ms(&self) -> u64 {
        let now = self.now();
        match self.lock().newest {
            Some(answer) => {
                let since = now.boot.saturating_sub(answer.arrived);
                answer.date_ms.saturating_add(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
            }
            None => now.unix_ms(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // Noting an answer leaves nothing half done.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The service's time in what was no yes.
pub(crate) fn date_of(fault: &Fault) -> Option<u64> {
    match fault {
        Fault::Refused(Refusal { date_ms, .. }) => *date_ms,
        Fault::NotSent(_) | Fault::Unknown(_) => None,
    }
}
