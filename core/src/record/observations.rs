use std::collections::HashMap;
use std::time::Duration;

use crate::key::LeaseKey;
use crate::nonce::Nonce;
use crate::timing;
use crate::token::FencingToken;

/// What a contender has watched: since when it has seen which state of which record.
///
/// The rule that trusts no clock but the watcher's own: a record that has shown the same grant with the same `seq` for the
/// whole of that grant's ttl has not been renewed in time, so its holder has stopped. Kept between tries, so that repeated
/// short ones succeed too. Bounded; what is evicted must be watched from the beginning, which can only delay a takeover.
#[derive(Debug)]
pub struct Observations {
    capacity: usize,
    seen: HashMap<LeaseKey, Watched>,
}

#[derive(Debug)]
struct Watched {
    sight: Sight,
    ttl: Duration,
    first: Duration,
    last: Duration,
}

/// One state of a grant, as watched.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "complete by nature: the three that change when a grant does")]
pub struct Sight {
    /// The grant.
    pub nonce: Nonce,
    /// Its renewals.
    pub seq: u64,
    /// Its token.
    pub version: FencingToken,
}

impl Observations {
    /// Watches at most `capacity` keys at a time.
    pub fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), seen: HashMap::new() }
    }

    /// Notes that the record of `key` shows `sight`, and says whether it has done so for the whole of `ttl`.
    ///
    /// `arrived` is a reading of the boot clock taken after the answer arrived: a renewal may land between the sending of
    /// a read and its answer.
    pub fn note(&mut self, key: &LeaseKey, sight: Sight, ttl: Duration, arrived: Duration) -> bool {
        match self.seen.get_mut(key) {
            Some(watched) if watched.sight == sight => {
                watched.last = arrived;
                arrived.saturating_sub(watched.first) >= timing::stretched(ttl)
            }
            known => {
                if known.is_none() && self.seen.len() >= self.capacity {
                    self.evict(arrived);
                }
                self.seen.insert(key.clone(), Watched { sight, ttl, first: arrived, last: arrived });
                false
            }
        }
    }

    /// Forgets `key`: its record is free or has been taken.
    pub fn forget(&mut self, key: &LeaseKey) {
        self.seen.remove(key);
    }

    /// Makes room: a key at which nobody has looked for a ttl goes first. Where all are being watched the newest goes, so
    /// that those watched longest come to their end.
    fn evict(&mut self, now: Duration) {
        let victim = self.seen.iter().max_by_key(|(_, watched)| {
            let unwatched = now.saturating_sub(watched.last).checked_sub(watched.ttl);
            (unwatched, watched.first)
        });
        if let Some(key) = victim.map(|(key, _)| key.clone()) {
            self.seen.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sight(seq: u64) -> Sight {
        Sight { nonce: Nonce::from_bytes([7; 16]), seq, version: FencingToken::MIN }
    }

    fn seconds(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    #[test]
    fn a_grant_is_over_when_it_stood_still_for_its_own_ttl() {
        let key = LeaseKey::new("k").unwrap();
        let mut watched = Observations::new(8);
        assert!(!watched.note(&key, sight(0), seconds(30), seconds(100)));
        assert!(!watched.note(&key, sight(0), seconds(30), seconds(130)), "drift is not covered yet");
        assert!(watched.note(&key, sight(0), seconds(30), seconds(131)));
        // A renewal starts the watch anew.
        assert!(!watched.note(&key, sight(1), seconds(30), seconds(132)));
        assert!(!watched.note(&key, sight(1), seconds(30), seconds(161)));
    }

    #[test]
    fn eviction_delays_and_never_hastens() {
        let keys: Vec<_> = (0..3).map(|n| LeaseKey::new(format!("k{n}")).unwrap()).collect();
        let mut watched = Observations::new(2);
        for (number, key) in keys.iter().enumerate() {
            assert!(!watched.note(key, sight(0), seconds(30), seconds(100 + number as u64)));
        }
        // `k1` was the newest when `k2` came: it starts anew, the oldest comes to its end.
        assert!(watched.note(&keys[0], sight(0), seconds(30), seconds(140)));
        assert!(!watched.note(&keys[1], sight(0), seconds(30), seconds(140)));
    }
    #[test]
    fn a_key_that_nobody_watches_any_more_makes_room() {
        let keys: Vec<_> = (0..3).map(|n| LeaseKey::new(format!("k{n}")).unwrap()).collect();
        let mut watched = Observations::new(2);
        watched.note(&keys[0], sight(0), seconds(30), seconds(0));
        watched.note(&keys[1], sight(0), seconds(30), seconds(90));
        watched.note(&keys[2], sight(0), seconds(30), seconds(100));
        assert!(watched.note(&keys[1], sight(0), seconds(30), seconds(121)), "the watched one stayed");
        assert!(watched.note(&keys[2], sight(0), seconds(30), seconds(131)), "the new one found room");
    }
}
