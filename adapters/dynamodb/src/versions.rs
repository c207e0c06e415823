use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use leasehold::{FencingToken, LeaseKey};

/// How many keys are remembered at a time.
const KEYS: usize = 4096;

/// The newest version that was seen of each key.
///
/// A key can be taken in one request only with a version above the stored one, and the service's time is known to a second or
/// so: a key that changes hands more often would cost a second request each time. What has been seen of it saves that one. A
/// hint and no more: the condition in the store decides.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    seen: Mutex<HashMap<LeaseKey, FencingToken>>,
}

impl Versions {
    pub(crate) fn note(&self, key: &LeaseKey, version: FencingToken) {
        // Inserting and clearing leave nothing half done.
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= KEYS && !seen.contains_key(key) {
            seen.clear();
        }
        seen.insert(key.clone(), version);
    }

    /// What a new version has to be at least. Nothing is known of a version that leaves none above it: whether the key can
    /// be granted is for the store to say.
    pub(crate) fn floor_ms(&self, key: &LeaseKey) -> u64 {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let next = seen.get(key).and_then(|version| version.get().checked_add(1));
        next.filter(|next| *next <= FencingToken::MAX.get()).unwrap_or(0)
    }
}
