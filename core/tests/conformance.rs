//! The contract, clause by clause, on the memory store: with tokens lifted by the clock, and with counted ones.

#![expect(clippy::unwrap_used, reason = "a harness is part of a test")]

use std::sync::Arc;
use std::time::Duration;

use leasehold::record::TokenPolicy;
use leasehold::testing::VirtualClock;
use leasehold::{
    AcquireOutcome, AcquireRequest, AttemptId, BreakHow, FencingToken, LeaseAdmin, LeaseKey, LeaseStore,
    MemoryStore, Nonce, OsChance,
};
use leasehold_conformance::{Harness, Impossible, async_trait};

mod clock_floor {
    leasehold_conformance::suite!(super::Memory::new(super::TokenPolicy::ClockFloor));
}

mod sequential {
    leasehold_conformance::suite!(super::Memory::new(super::TokenPolicy::Sequential { seed: 0 }));
}

/// A memory store of its own for each case, with a clock of its own.
struct Memory {
    store: MemoryStore,
    clock: Arc<VirtualClock>,
}

impl Memory {
    fn new(tokens: TokenPolicy) -> Self {
        let clock = Arc::new(VirtualClock::new());
        Self { store: MemoryStore::new().with_clock(clock.clone()).with_tokens(tokens), clock }
    }
}

#[async_trait]
impl Harness for Memory {
    type Store = MemoryStore;

    async fn store(&self) -> MemoryStore {
        self.store.clone()
    }

    async fn after_restart(&self) -> MemoryStore {
        MemoryStore::new()
    }

    async fn age(&self, _key: &LeaseKey, by: Duration) {
        self.clock.jump(by);
    }

    async fn expire(&self, _key: &LeaseKey) {
        self.clock.jump(self.store.profile().max_ttl);
    }

    async fn usurp(&self, key: &LeaseKey) {
        let token = self.stored_token(key).await.expect("there is a grant to take over");
        self.store.break_lease(key, token, BreakHow::Immediate).await.unwrap();
        let (nonce, attempt) = (Nonce::draw(&OsChance).unwrap(), AttemptId::draw(&OsChance).unwrap());
        let ask = AcquireRequest::new(key.clone(), nonce, attempt, self.ttl());
        let outcome = self.store.acquire(&ask).await.unwrap();
        assert!(matches!(outcome, AcquireOutcome::Granted(_)), "{outcome:?}");
    }

    async fn delete_record(&self, key: &LeaseKey) -> Result<(), Impossible> {
        self.store.delete_record(key);
        Ok(())
    }

    async fn stored_token(&self, key: &LeaseKey) -> Option<FencingToken> {
        self.store.inspect(key, Duration::from_secs(1)).await.unwrap().token
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(30)
    }
}
