#![doc = include_str!("../README.md")]

pub mod cases;
mod clause;
mod cut;
mod harness;
mod race;
mod register;
mod scene;
mod suite;

/// What a [`Harness`] is implemented with, so that its crate need not depend on it.
pub use async_trait::async_trait;

pub use clause::Clause;
pub use harness::{Harness, Impossible};
pub use register::{FencedRegister, FencedWrite, StaleToken};
pub use suite::{Case, PROFILE_ENTRIES, ProfileEntry, run};
