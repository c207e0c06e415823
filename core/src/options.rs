use std::time::Duration;

use crate::holder::Holder;
use crate::profile::StoreProfile;

/// How leases are taken and kept. Valid by construction.
///
/// ```
/// use std::time::Duration;
/// use leasehold::LeaseOptions;
///
/// let options = LeaseOptions::builder().ttl(Duration::from_secs(20)).build()?;
/// assert_eq!(options.ttl(), Duration::from_secs(20));
/// assert!(LeaseOptions::builder().ttl(Duration::ZERO).build().is_err());
/// # Ok::<(), leasehold::OptionsError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseOptions {
    ttl: Duration,
    holder: Holder,
    max_hold: Option<Duration>,
    hold_at_least: Duration,
    on_drop: OnDrop,
}

impl LeaseOptions {
    /// The ttl of the defaults: 30 s.
    pub const DEFAULT_TTL: Duration = Duration::from_secs(30);
    /// The shortest ttl that any store takes: 1 s.
    pub const MIN_TTL: Duration = Duration::from_secs(1);
    /// The longest ttl that any store takes: 24 h.
    pub const MAX_TTL: Duration = Duration::from_secs(24 * 60 * 60);

    /// Begins with the defaults.
    pub fn builder() -> LeaseOptionsBuilder {
        LeaseOptionsBuilder { options: Self::default() }
    }

    /// How long a grant lasts unless it is renewed. A crashed holder's key is free again after this time.
    pub const fn ttl(&self) -> Duration {
        self.ttl
    }

    /// The label that others see.
    pub const fn holder(&self) -> &Holder {
        &self.holder
    }

    /// The longest time for which one grant is kept.
    pub const fn max_hold(&self) -> Option<Duration> {
        self.max_hold
    }

    /// The shortest time for which one grant keeps others away.
    pub const fn hold_at_least(&self) -> Duration {
        self.hold_at_least
    }

    /// What becomes of a lease whose guard is dropped.
    pub const fn on_drop(&self) -> OnDrop {
        self.on_drop
    }

    pub(crate) fn check_against(&self, profile: &StoreProfile) -> Result<(), OptionsError> {
        check_ttl(self.ttl, profile)
    }
}

pub(crate) fn check_ttl(ttl: Duration, profile: &StoreProfile) -> Result<(), OptionsError> {
    if ttl < profile.min_ttl || ttl > profile.max_ttl {
        let (store, min, max) = (profile.name, profile.min_ttl, profile.max_ttl);
        return Err(OptionsError::TtlNotInStore { ttl, store, min, max });
    }
    Ok(())
}

impl Default for LeaseOptions {
    /// A ttl of 30 s, the holder label `host:pid`, released on drop.
    fn default() -> Self {
        Self {
            ttl: Self::DEFAULT_TTL,
            holder: Holder::default(),
            max_hold: None,
            hold_at_least: Duration::ZERO,
            on_drop: OnDrop::default(),
        }
    }
}

/// What becomes of a lease whose guard is dropped without [`Lease::release`](crate::Lease::release).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnDrop {
    /// The keeper releases it in the background, for at most 10 s; after a panic it expires.
    #[default]
    Release,
    /// It expires by itself.
    Expire,
}

/// Makes [`LeaseOptions`].
#[derive(Clone, Debug)]
#[must_use = "build() makes the options"]
pub struct LeaseOptionsBuilder {
    options: LeaseOptions,
}

