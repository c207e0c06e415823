use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use leasehold::{FencingToken, LeaseKey, LeaseStore};

/// What an adapter's author fills in: how the kit gets clients of the backend, and how it does to a key what no
/// [`LeaseStore`] does.
///
/// Everything here is per key, so that all cases can run at once on one backend. A harness that moves a clock gives each
/// value of itself a clock and a backend of its own: [`suite!`](crate::suite) makes one value per case.
///
/// A harness that cannot do its work (no server, no rights) panics with a line that says how to start what it needs.
/// Never skip: absent is red.
#[async_trait]
pub trait Harness: Send + Sync {
    /// The store under test. Cases of [`LeaseAdmin`](leasehold::LeaseAdmin) are there for stores that implement it.
    type Store: LeaseStore;

    /// A client of the backend. A second call gives a second client that shares nothing with the first but the backend:
    /// a connection of its own, and nothing kept in memory in common.
    async fn store(&self) -> Self::Store;

    /// A client as it is when every process that had the store open has ended and a new one has begun.
    ///
    /// The cases have dropped their own clients by then. What is kept on a disk or a server needs nothing more, hence the
    /// default. A store in memory returns an empty one.
    async fn after_restart(&self) -> Self::Store {
        self.store().await
    }

    /// Lets `by` of the store's time pass for the grant of `key`, and no more: moves a fake clock, moves the stored expiry
    /// back, or waits.
    async fn age(&self, key: &LeaseKey, by: Duration);

    /// Makes the grant of `key` old enough that it is over by the store's rule of expiry, whatever its ttl: moves a fake
    /// clock, rewrites the stored expiry, or waits.
    async fn expire(&self, key: &LeaseKey);

    /// Takes `key` from its holder as another would: afterwards a grant with another nonce and a greater token is current
    /// for at least [`Harness::ttl`].
    async fn usurp(&self, key: &LeaseKey);

    /// Deletes the record of `key`, and all that the store keeps for it, behind the adapter's back.
    ///
    /// # Errors
    /// [`Impossible`] where that cannot be done at all.
    async fn delete_record(&self, key: &LeaseKey) -> Result<(), Impossible>;

    /// The newest token of `key` in the store itself: looked up behind the adapter's back wherever that can be done.
    async fn stored_token(&self, key: &LeaseKey) -> Option<FencingToken>;

    /// The ttl that the cases ask for; some ask for twice as long. Where time is moved, take a long one (30 s), so that a
    /// slow machine makes no difference; where it is waited for, the shortest honest one.
    fn ttl(&self) -> Duration;

    /// How many rounds a race has. Fewer than the default where a request is slow or costs money.
    fn rounds(&self) -> u32 {
        50
    }
}

/// Why a harness cannot do what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Impossible {
    reason: &'static str,
}

impl Impossible {
    /// It cannot be done, because of `reason`.
    pub const fn because(reason: &'static str) -> Self {
        Self { reason }
    }
}

impl fmt::Display for Impossible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason)
    }
}
