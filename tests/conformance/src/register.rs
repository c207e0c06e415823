use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold::FencingToken;

/// A resource that turns stale holders away: one number in memory, guarded by the highest token that it has seen.
///
/// Compare and write are one step. It keeps its history, so that a race can be judged afterwards. What a fence in a
/// database does, in a few lines:
///
/// ```
/// use leasehold::FencingToken;
/// use leasehold_conformance::FencedRegister;
///
/// let (old, new) = (FencingToken::try_from(7_u64)?, FencingToken::try_from(8_u64)?);
/// let register = FencedRegister::default();
/// assert_eq!(register.claim(old), Ok(0));
/// assert_eq!(register.claim(new), Ok(0));
/// assert!(register.write(old, 1).is_err(), "a newer holder has been here");
/// assert_eq!(register.write(new, 1), Ok(()));
/// assert_eq!((register.value(), register.stale_rejections()), (1, 1));
/// # Ok::<(), leasehold::TokenError>(())
/// ```
#[derive(Debug, Default)]
pub struct FencedRegister {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    highest: Option<FencingToken>,
    value: u64,
    history: Vec<FencedWrite>,
    stale: u64,
}

/// One write that a [`FencedRegister`] took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FencedWrite {
    /// The writer's token.
    pub token: FencingToken,
    /// What was written.
    pub value: u64,
}

/// A [`FencedRegister`] has seen a higher token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StaleToken {
    /// The token that was turned away.
    pub token: FencingToken,
    /// The highest token seen.
    pub highest: FencingToken,
}

impl FencedRegister {
    /// Advances the fence to `token` and reads. A new holder does this before anything else: from then on no earlier holder
    /// can change what it has read.
    ///
    /// # Errors
    /// [`StaleToken`] when a higher token has been seen.
    pub fn claim(&self, token: FencingToken) -> Result<u64, StaleToken> {
        let mut inner = self.lock();
        inner.admit(token)?;
        Ok(inner.value)
    }

    /// Advances the fence to `token` and writes.
    ///
    /// # Errors
    /// [`StaleToken`] when a higher token has been seen; nothing is written.
    pub fn write(&self, token: FencingToken, value: u64) -> Result<(), StaleToken> {
        let mut inner = self.lock();
        inner.admit(token)?;
        inner.value = value;
        inner.history.push(FencedWrite { token, value });
        Ok(())
    }

    /// What it holds; 0 at first.
    pub fn value(&self) -> u64 {
        self.lock().value
    }

    /// Every write that it took, in their order.
    pub fn history(&self) -> Vec<FencedWrite> {
        self.lock().history.clone()
    }

    /// How often it has turned a stale token away.
    pub fn stale_rejections(&self) -> u64 {
        self.lock().stale
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No step leaves it half changed, so a panic elsewhere has not spoilt it.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn admit(&mut self, token: FencingToken) -> Result<(), StaleToken> {
        match self.highest {
            Some(highest) if token < highest => {
                self.stale += 1;
                Err(StaleToken { token, highest })
            }
            _ => {
                self.highest = Some(token);
                Ok(())
            }
        }
    }
}

impl fmt::Display for StaleToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "token {} is stale, {} has been seen: stop, another holds the lease",
            self.token, self.highest
        )
    }
}

impl std::error::Error for StaleToken {}
