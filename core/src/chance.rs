//! The one room that draws random bits.

use std::fmt::Debug;

/// A source of randomness. Injected, so that a simulation can run on one seed.
pub trait Chance: Debug + Send + Sync + 'static {
    /// Fills `bytes` with random bits, good enough for a secret.
    ///
    /// # Errors
    /// [`ChanceError`] when the source fails; `bytes` is then not to be used.
    fn fill(&self, bytes: &mut [u8]) -> Result<(), ChanceError>;
}

/// The operating system's generator. It is asked anew for every draw and keeps no state in the process, so a fork or a
/// restored snapshot draws other bits.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "has no parts")]
pub struct OsChance;

impl Chance for OsChance {
    #[expect(clippy::disallowed_methods, reason = "the one room that asks the operating system for chance")]
    fn fill(&self, bytes: &mut [u8]) -> Result<(), ChanceError> {
        getrandom::fill(bytes).map_err(|error| ChanceError { source: Box::new(error) })
    }
}

/// A number in [0, 1), for jitter. One half when the source fails: jitter is no secret and must not end a lease.
pub(crate) fn fraction(chance: &dyn Chance) -> f64 {
    let mut bytes = [0; 4];
    match chance.fill(&mut bytes) {
        Ok(()) => f64::from(u32::from_le_bytes(bytes)) / (f64::from(u32::MAX) + 1.0),
        Err(_) => 0.5,
    }
}

/// The source of randomness failed.
#[derive(Debug, thiserror::Error)]
#[error(
    "the source of randomness failed, so no nonce can be drawn: check that the machine offers getrandom or /dev/urandom"
)]
pub struct ChanceError {
    source: Box<dyn std::error::Error + Send + Sync>,
}

impl ChanceError {
    /// An error of a source of the caller's own.
    pub fn new(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { source: source.into() }
    }
}
