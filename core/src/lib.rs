#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod chance;
mod clock;
mod error;
mod holder;
mod key;
mod memory;
mod nonce;
mod profile;
pub mod record;
mod store;
mod timing;
mod token;

pub use chance::{Chance, ChanceError, OsChance};
pub use clock::{Clock, Deadline, Reading, Sleep, SystemClock};
pub use error::{Effect, StoreError, StoreErrorKind};
pub use holder::{Holder, HolderError};
pub use key::{KeyError, LeaseKey};
pub use memory::MemoryStore;
pub use nonce::{AttemptId, Nonce};
pub use profile::{Scope, StoreProfile, Timing, TokenOrigin};
pub use store::{
    AcquireOutcome, AcquireRequest, BreakHow, BreakOutcome, Finding, Grant, GrantState, Granted, Held, LeaseAdmin,
    LeaseStore, Observation, ReleaseOutcome, ReleaseRequest, RenewOutcome, RenewRequest, Severity,
};
pub use timing::grace;
pub use token::{FencingToken, TokenError};
