//! What a store remembers between calls. Losing any of it costs a request, or a wait; it decides nothing.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::time::Duration;

use leasehold::{LeaseKey, Nonce};

use crate::store::Look;

/// How much is remembered of each.
const CAPACITY: usize = 4096;

/// How long whoever has certainly just leased a blob is given for the token. Then he has gone away, and contention is the answer.
const TAKING: Duration = Duration::from_millis(400);

/// The same for somebody of whom nothing is known: most likely he has had his token for long.
const DOUBT: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Blobs as they were last seen free.
    free: HashMap<LeaseKey, Free>,
    /// The ETags at which blobs were leased by somebody who had his token.
    held: HashMap<LeaseKey, String>,
    /// Public nonces under which a lock may stand of which nobody has told us.
    unsettled: HashSet<Nonce>,
}

#[derive(Debug)]
struct Free {
    look: Look,
    /// Whether to try and take it at sight.
    warm: bool,
    /// Since when it is seen leased at the same ETag, on the boot clock.
    taken: Option<Duration>,
    /// How long whoever has taken it is given for the token.
    patience: Duration,
}

impl Seen {
    /// The blob as it was last seen free, if it may still be.
    pub(crate) fn free(&self, key: &LeaseKey) -> Option<Look> {
        self.free.get(key).filter(|free| free.warm).map(|free| free.look.clone())
    }

    /// The blob is free.
    pub(crate) fn note_free(&mut self, key: &LeaseKey, look: Look) {
        self.held.remove(key);
        make_room(&mut self.free, key);
        self.free.insert(key.clone(), Free { look, warm: true, taken: None, patience: TAKING });
    }

    /// The blob is another than it was.
    pub(crate) fn forget(&mut self, key: &LeaseKey) {
        self.held.remove(key);
        self.free.remove(key);
    }

    /// Whether whoever has the lease now may have no token yet: the blob was seen free at this very ETag, has never been granted, its
    /// own number is ahead of the token, or it is seen for the first time. Whoever stays so for long has his token, or has gone away.
    pub(crate) fn is_being_taken(&mut self, key: &LeaseKey, look: &Look, now: Duration) -> bool {
        if self.held.get(key) == Some(&look.etag) {
            return false;
        }
        if self.free.get(key).is_none_or(|free| free.look.etag != look.etag) {
            self.note_free(key, look.clone());
            let patience = if look.lacks_its_token() { TAKING } else { DOUBT };
            self.free.entry(key.clone()).and_modify(|free| free.patience = patience);
        }
        let Some(free) = self.free.get_mut(key) else { return false };
        free.warm = false;
        let since = *free.taken.get_or_insert(now);
        now.saturating_sub(since) < free.patience
    }

    /// A lock is about to be sent under this public nonce.
    pub(crate) fn unsettle(&mut self, nonce: Nonce) {
        if self.unsettled.len() >= CAPACITY {
            let victim = self.unsettled.iter().next().cloned();
            victim.map(|victim| self.unsettled.remove(&victim));
        }
        self.unsettled.insert(nonce);
    }

    /// Whether it is known that not this nonce has the blob at this ETag.
    pub(crate) fn is_settled(&self, key: &LeaseKey, etag: &str, nonce: &Nonce) -> bool {
        let asked = self.free.get(key).is_some_and(|free| free.taken.is_some() && free.look.etag == etag);
        let known = asked || self.held.get(key).is_some_and(|held| held == etag);
        known && !self.unsettled.contains(nonce)
    }

    /// Whoever has the blob has the token that it shows.
    pub(crate) fn note_held(&mut self, key: &LeaseKey, look: Look) {
        self.free.remove(key);
        make_room(&mut self.held, key);
        self.held.insert(key.clone(), look.etag);
    }

    /// What became of the lock is known.
    pub(crate) fn settle(&mut self, nonce: &Nonce) {
        self.unsettled.remove(nonce);
    }
}

fn make_room<K: Clone + Eq + Hash, V>(map: &mut HashMap<K, V>, coming: &K) {
    if map.len() >= CAPACITY && !map.contains_key(coming) {
        let victim = map.keys().next().cloned();
        victim.map(|victim| map.remove(&victim));
    }
}
