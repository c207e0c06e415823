#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod acquire;
mod attempts;
#[cfg(feature = "blocking")]
pub mod blocking;
mod chance;
mod clock;
mod error;
mod gaps;
mod holder;
mod keeper;
mod key;
mod lease;
mod leases;
mod manual;
mod memory;
mod nonce;
mod options;
mod profile;
mod queue;
pub mod record;
mod renewals;
mod saved;
mod store;
mod tasks;
#[cfg(feature = "testing")]
pub mod testing;
mod thread;
mod timing;
mod token;
mod validity;

pub use chance::{Chance, ChanceError, OsChance};
pub use clock::{Clock, Deadline, Reading, Sleep, SystemClock};
pub use error::{Effect, StoreError, StoreErrorKind};
pub use holder::{Holder, HolderError};
pub use key::{KeyError, LeaseKey};
pub use lease::{Lease, LeaseView};
pub use leases::{AcquireError, Contention, Leases, ResumeError, RunError, ShutdownError, TryAcquire};
pub use manual::{ManualLease, ManualLeases, RenewError};
pub use memory::MemoryStore;
pub use nonce::{AttemptId, Nonce};
pub use options::{LeaseOptions, LeaseOptionsBuilder, OnDrop, OptionsError};
pub use profile::{Scope, StoreProfile, Timing, TokenOrigin};
pub use saved::SavedLease;
pub use store::{
    AcquireOutcome, AcquireRequest, BreakHow, BreakOutcome, Finding, Grant, GrantState, Granted, Held,
    LeaseAdmin, LeaseStore, Observation, ReleaseOutcome, ReleaseRequest, RenewOutcome, RenewRequest,
    Severity,
};
pub use thread::OnThreadError;
pub use timing::grace;
pub use token::{FencingToken, TokenError};
pub use validity::{LeaseState, LeaseStatus, LostReason, StatusWatch};
