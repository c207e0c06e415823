//! A memory store that fails as scripted, a clock for the store, and as many holders with clocks of their own as wanted.
//! Tokio's time is paused: hours pass in milliseconds.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "helpers; each test file uses its part")]

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use leasehold::testing::{FaultyStore, SeededChance, Verb, VirtualClock};
use leasehold::{Clock, Lease, LeaseKey, LeaseOptions, LeaseStore, Leases, MemoryStore, Observation};

pub const TTL: Duration = Duration::from_secs(30);

pub struct Stage {
    pub server: Arc<VirtualClock>,
    pub memory: MemoryStore,
    seeds: SeededChance,
}

pub struct Actor {
    pub clock: Arc<VirtualClock>,
    pub store: FaultyStore<MemoryStore>,
    pub leases: Leases,
}

impl Stage {
    /// Chance comes from `LEASEHOLD_SEED`, or from a seed of the moment; it is printed, and shown when the test fails.
    pub fn new() -> Self {
        let server = Arc::new(VirtualClock::new());
        Self {
            memory: MemoryStore::new().with_clock(server.clone()),
            server,
            seeds: SeededChance::new(seed()),
        }
    }

    pub fn actor(&self) -> Actor {
        self.actor_with(LeaseOptions::default())
    }

    pub fn actor_with(&self, options: LeaseOptions) -> Actor {
        let clock = Arc::new(VirtualClock::new());
        let store = FaultyStore::new(self.memory.clone(), clock.clone());
        let chance = Arc::new(SeededChance::new(self.seeds.next_u64()));
        let leases = Leases::with_parts(Arc::new(store.clone()), options, clock.clone(), chance).unwrap();
        Actor { clock, store, leases }
    }

    pub async fn look(&self) -> Observation {
        self.memory.inspect(key(), Duration::from_secs(1)).await.unwrap()
    }

    pub async fn is_free(&self) -> bool {
        self.look().await.held.is_none()
    }
}

fn seed() -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    let seed = *SEED.get_or_init(|| {
        let given = std::env::var("LEASEHOLD_SEED").ok().and_then(|seed| seed.parse().ok());
        given.unwrap_or_else(|| leasehold::SystemClock.read().unix_ms())
    });
    println!("run again with LEASEHOLD_SEED={seed}");
    seed
}

impl Actor {
    pub async fn lease(&self) -> Lease {
        self.leases.acquire(key()).await.unwrap()
    }

    pub fn renewals(&self) -> usize {
        self.store.requests(Verb::Renew)
    }
}

pub fn key() -> &'static LeaseKey {
    static KEY: OnceLock<LeaseKey> = OnceLock::new();
    KEY.get_or_init(|| LeaseKey::new("k").unwrap())
}

#[expect(clippy::disallowed_methods, reason = "Tokio's time is paused: nobody waits")]
pub async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

pub const fn seconds(number: u64) -> Duration {
    Duration::from_secs(number)
}

/// How much of Tokio's time `future` takes.
#[expect(clippy::disallowed_methods, reason = "Tokio's time is paused")]
pub async fn timed<T>(future: impl Future<Output = T>) -> (T, Duration) {
    let began = tokio::time::Instant::now();
    let output = future.await;
    (output, began.elapsed())
}