impl LeaseOptionsBuilder {
    /// How long a grant lasts unless renewed. Default 30 s.
    ///
    /// Choose at least three times the longest pause that the lease is to survive: a stalled executor, a slow store.
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.options.ttl = ttl;
        self
    }

    /// The label that others see. Default `host:pid`.
    pub fn holder(mut self, holder: Holder) -> Self {
        self.options.holder = holder;
        self
    }

    /// Ends every lease this long after its grant, renewed or not: a bound on work that hangs. Default none.
    pub const fn max_hold(mut self, max_hold: Duration) -> Self {
        self.options.max_hold = Some(max_hold);
        self
    }

    /// Keeps others away for at least this long after the grant, however soon the work is done: a released lease is renewed
    /// until then. For jobs that several machines start at about the same time. Default zero.
    pub const fn hold_at_least(mut self, hold_at_least: Duration) -> Self {
        self.options.hold_at_least = hold_at_least;
        self
    }

    /// What becomes of a lease whose guard is dropped. Default [`OnDrop::Release`].
    pub const fn on_drop(mut self, on_drop: OnDrop) -> Self {
        self.options.on_drop = on_drop;
        self
    }

    /// The options.
    ///
    /// # Errors
    /// [`OptionsError`] names the option and its range.
    pub fn build(self) -> Result<LeaseOptions, OptionsError> {
        let options = self.options;
        if options.ttl < LeaseOptions::MIN_TTL || options.ttl > LeaseOptions::MAX_TTL {
            return Err(OptionsError::TtlOutOfRange { ttl: options.ttl });
        }
        if let Some(max_hold) = options.max_hold {
            if max_hold.is_zero() {
                return Err(OptionsError::NoMaxHold);
            }
            if options.hold_at_least > max_hold {
                let hold_at_least = options.hold_at_least;
                return Err(OptionsError::HoldAtLeastTooLong { hold_at_least, max_hold });
            }
        }
        Ok(options)
    }
}

/// Options that contradict themselves or the store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// `hold_at_least` without a keeper to see to it.
    #[error(
        "hold_at_least needs a keeper, and leases in manual mode have none: leave it out, and let the lease expire instead of releasing it"
    )]
    HoldAtLeastNeedsKeeper,
    /// `hold_at_least` is longer than `max_hold`.
    #[error(
        "hold_at_least ({hold_at_least:?}) must not be longer than max_hold ({max_hold:?}): shorten the one or raise the other"
    )]
    HoldAtLeastTooLong {
        /// What was asked.
        hold_at_least: Duration,
        /// Its bound.
        max_hold: Duration,
    },
    /// `max_hold` is zero.
    #[error("max_hold must be longer than zero: leave it out to hold without a bound")]
    NoMaxHold,
    /// The ttl is outside what this store takes.
    #[error(
        "the store `{store}` takes a ttl from {min:?} to {max:?} and not {ttl:?}: choose one in that range"
    )]
    TtlNotInStore {
        /// What was asked.
        ttl: Duration,
        /// The store's name.
        store: &'static str,
        /// Its shortest ttl.
        min: Duration,
        /// Its longest ttl.
        max: Duration,
    },
    /// The ttl is outside what any store takes.
    #[error(
        "a ttl lies between 1s and 24h and not at {ttl:?}: 30s suits most work, since a held lease is renewed as long as it is needed"
    )]
    TtlOutOfRange {
        /// What was asked.
        ttl: Duration,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Scope, Timing, TokenOrigin};

    #[test]
    fn what_cannot_work_is_refused_when_built() {
        let build = |ttl: u64| LeaseOptions::builder().ttl(Duration::from_secs(ttl)).build();
        assert_eq!(build(0), Err(OptionsError::TtlOutOfRange { ttl: Duration::ZERO }));
        assert!(build(1).is_ok() && build(24 * 60 * 60).is_ok());
        let ten_years = 10 * 365 * 24 * 60 * 60;
        assert_eq!(
            build(ten_years),
            Err(OptionsError::TtlOutOfRange { ttl: Duration::from_secs(ten_years) })
        );
        let held =
            LeaseOptions::builder().max_hold(Duration::from_secs(5)).hold_at_least(Duration::from_secs(6));
        assert!(matches!(held.build(), Err(OptionsError::HoldAtLeastTooLong { .. })));
        assert_eq!(LeaseOptions::builder().max_hold(Duration::ZERO).build(), Err(OptionsError::NoMaxHold));
    }

    #[test]
    fn the_store_has_the_last_word_on_the_ttl() {
        let profile = StoreProfile::new("shop", Timing::Server, TokenOrigin::Record, Scope::Region);
        let options = LeaseOptions::builder().ttl(Duration::from_secs(4)).build().unwrap();
        let error = options.check_against(&profile).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the store `shop` takes a ttl from 5s to 86400s and not 4s: choose one in that range"
        );
        assert_eq!(LeaseOptions::default().check_against(&profile), Ok(()));
    }
}
