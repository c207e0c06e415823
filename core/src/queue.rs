use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{Mutex as Turnstile, OwnedMutexGuard};

use crate::key::LeaseKey;

/// One contender per key at a time: the others of this process wait here, in the order in which they came, and cost the
/// store nothing.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    turnstiles: Mutex<HashMap<LeaseKey, Weak<Turnstile<()>>>>,
}

/// The right to contend for a key. Passed on when dropped.
pub(crate) type Turn = OwnedMutexGuard<()>;

impl Queue {
    pub(crate) async fn turn(&self, key: &LeaseKey) -> Turn {
        self.turnstile(key).lock_owned().await
    }

    fn turnstile(&self, key: &LeaseKey) -> Arc<Turnstile<()>> {
        // Inserting and removing leave nothing half done.
        let mut turnstiles = self.turnstiles.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turnstile) = turnstiles.get(key).and_then(Weak::upgrade) {
            return turnstile;
        }
        turnstiles.retain(|_, turnstile| turnstile.strong_count() > 0);
        let turnstile = Arc::new(Turnstile::new(()));
        turnstiles.insert(key.clone(), Arc::downgrade(&turnstile));
        turnstile
    }
}
