//! Clocks to script, seeded chance, and a store that fails on purpose. Behind the feature `testing`.
//!
//! With Tokio's time paused, a test of hours runs in milliseconds:
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use leasehold::testing::{SeededChance, VirtualClock};
//! use leasehold::{LeaseKey, LeaseOptions, Leases, MemoryStore};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let clock = Arc::new(VirtualClock::new());
//! let store = Arc::new(MemoryStore::new().with_clock(clock.clone()));
//! let chance = Arc::new(SeededChance::new(42));
//! let leases = Leases::with_parts(store, LeaseOptions::default(), clock.clone(), chance)?;
//! let lease = leases.acquire(&LeaseKey::new("k")?).await?;
//! tokio::time::sleep(Duration::from_secs(3600)).await;
//! assert!(lease.is_held());
//! clock.jump_boot(Duration::from_secs(60));
//! assert!(!lease.is_held(), "the machine was suspended for two ttls");
//! # Ok(())
//! # }
//! ```

mod chance;
mod clock;
mod faults;

pub use chance::SeededChance;
pub use clock::VirtualClock;
pub use faults::{Fault, FaultyStore, Verb};
